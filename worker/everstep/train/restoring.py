"""Puts a rank's state back from its host's memory.

The agent says, in answer to the rank's hello, whether there is anything to restore and in which
slot it lies. The rank waits for that answer only when it needs it, so that groups are built and the
model is made meanwhile.

After the layout has changed there are several slots, of old ranks, and the rank puts its state
together from them (``resharding``).

The rank checks every byte as it takes it, so nobody has checked its own snapshot before: that would
read the state once more. When something is wrong it says so, the agent answers with another source,
and everything is filled again.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Final

import msgspec

from everstep.agent.framing import Frame
from everstep.core.errors import CorruptData, NotFoundError
from everstep.core.placement import Layout
from everstep.core.spec import AuditSpec, JobSpec
from everstep.data.loader import DataState
from everstep.memory.control import Control
from everstep.memory.layout import SLOT_COUNT, control_path, read_fence, slot_path
from everstep.memory.reader import SlotReader
from everstep.memory.slot import invalidate
from everstep.train.channel import AgentChannel
from everstep.train.endings import RestoreFailedError
from everstep.train.environment import RankEnvironment
from everstep.train.resharding import OldSlots, ReshardingSource
from everstep.train.slot_source import THREADS_MAX, SlotDamagedError, SlotSource
from everstep.train.state import TrackedState

# The agent brings a plan's snapshot into memory before it forks us, or while we start: from the
# object store that can take minutes for large states.
RESTORE_WAIT_S: Final = 900.0
_ANSWERS: Final = frozenset({"fresh", "slot_ready", "slots_ready", "restore_failed"})
# Own copy, then what the agent brought and had checked: a third wrong one means that this host's
# memory cannot be relied on.
SLOTS_TRIED_MAX: Final = 3
# Which slot counts as the one that holds the step after a resharding: the other is written first,
# as in a fresh run. Neither holds it, the old ranks' do.
_SPARED_SLOT: Final = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What the agent said: restore ``step`` from ``slot``, or begin afresh (``slot`` None).

    With ``old_slots`` the state is put together from these, and ``slot`` is the one to spare.
    """

    slot: int | None = None
    step: int = 0
    source_kind: str = "fresh"
    problems: tuple[str, ...] = ()
    old_slots: OldSlots | None = None


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
    is_resharded = frame["kind"] == "slots_ready"
    return Plan(
        slot=_SPARED_SLOT if is_resharded else int(frame["slot"]),
        step=int(frame["step"]),
        source_kind=str(frame.get("source_kind", "OWN_MEMORY")),
        problems=problems,
        old_slots=_old_slots(frame) if is_resharded else None,
    )


def _old_slots(frame: Frame) -> OldSlots:
    return OldSlots(
        old=msgspec.convert(frame["old_layout"], Layout),
        new=msgspec.convert(frame["new_layout"], Layout),
        paths={int(one["rank"]): Path(one["path"]) for one in frame["slots"]},
        lost=frozenset(map(int, frame.get("lost", ()))),
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


def require_checkpoint(plan: Plan, audit: AuditSpec) -> None:
    """Check that an audit begins from the step that it is of.

    Raises:
        RestoreFailedError: it does not.
    """
    if plan.slot is None or plan.step != audit.step:
        got = f"step {plan.step}" if plan.slot is not None else "nothing"
        raise RestoreFailedError(
            f"an audit of job {audit.job_id} begins from step {audit.step}, but {got} was brought"
        )


def threads_for(host_ranks: int) -> int:
    """Return how many threads may fill tensors in a rank of a host with so many.

    No batch is trained on meanwhile, but the other ranks restore at the same time.
    """
    cores = len(os.sched_getaffinity(0))
    return max(1, min(THREADS_MAX, cores // max(1, host_ranks)))


class Restorer:
    """Restores in two parts: state when it is tracked, random states where the loop begins.

    Building and warming up may draw random numbers, so those states must come last.

    Args:
        directory: of the rank's slots.
        channel: to the agent, which is told of slots that are damaged.
        threads: see ``SlotSource``.
        is_audit: see ``ReshardingSource``.
    """

    def __init__(
        self, directory: Path, channel: AgentChannel, threads: int = 1, *, is_audit: bool = False
    ) -> None:
        self._is_audit = is_audit
        self._directory = directory
        self._channel = channel
        self._threads = threads
        self._open = contextlib.ExitStack()  # slots, until the random states have been taken
        self._randomness: Callable[[TrackedState], None] | None = None

    def restore(
        self, plan: Plan, state: TrackedState, *, rank: int, world_size: int
    ) -> tuple[Plan, DataState]:
        """Fill the tracked state; returns what was restored in the end and the data position.

        Raises:
            RestoreFailedError: says what does not fit, or why no source could be used.
        """
        for _ in range(SLOTS_TRIED_MAX):
            assert plan.slot is not None, "there is nothing to restore"
            try:
                if plan.old_slots is not None:
                    return self._reshard(plan, plan.old_slots, state, rank, world_size)
                return plan, self._fill(plan, state, rank, world_size)
            except SlotDamagedError as error:
                damage = error
            self._say_bad(plan, damage)
            plan = wait_for_plan(self._channel)
        raise RestoreFailedError(f"{SLOTS_TRIED_MAX} slots in a row were damaged: {damage}")

    def _say_bad(self, plan: Plan, damage: SlotDamagedError) -> None:
        told: dict[str, Any] = {"slot": plan.slot, "step": plan.step, "problem": str(damage)}
        if plan.old_slots is not None:
            paths = plan.old_slots.paths
            told["old_rank"] = next(old for old, path in paths.items() if path == damage.path)
        self._channel.say("slot_bad", **told)

    def _fill(self, plan: Plan, state: TrackedState, rank: int, world_size: int) -> DataState:
        assert plan.slot is not None
        with contextlib.ExitStack() as stack:
            reader = stack.enter_context(_opened(slot_path(self._directory, plan.slot)))
            header = reader.header
            expected = (plan.step, rank, world_size)
            got = (header.step, header.rank, header.world_size)
            if got != expected:
                raise RestoreFailedError(
                    f"{reader.path}: expected (step, rank, world size) {expected}, got {got}"
                )
            with contextlib.closing(SlotSource(reader, self._threads)) as source:
                state.restore(source)
                source.finish()
            self._open = stack.pop_all()
        self._randomness = partial(TrackedState.restore_randomness, source=SlotSource(reader))
        return DataState.from_json(header.data_state)

    def _reshard(
        self, plan: Plan, slots: OldSlots, state: TrackedState, rank: int, world_size: int
    ) -> tuple[Plan, DataState]:
        if slots.new.world_size != world_size:
            raise RestoreFailedError(
                f"the plan's new layout {slots.new} is {slots.new.world_size} ranks, but "
                f"{world_size} were started"
            )
        with contextlib.ExitStack() as stack:
            readers: dict[int, SlotReader] = {}
            for old, path in sorted(slots.paths.items()):
                if path.parent == self._directory:
                    raise RestoreFailedError(
                        f"{path} is to be restored from and written to: move the old ranks' slots "
                        "out of the way before the new ranks start"
                    )
                readers[old] = stack.enter_context(_opened(path))
                if readers[old].step != plan.step:
                    raise RestoreFailedError(
                        f"{path}: expected step {plan.step}, got {readers[old].step}"
                    )
            source = ReshardingSource(readers, slots, rank, self._threads, is_audit=self._is_audit)
            with contextlib.closing(source):
                state.restore(source)
                source.finish()
            self._open = stack.pop_all()
        self._randomness = source.restore_randomness
        self._stand_for(plan.step)
        header = readers[min(readers)].header
        problems = (*plan.problems, *source.problems)
        return replace(plan, problems=problems), DataState.from_json(header.data_state)

    def _stand_for(self, step: int) -> None:
        """Let nobody take own slots for the step, or wait for a copy of them.

        What lies here is another rank's of another layout, and the step is in the old ranks'
        slots, which must stay until every rank holds a newer one twice. So the first snapshot may
        be taken at once.
        """
        for slot in range(SLOT_COUNT):
            invalidate(slot_path(self._directory, slot))
        control = Control(control_path(self._directory))
        control.replicated_step = step
        control.close()

    def restore_randomness(self, state: TrackedState) -> None:
        """Put the random states back, as often as it is called."""
        assert self._randomness is not None, "restore comes first"
        self._randomness(state)

    def close(self) -> None:
        """Let go of the slots; the random states are no longer to be had."""
        self._open.close()


def restorer_for(environment: RankEnvironment, spec: JobSpec, channel: AgentChannel) -> Restorer:
    """Return what restores this rank."""
    threads = threads_for(len(environment.host_ranks))
    is_audit = spec.audit is not None
    return Restorer(environment.rank_dir, channel, threads, is_audit=is_audit)


def _opened(path: Path) -> SlotReader:
    try:
        return SlotReader(path)
    except (NotFoundError, CorruptData) as error:
        raise SlotDamagedError(path, str(error)) from None
