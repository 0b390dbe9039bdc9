"""Follows the steps of running jobs, and puts what they show to the decider.

Listens only while ``policy`` asks for it: for jobs whose interval is automatic, and for any job
until its ranks are seen to follow the newest schedule. What it knows dies with the process.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final

from everstep.controller.commands import Command, Measured, RecordInForce, WeighInterval
from everstep.controller.measuring import Measurements
from everstep.controller.outside import Heard, Outside
from everstep.controller.policy import Measure
from everstep.controller.state import Job
from everstep.core.system import Clock
from everstep.wire.v1.agents_pb2 import StepMetrics

# Between two looks whether another schedule is worth it; medians of 128 move little in fewer.
WEIGH_STEPS: Final = 8

Apply = Callable[[Command], Awaitable[Any]]


class Watch:
    """The measurements of all jobs that are listened to."""

    def __init__(self, outside: Outside, apply: Apply, clock: Clock) -> None:
        self._outside = outside
        self._apply = apply
        self._clock = clock
        self._jobs: dict[str, Measurements] = {}

    def measured(self, job_id: str) -> Measured:
        """Return what is known of a job by now; nothing of one that is not listened to."""
        return self._jobs[job_id].measured() if job_id in self._jobs else Measured()

    def forget(self, job_id: str) -> None:
        """The job is over."""
        self._jobs.pop(job_id, None)

    async def measure(self, job: Job, action: Measure) -> None:
        """Listen until cancelled."""
        measurements = self._jobs.setdefault(job.job_id, Measurements())
        version = job.interval.in_force.version if job.interval.in_force is not None else 0
        weighed = measurements.step

        async def hear(heard: Heard) -> None:
            nonlocal version, weighed
            if not isinstance(heard, StepMetrics):
                measurements.completed(heard.step, heard.at_ms)
                return
            if heard.job_id != job.job_id or heard.generation != job.generation:
                return
            measurements.heard(heard, self._clock.now_ms())
            first = next((r for r in heard.ranks if r.schedule_version > version), None)
            if first is not None:
                await self._apply(
                    RecordInForce(
                        job_id=job.job_id,
                        generation=job.generation,
                        version=first.schedule_version,
                        step=first.step,
                        at_ms=self._clock.now_ms(),
                    )
                )
                version = first.schedule_version
            if abs(measurements.step - weighed) >= WEIGH_STEPS:
                weighed = measurements.step
                await self._apply(
                    WeighInterval(
                        job_id=job.job_id,
                        generation=job.generation,
                        measured=measurements.measured(),
                        at_ms=self._clock.now_ms(),
                    )
                )

        await self._outside.listen(job.job_id, action.hosts, hear)
