"""What a rank is told at start, from environment variables.

torchrun's variables say who it is among the ranks. Everstep's, which are absent in bare runs, say
which job it serves and how to reach the host's agent and memory.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

import msgspec

from everstep.core.corrections import NO_CORRECTIONS, Corrections
from everstep.core.errors import InvalidInput
from everstep.core.schedule import Schedule, first_schedule
from everstep.core.spec import JobSpec, parse_spec_json
from everstep.memory.layout import rank_dir

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class RankEnvironment:
    """The rank's place, and its host's services if it has any.

    Args:
        rank: 0 to ``world_size`` - 1.
        world_size: ranks in all.
        local_rank: chip on this host.
        rendezvous: whether torchrun's MASTER_ADDR and MASTER_PORT are set.
        job_id: "" in bare runs.
        generation: fencing token of this start; 0 in bare runs.
        spec: of the job; None in bare runs, where the caller gives it.
        agent_socket: where the host's agent listens; None in bare runs.
        memory_dir: the host's snapshot memory; None in bare runs.
        host_ranks: all that share that memory, this one among them.
        replica_count: ranks of other hosts whose copies will lie there.
        seek_position: data position to begin at instead of the restored one; None: as restored.
        schedule: how often to snapshot at first; None: as the spec says.
        corrections: what the run's course was changed by since it began.
    """

    rank: int
    world_size: int
    local_rank: int
    rendezvous: bool
    job_id: str = ""
    generation: int = 0
    spec: JobSpec | None = None
    agent_socket: Path | None = None
    memory_dir: Path | None = None
    host_ranks: tuple[int, ...] = ()
    replica_count: int = 0
    seek_position: int | None = None
    schedule: Schedule | None = None
    corrections: Corrections = NO_CORRECTIONS

    @property
    def is_bare(self) -> bool:
        """Whether no agent looks after this rank."""
        return self.agent_socket is None

    @property
    def rank_dir(self) -> Path:
        """Where the rank's snapshots lie in the host's memory; there is none in bare runs."""
        assert self.memory_dir is not None, "a bare run keeps nothing"
        return rank_dir(self.memory_dir, self.job_id, self.rank)

    def schedule_for(self, spec: JobSpec) -> Schedule:
        """Return how often to snapshot at first."""
        return self.schedule or first_schedule(spec.checkpoint)


def read_environment(env: Mapping[str, str]) -> RankEnvironment:
    """Read the variables.

    Raises:
        InvalidInput: one is not a number, the spec is wrong, or only some of Everstep's are set.
    """
    bare = RankEnvironment(
        rank=_integer(env, "RANK", 0),
        world_size=_integer(env, "WORLD_SIZE", 1),
        local_rank=_integer(env, "LOCAL_RANK", 0),
        rendezvous="MASTER_ADDR" in env and "MASTER_PORT" in env,
    )
    if "EVERSTEP_AGENT_SOCKET" not in env:
        return bare
    needed = ("EVERSTEP_JOB_ID", "EVERSTEP_GENERATION", "EVERSTEP_SPEC", "EVERSTEP_MEMORY_DIR")
    missing = [name for name in needed if name not in env]
    if missing:
        raise InvalidInput(f"EVERSTEP_AGENT_SOCKET is set but not {', '.join(missing)}")
    seek = env.get("EVERSTEP_SEEK_POSITION", "")
    return replace(
        bare,
        job_id=env["EVERSTEP_JOB_ID"],
        generation=_integer(env, "EVERSTEP_GENERATION", 0),
        spec=parse_spec_json(env["EVERSTEP_SPEC"]),
        agent_socket=Path(env["EVERSTEP_AGENT_SOCKET"]),
        memory_dir=Path(env["EVERSTEP_MEMORY_DIR"]),
        host_ranks=_integers(env, "EVERSTEP_HOST_RANKS"),
        replica_count=_integer(env, "EVERSTEP_REPLICA_COUNT", 0),
        seek_position=_integer(env, "EVERSTEP_SEEK_POSITION", 0) if seek else None,
        schedule=_decoded(env, "EVERSTEP_SCHEDULE", Schedule),
        corrections=_decoded(env, "EVERSTEP_CORRECTIONS", Corrections) or NO_CORRECTIONS,
    )


def _decoded(env: Mapping[str, str], name: str, kind: type[T]) -> T | None:
    text = env.get(name, "")
    try:
        return msgspec.json.decode(text, type=kind) if text else None
    except msgspec.MsgspecError as error:
        raise InvalidInput(
            f"environment variable {name} is no {kind.__name__.lower()}: {text!r}: {error}"
        ) from None


def _integers(env: Mapping[str, str], name: str) -> tuple[int, ...]:
    parts = [part for part in env.get(name, "").split(",") if part]
    return tuple(_integer({name: part}, name, 0) for part in parts)


def _integer(env: Mapping[str, str], name: str, default: int) -> int:
    text = env.get(name, str(default))
    try:
        return int(text)
    except ValueError:
        raise InvalidInput(f"environment variable {name} should be an integer, not {text!r}") from (
            None
        )
