"""What a run has shown of its own failures: how often, and what each one could go on from.

A failure is what ended a generation that was training, unasked; whatever goes wrong while the next
one comes up belongs to the same failure, and the time that it takes does not count as time in which
it did not fail. How a recovery ended is known when its first step is made: a plan that was made and
then found impossible is not what the run went on from.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from everstep.controller.events import Event, GenerationBegun, JobRunning, RestoreDecided


@dataclass(frozen=True, slots=True, kw_only=True)
class FailureRecord:
    """A fold of a job's events.

    ``running_since_ms`` is None while it does not train, ``failed_at_ms`` while nothing is being
    recovered from. ``restart_ms`` sums, over the recoveries that are over, the time from the
    decision to restart to the first new step.
    """

    running_ms: int = 0
    running_since_ms: int | None = None
    failures_count: int = 0
    failed_at_ms: int | None = None
    from_object: bool = False
    memory_restores_count: int = 0
    object_restores_count: int = 0
    restart_ms: int = 0

    @property
    def restores_count(self) -> int:
        """Recoveries that are over."""
        return self.memory_restores_count + self.object_restores_count

    def ran_ms(self, at_ms: int) -> int:
        """Return the time in which it trained, up to ``at_ms``; clocks may differ a little."""
        since = self.running_since_ms
        return self.running_ms + (max(at_ms - since, 0) if since is not None else 0)


def record_after(record: FailureRecord, event: Event) -> FailureRecord:
    """Apply a fact."""
    match event:
        case GenerationBegun():
            return _begun(record, event)
        case RestoreDecided():
            # Nothing at all to go on from: memory was lost before a first checkpoint was complete.
            return replace(record, from_object=event.object_store > 0 or event.step < 0)
        case JobRunning() if record.running_since_ms is None:
            return _running(record, event)
        case _:
            return record


def _begun(record: FailureRecord, event: GenerationBegun) -> FailureRecord:
    trained = record.running_since_ms is not None
    failed_at_ms, failures_count = record.failed_at_ms, record.failures_count
    if event.cause != "recovery":
        failed_at_ms = None  # a person has chosen where it goes on from
    elif trained:
        failed_at_ms, failures_count = event.at_ms, failures_count + 1
    return replace(
        record,
        running_ms=record.ran_ms(event.at_ms),
        running_since_ms=None,
        failed_at_ms=failed_at_ms,
        failures_count=failures_count,
    )


def _running(record: FailureRecord, event: JobRunning) -> FailureRecord:
    record = replace(record, running_since_ms=event.at_ms)
    if record.failed_at_ms is None:
        return record
    return replace(
        record,
        failed_at_ms=None,
        restart_ms=record.restart_ms + max(event.at_ms - record.failed_at_ms, 0),
        memory_restores_count=record.memory_restores_count + (not record.from_object),
        object_restores_count=record.object_restores_count + record.from_object,
    )
