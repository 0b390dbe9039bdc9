"""Reads a checkpoint's objects: checks them, or puts the model's tensors together in one file."""

from __future__ import annotations

import json
import math
import signal
import struct
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Annotated, Any, Final

import msgspec
import xxhash

from everstep.core.errors import CorruptData, InvalidInput, NotFoundError
from everstep.core.ports import ObjectStore
from everstep.memory.reader import SlotReader
from everstep.memory.slot import Entry
from everstep.memory.torch_parts import Described, OptimizerWords, described, torch_files
from everstep.objectstore.torch_checkpoint import METADATA_NAME

CHUNK_BYTES: Final = 4 << 20  # few round trips, little memory
EXIT_SIGNAL: Final = 128  # and the signal's number: as every program that a signal ended
ENDING: Final = (signal.SIGTERM, signal.SIGHUP)
Progress = Callable[[int, int], None]  # objects done, of so many

# What safetensors (https://huggingface.co/docs/safetensors) calls torch's dtypes.
SAFETENSORS_DTYPES: Final = {
    "bfloat16": "BF16", "bool": "BOOL", "float16": "F16", "float32": "F32", "float64": "F64",
    "int16": "I16", "int32": "I32", "int64": "I64", "int8": "I8", "uint8": "U8",
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """An object as it was found; ``faults`` are sentences, none when it is good."""

    rank: int
    uri: str
    bytes: int
    tensors: int
    faults: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Verified:
    """A checkpoint as it was found; ``torch_fault`` is why plain torch could not read it."""

    generation: int
    objects: tuple[Checked, ...]
    torch_fault: str


async def verify(store: ObjectStore, manifest: Mapping[str, Any], progress: Progress) -> Verified:
    """Read every object of a checkpoint again, and say what is wrong with which tensor.

    Raises:
        Unavailable: the object store does not answer.
    """
    shards = manifest["shards"]
    checked: list[Checked] = []
    slots: list[Described] = []
    alike: dict[OptimizerWords, OptimizerWords] = {}
    with tempfile.TemporaryDirectory(prefix="everstep-verify-") as folder:
        for number, shard in enumerate(shards, start=1):
            path = Path(folder) / "shard"
            checked.append(await _checked(store, manifest, shard, path))
            if not checked[-1].faults:
                with SlotReader(path) as reader:
                    name = PurePosixPath(shard["uri"]).name
                    slots.append(described(reader.header, name, alike))
            path.unlink(missing_ok=True)
            progress(number, len(shards))
    sound = all(not one.faults for one in checked)
    fault = await _torch_fault(store, manifest, slots) if sound else ""
    return Verified(
        generation=int(manifest["generation"]), objects=tuple(checked), torch_fault=fault
    )


async def _torch_fault(
    store: ObjectStore, manifest: Mapping[str, Any], slots: list[Described]
) -> str:
    """Compare what tells torch about the objects with what they say of themselves."""
    folder = PurePosixPath(manifest["shards"][0]["uri"]).parent
    try:
        expected = torch_files(slots)
    except InvalidInput as error:
        return f"there can be no {METADATA_NAME}: {error}"
    for name, content in expected.items():
        try:
            found = await store.get(f"{folder}/{name}")
        except NotFoundError:
            return f"{folder}/{name}: there is no such object"
        if found != content:
            return f"{folder}/{name} does not describe these objects"
    return ""


async def export(
    store: ObjectStore, manifest: Mapping[str, Any], part: str, out: Path, progress: Progress
) -> int:
    """Write the tensors that were tracked as ``part``, unsharded, as one safetensors file.

    Args:
        store: where the objects are.
        manifest: of the checkpoint.
        part: a name given to ``run.track``.
        out: the file to write; it appears when it is whole.
        progress: told after each object.

    Returns:
        How many tensors were written.

    Raises:
        NotFoundError: nothing was tracked by that name, or an object is gone.
        CorruptData: an object is not what the manifest says.
        InvalidInput: a tensor's parts do not make up the whole, or its dtype has no name there.
        Unavailable: the object store does not answer.
    """
    shards = manifest["shards"]
    with tempfile.TemporaryDirectory(prefix=".everstep-export-", dir=out.parent) as folder:
        with ExitStack() as open_files:
            parts: dict[str, dict[tuple[int, ...], tuple[SlotReader, Entry]]] = {}
            names: set[str] = set()
            for number, shard in enumerate(shards, start=1):
                path = Path(folder) / f"{shard['rank']}.shard"
                fault = await _download(store, shard, path)
                if fault:
                    raise CorruptData(f"{shard['uri']}: {fault}")
                reader = open_files.enter_context(SlotReader(path))
                for entry in reader.header.entries:
                    if entry.torch is None:
                        continue
                    tracked, *inner = entry.torch.path
                    names.add(tracked)
                    if tracked == part:
                        found = parts.setdefault(".".join(inner) or part, {})
                        found.setdefault(entry.torch.offsets, (reader, entry))
                progress(number, len(shards))
            if not parts:
                there = ", ".join(sorted(names)) or "nothing that torch could read"
                raise NotFoundError(f"nothing was tracked as {part!r}; there is {there}")
            unfinished = Path(folder) / "model"
            _write(parts, unfinished)
        unfinished.replace(out)
    return len(parts)


async def _checked(
    store: ObjectStore, manifest: Mapping[str, Any], shard: Mapping[str, Any], path: Path
) -> Checked:
    rank, faults, tensors = int(shard["rank"]), [], 0
    try:
        fault = await _download(store, shard, path)
    except NotFoundError:
        faults.append("there is no such object")
    else:
        tensors, inside = _looked_into(path, (manifest["job_id"], rank, manifest["step"]))
        faults += [*([fault] if fault else []), *inside]
    return Checked(
        rank=rank,
        uri=str(shard["uri"]),
        bytes=int(shard["bytes"]),
        tensors=tensors,
        faults=tuple(faults),
    )


def _looked_into(path: Path, said: tuple[str, int, int]) -> tuple[int, list[str]]:
    """Return how many tensors a slot has, and what is wrong with it."""
    try:
        with SlotReader(path) as reader:
            header = reader.header
            faults = [str(mismatch) for mismatch in reader.mismatches()]
            if (header.job_id, header.rank, header.step) != said:
                faults.append(
                    f"it is step {header.step} of rank {header.rank} of job {header.job_id}"
                )
            return len(header.entries), faults
    except NotFoundError:
        return 0, ["it is no complete snapshot"]
    except CorruptData as error:
        return 0, [str(error).removeprefix(f"{path}: ")]


async def _download(store: ObjectStore, shard: Mapping[str, Any], path: Path) -> str:
    """Fetch an object and compare it with the manifest; "" when it is what it should be."""
    digest, size = xxhash.xxh3_128(), 0
    with path.open("wb") as file:
        async for chunk in store.chunks(str(shard["uri"]), chunk_bytes=CHUNK_BYTES):
            file.write(chunk)
            digest.update(chunk)
            size += len(chunk)
    if size != shard["bytes"]:
        return f"expected {shard['bytes']} bytes, got {size}"
    if digest.hexdigest() != shard["checksum"]:
        return f"expected xxh3-128 {shard['checksum']}, got {digest.hexdigest()}"
    return ""


def _write(
    parts: Mapping[str, Mapping[tuple[int, ...], tuple[SlotReader, Entry]]], path: Path
) -> None:
    import numpy as np  # only where it is needed

    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    end = 0
    for name, found in sorted(parts.items()):
        _, first = next(iter(found.values()))
        begin, end = end, end + _whole_bytes(name, [entry for _, entry in found.values()])
        whole = first.torch.whole if first.torch is not None else ()
        header[name] = {
            "dtype": SAFETENSORS_DTYPES[first.dtype],
            "shape": list(whole),
            "data_offsets": [begin, end],
        }
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)  # aligned, as the format asks
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        file.truncate(8 + len(text) + end)
    if not end:
        return
    data = np.memmap(path, dtype=np.uint8, mode="r+", offset=8 + len(text), shape=(end,))
    for name, found in parts.items():
        begin, stop = header[name]["data_offsets"]
        for reader, entry in found.values():
            assert entry.torch is not None, "only such entries are parts"
            width = entry.bytes // math.prod(entry.shape)
            words = np.dtype(f"V{width}")  # bits are moved, not numbers
            target = data[begin:stop].view(words).reshape(entry.torch.whole)
            place = tuple(
                slice(at, at + size)
                for at, size in zip(entry.torch.offsets, entry.shape, strict=True)
            )
            source = np.frombuffer(reader.tensor(entry), dtype=words).reshape(entry.shape)
            target[place] = source
    data.flush()


def _whole_bytes(name: str, entries: list[Entry]) -> int:
    """Return the bytes of a tensor. Raises InvalidInput when its parts do not make it up."""
    first = entries[0]
    assert first.torch is not None, "only such entries are parts"
    if first.dtype not in SAFETENSORS_DTYPES:
        raise InvalidInput(f"{name} is {first.dtype}, which safetensors has no name for")
    there, wanted = (
        sum(math.prod(one.shape) for one in entries),
        math.prod(first.torch.whole),
    )
    if there != wanted:
        raise InvalidInput(f"{name}: {there} of {wanted} elements are in the checkpoint")
    return wanted * (first.bytes // math.prod(first.shape))


@contextmanager
def cleaned_up() -> Iterator[None]:
    """Leave the block by SystemExit when SIGTERM or SIGHUP comes, to remove unfinished files.

    To be entered in the main thread, around the event loop. Whatever comes while they are being
    removed is ignored: who is impatient would else leave half of them. A signal that the process
    was started to ignore (``nohup``) stays ignored.
    """

    def leave(number: int, frame: object) -> None:
        del frame
        for one in before:
            signal.signal(one, signal.SIG_IGN)
        raise SystemExit(EXIT_SIGNAL + number)

    before = {one: found for one in ENDING if (found := signal.getsignal(one)) != signal.SIG_IGN}
    for one in before:
        signal.signal(one, leave)
    try:
        yield
    finally:
        for one, handler in before.items():
            signal.signal(one, handler)


def manifest_of(data: bytes, known: Mapping[str, Any]) -> dict[str, Any]:
    """Read the manifest of the checkpoint that the registry knows as ``known``.

    Raises:
        CorruptData: it is none, another checkpoint's, or names other objects than were read back.
    """
    uri = PurePosixPath(known["manifest_uri"])
    try:
        manifest: dict[str, Any] = json.loads(data)
        found = msgspec.convert(manifest, _Manifest)
    except (ValueError, msgspec.ValidationError) as error:
        raise CorruptData(f"{uri} is damaged: {error}") from None
    expected = msgspec.convert({**known}, _Manifest)
    mine = (expected.job_id, expected.step, expected.generation)
    if (found.job_id, found.step, found.generation) != mine:
        raise CorruptData(
            f"{uri} is of step {found.step} of job {found.job_id}, made by generation "
            f"{found.generation}: somebody has put another checkpoint's manifest there; "
            f"`everstep checkpoints --job {expected.job_id}` lists other steps"
        )
    if sorted(found.shards) != sorted(expected.shards):
        other = sorted({shard.rank for shard in {*found.shards} ^ {*expected.shards}})
        raise CorruptData(
            f"{uri} names other objects, sizes or checksums of ranks {other} than the registry "
            f"has read back (`everstep checkpoints show {expected.job_id} {expected.step}`): "
            "somebody has changed it"
        )
    return manifest


class _ManifestShard(msgspec.Struct, frozen=True, order=True):
    rank: int
    uri: str
    bytes: int
    checksum: str


class _Manifest(msgspec.Struct, frozen=True):
    """What is needed of a manifest."""

    job_id: str
    step: int
    generation: int
    shards: Annotated[tuple[_ManifestShard, ...], msgspec.Meta(min_length=1)]
