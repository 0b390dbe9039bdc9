"""Puts a rank's state back from its host's memory.

The agent says, in answer to the rank's hello, whether there is anything to restore and in which
slot it lies. The rank waits for that answer only when it needs it, so that groups are built and the
model is made meanwhile.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from everstep.core.errors import CorruptData, NotFoundError
from everstep.data.loader import DataState
from everstep.memory.layout import read_fence, slot_path
from everstep.memory.reader import SlotReader
from everstep.train.channel import AgentChannel
from everstep.train.endings import RestoreFailedError
from everstep.train.environment import RankEnvironment
from everstep.train.snapshots import SlotSource
from everstep.train.state import TrackedState

# The agent brings a plan's snapshot into memory before it forks us, or while we start: from the
# object store that can take minutes for large states.
RESTORE_WAIT_S: Final = 900.0
_ANSWERS: Final = frozenset({"fresh", "slot_ready", "restore_failed"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What the agent said: restore ``step`` from ``slot``, or begin afresh (``slot`` None)."""

    slot: int | None = None
    step: int = 0
    source_kind: str = "fresh"
    problems: tuple[str, ...] = ()


def wait_for_plan(channel: AgentChannel) -> Plan:
    """Return the agent's answer to the hello; bare runs begin afresh.

    Raises:
        RestoreFailedError: the agent could not bring the state, or never answered.
    """
    if channel.is_bare:
        return Plan()
    frame = channel.wait_for(_ANSWERS, timeout_s=RESTORE_WAIT_S)
    problems = tuple(str(item) for item in frame.get("problems", ()))
    if frame["kind"] == "restore_failed":
        why = "; ".join(problems)
        raise RestoreFailedError(f"no source of the restore plan could be used: {why}")
    if frame["kind"] == "fresh":
        return Plan(problems=problems)
    return Plan(
        slot=int(frame["slot"]),
        step=int(frame["step"]),
        source_kind=str(frame.get("source_kind", "OWN_MEMORY")),
        problems=problems,
    )


def refuse_fenced(environment: RankEnvironment) -> None:
    """Refuse to write on a host that was fenced at a later generation.

    Raises:
        RestoreFailedError: it was; whatever started this rank was late.
    """
    assert environment.memory_dir is not None, "a bare run writes nothing"
    fence = read_fence(environment.memory_dir, environment.job_id)
    if fence > environment.generation:
        raise RestoreFailedError(
            f"rank {environment.rank} belongs to generation {environment.generation}, but this "
            f"host is fenced at {fence}"
        )


class Restorer:
    """Restores in two parts: state when it is tracked, random states before the first batch.

    Building and warming up may draw random numbers, so those states must come last.
    """

    def __init__(self, directory: Path, plan: Plan) -> None:
        assert plan.slot is not None, "there is nothing to restore"
        self._path = slot_path(directory, plan.slot)
        self._plan = plan
        self._reader: SlotReader | None = None

    def restore(self, state: TrackedState, *, rank: int, world_size: int) -> DataState:
        """Fill the tracked state and return the data position.

        Raises:
            RestoreFailedError: says what does not fit or is damaged.
        """
        try:
            reader = SlotReader(self._path)
        except (NotFoundError, CorruptData) as error:
            raise RestoreFailedError(str(error)) from None
        header = reader.header
        expected = (self._plan.step, rank, world_size)
        got = (header.step, header.rank, header.world_size)
        if got != expected:
            raise RestoreFailedError(
                f"{self._path}: expected (step, rank, world size) {expected}, got {got}"
            )
        state.restore(SlotSource(reader))
        self._reader = reader
        return DataState.from_json(header.data_state)

    def restore_randomness(self, state: TrackedState) -> None:
        """Put the random states back and let go of the slot."""
        assert self._reader is not None, "restore comes first"
        state.restore_randomness(SlotSource(self._reader))
        self._reader.close()
