"""Publishes the steps of this host's ranks, with what its memory holds after each."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from typing import Final

import msgspec

from everstep.agent.codec import held_messages
from everstep.agent.metrics import GATHER_MS_MAX, RankStep, StepGatherer
from everstep.agent.runs import JobRun
from everstep.agent.store import HostMemory
from everstep.core.errors import Unavailable
from everstep.core.ports import Bus
from everstep.core.spec import parse_spec_json
from everstep.core.system import Clock
from everstep.service.commands import host_subject
from everstep.wire.v1.agents_pb2 import Fingerprint, StepMetrics
from everstep.wire.v1.agents_pb2 import RankStep as RankStepMessage

log = logging.getLogger(__name__)

# An hour of one-second steps while the bus is away; beyond it, the loss curve has a gap.
UNSENT_MAX: Final = 4_096
# Told again on request (a monitor or bus that was away): a quarter of an hour of one-second steps.
REMEMBERED_MAX: Final = 1_024
RETRY_S: Final = 0.5
RANK_STEP_FIELDS: Final = tuple(field.name for field in RankStepMessage.DESCRIPTOR.fields)


class StepMessages:
    """Gathers by ``StepGatherer``, one for each running generation, and sends in order."""

    def __init__(self, host_id: str, memory: HostMemory, clock: Clock) -> None:
        self._host_id = host_id
        self._subject = host_subject(host_id, "metrics")
        self._memory = memory
        self._clock = clock
        self._gatherers: dict[str, tuple[JobRun, StepGatherer]] = {}
        self._unsent: deque[bytes] = deque(maxlen=UNSENT_MAX)
        self._remembered: deque[StepMetrics] = deque(maxlen=REMEMBERED_MAX)
        self._losing = False
        self._wake = asyncio.Event()

    def told_after(self, job_id: str, step: int) -> list[StepMetrics]:
        """Return what was told of the job's steps after ``step``, oldest first."""
        return [
            message
            for message in self._remembered
            if message.job_id == job_id and any(rank.step > step for rank in message.ranks)
        ]

    def begin(self, run: JobRun) -> None:
        """Gather for a new generation; what the older one left is sent."""
        self.flush(run.job_id)
        last_step = parse_spec_json(run.start.spec_json).last_step
        self._gatherers[run.job_id] = (run, StepGatherer(frozenset(run.ranks), last_step))

    def add(self, run: JobRun, step: RankStep) -> None:
        """Take one rank's step."""
        gathering, gatherer = self._gatherers[run.job_id]
        assert gathering is run
        self._queue(run, gatherer.add(step, self._clock.monotonic_ms()))

    def flush(self, job_id: str) -> None:
        """Send what has come so far: no more will."""
        if job_id in self._gatherers:
            run, gatherer = self._gatherers[job_id]
            self._queue(run, gatherer.flush())

    async def tick(self) -> None:
        """Send for ever what has waited too long for its host's other ranks."""
        while True:
            await asyncio.sleep(GATHER_MS_MAX / 2 / 1_000)
            for run, gatherer in self._gatherers.values():
                self._queue(run, gatherer.due(self._clock.monotonic_ms()))

    async def run(self, bus: Bus) -> None:
        """Publish for ever."""
        while True:
            while self._unsent:
                data = self._unsent.popleft()
                try:
                    await bus.publish(self._subject, data)
                except Unavailable:
                    self._unsent.appendleft(data)
                    await asyncio.sleep(RETRY_S)
            await self._wake.wait()
            self._wake.clear()

    def _note_loss(self) -> None:
        if len(self._unsent) < UNSENT_MAX:
            self._losing = False
        elif not self._losing:
            self._losing = True
            log.warning("the bus is away for so long that the oldest step metrics are dropped")

    def _queue(self, run: JobRun, messages: list[tuple[RankStep, ...]]) -> None:
        for ranks in messages:
            self._note_loss()
            message = StepMetrics(
                host_id=self._host_id,
                job_id=run.job_id,
                generation=run.generation,
                at_ms=self._clock.now_ms(),
                ranks=[_message(step) for step in ranks],
            )
            remembered = StepMetrics()
            remembered.CopyFrom(message)
            self._remembered.append(remembered)
            message.held.extend(held_messages(self._memory.held(run.job_id)))
            self._unsent.append(message.SerializeToString())
            self._wake.set()


def _message(step: RankStep) -> RankStepMessage:
    fields = {name: getattr(step, name) for name in RANK_STEP_FIELDS}
    shown = [Fingerprint(over=over, value=value) for over, value in step.fingerprints]
    checked = msgspec.to_builtins(step.checked)
    return RankStepMessage(**{**fields, "fingerprints": shown, "checked": checked})
