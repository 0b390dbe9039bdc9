"""Decides what a command means for a job.

Two rules carry most of it. An answer or incident of an older generation changes nothing, because
what it speaks of is already fenced off. And whatever goes wrong while a generation comes up begins
the next one, with the newly lost hosts added: recovery from a failure during recovery is the same
recovery.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final, assert_never

from everstep.controller import auditing, moving, noting, policy, rescheduling
from everstep.controller.commands import (
    BeginDrain,
    BeginGrow,
    Command,
    DrainHosts,
    EndAudit,
    LaunchJob,
    PauseJob,
    RecordFenced,
    RecordFinished,
    RecordInForce,
    RecordLost,
    RecordPlacement,
    RecordPlan,
    RecordProgress,
    RecordRefused,
    RecordShort,
    RecordStarted,
    RecoverJob,
    RestartJob,
    ResumeJob,
    SaveCheckpoint,
    SetInterval,
    StopJob,
    Verdict,
    WeighInterval,
)
from everstep.controller.events import (
    CheckpointRequested,
    Event,
    GenerationBegun,
    HostsFenced,
    HostsShort,
    JobRunning,
    JobSubmitted,
    JobSucceeded,
    PauseRequested,
    PlacementDecided,
    RanksStarted,
    RestoreDecided,
    StopRequested,
)
from everstep.controller.generations import (
    again,
    back,
    failed,
    finds_bad_states,
    goes_back,
    held,
    is_last_word,
    next_generation,
    paused_or_resumed,
    reopened,
    rested,
    without,
)
from everstep.controller.state import COMING_UP, MOVES, SILENT_CORRUPTION, TERMINAL, Job, Phase
from everstep.core.decision import Accepted, Rejected
from everstep.core.errors import InvalidInput
from everstep.core.ids import is_valid_id
from everstep.core.spec import parse_spec_json, require_size

Decision = Accepted[Event] | Rejected
RunCommand = (
    RecoverJob
    | BeginDrain
    | BeginGrow
    | RecordFenced
    | RecordPlacement
    | RecordShort
    | RecordPlan
    | RecordStarted
    | RecordLost
    | RecordRefused
    | RecordProgress
    | RecordFinished
)
PersonCommand = RestartJob | StopJob | PauseJob | ResumeJob | SaveCheckpoint
NOTHING: Accepted[Event] = Accepted()
TOO_SMALL: Final = "host_too_small"  # the monitor's kind: memory does not hold the ranks' snapshots
DOES_NOT_FIT: Final = "does_not_fit"  # the inventory's code: not even with every host free

# The registry's codes for: that step is not there, or not whole any more.
NO_SUCH_STEP: Final = frozenset({"no_such_step", "no_source"})


def decide(command: Command, job: Job) -> Decision:
    """Answer ``command`` for ``job``.

    Returns:
        The events that follow; none when it is already so or no longer matters; ``Rejected`` with
        ``job_exists``, ``invalid_job_id``, ``invalid_spec``, ``unknown_job``, ``job_ended``,
        ``not_paused``, ``nothing_to_pause``, ``not_running``, ``not_its_host``, ``invalid_step`` or
        ``invalid_interval``.
    """
    return noting.with_blame(_decide(command, job), command, job)


def _decide(command: Command, job: Job) -> Decision:
    if isinstance(command, LaunchJob):
        return _launch(command, job)
    if job.phase is Phase.ABSENT:
        return Rejected(
            "unknown_job", f"there is no job {command.job_id!r}; `everstep jobs` lists them"
        )
    match command:
        case RestartJob() | StopJob() | PauseJob() | ResumeJob() | SaveCheckpoint():
            return _by_a_person(command, job)
        case SetInterval() | WeighInterval() | RecordInForce():
            return rescheduling.decide(command, job)
        case DrainHosts():
            return moving.drain_by_a_person(command, job)
        case EndAudit():
            return auditing.end(command, job)
        case RecoverJob() if noting.is_ending(job):
            return noting.note(command, job)
        case _:
            stale = not _is_current(command, job) or job.phase in TERMINAL
            return NOTHING if stale else _by_the_run(command, job)


def _is_current(command: RunCommand, job: Job) -> bool:
    """Whether a command is of the current generation, or of the one that is being paused or moved.

    All its ranks may have finished on their own while they were asked to stop; and what it was
    trained on may just have been found to be bad: that would be trained on again.
    """
    ending = job.cause in {"pause", *MOVES} and is_last_word(command, job)
    return command.generation in {job.generation, job.generation - ending}


def _launch(command: LaunchJob, job: Job) -> Decision:
    if job.phase is not Phase.ABSENT:
        if job.spec_json == command.spec_json:
            return NOTHING
        return Rejected("job_exists", f"job {command.job_id!r} exists with another spec")
    if not is_valid_id(command.job_id):
        return Rejected(
            "invalid_job_id",
            f"job id {command.job_id!r} is not usable: take letters, digits, - and _, at most 64",
        )
    try:
        spec = parse_spec_json(command.spec_json)
        require_size(spec)
    except InvalidInput as error:
        return Rejected("invalid_spec", str(error))
    if (spec.audit is not None) is not command.audits:
        return Rejected("invalid_spec", auditing.BY_HAND)
    at_ms = command.at_ms
    return Accepted(
        (
            JobSubmitted(
                job_id=command.job_id, name=spec.name, spec_json=command.spec_json, at_ms=at_ms
            ),
            GenerationBegun(job_id=command.job_id, generation=1, cause="launch", at_ms=at_ms),
        )
    )


def _by_a_person(command: PersonCommand, job: Job) -> Decision:
    if isinstance(command, RestartJob) and command.from_step < -1:
        return Rejected(
            "invalid_step", f"from_step: expected -1 or a step, got {command.from_step}"
        )
    if job.phase in TERMINAL:
        return _after_the_end(command, job)
    match command:
        case RestartJob():
            begun = next_generation(job, "restart", command.at_ms, from_step=command.from_step)
            return Accepted((begun,))
        case StopJob():
            return _wind_down(job, "stop", command.at_ms)
        case PauseJob():
            refusal = policy.pause_refusal(job)
            if refusal:
                return Rejected("nothing_to_pause", refusal)
            return _wind_down(job, "pause", command.at_ms)
        case ResumeJob():
            if job.phase in COMING_UP or job.phase is Phase.RUNNING:
                return NOTHING
            if job.phase is not Phase.PAUSED:
                return Rejected("not_paused", f"job {job.job_id!r} is {job.phase}, not paused")
            return _resume(command, job)
        case SaveCheckpoint():
            if job.phase is not Phase.RUNNING:
                return Rejected(
                    "not_running", f"job {job.job_id!r} is {job.phase}: nothing to save now"
                )
            return Accepted((CheckpointRequested(job_id=job.job_id, at_ms=command.at_ms),))
        case _:
            assert_never(command)


def _resume(command: ResumeJob, job: Job) -> Decision:
    begun = paused_or_resumed(job, "resume", command.at_ms)
    if not command.skip_batches:
        return Accepted((begun,))
    if not job.questioned:
        return Rejected(
            "no_batches", f"job {job.job_id!r} is not held for any batches: resume it without that"
        )
    return Accepted((replace(begun, skipped=job.questioned),))


def _after_the_end(command: PersonCommand, job: Job) -> Decision:
    if isinstance(command, StopJob):
        return NOTHING
    if isinstance(command, RestartJob) and job.phase is not Phase.SUCCEEDED:
        return Accepted((reopened(job, command.from_step, command.at_ms),))
    return Rejected("job_ended", policy.ended(job))


def _wind_down(job: Job, cause: str, at_ms: int) -> Decision:
    """Fence all ranks gracefully, then rest (pause) or end (stop)."""
    if job.cause == cause and job.phase in {Phase.PAUSING, Phase.PAUSED, Phase.STOPPING}:
        return NOTHING
    if cause == "pause" and job.phase is Phase.STOPPING:
        return Rejected("job_ended", f"job {job.job_id!r} is being stopped")
    requested: Event = (
        StopRequested(job_id=job.job_id, at_ms=at_ms)
        if cause == "stop"
        else PauseRequested(job_id=job.job_id, at_ms=at_ms)
    )
    begin = next_generation if cause == "stop" else paused_or_resumed
    begun = begin(job, cause, at_ms)
    if job.placement is None:  # nothing was ever started
        return Accepted((requested, begun, rested(job, cause, begun.generation, at_ms)))
    return Accepted((requested, begun))


def _by_the_run(command: RunCommand, job: Job) -> Decision:
    match command:
        case RecoverJob():
            return _recover(command, job)
        case BeginDrain() | BeginGrow():
            return moving.begin(command, job)
        case RecordFenced():
            return _fenced(command, job)
        case RecordPlacement() | RecordShort():
            return _placed(command, job)
        case RecordPlan():
            return _planned(command, job)
        case RecordStarted():
            return _started(command, job)
        case RecordLost():
            lost = tuple(h for h in command.hosts if h not in job.lost_hosts)
            return Accepted((without(job, lost, command.at_ms),)) if lost else NOTHING
        case RecordRefused():
            # It did fit when it began to wait: a host has left, as agents do that start anew.
            waits = job.phase is Phase.WAITING_FOR_HOSTS and command.why == DOES_NOT_FIT
            return NOTHING if waits else Accepted((_refused(command, job),))
        case RecordProgress():
            coming_up = job.phase in COMING_UP and job.placed
            first_word = job.phase is Phase.RUNNING and not job.stepped and command.step > 0
            if not (coming_up or first_word):
                return NOTHING
            running = JobRunning(
                job_id=job.job_id,
                generation=job.generation,
                step=command.step,
                at_ms=command.at_ms,
            )
            return Accepted((running,))
        case RecordFinished():
            done = JobSucceeded(
                job_id=job.job_id,
                generation=job.generation,
                step=command.step,
                at_ms=command.at_ms,
                detail=policy.odd_end(command, job),
            )
            return Accepted((done,))
        case _:
            assert_never(command)


def _recover(command: RecoverJob, job: Job) -> Decision:
    if job.cause == "pause" and finds_bad_states(command) and command.generation < job.generation:
        paused = paused_or_resumed(job, "pause", command.at_ms)
        return Accepted((*noting.blame(command, job), back(paused, job, command)))
    if job.cause == "pause":
        return NOTHING  # the ranks are being ended anyway
    if command.verdict is Verdict.NOTE:
        return NOTHING
    if command.verdict is Verdict.FAIL:
        return Accepted((failed(job, command.kind, command.detail, command.at_ms),))
    if command.kind == TOO_SMALL and policy.wanted_layouts(job):
        return moving.too_small(command, job)
    if command.verdict is Verdict.HOLD:
        return Accepted(held(job, command))
    if command.verdict is Verdict.DRAIN:
        return moving.drain_by_an_incident(command, job)
    lost = command.hosts if command.verdict is Verdict.REPLACE else ()
    unsound = command.hosts if command.verdict is Verdict.REPLACE_IF_SPARE else ()
    why = policy.last_cause(command, job)
    begun = again(job, lost, command.at_ms, why=why, incident=command.incident_id, unsound=unsound)
    if goes_back(command, job):
        begun = back(begun, job, command)
    if isinstance(begun, GenerationBegun) and lost and command.kind == SILENT_CORRUPTION:
        begun = replace(begun, lost_why=command.kind)
    return Accepted((begun,))


def _refused(command: RecordRefused, job: Job) -> Event:
    """End the job, unless only a person's wish cannot be fulfilled: that must not cost the run."""
    if job.before_step and command.why in NO_SUCH_STEP:
        remark = f"held: no sound state from before step {job.before_step}: {command.detail}"
        return replace(next_generation(job, "pause", command.at_ms), remark=remark)
    if job.from_step < 0 or command.why not in NO_SUCH_STEP:
        return failed(job, command.why, command.detail, command.at_ms)
    begun = next_generation(job, job.cause, command.at_ms)
    remark = f"step {job.from_step} cannot be restored, going on from the newest: {command.detail}"
    return replace(begun, lost_hosts=job.lost_hosts, remark=remark)


def _fenced(command: RecordFenced, job: Job) -> Decision:
    if job.fenced:
        return NOTHING
    fenced = HostsFenced(
        job_id=job.job_id,
        generation=job.generation,
        hosts=command.hosts,
        unreachable=command.unreachable,
        at_ms=command.at_ms,
    )
    if job.cause in {"pause", "stop"}:
        return Accepted((fenced, rested(job, job.cause, job.generation, command.at_ms)))
    # Whoever the new placement does without need not answer: what it holds counts as gone.
    silent = tuple(
        host
        for host in command.unreachable
        if not job.placed or job.placement is None or host in job.placement.host_ids
    )
    return Accepted((fenced, without(job, silent, command.at_ms)) if silent else (fenced,))


def _placed(command: RecordPlacement | RecordShort, job: Job) -> Decision:
    if job.placed or job.cause in {"pause", "stop"}:
        return NOTHING
    if isinstance(command, RecordShort):
        if auditing.is_audit(job):
            return Accepted((auditing.stopped(job, auditing.NO_SPARES, command.at_ms),))
        if job.phase is Phase.WAITING_FOR_HOSTS and job.missing == command.missing:
            return NOTHING
        short = HostsShort(
            job_id=job.job_id,
            generation=job.generation,
            missing=command.missing,
            at_ms=command.at_ms,
        )
        return Accepted((short,))
    placed = PlacementDecided(
        job_id=job.job_id,
        generation=job.generation,
        placement=command.placement,
        replacements=command.replacements,
        at_ms=command.at_ms,
        remark=command.remark,
    )
    return Accepted((placed,))


def _planned(command: RecordPlan, job: Job) -> Decision:
    if job.restore_step is not None or not (job.fenced and job.placed):
        return NOTHING
    decided = RestoreDecided(
        job_id=job.job_id,
        generation=job.generation,
        step=command.step,
        own_memory=command.own_memory,
        peer_memory=command.peer_memory,
        object_store=command.object_store,
        rendezvous_address=command.rendezvous_address,
        rendezvous_port=command.rendezvous_port,
        at_ms=command.at_ms,
    )
    return Accepted((decided,))


def _started(command: RecordStarted, job: Job) -> Decision:
    if job.started or job.restore_step is None:
        return NOTHING
    started = RanksStarted(job_id=job.job_id, generation=job.generation, at_ms=command.at_ms)
    return Accepted((started,))
