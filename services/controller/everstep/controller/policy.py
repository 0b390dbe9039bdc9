"""What a job needs next, read off its state alone.

The runner (``runner.py``) performs these actions and feeds the answers back as commands. Because
nothing else is remembered, a controller that was killed anywhere carries on by asking again; every
action is idempotent on the other side.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from everstep.controller.commands import RecordFinished, RecoverJob
from everstep.controller.state import MOVES, SILENT_CORRUPTION, TERMINAL, Job, Phase
from everstep.core.elastic import larger_layouts
from everstep.core.placement import Layout
from everstep.core.spec import parse_spec_json
from everstep.core.time import HOUR_MS

NAMED_MAX: Final = 8  # ranks in a sentence; the incident has all of them
# Synchronous steps take all ranks the same time, and what a stall costs differs between pipeline
# stages only; all 2,048 hosts would be as many messages a step, beside recoveries in a hurry.
MEASURED_HOSTS_MAX: Final = 16
# Asked after every event of a job; chosen: more layouts than the live jobs of a controller have.
LAYOUTS_KEPT_MAX: Final = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class Fence:
    """End older ranks on ``hosts``; gracefully means after a last common step.

    ``store``: only what is stored of that step outlives the job.
    """

    generation: int
    hosts: tuple[str, ...]
    graceful: bool
    store: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Ask the inventory for hosts, cordoning the lost ones."""

    generation: int
    lost_hosts: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Ask the registry where to go on from."""

    generation: int
    from_step: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """Tell every host of the placement to start its ranks."""

    generation: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Forget:
    """The job is over: end what still runs and drop its memory."""

    generation: int
    hosts: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Reschedule:
    """Tell the ranks how often to snapshot, until they are seen to do it."""

    generation: int
    version: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Measure:
    """Listen to what the ranks tell of their steps, for as long as somebody wants to know."""

    generation: int
    hosts: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class AwaitSpares:
    """Ask the inventory whether spares can take the seats of ``hosts`` yet."""

    generation: int
    hosts: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class AwaitRoom:
    """Ask the inventory whether the job can have one of these larger layouts yet."""

    generation: int
    layouts: tuple[Layout, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class KeepTwice:
    """While hosts are short, give what only one of ``hosts`` holds a second place among them."""

    generation: int
    hosts: tuple[str, ...]


Action = (
    Fence
    | Place
    | Plan
    | Start
    | Forget
    | Reschedule
    | Measure
    | AwaitSpares
    | AwaitRoom
    | KeepTwice
)


def next_actions(job: Job) -> tuple[Action, ...]:
    """Return what may be done now; several at once where the order does not matter."""
    if job.phase in TERMINAL:
        if job.placement is None:
            return ()
        hosts = (*job.live_hosts, *job.leftovers)
        return (Forget(generation=job.generation + 1, hosts=hosts),)
    if job.phase is Phase.RUNNING:
        return (*_while_running(job), *_awaited(job))
    if job.phase in {Phase.ABSENT, Phase.PAUSED}:
        return ()
    actions: list[Action] = []
    winding_down = job.cause in {"pause", "stop"}
    if not job.fenced:
        graceful = (winding_down or job.cause in MOVES) and not _is_mute(job)
        actions.append(
            Fence(
                generation=job.generation,
                hosts=job.hosts_to_fence,
                graceful=graceful,
                store=graceful and job.cause == "stop",
            )
        )
    if winding_down:
        return tuple(actions)
    if not job.placed:
        # Once hosts are short, the inventory has cordoned the lost ones; what a person has cleared
        # meanwhile must not be cordoned again by a retry.
        waiting = job.phase is Phase.WAITING_FOR_HOSTS
        lost = () if waiting else job.lost_hosts
        actions.append(Place(generation=job.generation, lost_hosts=lost))
        if waiting and job.fenced:
            stay = tuple(host for host in job.hosts_to_fence if host not in job.unsound_hosts)
            if len(stay) > 1:
                actions.append(KeepTwice(generation=job.generation, hosts=stay))
    if job.fenced and job.placed:
        if job.restore_step is None:
            actions.append(Plan(generation=job.generation, from_step=job.from_step))
        elif not job.started:
            actions.append(Start(generation=job.generation))
    return tuple(actions)


def wanted_layouts(job: Job) -> tuple[Layout, ...]:
    """Return the layouts that a job would rather have than its own, the most wanted first."""
    if job.placement is None:
        return ()
    return _larger_layouts(job.spec_json, job.placement.layout)


@lru_cache(maxsize=LAYOUTS_KEPT_MAX)
def _larger_layouts(spec_json: str, now: Layout) -> tuple[Layout, ...]:
    return larger_layouts(parse_spec_json(spec_json), now)


def unsound_reason(job: Job) -> str:
    """Say what the inventory is to write down about the unsound hosts; "" for no special thing.

    One word for all of them: wrong bits before anything else, because that is not forgiven.
    """
    leaving = set(job.unsound_hosts) & set(job.draining)
    kinds = sorted({job.drain_kinds[host] for host in leaving if host in job.drain_kinds})
    if SILENT_CORRUPTION in kinds:
        return SILENT_CORRUPTION
    return kinds[0] if kinds else "drained" if job.cause == "drain" else ""


def _awaited(job: Job) -> tuple[Action, ...]:
    """Wait for better places than the job has."""
    found: list[Action] = []
    if job.draining:
        found.append(AwaitSpares(generation=job.generation, hosts=job.draining))
    layouts = wanted_layouts(job)
    if layouts and not _is_mute(job):
        found.append(AwaitRoom(generation=job.generation, layouts=layouts))
    return tuple(found)


def _while_running(job: Job) -> tuple[Action, ...]:
    """Keep the checkpoint schedule; a mute script hears nothing and tells nothing."""
    interval, hosts = job.interval, measured_hosts(job)
    if not hosts or _is_mute(job) or not (interval.auto or interval.pending):
        return ()
    measure = Measure(generation=job.generation, hosts=hosts)
    if not interval.pending:
        return (measure,)
    return (Reschedule(generation=job.generation, version=interval.schedule.version), measure)


def measured_hosts(job: Job) -> tuple[str, ...]:
    """Return the hosts whose steps are listened to: the first one, and more over the placement."""
    if job.placement is None:
        return ()
    seats = job.placement.hosts
    return tuple(seat.host_id for seat in seats[:: -(-len(seats) // MEASURED_HOSTS_MAX)])


def ended(job: Job) -> str:
    """Say that the job is over, and how to go on with it if it has not succeeded."""
    if job.phase is Phase.SUCCEEDED:
        return f"job {job.job_id!r} has succeeded; launch a new one"
    return (
        f"job {job.job_id!r} has {job.phase}: `everstep jobs restart {job.job_id}` goes on from "
        "its newest checkpoint"
    )


def pause_refusal(job: Job) -> str:
    """Say why the job cannot be paused, or "" if it can.

    A mute script can only be killed: a pause would lose its work and keep its hosts. An audit has
    one step to make, and while it rested the job that it looks at would have no other.
    """
    if parse_spec_json(job.spec_json).audit is not None:
        return (
            f"job {job.job_id!r} is an audit, which ends after one step: `everstep jobs stop "
            f"{job.job_id}` ends it now"
        )
    if job.placement is None or not _is_mute(job):
        return ""
    return (
        f"job {job.job_id!r} runs a script that has reported no step, so a pause would lose its "
        f"work and keep its hosts: `everstep jobs stop {job.job_id}` ends it and frees its hosts"
    )


def last_cause(incident: RecoverJob, job: Job) -> str:
    """Name an incident for a person: kind, ranks, where, and the last line of what was said."""
    seats = job.placement.seats_of(incident.ranks) if job.placement else ()
    where = {seat.host_id for seat in seats}
    hosts = ", ".join(sorted({*incident.hosts, *where} - {""}))
    ranks = ", ".join(str(rank) for rank in incident.ranks[:NAMED_MAX])
    more = f" and {len(incident.ranks) - NAMED_MAX} more" if len(incident.ranks) > NAMED_MAX else ""
    lines = (incident.detail.strip() or incident.reason).strip().splitlines()
    parts = (
        incident.kind or "an incident",
        f"of rank{'s' if len(incident.ranks) > 1 else ''} {ranks}{more}" if ranks else "",
        f"on {hosts}" if hosts else "",
    )
    said = f": {lines[-1].strip()}" if lines else ""
    return " ".join(filter(None, parts)) + said


def odd_end(finished: RecordFinished, job: Job) -> str:
    """Say what is odd about the end of a run whose ranks have all finished; "" for nothing.

    Scripts without the SDK tell no steps, so there is nothing to compare.
    """
    spec = parse_spec_json(job.spec_json)
    untold = spec.is_script and finished.step == 0
    early = not untold and finished.step < spec.last_step
    parts = (
        f"returned at step {finished.step} of {spec.last_step}" if early else "",
        finished.detail,
    )
    return "; ".join(filter(None, parts))


def restart_refusal(job: Job, at_ms: int) -> str:
    """Say why the job may not be restarted once more, or "" if it may."""
    limit = parse_spec_json(job.spec_json).recovery.restarts_per_hour_max
    recent = sum(1 for one in job.recoveries if one.at_ms > at_ms - HOUR_MS)
    if recent < limit:
        return ""
    return (
        f"{recent} recoveries within the last hour reach recovery.restarts_per_hour_max {limit}; "
        "look at the incidents, then launch or restart the job by hand"
    )


def gives_up(job: Job, unsound: tuple[str, ...], at_ms: int) -> bool:
    """Say whether to take unsound hosts out for good rather than fail the job, its budget spent.

    Once an hour: trouble that goes on elsewhere follows the job, and no host will end it. Never for
    an audit, which has no budget from the beginning: it is no loss, and the hosts may be sound.
    """
    if not unsound or parse_spec_json(job.spec_json).audit is not None:
        return False
    return at_ms - job.forgiven_at_ms >= HOUR_MS


def _is_mute(job: Job) -> bool:
    """Whether the job is a script that has told of no step: it hears no request to stop either."""
    return not job.stepped and parse_spec_json(job.spec_json).is_script
