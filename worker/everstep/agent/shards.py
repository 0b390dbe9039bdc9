"""The shards of one step on one host: what is stored already, and what is still to come.

Both survive the agent as small files: batches until the registry has answered, uploads by parts
until they are through.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import msgspec


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredShard:
    """One rank's object (``Shard`` on the wire)."""

    rank: int
    uri: str
    bytes: int
    checksum: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardReport:
    """``ReportShards`` on the wire."""

    job_id: str
    step: int
    generation: int
    host_id: str
    world_size: int
    shards: tuple[StoredShard, ...]
    data_state: str
    at_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardBatch:
    """A step's shards of this host; ``expected`` are its ranks."""

    job_id: str
    generation: int
    step: int
    world_size: int
    data_state: str
    expected: tuple[int, ...]
    shards: tuple[StoredShard, ...] = ()

    @property
    def key(self) -> tuple[str, int, int]:
        """What there is one batch of."""
        return (self.job_id, self.generation, self.step)

    @property
    def complete(self) -> bool:
        """Whether every rank's shard is stored."""
        return {shard.rank for shard in self.shards} >= set(self.expected)

    def with_shard(self, shard: StoredShard) -> ShardBatch:
        """Return the batch with one more shard; the same rank's earlier one is replaced."""
        others = (one for one in self.shards if one.rank != shard.rank)
        return replace(self, shards=tuple(sorted((*others, shard), key=lambda one: one.rank)))

    def report(self, host_id: str, at_ms: int) -> ShardReport:
        """Return what the registry is told."""
        return ShardReport(
            job_id=self.job_id,
            step=self.step,
            generation=self.generation,
            host_id=host_id,
            world_size=self.world_size,
            shards=self.shards,
            data_state=self.data_state,
            at_ms=at_ms,
        )


class ShardFiles:
    """Batches on disk, one file each, until the registry has answered."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        directory.mkdir(parents=True, exist_ok=True)

    def save(self, batch: ShardBatch) -> None:
        """Replace the batch's file."""
        path = self._path(batch)
        temporary = path.with_suffix(".new")
        temporary.write_bytes(msgspec.json.encode(batch))
        temporary.replace(path)

    def load(self) -> list[ShardBatch]:
        """Return what an earlier agent left."""
        return [
            msgspec.json.decode(path.read_bytes(), type=ShardBatch)
            for path in sorted(self._directory.glob("*.json"))
        ]

    def delete(self, batch: ShardBatch) -> None:
        """Forget it."""
        self._path(batch).unlink(missing_ok=True)

    def _path(self, batch: ShardBatch) -> Path:
        name = f"{batch.job_id}.gen-{batch.generation}.step-{batch.step:08d}.json"
        return self._directory / name


@dataclass(frozen=True, slots=True, kw_only=True)
class Begun:
    """An upload by parts that the store has been told of; ``checksum`` is of the whole file."""

    key: str
    upload_id: str
    checksum: str
    part_bytes: int

    def fits(self, checksum: str, part_bytes: int) -> bool:
        """Say whether it is an upload of these bytes, cut like this."""
        return (self.checksum, self.part_bytes) == (checksum, part_bytes)


class BegunFiles:
    """Begun uploads on disk, one file each."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        directory.mkdir(parents=True, exist_ok=True)

    def save(self, begun: Begun) -> None:
        """Replace the object's file."""
        path = self._path(begun.key)
        temporary = path.with_suffix(".new")
        temporary.write_bytes(msgspec.json.encode(begun))
        temporary.replace(path)

    def load(self, key: str) -> Begun | None:
        """Return what has begun of an object, None if nothing has."""
        try:
            return msgspec.json.decode(self._path(key).read_bytes(), type=Begun)
        except FileNotFoundError:
            return None

    def delete(self, key: str) -> None:
        """Forget it."""
        self._path(key).unlink(missing_ok=True)

    def _path(self, key: str) -> Path:
        return self._directory / f"{key.replace('/', '+')}.json"  # no id has a plus


def object_key(job_id: str, step: int, generation: int, rank: int) -> str:
    """Return where a rank's shard lies in the object store."""
    return f"jobs/{job_id}/step-{step:08d}/gen-{generation}/rank-{rank:05d}.shard"
