"""What ranks tell of their steps reaches the decider; what it decides reaches the ranks."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from tests.unit.controller.facts import JOB
from tests.unit.controller.test_rescheduling import AUTO
from tests.unit.controller.test_runner import FakeFleet, controller, state_of, until

from everstep.controller.commands import LaunchJob, RecordProgress, SetInterval
from everstep.controller.explaining import explained
from everstep.controller.outside import Heard
from everstep.controller.runner import Runner
from everstep.controller.state import Job
from everstep.core.errors import Unavailable
from everstep.core.system import SystemClock
from everstep.eventstore.memory import MemoryStore
from everstep.wire.v1.agents_pb2 import RankStep, StepMetrics
from everstep.wire.v1.checkpoints_pb2 import CheckpointCompleted

LAUNCH = LaunchJob(job_id=JOB, spec_json=AUTO.spec_json, at_ms=0)


class SteppingFleet(FakeFleet):
    """Hosts whose ranks step when a test says so, and follow the schedule that they were told."""

    def __init__(self) -> None:
        super().__init__()
        self.told: list[tuple[int, int]] = []  # generation, version
        self.version = 0
        self.step = 0
        self.durable_ms = 50.0  # what a durable snapshot stalls more than another one
        self.deaf = 0  # tellings that nobody answers
        self.ears: list[Callable[[Heard], Awaitable[None]]] = []
        self.listened_to: list[tuple[str, ...]] = []

    async def reschedule(self, job: Job) -> None:
        await asyncio.sleep(0)
        if self.deaf:
            self.deaf -= 1
            raise Unavailable("nobody there")
        self.told.append((job.generation, job.interval.schedule.version))
        self.version = job.interval.schedule.version

    async def listen(
        self, job_id: str, hosts: Sequence[str], hear: Callable[[Heard], Awaitable[None]]
    ) -> None:
        self.listened_to.append(tuple(hosts))
        self.ears.append(hear)
        try:
            await asyncio.Event().wait()
        finally:
            self.ears.remove(hear)

    async def steps(self, count: int, *, generation: int = 1) -> None:
        """Let the ranks make steps of a second, every tenth with a durable snapshot."""
        for _ in range(count):
            self.step += 1
            durable = self.step % 10 == 0
            rank = RankStep(
                rank=0,
                step=self.step,
                step_time_ms=1_000.0,
                stall_ms=2.0 + self.durable_ms * durable,
                kept=True,
                durable=durable,
                schedule_version=self.version,
            )
            heard: list[Heard] = [StepMetrics(job_id=JOB, generation=generation, ranks=[rank])]
            if durable:
                at_ms = SystemClock().now_ms() + 3_000
                heard.append(CheckpointCompleted(job_id=JOB, step=self.step, at_ms=at_ms))
            for hear in list(self.ears):
                for one in heard:
                    await hear(one)


async def running(store: MemoryStore, fleet: SteppingFleet) -> Runner:
    """An automatic job that trains, and is listened to."""
    runner = controller(store, fleet)
    await runner.apply(LAUNCH)
    await until(store, lambda job: job.started)
    await runner.apply(RecordProgress(job_id=JOB, generation=1, step=1, at_ms=0))
    async with asyncio.timeout(20):
        while not fleet.ears:
            await asyncio.sleep(0)
    return runner


async def test_steps_that_are_told_change_the_interval_and_the_ranks_follow():
    """Decided once, told, seen in force; the answer to why has what was measured."""
    store, fleet = MemoryStore(clock=SystemClock()), SteppingFleet()
    runner = await running(store, fleet)
    await fleet.steps(40)
    job = await until(store, lambda job: job.interval.schedule.version == 1)
    assert job.interval.pending
    assert job.interval.decided.grounds.upload_count > 0
    async with asyncio.timeout(20):
        while not fleet.told:
            await asyncio.sleep(0)
    await fleet.steps(1)
    job = await until(store, lambda job: not job.interval.pending)
    assert job.interval.in_force.step == 41
    assert set(fleet.told) == {(1, 1)}
    told = explained(job, runner.watch.measured(JOB), at_ms=SystemClock().now_ms())
    inputs = {one["name"]: one for one in told["inputs"]}
    assert inputs["step"]["source"] == inputs["memory_stall"]["source"] == "measured"
    assert inputs["mtbf"]["source"] == "prior"
    assert inputs["memory_stall"]["value"] == 0.002
    assert told["expected_waste"]["total"] > 0
    assert told["best"]["object_every_steps"] == job.interval.schedule.object_every_steps
    await runner.close()
    assert fleet.ears == []


async def test_durable_stall_that_is_lost_in_the_scatter_is_said_to_be_nothing():
    """Else nobody understands why no other interval is worth a change."""
    store, fleet = MemoryStore(clock=SystemClock()), SteppingFleet()
    fleet.durable_ms = 0.0
    runner = await running(store, fleet)
    await fleet.steps(40)
    job = await runner.state(JOB)
    told = explained(job, runner.watch.measured(JOB), at_ms=SystemClock().now_ms())
    assert any("stalls no more than the others do" in one for one in told["would_change"])
    await runner.close()


async def test_ranks_that_nobody_could_tell_are_told_by_the_next_controller():
    """The change is stored before anybody hears of it."""
    store, fleet = MemoryStore(clock=SystemClock()), SteppingFleet()
    runner = await running(store, fleet)
    fleet.deaf = 10**6
    await runner.apply(SetInterval(job_id=JOB, object_every_steps=7, at_ms=1))
    await runner.close()
    assert fleet.told == []
    fleet.deaf = 0
    second = controller(store, fleet)
    second.wake(JOB)
    async with asyncio.timeout(20):
        while not (fleet.told and fleet.ears):
            await asyncio.sleep(0)
    await fleet.steps(1)
    job = await until(store, lambda job: not job.interval.pending)
    assert (job.interval.in_force.step, job.interval.schedule.object_every_steps) == (1, 7)
    await second.close()


async def test_step_of_another_generation_or_job_is_not_heard():
    """A late message of what was fenced off says nothing of what runs now."""
    store, fleet = MemoryStore(clock=SystemClock()), SteppingFleet()
    runner = await running(store, fleet)
    await runner.apply(SetInterval(job_id=JOB, object_every_steps=7, at_ms=1))
    fleet.version = 1
    await fleet.steps(3, generation=0)
    assert (await state_of(store)).interval.pending
    assert runner.watch.measured(JOB).step == 0
    await runner.close()
