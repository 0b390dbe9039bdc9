"""Two instances of the monitor: each follows the jobs that the other was told of."""

from __future__ import annotations

import asyncio

import pytest
from tests.unit.monitor.test_watcher import HOSTS, Stage, killed

from everstep.bus.memory import MemoryBus
from everstep.monitor.commands import MarkJob
from everstep.monitor.curves import PATIENCE_MS, Curves
from everstep.monitor.events import Mark
from everstep.monitor.measurements import Rollup
from everstep.monitor.repair import Repairer
from everstep.monitor.siblings import Siblings


class Instance(Stage):
    """A monitor that looks at what others have stored."""

    def __init__(self, other: Stage | None = None) -> None:
        super().__init__(store=None if other is None else other.store)
        self.curves = Curves()
        repairer = Repairer(MemoryBus(), Rollup(), self.curves, self, lambda _: None)
        self.siblings = Siblings(self.store, self.watcher, repairer, 0)

    def told(self, step: int) -> None:
        """A host tells of a step of generation 1."""
        self.curves.saw("j", 1, step, "h0", self.at_ms)


async def mark(stage: Stage, mark: Mark, **fields) -> None:
    """The controller's event, handed to one instance."""
    command = {"job_id": "j", "generation": 1, "at_ms": stage.at_ms} | fields
    await stage.watcher.mark(MarkJob(mark=mark, **command))


async def pass_time(ms: int, *stages: Instance) -> None:
    """All hosts speak to all instances."""
    for passed in range(0, ms, 100):
        for stage in stages:
            await stage.tick(100)
            if passed % 1_000 == 0:
                await stage.siblings.look()


@pytest.fixture
async def pair():
    """One that was told of a job from its begin, and another one."""
    one = Instance()
    other = Instance(one)
    await mark(one, Mark.BEGUN, cause="launch")
    await mark(one, Mark.PLACED, hosts=HOSTS)
    await mark(one, Mark.PLANNED, step=0)
    await pass_time(7_000, one, other)
    return one, other


async def test_job_that_another_was_told_of_is_followed(pair):
    """Also where its next generation goes on from."""
    one, other = pair
    assert other.watcher.watched("j") == one.watcher.watched("j")
    other.told(1)
    other.told(2)
    await mark(one, Mark.BEGUN, generation=2, cause="recovery")
    await mark(one, Mark.PLACED, generation=2, hosts=HOSTS[:2])
    await mark(one, Mark.PLANNED, generation=2, step=1)
    await other.siblings.look()
    watch = other.watcher.watched("j")
    assert (watch.generation, watch.hosts) == (2, HOSTS[:2])
    other.curves.saw("j", 2, 3, "h0", other.at_ms)
    (hole,) = other.curves.holes(other.at_ms + PATIENCE_MS)
    assert hole.after_step == 1


@pytest.mark.parametrize("first", [0, 1])
async def test_failure_that_both_see_is_one_incident(pair, first):
    """Whoever sees it first: what the store knows decides."""
    for stage in pair:
        stage.dead.add("h2")
    order = (pair[first], pair[1 - first])
    for stage in order:
        stage.watcher.heard("h0")
    await asyncio.gather(*(pass_time(6_000, stage) for stage in order))
    (incident,) = await order[0].incidents()
    assert (incident.kind, incident.hosts) == ("host_lost", ("h2",))


async def test_rank_that_ends_is_judged_by_the_instance_that_is_told(pair):
    """Reports, too, are handed to one of them: it need not be the one that knows the job."""
    _, other = pair
    for host in HOSTS:
        await other.watcher.stepped("j", 1, host.host_id, 5)
    await other.watcher.exited(killed(2))
    await pass_time(500, *pair)
    (incident,) = await other.incidents()
    assert incident.ranks == (2,)


async def test_job_whose_end_another_was_told_of_is_left_alone(pair):
    """Nobody asks its hosts any more; the holes of its curve are asked about now."""
    one, other = pair
    other.told(1)
    await mark(one, Mark.ENDED, cause="succeeded", step=3)
    await other.siblings.look()
    assert other.watcher.watched("j") is None
    assert other.watcher.jobs_on("h0") == []
    (hole,) = other.curves.holes(other.at_ms + PATIENCE_MS)
    assert hole.after_step == 1


async def test_job_that_is_over_in_the_store_is_left_alone_without_a_look(pair):
    """Whatever it takes up next shows that the job is over."""
    one, other = pair
    await mark(one, Mark.ENDED, cause="stopped")
    assert other.watcher.watched("j") is not None
    for host in HOSTS:
        await other.watcher.stepped("j", 1, host.host_id, 1)
    assert other.watcher.watched("j") is None


async def test_end_of_an_older_generation_drops_no_job(pair):
    """Told again after the job was begun anew."""
    one, _ = pair
    await mark(one, Mark.ENDED, cause="failed")
    await mark(one, Mark.BEGUN, generation=2, cause="restart")
    await mark(one, Mark.ENDED, cause="failed")
    assert one.watcher.watched("j").generation == 2


async def test_look_without_news_is_one_read(pair):
    """Alone, or with others that have nothing to tell."""
    one, _ = pair
    await one.siblings.look()
    read: list[str] = []
    read_all, load = one.store.read_all, one.store.load

    async def counted_all(**fields):
        read.append("all")
        return await read_all(**fields)

    async def counted(*arguments, **fields):
        read.append("one")
        return await load(*arguments, **fields)

    one.store.read_all, one.store.load = counted_all, counted
    await one.siblings.look()
    assert read == ["all"]
