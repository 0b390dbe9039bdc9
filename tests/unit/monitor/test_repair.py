"""Holes of a curve are asked about until a host answers."""

from __future__ import annotations

import asyncio
import contextlib

import pytest
from tests.unit.monitor.test_counting import Clock

from everstep.core.errors import (
    EverstepError,
    InvalidInput,
    NotFoundError,
    RefusedError,
    Unavailable,
)
from everstep.monitor import repair
from everstep.monitor.curves import PATIENCE_MS, Curves
from everstep.monitor.measurements import Rollup
from everstep.monitor.repair import Repairer
from everstep.wire.v1.agents_pb2 import RankStep, StepMetrics, TellStepsReply


def metrics(host_id: str, step: int) -> StepMetrics:
    """What a host tells of a step."""
    return StepMetrics(
        job_id="j", generation=1, host_id=host_id, ranks=[RankStep(rank=0, step=step)]
    )


class Bus:
    """Host h0 cannot tell, h1 can."""

    def __init__(self, error: EverstepError) -> None:
        self.error = error
        self.asked: list[str] = []

    async def request(self, subject: str, data: bytes, *, timeout_s: float) -> bytes:
        """Answer."""
        self.asked.append(subject.split(".")[3])
        if self.asked[-1] == "h0":
            raise self.error
        return TellStepsReply(metrics=[metrics("h1", 2)]).SerializeToString()


@pytest.mark.parametrize(
    "error",
    [
        Unavailable("away"),
        InvalidInput("of another version"),
        RefusedError("no"),
        NotFoundError("no such job"),
        EverstepError("?"),
    ],
    ids=lambda error: type(error).__name__,
)
async def test_host_that_cannot_tell_leaves_the_question_to_the_next(error, monkeypatch):
    """Whatever it answers instead: one host of another version must not end all repairs."""
    monkeypatch.setattr(repair, "LOOK_S", 0.0)
    bus, clock, rollup = Bus(error), Clock(), Rollup()
    told: list[StepMetrics] = []
    repairer = Repairer(bus, rollup, Curves(), clock, told.append)
    for host_id, step in (("h0", 1), ("h1", 3)):
        repairer.take(metrics(host_id, step))
    clock.ms += PATIENCE_MS
    task = asyncio.create_task(repairer.repair())
    for _ in range(50):
        await asyncio.sleep(0)
    assert not task.done()
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task
    assert bus.asked == ["h0", "h1"]
    assert sorted(row["step"] for row in rollup.take()) == [1, 2, 3]
    assert told == [metrics("h1", 2)]
