"""How a generation begins, and how a job ends: the events that several commands lead to."""

from __future__ import annotations

from dataclasses import replace

from everstep.controller import policy
from everstep.controller.commands import Command, RecordFinished, RecoverJob, Verdict
from everstep.controller.events import (
    Event,
    GenerationBegun,
    JobFailed,
    JobPaused,
    JobStopped,
    PauseRequested,
)
from everstep.controller.state import COMING_UP, SILENT_CORRUPTION, Job, Phase

Begun = GenerationBegun | JobFailed


def without(job: Job, silent: tuple[str, ...], at_ms: int) -> Event:
    """Begin the next generation without hosts that did not answer."""
    return again(job, silent, at_ms, why=f"no answer from {', '.join(sorted(silent))}")


def again(
    job: Job,
    lost: tuple[str, ...],
    at_ms: int,
    *,
    why: str,
    incident: str = "",
    unsound: tuple[str, ...] = (),
) -> Begun:
    """Begin the next generation, unless the job has been restarted too often already.

    A budget that was spent on hosts that answer and are not sound costs them their seats: the job
    waits for others rather than fail.

    Args:
        job: before it.
        lost: hosts to go on without.
        at_ms: when [ms since epoch].
        why: for a person, if this was once too often.
        incident: that caused it.
        unsound: hosts to go on without if there are spares.
    """
    refusal = policy.restart_refusal(job, at_ms)
    if refusal and policy.gives_up(job, unsound, at_ms):
        lost, unsound = tuple({*lost, *unsound}), ()
    elif refusal:
        return failed(job, "restart_budget", f"{refusal}. The last one: {why}", at_ms)
    begun = next_generation(
        job, "recovery", at_ms, from_step=job.from_step if job.phase in COMING_UP else -1
    )
    return replace(
        begun,
        incident_id=incident,
        lost_hosts=tuple(sorted(lost)),
        unsound_hosts=tuple(sorted(unsound)),
    )


def next_generation(job: Job, cause: str, at_ms: int, *, from_step: int = -1) -> GenerationBegun:
    """Begin the next generation; a person who names a step knows what it is worth."""
    return GenerationBegun(
        job_id=job.job_id,
        generation=job.generation + 1,
        cause=cause,
        from_step=from_step,
        at_ms=at_ms,
        before_step=job.before_step if from_step < 0 else 0,
    )


def paused_or_resumed(job: Job, cause: str, at_ms: int) -> GenerationBegun:
    """Begin a pause, or what follows one: what the job was to go on from stays as it was.

    A step that a person named counts until a plan has been made of it.
    """
    not_planned = job.restore_step is None and job.phase in {*COMING_UP, Phase.PAUSED}
    begun = next_generation(job, cause, at_ms, from_step=job.from_step if not_planned else -1)
    # Whatever was found to be suspect since then is so still.
    return replace(begun, before_step=job.before_step)


def reopened(job: Job, from_step: int, at_ms: int) -> GenerationBegun:
    """Begin again after a failure or a stop, from what was stored.

    The hosts were told to forget the job at the next generation: a late one of these messages must
    not meet new ranks, so this is the one after it.
    """
    begun = next_generation(job, "restart", at_ms, from_step=from_step)
    return replace(begun, generation=begun.generation + 1)


def held(job: Job, incident: RecoverJob) -> tuple[Event, ...]:
    """Pause until a person has looked; what is suspect is not gone on from after that either."""
    requested = PauseRequested(
        job_id=job.job_id,
        at_ms=incident.at_ms,
        incident_id=incident.incident_id,
        why=incident.reason,
        questioned=incident.skipped,
    )
    parts = ", ".join(f"{one.first} to {one.end - 1}" for one in incident.skipped)
    choice = f"; `everstep jobs resume --skip-batches` goes on without batches {parts}"
    begun = replace(
        paused_or_resumed(job, "pause", incident.at_ms),
        incident_id=incident.incident_id,
        before_step=sound_before(job, incident),
        remark=f"held: {incident.reason}{choice if parts else ''}",
    )
    return requested, begun


def finds_bad_states(command: RecoverJob) -> bool:
    """Whether an incident says that what was made last is bad."""
    corrupt = command.kind == SILENT_CORRUPTION and command.before_step > 0
    return corrupt or command.verdict is Verdict.ROLL_BACK


def goes_back(command: RecoverJob, job: Job) -> bool:
    """Whether the job is to go on from before what is bad, unless a move has done so since."""
    gone_back = (
        command.generation < job.generation
        and command.verdict is not Verdict.ROLL_BACK  # its batches are to be left out, too
        and job.restore_step is not None
        and job.restore_step < command.before_step
    )
    return finds_bad_states(command) and not gone_back


def is_last_word(command: Command, job: Job) -> bool:
    """Whether the generation before still has to say this, though its ranks are being ended."""
    if not isinstance(command, RecoverJob):
        return isinstance(command, RecordFinished)
    known = command.incident_id == job.incident_id
    names = finds_bad_states(command) and command.verdict is not Verdict.RESTART
    return not known and (names or goes_back(command, job))


def back(begun: Begun, job: Job, incident: RecoverJob) -> Begun:
    """Have the job go back before what is bad, now or when a person begins it again."""
    before_step = sound_before(job, incident)
    if isinstance(begun, GenerationBegun):
        begun = replace(begun, incident_id=incident.incident_id)
    return replace(begun, skipped=incident.skipped, before_step=before_step)


def sound_before(job: Job, incident: RecoverJob) -> int:
    """Return the first step that is suspect, of this incident or of one before; 0: none is."""
    return min((step for step in (job.before_step, incident.before_step) if step), default=0)


def rested(job: Job, cause: str, generation: int, at_ms: int) -> Event:
    """End what a stop or a pause began."""
    if cause == "stop":
        return JobStopped(job_id=job.job_id, generation=generation, at_ms=at_ms)
    return JobPaused(job_id=job.job_id, generation=generation, at_ms=at_ms)


def failed(job: Job, why: str, detail: str, at_ms: int) -> JobFailed:
    """End a job that would not get further."""
    return JobFailed(
        job_id=job.job_id, generation=job.generation, why=why, detail=detail, at_ms=at_ms
    )
