"""How often a job's ranks snapshot, as the fold of its events."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from everstep.controller.events import Event, IntervalChanged, IntervalInForce, JobSubmitted
from everstep.controller.failures import FailureRecord, record_after
from everstep.core.schedule import Schedule, first_schedule
from everstep.core.spec import parse_spec_json

SPECS_OWN: Final = Schedule()
UNFAILED: Final = FailureRecord()


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """The schedule that was decided last, and whether the ranks were seen to follow it.

    ``auto`` says whether measurements may change it; ``decided`` is None while the spec's holds.
    """

    schedule: Schedule = SPECS_OWN
    auto: bool = False
    decided: IntervalChanged | None = None
    in_force: IntervalInForce | None = None
    failures: FailureRecord = UNFAILED

    @property
    def pending(self) -> bool:
        """Whether no rank has told of a step under the schedule yet."""
        return self.schedule.version > (self.in_force.version if self.in_force else 0)


def interval_after(interval: Interval, event: Event) -> Interval:
    """Apply a fact; most are none of it."""
    match event:
        case JobSubmitted():
            spec = parse_spec_json(event.spec_json).checkpoint
            return Interval(schedule=first_schedule(spec), auto=spec.interval == "auto")
        case IntervalChanged():
            return replace(interval, schedule=event.schedule, auto=event.auto, decided=event)
        case IntervalInForce():
            return replace(interval, in_force=event)
        case _:
            failures = record_after(interval.failures, event)
            return (
                interval if failures is interval.failures else replace(interval, failures=failures)
            )
