"""How open incidents end: by a new step or the run's end, or without a recovery."""

from __future__ import annotations

from dataclasses import replace

from everstep.monitor.commands import MarkJob
from everstep.monitor.events import (
    HOST_LOST,
    Action,
    Event,
    IncidentClosed,
    IncidentRecovered,
)
from everstep.monitor.state import OpenIncidentRef, Watch, charged


def closed(watch: Watch, ended: MarkJob) -> list[Event]:
    """Return the ends of what is still open when a job ends."""
    if ended.cause == "succeeded":
        return recovered(watch, ended.at_ms)
    why = "the job failed" if ended.cause == "failed" else f"the job was {ended.cause}"
    return [_without_recovery(ref, watch, why, ended.at_ms) for ref in watch.open_incidents]


def recovered(watch: Watch, at_ms: int) -> list[Event]:
    """Return the end of every open incident.

    ``at_ms`` is when the first new step was committed, or the run ended.
    What a job was to move off and never did, it has not recovered from.
    """
    stayed = "the run ended where it was: no spare has taken the seat"
    return [
        _without_recovery(ref, watch, stayed, at_ms)
        if stays(ref, watch)
        else IncidentRecovered(
            incident_id=ref.incident_id,
            job_id=watch.job_id,
            recovered_at_ms=at_ms,
            lost_ms=_lost_ms(ref, watch, at_ms),
            lost_steps=ref.lost_steps or 0,
        )
        for ref in watch.open_incidents
    ]


def got_over(watch: Watch, at_ms: int) -> list[Event]:
    """Return the ends of what befell earlier generations: this one has made a step.

    A first step that was told late is no recovery from what befell its own generation.
    """
    earlier = tuple(
        ref
        for ref in watch.open_incidents
        if ref.generation < watch.generation and not stays(ref, watch)
    )
    return recovered(without_unplanned(replace(watch, open_incidents=earlier)), at_ms)


def without_unplanned(watch: Watch) -> Watch:
    """Leave open what a plan is still to say the lost steps of, if it is told later than steps.

    The first of these that is heard of need not be the first one that was made.
    """
    if watch.restore_step is not None:
        return watch
    waiting = charged(watch, watch.generation)
    rest = tuple(ref for ref in watch.open_incidents if ref not in waiting)
    return replace(watch, open_incidents=rest)


def not_missed(watch: Watch, at_ms: int) -> list[Event]:
    """Return the end of the loss of a host that has left; what else is wrong with it stays so."""
    why = "the host has left the fleet"
    return [
        _without_recovery(ref, watch, why, at_ms)
        for ref in watch.open_incidents
        if ref.kind == HOST_LOST
    ]


def _without_recovery(ref: OpenIncidentRef, watch: Watch, why: str, at_ms: int) -> Event:
    return IncidentClosed(
        incident_id=ref.incident_id, job_id=watch.job_id, why=why, closed_at_ms=at_ms
    )


def stays(ref: OpenIncidentRef, watch: Watch) -> bool:
    """Say whether a job is still on a host that it is to move off."""
    if ref.action is not Action.DRAIN:
        return False
    return not {host.host_id for host in watch.hosts}.isdisjoint(ref.hosts)


def _lost_ms(ref: OpenIncidentRef, watch: Watch, at_ms: int) -> int:
    """Return what an incident has cost: a note nothing more, a drain the move alone."""
    if ref.ends_its_generation:
        return max(0, at_ms - ref.failed_at_ms)
    moved = ref.action is Action.DRAIN and ref.generation < watch.generation
    return max(0, at_ms - watch.begun_at_ms) if moved else 0
