"""Decides what commands about a job's interval mean: of people, and of what was measured."""

from __future__ import annotations

from typing import assert_never

from everstep.controller import interval as policy
from everstep.controller.commands import RecordInForce, SetInterval, WeighInterval
from everstep.controller.events import Event, IntervalChanged, IntervalInForce
from everstep.controller.interval import STEPS_MAX, IntervalReason
from everstep.controller.interval_state import Interval
from everstep.controller.state import TERMINAL, Job, Phase
from everstep.core.decision import Accepted, Rejected
from everstep.core.schedule import Schedule
from everstep.core.spec import JobSpec, parse_spec_json

IntervalCommand = SetInterval | WeighInterval | RecordInForce
Decision = Accepted[Event] | Rejected


def decide(command: IntervalCommand, job: Job) -> Decision:
    """Answer a command for a job that exists; one of an older generation changes nothing."""
    over = job.phase in TERMINAL
    match command:
        case SetInterval():
            if over:
                detail = f"job {job.job_id!r} has {job.phase}: it takes no more snapshots"
                return Rejected("job_ended", detail)
            return set_interval(command, job.interval, job.generation)
        case RecordInForce():
            stale = over or command.generation != job.generation
            return Accepted() if stale else in_force(command, job.interval)
        case WeighInterval():
            if job.phase is not Phase.RUNNING or command.generation != job.generation:
                return Accepted()
            return weigh(command, job.interval, parse_spec_json(job.spec_json))
        case _:
            assert_never(command)


def set_interval(command: SetInterval, interval: Interval, generation: int) -> Decision:
    """Let a person choose the steps, or give the choice to the measurements.

    Returns:
        One ``IntervalChanged``; nothing if it is already so; ``Rejected("invalid_interval")``.
    """
    refusal = _refusal(command)
    if refusal:
        return Rejected("invalid_interval", refusal)
    present = interval.schedule
    memory, objects = command.memory_every_steps, command.object_every_steps
    wanted = Schedule(
        version=present.version + 1,
        memory_every_steps=present.memory_every_steps if memory < 0 else memory,
        object_every_steps=present.object_every_steps if objects < 0 else objects,
    )
    same = (wanted.memory_every_steps, wanted.object_every_steps) == (
        present.memory_every_steps,
        present.object_every_steps,
    )
    if same and interval.auto == command.auto:
        return Accepted()
    changed = IntervalChanged(
        job_id=command.job_id,
        generation=generation,
        schedule=wanted,
        auto=command.auto,
        reason=IntervalReason.BY_REQUEST,
        at_ms=command.at_ms,
    )
    return Accepted((changed,))


def weigh(command: WeighInterval, interval: Interval, spec: JobSpec) -> Decision:
    """Change the schedule if what was measured makes another one worth it.

    Returns:
        One ``IntervalChanged``; nothing while a person's choice holds, the last change is not in
        force yet, too few steps were measured, or the present schedule is good enough.
    """
    measured = command.measured
    if not interval.auto or interval.pending:
        return Accepted()
    if measured.steps_count < policy.STEPS_MEASURED_MIN or measured.step_us <= 0:
        return Accepted()
    last, present = interval.decided, interval.schedule
    grounds = policy.grounds_for(
        measured,
        interval.failures,
        policy.belief_of(spec),
        last.grounds if last is not None else None,
        at_ms=command.at_ms,
    )
    choice = policy.choose(grounds, present)
    wanted = Schedule(
        version=present.version + 1,
        memory_every_steps=choice.memory_every_steps,
        object_every_steps=choice.object_every_steps,
    )
    if (wanted.memory_every_steps, wanted.object_every_steps) == (
        present.memory_every_steps,
        present.object_every_steps,
    ):
        return Accepted()
    changed = IntervalChanged(
        job_id=command.job_id,
        generation=command.generation,
        schedule=wanted,
        auto=True,
        reason=policy.reason_for(choice, present, grounds, last),
        grounds=grounds,
        waste_before=choice.waste_before,
        waste_after=choice.waste_after,
        at_ms=command.at_ms,
    )
    return Accepted((changed,))


def in_force(command: RecordInForce, interval: Interval) -> Decision:
    """Note the first step that was seen under the newest schedule; older ones tell nothing new."""
    if not interval.pending or command.version != interval.schedule.version:
        return Accepted()
    seen = IntervalInForce(
        job_id=command.job_id,
        generation=command.generation,
        version=command.version,
        step=command.step,
        at_ms=command.at_ms,
    )
    return Accepted((seen,))


def _refusal(command: SetInterval) -> str:
    memory, objects = command.memory_every_steps, command.object_every_steps
    if command.auto:
        chosen = memory != -1 or objects != -1
        return "auto chooses the steps itself: say auto, or steps" if chosen else ""
    if (memory, objects) == (-1, -1):
        return "nothing to set: say memory_every_steps, object_every_steps, or auto"
    if memory != -1 and not 1 <= memory <= STEPS_MAX:
        return f"memory_every_steps: expected 1 to {STEPS_MAX}, got {memory}"
    if objects != -1 and not 0 <= objects <= STEPS_MAX:
        return f"object_every_steps: expected 0 (on request only) to {STEPS_MAX}, got {objects}"
    return ""
