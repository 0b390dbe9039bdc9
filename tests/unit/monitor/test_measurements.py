"""Step metrics on their way to the database."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from sqlalchemy.exc import OperationalError

from everstep.monitor.measurements import Rollup, flush
from everstep.wire.v1.agents_pb2 import RankStep, StepMetrics


class Writing:
    """A database that fails once, in whatever way, and then takes everything."""

    def __init__(self, failure: BaseException, *, on_enter: bool) -> None:
        self.failure: BaseException | None = failure
        self.on_enter = on_enter
        self.rows: list[dict] = []

    @asynccontextmanager
    async def __call__(self) -> AsyncIterator[Writing]:
        """Lend a connection."""
        if self.on_enter:
            self._fail()
        yield self

    async def execute(self, _: object, rows: list[dict]) -> None:
        """Take rows."""
        self._fail()
        self.rows += rows

    def _fail(self) -> None:
        failure, self.failure = self.failure, None
        if failure is not None:
            raise failure


@pytest.mark.parametrize("on_enter", [True, False])
@pytest.mark.parametrize(
    "failure",
    [OperationalError("select", {}, Exception("the system is starting up")), ValueError("odd")],
)
async def test_points_that_could_not_be_written_are_written_next_time(failure, on_enter):
    """Whatever the failure is: a lost point is a hole in the curve that nobody would ask for."""
    rollup, writing = Rollup(), Writing(failure, on_enter=on_enter)
    step = RankStep(rank=0, step=9, loss=1.5)
    rollup.add(StepMetrics(job_id="j", generation=1, host_id="h0", ranks=[step]))
    with pytest.raises(type(failure)):
        await flush(rollup, writing)
    assert writing.rows == []
    assert await flush(rollup, writing) == 1
    assert [row["step"] for row in writing.rows] == [9]


def test_row_of_a_step_has_the_parts_of_the_slowest_rank():
    """Whoever is done first waits for the others, whatever it was that they did."""
    rollup = Rollup()
    for rank, parts in enumerate(({"stall_ms": 1.0, "shadow_ms": 9.0}, {"shadow_ms": 4.0})):
        step = RankStep(rank=rank, step=9, loss=1.5, **parts)
        rollup.add(StepMetrics(job_id="j", generation=1, host_id=f"h{rank}", ranks=[step]))
    (row,) = rollup.take()
    assert (row["stall_ms"], row["shadow_ms"]) == (1.0, 9.0)
