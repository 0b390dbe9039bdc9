"""When the watch loop looks at the ranks of a run, and what a step that does not come means."""

from __future__ import annotations

import pytest
from tests.unit.monitor.audit_stage import AuditStage
from tests.unit.monitor.hang_looks import all_but, spinning
from tests.unit.monitor.test_watcher import HOSTS, Stage, echo

from everstep.bus.memory import MemoryBus
from everstep.core.placement import Layout
from everstep.core.ports import Message
from everstep.core.spec import LayoutSpec
from everstep.monitor.commands import MarkJob
from everstep.monitor.curves import Curves
from everstep.monitor.detectors.hang_verdict import Look
from everstep.monitor.events import Action, Mark
from everstep.monitor.inputs import on_metrics
from everstep.monitor.measurements import Rollup
from everstep.monitor.repair import Repairer
from everstep.monitor.state import Watch
from everstep.wire.v1.agents_pb2 import RankStep, StepMetrics

SUBMITTED = MarkJob(
    job_id="j",
    generation=0,
    mark=Mark.SUBMITTED,
    layout=Layout(dp_shard=6),
    steps=1_000,
    collective_timeout_ms=120_000,
)


async def plan(stage: Stage) -> None:
    """Launch the job: its first step may be made from now on."""
    await stage.watcher.mark(SUBMITTED)
    marks = ((Mark.BEGUN, {"cause": "launch"}), (Mark.PLACED, {"hosts": HOSTS}))
    for mark, fields in (*marks, (Mark.PLANNED, {"step": -1})):
        await stage.watcher.mark(MarkJob(job_id="j", generation=1, mark=mark, **fields))


@pytest.fixture
async def planned() -> Stage:
    """The same job, whose layout is known and which steps once a second."""
    stage = Stage()
    await plan(stage)
    for step in range(1, 11):
        await stage.tick(1_000)
        for host in HOSTS:
            await stage.watcher.stepped("j", 1, host.host_id, step)
    return stage


async def test_rank_that_is_stopped_is_named_within_15_s(planned: Stage):
    """Its neighbours wait for it and are not blamed; it is restarted where it is."""
    planned.stopped = {3}
    await planned.tick(15_000)
    (incident,) = await planned.incidents()
    assert (incident.kind, incident.action) == ("rank_stopped", Action.RESTART)
    assert (incident.ranks, incident.hosts, incident.step) == ((3,), ("h1",), 10)
    assert "process state T" in incident.reason


class Spinning(Stage):
    """Rank 3 never comes to its first collective."""

    async def look(self, watch: Watch) -> Look:
        """As agents see it."""
        ranks = all_but(spinning(3), world=6)
        return Look.of(self.at_ms, ranks, LayoutSpec(dp_shard=6))


async def test_rank_that_hangs_in_a_first_step_is_named_when_the_others_give_up():
    """Until then it might have been compiling."""
    stage = Spinning()
    await plan(stage)
    await stage.tick(121_000)
    assert await stage.incidents() == []
    await stage.watcher.echoed(echo(0))
    await stage.tick(3_000)
    (incident,) = await stage.incidents()
    assert (incident.kind, incident.ranks) == ("rank_spinning", (3,))


async def test_run_that_steps_on_is_not_looked_at(planned: Stage):
    """A stopped rank would be found; but nobody looks while steps come."""
    planned.stopped = {3}
    for step in range(11, 41):
        await planned.tick(1_000)
        for host in HOSTS:
            await planned.watcher.stepped("j", 1, host.host_id, step)
    assert await planned.incidents() == []


async def test_run_that_a_blind_monitor_cannot_see_is_not_judged(planned: Stage):
    """Steps may have come that it has not heard of; it begins to wait anew."""
    planned.stopped = {3}
    planned.connected = False
    await planned.tick(30_000)
    planned.connected = True
    await planned.tick(6_000)
    assert await planned.incidents() == []


async def test_steps_that_are_told_in_one_go_do_not_make_the_next_one_late(planned: Stage):
    """What agents kept while the bus was away comes at once: all wait, in a sound long step."""
    repairer = Repairer(MemoryBus(), Rollup(), Curves(), planned, planned.watcher.told_again)
    receive = on_metrics(planned.watcher, repairer, AuditStage().auditing)
    for step in range(11, 51):
        told = [RankStep(rank=0, step=step, step_time_ms=20_000), RankStep(rank=1, step=step)]
        metrics = StepMetrics(host_id="h0", job_id="j", generation=1, ranks=told)
        await receive(Message(subject="x", data=metrics.SerializeToString(), headers={}))
    await planned.tick(30_000)
    assert await planned.incidents() == []


async def test_run_after_its_last_step_is_not_late_with_another(planned: Stage):
    """Ranks may take their time to leave."""
    for host in HOSTS:
        await planned.watcher.stepped("j", 1, host.host_id, 1_000)
    planned.stopped = {3}
    await planned.tick(30_000)
    assert await planned.incidents() == []
