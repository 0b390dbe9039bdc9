"""A job as the fold of its events: its phase, its generation, and how far that generation has come.

::

    launching ──> running <──> recovering ──> waiting_for_hosts
        │            │ ^            │                │
        │            v │            └───────┬────────┘
        │         pausing ──> paused        │
        v            v                      v
      failed     stopping ──> stopped    failed        running ──> succeeded

A run whose ranks all finish on their own while it is pausing or paused has succeeded too.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Final, assert_never

from everstep.controller.events import (
    CheckpointRequested,
    DrainRequested,
    Event,
    GenerationBegun,
    HostsFenced,
    HostsShort,
    IncidentNoted,
    IntervalChanged,
    IntervalInForce,
    JobFailed,
    JobPaused,
    JobRunning,
    JobStopped,
    JobSubmitted,
    JobSucceeded,
    PauseRequested,
    PlacementDecided,
    RanksStarted,
    RestoreDecided,
    StopRequested,
)
from everstep.controller.interval_state import Interval, interval_after
from everstep.core.corrections import PositionRange
from everstep.core.elastic import groups_of
from everstep.core.placement import Placement
from everstep.core.time import HOUR_MS


class Phase(StrEnum):
    """Where a job stands, in words for people."""

    ABSENT = "absent"
    LAUNCHING = "launching"
    RUNNING = "running"
    RECOVERING = "recovering"
    WAITING_FOR_HOSTS = "waiting_for_hosts"
    PAUSING = "pausing"
    PAUSED = "paused"
    STOPPING = "stopping"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    STOPPED = "stopped"


TERMINAL: Final = frozenset({Phase.SUCCEEDED, Phase.FAILED, Phase.STOPPED})
COMING_UP: Final = frozenset({Phase.LAUNCHING, Phase.RECOVERING, Phase.WAITING_FOR_HOSTS})

# Generations that begin although nothing is broken: they stop the run after a last common step.
MOVES: Final = frozenset({"drain", "grow"})

SILENT_CORRUPTION: Final = "silent_corruption"  # kind of the monitor's incident

UNDECIDED: Final = Interval()

_PHASE_OF_CAUSE: Final = {
    "launch": Phase.LAUNCHING,
    "recovery": Phase.RECOVERING,
    "restart": Phase.RECOVERING,
    "resume": Phase.RECOVERING,
    "drain": Phase.RECOVERING,
    "grow": Phase.RECOVERING,
    "pause": Phase.PAUSING,
    "stop": Phase.STOPPING,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovery:
    """The begin of a recovery, and the hosts it was put down to although they answered."""

    at_ms: int
    unsound_hosts: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """Everything the decider needs to know.

    ``placement`` is the newest decided one, of this or an earlier generation; ``fenced``,
    ``placed``, ``restore_step`` and ``started`` are about the current generation only;
    ``hosts_to_fence`` may still run ranks of the one before.
    ``recoveries`` are those of the last hour that the restart budget counts, and
    ``forgiven_at_ms`` is when it last let some go, because the unsound hosts they were put down to
    have been given up. ``stepped`` says that the run has told of a step at least once, which
    scripts without the SDK never do. ``interval`` is how often its ranks snapshot, and why.
    Until it runs again only states from before ``before_step`` will do (0: any). ``skipped`` are
    the batches that are left out, and ``rollbacks`` the first suspect steps that they belong to.
    Whether those in ``questioned`` are to be left out too, a job that is held is to be told.
    ``draining`` are hosts of the placement that the job is to move off, ``drain_kinds`` the kinds
    of incidents that some of them are wanted out for. ``leftovers`` are hosts that it left when its
    layout changed: until it has gone on from a step after ``leftovers_step`` (-1: not known yet),
    its state may lie in their memory only. With fewer data-parallel groups than ``dp_min`` it was
    found not to fit its hosts, until a person starts it again. ``groups`` says how many of them
    made the steps after each of these steps: (step, groups), the newest last. ``blamed`` are hosts
    of the placement that the inventory has been told of, beside the ones to be lost.
    """

    job_id: str = ""
    spec_json: str = ""
    phase: Phase = Phase.ABSENT
    generation: int = 0
    cause: str = ""
    incident_id: str = ""
    lost_hosts: tuple[str, ...] = ()
    lost_why: str = ""
    unsound_hosts: tuple[str, ...] = ()
    from_step: int = -1
    placement: Placement | None = None
    hosts_to_fence: tuple[str, ...] = ()
    fenced: bool = False
    placed: bool = False
    restore_step: int | None = None
    rendezvous_address: str = ""
    rendezvous_port: int = 0
    started: bool = False
    missing: int = 0
    step: int = 0
    stepped: bool = False
    recoveries: tuple[Recovery, ...] = ()
    forgiven_at_ms: int = 0
    interval: Interval = UNDECIDED
    before_step: int = 0
    skipped: tuple[PositionRange, ...] = ()
    rollbacks: tuple[int, ...] = ()
    questioned: tuple[PositionRange, ...] = ()
    draining: tuple[str, ...] = ()
    drain_kinds: Mapping[str, str] = field(default_factory=dict)
    leftovers: tuple[str, ...] = ()
    leftovers_step: int = -1
    dp_min: int = 0
    groups: tuple[tuple[int, int], ...] = ()
    blamed: tuple[str, ...] = ()

    @property
    def live_hosts(self) -> tuple[str, ...]:
        """Hosts of the newest placement that are not known to be lost."""
        if self.placement is None:
            return ()
        return tuple(h for h in self.placement.host_ids if h not in self.lost_hosts)


def phase_after(event: Event, *, cause: str) -> Phase | None:
    """Return the phase that ``event`` leads to, or None if it changes none.

    Args:
        event: any fact.
        cause: what began the event's generation; only a placement, which ends a wait for hosts,
            needs it.
    """
    match event:
        case GenerationBegun():
            return _PHASE_OF_CAUSE[event.cause]
        case PlacementDecided():
            return _PHASE_OF_CAUSE[cause]
        case HostsShort():
            return Phase.WAITING_FOR_HOSTS
        case JobRunning():
            return Phase.RUNNING
        case JobPaused():
            return Phase.PAUSED
        case JobSucceeded():
            return Phase.SUCCEEDED
        case JobFailed():
            return Phase.FAILED
        case JobStopped():
            return Phase.STOPPED
        case _:
            return None


def evolve(job: Job, event: Event) -> Job:
    """Apply a fact; never refuses one."""
    if job.phase in TERMINAL and isinstance(event, GenerationBegun):
        job = _reopened(job)
    phase = phase_after(event, cause=job.cause) or job.phase
    interval = interval_after(job.interval, event)
    if phase is not job.phase or interval is not job.interval:
        job = replace(job, phase=phase, interval=interval)
    return _apply(job, event)


def _reopened(job: Job) -> Job:
    """Forget the hosts, which may serve others by now, and what was held against the job."""
    return replace(
        job,
        placement=None,
        blamed=(),
        lost_hosts=(),
        unsound_hosts=(),
        draining=(),
        drain_kinds={},
        recoveries=(),
        forgiven_at_ms=0,
    )


def _apply(job: Job, event: Event) -> Job:
    match event:
        case JobSubmitted():
            return replace(job, job_id=event.job_id, spec_json=event.spec_json)
        case GenerationBegun():
            return _begin(job, event)
        case HostsFenced():
            return replace(job, fenced=True)
        case PlacementDecided():
            return _place(job, event.placement)
        case DrainRequested():
            kinds = dict.fromkeys(event.hosts, event.kind) if event.kind else {}
            return replace(
                job,
                draining=tuple(sorted({*job.draining, *event.hosts})),
                drain_kinds={**job.drain_kinds, **kinds},
            )
        case HostsShort():
            return replace(job, missing=event.missing)
        case RestoreDecided():
            return replace(
                _without_spent_leftovers(job, event.step),
                groups=_groups_after(job, event.step),
                restore_step=event.step,
                rendezvous_address=event.rendezvous_address,
                rendezvous_port=event.rendezvous_port,
            )
        case RanksStarted():
            return replace(job, started=True)
        case JobRunning() | JobSucceeded():
            stepped = job.stepped or event.step > 0
            return replace(job, step=event.step, stepped=stepped, before_step=0)
        case PauseRequested() | JobFailed() | IncidentNoted():
            return _suspecting(job, event)
        case (
            JobPaused()
            | JobStopped()
            | IntervalChanged()
            | IntervalInForce()
            | StopRequested()
            | CheckpointRequested()
        ):
            return job
        case _:
            assert_never(event)


def _suspecting(job: Job, event: PauseRequested | JobFailed | IncidentNoted) -> Job:
    """Keep what is suspect for when a person has the job go on."""
    if isinstance(event, PauseRequested):
        return replace(job, questioned=event.questioned or job.questioned)
    if isinstance(event, IncidentNoted):
        job = replace(job, blamed=tuple(sorted({*job.blamed, *event.hosts})))
    before_step = event.before_step or job.before_step
    return _without_batches(replace(job, before_step=before_step), event.skipped, before_step)


def _without_batches(job: Job, skipped: tuple[PositionRange, ...], before_step: int) -> Job:
    """Leave batches out from now on, because of which states from ``before_step`` on are bad."""
    if not skipped:
        return job
    return replace(job, skipped=(*job.skipped, *skipped), rollbacks=(*job.rollbacks, before_step))


def _place(job: Job, placement: Placement) -> Job:
    """Take seats; who is not among them is neither lost to the job nor to be left any more."""
    kept = placement.host_set
    leftovers, leftovers_step = job.leftovers, job.leftovers_step
    if job.placement is not None and job.placement.layout != placement.layout:
        leftovers, leftovers_step = (*leftovers, *job.live_hosts), -1
    return replace(
        job,
        leftovers=tuple(sorted({*leftovers} - kept - {*job.lost_hosts})),
        leftovers_step=leftovers_step,
        placement=placement,
        placed=True,
        blamed=(),
        missing=0,
        lost_hosts=tuple(host for host in job.lost_hosts if host not in kept),
        draining=tuple(host for host in job.draining if host in kept),
        drain_kinds={host: kind for host, kind in job.drain_kinds.items() if host in kept},
    )


def _groups_after(job: Job, step: int) -> tuple[tuple[int, int], ...]:
    """Note from which step on another number of groups makes the steps; what is undone goes."""
    if job.placement is None:
        return job.groups
    since = max(step, 0)
    now = groups_of(job.placement.layout)
    kept = tuple(one for one in job.groups if one[0] < since)
    return kept if kept and kept[-1][1] == now else (*kept, (since, now))


def _without_spent_leftovers(job: Job, step: int) -> Job:
    """Let go of hosts that were left before the job had made the step that it now goes on from."""
    if not job.leftovers or job.leftovers_step < 0:
        return replace(job, leftovers_step=step)
    return replace(job, leftovers=()) if step > job.leftovers_step else job


def _begin(job: Job, event: GenerationBegun) -> Job:
    """Enter a generation. Losses of generations that never came up stay lost.

    A host that was lost in generation g while g + 1 was still being placed is in the old placement,
    so it has to be carried along until a placement without it is decided. Whatever begins one, the
    job had better be off the hosts that it is to move off anyway.
    """
    carried, unsound = set(event.lost_hosts), {*event.unsound_hosts, *job.draining}
    lost_why = event.lost_why
    if job.placement is not None and not job.placed:
        carried |= job.placement.host_set.intersection(job.lost_hosts)
        lost_why = lost_why or job.lost_why  # whoever came to it: a person will look at all
        unsound |= job.placement.host_set.intersection(job.unsound_hosts)
    recoveries, forgiven_at_ms = job.recoveries, job.forgiven_at_ms
    if event.cause == "recovery":
        recent = tuple(one for one in recoveries if one.at_ms > event.at_ms - HOUR_MS)
        counted = tuple(
            one for one in recent if not one.unsound_hosts or set(one.unsound_hosts) - carried
        )
        forgiven_at_ms = event.at_ms if len(counted) < len(recent) else forgiven_at_ms
        this = Recovery(at_ms=event.at_ms, unsound_hosts=event.unsound_hosts)
        recoveries = (*counted, this)
    old_hosts = job.placement.host_ids if job.placement is not None else ()
    return replace(
        _without_batches(job, event.skipped, event.before_step),
        questioned=job.questioned if event.cause == "pause" else (),
        generation=event.generation,
        cause=event.cause,
        incident_id=event.incident_id,
        lost_hosts=tuple(sorted(carried)),
        lost_why=lost_why,
        unsound_hosts=tuple(sorted(unsound - carried)),
        from_step=event.from_step,
        hosts_to_fence=tuple([host for host in old_hosts if host not in carried]),
        fenced=not old_hosts,
        placed=False,
        restore_step=None,
        started=False,
        missing=0,
        before_step=event.before_step,
        dp_min=event.dp_min if event.cause == "restart" else max(job.dp_min, event.dp_min),
        recoveries=recoveries,
        forgiven_at_ms=forgiven_at_ms,
    )
