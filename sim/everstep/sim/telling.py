"""What many named stories begin and end with."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

from everstep.sim.stage import Stage, spec_of

JOB: Final = "job-0"
Story = Callable[[Stage], Awaitable[None]]


async def launch(stage: Stage) -> None:
    """Bring the world up and begin a job of eight ranks."""
    await stage.up()
    stage.world.launched.append(JOB)
    await stage.world.launch(JOB, spec_of())


def step_of(stage: Stage) -> int:
    """Return how far the job has come."""
    training = stage.training(JOB)
    assert training is not None
    return training.step


async def one_recovery(stage: Stage, kind: str, step: int) -> None:
    """Wait for a recovery that loses at most one step after ``step``, and for the end."""
    await stage.running(JOB, 2)
    await stage.finish(1)
    [incident] = await stage.incidents(JOB)
    assert incident.kind == kind, incident
    assert await stage.causes(JOB) == ["launch", "recovery"]
    assert (await stage.restores(JOB))[-1] >= step - 1
