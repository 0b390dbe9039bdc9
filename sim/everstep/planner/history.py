"""What really happened to a run, as the planner needs it to ask "what if": failures, hosts, pace.

Everything is integer milliseconds since the job was submitted. A history says what the hardware
did (which host broke when, and for how long) apart from what the policy of the day made of it
(detection, restart, saves), because a replay keeps the first and changes the second.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Final

from everstep.core.errors import InvalidInput
from everstep.monitor.ledger import Cause

# The monitor's ledger does not name it (yet): its steps are useful however long they take. Here
# what a slow spell adds to them is apart, because a policy can save it.
STRAGGLER: Final = "straggler"
CAUSES: Final = (*(cause.value for cause in Cause), *({STRAGGLER} - {c.value for c in Cause}))

# A restart that nothing broken led to: nothing had to be detected, no save decided what was lost.
PLANNED: Final = frozenset({"pause", "stop", "restart", "resume", "drain", "grow"})

# Below, a single restart is most of the record, and shares of it say nothing about a longer run.
TRAINED_STEPS_MIN: Final = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class LostHost:
    """A host that broke; ``out_ms`` until it could serve again, None: not within the record."""

    host_id: str
    out_ms: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class IdleLoss:
    """A host that broke while it stood by."""

    at_ms: int
    host: LostHost


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrival:
    """A host that was new to the fleet."""

    at_ms: int
    host_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """One end of training, or of a restart, and what it cost.

    Attributes:
        at_ms: when it broke.
        kind: the incident's, or ``pause``, ``stop``, ``restart``, ``resume`` for a person's wish,
            ``drain``, ``grow`` for a planned move.
        lost: hosts that had to be replaced; none if only a rank died.
        replacements: hosts that took over, in the record.
        detection_ms: from the failure to the verdict.
        restart_ms: from the verdict to training, without waits for hosts. Of a restart that was
            itself broken off, what it would usually have taken.
        waiting_ms: of that time, waiting for hosts.
        lost_work_ms: training that had to be done again.
        paused_ms: a person let the job rest so long, or had not begun it again yet.
        rollback: it went on from before a suspect step, which no interval of saves decides.
    """

    at_ms: int
    kind: str
    lost: tuple[LostHost, ...] = ()
    replacements: tuple[str, ...] = ()
    detection_ms: int = 0
    restart_ms: int = 0
    waiting_ms: int = 0
    lost_work_ms: int = 0
    paused_ms: int = 0
    rollback: bool = False

    @property
    def planned(self) -> bool:
        """Whether it was one that nothing broken led to."""
        return self.kind in PLANNED


@dataclass(frozen=True, slots=True, kw_only=True)
class Spell:
    """From ``begin_ms`` to ``end_ms`` steps took ``factor`` times as long as usual."""

    begin_ms: int
    end_ms: int
    factor: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Cadence:
    """From a moment on, saves in memory are ``interval_ms`` of work apart, and so on."""

    at_ms: int
    interval_ms: int
    stored_every_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """One run.

    Attributes:
        job_id: of the run.
        wall_ms: length of the record.
        launch_waiting_ms: waits for hosts before the first training.
        startup_ms: the rest of the time before the first training.
        finish_ms: after the last step, at the end of a run.
        step_ms: usual time of a step, without the stall of a save.
        interval_ms: work between two saves in memory, at first.
        stall_ms: what each of them takes.
        stored_every_ms: work between two checkpoints in the object store; 0: none.
        stored_after_ms: from the end of a checkpoint's step until it is complete.
        hosts: that served first.
        spares: that stood by at the begin.
        replicas: data-parallel degree.
        failures: in order.
        idle_losses: in order.
        arrivals: in order.
        spells: in order, apart from each other.
        cadences: changes of the interval, when they came into force; in order.
        measured: cause -> ms, as observed; sums to ``wall_ms``.
        notes: what the record does not tell, and what stands in for it.
        untold: what of the run's course a replay leaves out.
    """

    job_id: str
    wall_ms: int
    launch_waiting_ms: int = 0
    startup_ms: int = 0
    finish_ms: int = 0
    step_ms: int
    interval_ms: int
    stall_ms: int = 0
    stored_every_ms: int = 0
    stored_after_ms: int = 0
    hosts: tuple[str, ...]
    spares: tuple[str, ...] = ()
    replicas: int = 1
    failures: tuple[Failure, ...] = ()
    idle_losses: tuple[IdleLoss, ...] = ()
    arrivals: tuple[Arrival, ...] = ()
    spells: tuple[Spell, ...] = ()
    cadences: tuple[Cadence, ...] = ()
    measured: Mapping[str, int]
    notes: tuple[str, ...] = ()
    untold: tuple[str, ...] = ()

    @property
    def goodput(self) -> float:
        """Return the observed share of useful time."""
        return self.measured.get(Cause.USEFUL, 0) / self.wall_ms if self.wall_ms else 0.0

    def cycle_ms(self, at_ms: int) -> int:
        """Return the time from save to save in memory that was in force at a moment."""
        changed = [one.interval_ms for one in self.cadences if one.at_ms <= at_ms]
        return (changed[-1] if changed else self.interval_ms) + self.stall_ms

    @property
    def unplanned(self) -> tuple[Failure, ...]:
        """Return what nobody asked for."""
        return tuple(failure for failure in self.failures if not failure.planned)


def checked(history: History) -> History:
    """Return the history if something can be learnt from it.

    Raises:
        InvalidInput: with one sentence that says why not.
    """
    where = f"the record of {history.job_id}"
    if history.step_ms <= 0 or history.wall_ms < TRAINED_STEPS_MIN * history.step_ms:
        raise InvalidInput(
            f"{where} is too short: fewer than {TRAINED_STEPS_MIN} steps; let the run go on first"
        )
    if not history.hosts:
        raise InvalidInput(f"{where} is too short: the job has not been given any hosts yet")
    if not history.unplanned and not history.spells:
        raise InvalidInput(
            f"{where} has no failures and no slow spells: there is nothing that another policy "
            "would have changed"
        )
    total = sum(history.measured.values())
    if total != history.wall_ms:
        raise InvalidInput(
            f"{where} does not add up: its causes sum to {total} ms of {history.wall_ms} ms"
        )
    return history


def usual_ms(values: Sequence[int]) -> int:
    """Return the median of some times; 0 of none."""
    return round(median(values)) if values else 0


def with_whole_restarts(failures: Sequence[Failure], broken_off: frozenset[int]) -> list[Failure]:
    """Give restarts that were broken off the time they would usually have taken.

    Args:
        failures: in order.
        broken_off: indices of those whose restart ended before training.
    """
    whole = [
        f.restart_ms for i, f in enumerate(failures) if i not in broken_off and not f.planned
    ] or [f.restart_ms for i, f in enumerate(failures) if i not in broken_off]
    usual = usual_ms(whole)
    return [
        replace(failure, restart_ms=max(failure.restart_ms, usual)) if i in broken_off else failure
        for i, failure in enumerate(failures)
    ]
