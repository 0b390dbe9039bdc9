"""Asks hosts for the step metrics that were lost on the way; see ``curves.py``."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Final

from everstep.core.errors import EverstepError
from everstep.core.ports import Bus
from everstep.core.system import Clock
from everstep.monitor.curves import Curves, Hole
from everstep.monitor.measurements import Rollup
from everstep.service.commands import host_subject, request
from everstep.wire.v1.agents_pb2 import StepMetrics, TellSteps, TellStepsReply

log = logging.getLogger(__name__)

LOOK_S: Final = 0.5
ANSWER_S_MAX: Final = 2.0  # a thousand remembered messages are a few hundred KiB


class Repairer:
    """Keeps curves whole: takes metrics in, and asks for what did not come."""

    def __init__(
        self,
        bus: Bus,
        rollup: Rollup,
        curves: Curves,
        clock: Clock,
        told_again: Callable[[StepMetrics], None],
    ) -> None:
        """``told_again`` takes what hosts have been asked for, too."""
        self._told_again = told_again
        self._bus = bus
        self._rollup = rollup
        self._curves = curves
        self._clock = clock

    def take(self, metrics: StepMetrics) -> None:
        """Take a host's metrics, told for the first time or again.

        No step ends after it was told of: a host whose clock is ahead dates it to now at most.
        """
        now_ms = self._clock.now_ms()
        for rank in metrics.ranks:
            rank.completed_at_ms = min(rank.completed_at_ms, now_ms)
        self._rollup.add(metrics)
        for step in sorted({rank.step for rank in metrics.ranks}):
            self._curves.saw(metrics.job_id, metrics.generation, step, metrics.host_id, now_ms)

    def resumed(self, job_id: str, generation: int, step: int) -> None:
        """Note where a generation goes on from."""
        self._curves.resumed(job_id, generation, step)

    def ended(self, job_id: str, last_step: int) -> None:
        """Note a run's end."""
        self._curves.ended(job_id, last_step, self._clock.now_ms())

    async def repair(self) -> None:
        """Look for holes, for ever."""
        while True:
            await asyncio.sleep(LOOK_S)
            for hole in self._curves.holes(self._clock.now_ms()):
                await self._ask(hole)

    async def _ask(self, hole: Hole) -> None:
        """Ask the hosts of a job in turn until one answers with anything."""
        for host_id in hole.hosts:
            told = await ask_steps(self._bus, host_id, hole.job_id, hole.after_step)
            if told:
                log.info(
                    "job %s: steps after %d told again by %s in %d messages",
                    hole.job_id,
                    hole.after_step,
                    host_id,
                    len(told),
                )
                for metrics in told:
                    self.take(metrics)
                    self._told_again(metrics)
                return


async def ask_steps(bus: Bus, host_id: str, job_id: str, after_step: int) -> Sequence[StepMetrics]:
    """Return what a host still knows of a job's steps after one; nothing if it does not answer."""
    try:
        reply = await request(
            bus,
            host_subject(host_id, "cmd.steps"),
            TellSteps(job_id=job_id, after_step=after_step),
            TellStepsReply,
            timeout_s=ANSWER_S_MAX,
        )
    except EverstepError as error:  # away, or of another version: the next one may know
        log.debug("no steps of job %s from %s: %s", job_id, host_id, error)
        return ()
    return reply.metrics
