"""How often the simulated ranks save: what the controller decides from what they would have shown.

Nothing is measured here: the scenario says what steps, stalls and uploads take, and what a real
controller would have measured is exactly that. What it does not know is how often the fleet fails
and what memory survives; that it learns from its own events. A changed schedule holds from the next
start on, because a stretch of training has one cadence (``cadence``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from everstep.controller.commands import Measured, RecordInForce, WeighInterval
from everstep.controller.events import JobRunning
from everstep.core.placement import Layout
from everstep.core.schedule import Schedule
from everstep.fleet.cadence import Cadence
from everstep.fleet.run import State
from everstep.fleet.scenario import Scenario
from everstep.fleet.services import JOB_ID

if TYPE_CHECKING:
    from everstep.fleet.world import World

WEIGH_AFTER_STEPS: Final = 12  # a real controller has measured enough by then
WEIGH_EVERY_MS: Final = 6 * 3_600_000  # failures come hours apart; nothing else changes


def cadence_under(scenario: Scenario, schedule: Schedule, layout: Layout) -> Cadence:
    """Return when saves happen under a schedule; version 0 is the scenario's own."""
    if not schedule.version:
        return scenario.cadence(layout)
    return scenario.cadence(
        layout, memory_every=schedule.memory_every_steps, object_every=schedule.object_every_steps
    )


def measured_by(scenario: Scenario, *, step: int, step_ms: int, uploaded: bool) -> Measured:
    """Return what the ranks' steps would have shown; ``uploaded``: a checkpoint is complete."""
    part = scenario.checkpoint
    upload_ms = round(scenario.upload_s * 1e3) if uploaded else 0
    return Measured(
        step=step,
        step_us=step_ms * 1_000,
        steps_count=WEIGH_AFTER_STEPS,
        memory_stall_us=round(part.memory_stall_s * 1e6),
        memory_count=1,
        object_stall_us=round(part.object_stall_s * 1e6),
        object_count=1,
        upload_ms=upload_ms,
        upload_ms_max=upload_ms,
        upload_count=int(uploaded),
    )


class Pacing:
    """Asks the controller's decider while the job trains."""

    def __init__(self, world: World) -> None:
        self._world = world

    def runs(self, event: JobRunning) -> None:
        """A generation trains: its ranks tell of their schedule, and soon of what saves cost."""
        world = self._world
        world.spawn(self._in_force(event.generation, event.step))
        delay_ms = WEIGH_AFTER_STEPS * world.cadence.step_ms
        world.after(delay_ms, self._weighs, event.generation)

    async def _in_force(self, generation: int, step: int) -> None:
        services = self._world.services
        job = await services.job()
        await services.jobs.handle(
            RecordInForce(
                job_id=JOB_ID,
                generation=generation,
                version=job.interval.schedule.version,
                step=step,
                at_ms=self._world.clock.now_ms(),
            )
        )

    def _weighs(self, generation: int) -> None:
        """The controller looks whether another schedule is worth it, and will again."""
        world, now_ms = self._world, self._world.now_ms()
        run = world.run
        if run.state is not State.TRAINING or run.generation != generation:
            return
        stored = world.copies.with_current(
            generation=generation, first=run.first, trained_ms=run.trained_ms(now_ms), at_ms=now_ms
        )
        measured = measured_by(
            world.scenario,
            step=run.step(now_ms),
            step_ms=run.cadence.step_ms,
            uploaded=bool(stored),
        )
        command = WeighInterval(
            job_id=JOB_ID, generation=generation, measured=measured, at_ms=world.clock.now_ms()
        )
        world.spawn(self._weigh(command))
        world.after(WEIGH_EVERY_MS, self._weighs, generation)

    async def _weigh(self, command: WeighInterval) -> None:
        await self._world.control_is_there()
        await self._world.services.jobs.handle(command)
