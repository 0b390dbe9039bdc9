"""What is kept of incidents that a job does nothing about any more: it is paused, ending or over.

Its ranks are being ended anyway, but the incident says what a later restart must not go on from,
and which hosts compute wrong: those answer every probe, so nobody else would keep them from the
next job. The same holds for hosts that the job was about to leave for that when it ended.

Rejected: a new generation for each incident, as a pause has it. A stop would have to end its ranks
once more, what is heard after the end belongs to none, and one incident would make the next stale.
"""

from __future__ import annotations

from typing import Final

from everstep.controller.commands import Command, RecoverJob, Verdict
from everstep.controller.events import (
    Event,
    IncidentNoted,
    JobFailed,
    JobStopped,
    JobSucceeded,
)
from everstep.controller.generations import finds_bad_states, sound_before
from everstep.controller.state import SILENT_CORRUPTION, TERMINAL, Job, Phase
from everstep.core.decision import Accepted, Rejected

Decision = Accepted[Event] | Rejected

_NAMES: Final = frozenset({Verdict.REPLACE, Verdict.DRAIN})


def is_ending(job: Job) -> bool:
    """Whether the job is being stopped, or has ended: incidents begin nothing any more."""
    return job.phase in TERMINAL or job.phase is Phase.STOPPING


def note(command: RecoverJob, job: Job) -> Accepted[Event]:
    """Keep what an incident says of a job that ends or has ended; nothing if it is known."""
    if command.generation not in {job.generation, job.generation - (job.cause == "stop")}:
        return Accepted()
    hosts = _named(command, job)
    held = command.verdict is Verdict.HOLD  # what a person would have been asked is not decided
    bad = (held or finds_bad_states(command)) and job.phase is not Phase.SUCCEEDED
    before_step = sound_before(job, command) if bad else 0
    new = tuple(one for one in command.skipped if one not in job.skipped)
    skipped = new if bad and not held else ()
    if not hosts and not skipped and before_step in {0, job.before_step}:
        return Accepted()
    noted = IncidentNoted(
        job_id=job.job_id,
        generation=job.generation,
        incident_id=command.incident_id,
        kind=command.kind,
        hosts=hosts,
        before_step=before_step,
        skipped=skipped,
        at_ms=command.at_ms,
    )
    return Accepted((noted,))


def blame(command: RecoverJob, job: Job) -> tuple[Event, ...]:
    """Keep only which hosts an incident names, where the rest of it is heeded."""
    hosts = _named(command, job)
    if not hosts:
        return ()
    noted = IncidentNoted(
        job_id=job.job_id,
        generation=job.generation,
        incident_id=command.incident_id,
        kind=command.kind,
        hosts=hosts,
        at_ms=command.at_ms,
    )
    return (noted,)


def with_blame(decision: Decision, command: Command, job: Job) -> Decision:
    """Put before a job's end which of its hosts it was about to leave because they are wrong."""
    if isinstance(decision, Rejected) or not decision.events:
        return decision
    last = decision.events[-1]
    if not isinstance(last, JobSucceeded | JobFailed | JobStopped):
        return decision
    incident = command if isinstance(command, RecoverJob) else None
    named = _named(incident, job) if incident is not None else ()
    hosts = tuple(sorted({*_to_leave(job), *named}))
    if not hosts:
        return decision
    noted = IncidentNoted(
        job_id=job.job_id,
        generation=last.generation,
        incident_id=incident.incident_id if incident is not None and named else "",
        kind=SILENT_CORRUPTION,
        hosts=hosts,
        at_ms=last.at_ms,
    )
    return Accepted((*decision.events[:-1], noted, last))


def _named(command: RecoverJob, job: Job) -> tuple[str, ...]:
    """Return the hosts of the job that an incident says compute wrong, but for known ones."""
    if command.kind != SILENT_CORRUPTION or command.verdict not in _NAMES:
        return ()
    return _of(job, command.hosts)


def _to_leave(job: Job) -> tuple[str, ...]:
    """Return the hosts that the inventory would have been told of with the next placement."""
    lost = job.lost_hosts if job.lost_why == SILENT_CORRUPTION and not job.placed else ()
    leaving = (h for h in job.draining if job.drain_kinds.get(h) == SILENT_CORRUPTION)
    return _of(job, (*lost, *leaving))


def _of(job: Job, hosts: tuple[str, ...]) -> tuple[str, ...]:
    mine = frozenset(job.placement.host_ids) if job.placement is not None else frozenset[str]()
    return tuple(sorted(mine.intersection(hosts) - {*job.blamed}))
