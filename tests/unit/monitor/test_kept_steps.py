"""What a new monitor reads of the steps that an earlier one has kept."""

from __future__ import annotations

from sqlalchemy import insert

from everstep.monitor.events import Mark
from everstep.monitor.projections import MARKS, STEP_METRICS
from everstep.monitor.queries import watched_jobs
from everstep.sim.tables import Tables


async def _tables_with(*runs: tuple[int, int, int]) -> Tables:
    """Tables of one job, whose (generation, first step, last step) made these steps."""
    tables = Tables()
    for generation, first, last in runs:
        begun = {"job_id": "j", "version": generation, "generation": generation}
        await tables.execute(insert(MARKS).values(mark=Mark.BEGUN.value, **begun))
        for step in range(first, last + 1):
            row = {"job_id": "j", "generation": generation, "step": step}
            await tables.execute(
                insert(STEP_METRICS).values(
                    loss=float(generation), grad_norm=1.0, position=100 + step, **row
                )
            )
    return tables


async def test_window_ends_at_the_newest_step_of_the_newest_generation():
    """What an older one had made beyond it is undone; before it, what was made last counts."""
    tables = await _tables_with((1, 1, 15), (2, 11, 13))
    kept = (await watched_jobs(tables.connection))["j"]
    assert (kept.generation, kept.step) == (2, 13)
    assert [sound.step for sound in kept.window] == list(range(1, 14))
    assert [sound.loss for sound in kept.window] == [1.0] * 10 + [2.0] * 3
    assert [sound.position for sound in kept.window] == list(range(101, 114))


async def test_window_of_a_job_that_has_made_no_step_is_empty():
    """It has begun, and there is nothing to measure against."""
    tables = await _tables_with((1, 1, 0))
    kept = (await watched_jobs(tables.connection))["j"]
    assert (kept.generation, kept.step, kept.window) == (0, 0, ())
