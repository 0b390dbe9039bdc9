"""An audit's ranks are told where one replica of a stored step lies."""

from __future__ import annotations

from dataclasses import replace

from tests.unit.checkpoint_registry.keeping import Clock, Objects
from tests.unit.checkpoint_registry.words import facts, shard

from everstep.checkpoint_registry.auditing import Audits
from everstep.checkpoint_registry.commands import Known
from everstep.checkpoint_registry.looking import Looks
from everstep.checkpoint_registry.state import History
from everstep.core.placement import Layout
from everstep.wire.codec import to_wire
from everstep.wire.v1 import checkpoints_pb2 as wire
from everstep.wire.v1.common_pb2 import Layout as WireLayout

LAYOUT = Layout(pp=2, dp_replicate=2, tp=2)  # replica 1: ranks 2, 3, 6 and 7


class Catalog:
    """Complete checkpoints of steps 10 and 20, the latter of two generations."""

    ids = ((10, 1), (20, 1), (20, 3))

    async def known(self, job_id):
        return [Known(step=step, generation=one, complete=True) for step, one in self.ids]

    async def complete(self, job_id):
        return tuple(
            type(facts(20))(
                step=step,
                generation=one,
                shards=tuple(shard(rank, step=step, generation=one) for rank in range(8)),
            )
            for step, one in self.ids
        )


async def asked(history: History, **changes) -> wire.PlanRestoreReply:
    """Ask for replica 1 of step 20."""

    async def history_of(_):
        return history

    catalog = Catalog()
    looks = Looks(history_of, catalog, Objects(), object(), Clock())
    asking = {"step": 20, "layout": LAYOUT, **changes}
    layout = to_wire(asking.pop("layout"), WireLayout())
    message = wire.PlanAudit(job_id="job", replica=1, layout=layout, **asking)
    return await Audits(history_of, catalog, looks).plan_audit(message)


async def test_newest_generation_of_the_step_is_loaded_and_only_the_replica_s_ranks():
    """With whose they are, and under which layout; all other ranks count as lost."""
    reply = await asked(History(layout=LAYOUT))
    assert (reply.outcome.accepted, reply.step) == (True, 20)
    sources = reply.sources
    assert [one.rank for one in sources.shards] == [2, 3, 6, 7]
    assert {one.uri for one in sources.shards} == {
        shard(rank, step=20, generation=3).uri for rank in (2, 3, 6, 7)
    }
    assert sources.shards_generation == 3
    assert list(sources.lost) == [0, 1, 4, 5]
    assert (sources.old_layout, sources.of_job_id) == (to_wire(LAYOUT, WireLayout()), "job")
    assert not sources.holders


async def test_step_that_no_restore_may_take_is_refused():
    """Not stored, or suspect: what comes of it says nothing of the hosts."""
    assert (await asked(History(layout=LAYOUT), step=30)).outcome.why == "no_such_step"


async def test_checkpoint_of_another_layout_is_refused():
    """The job had fewer ranks when it was taken."""
    fewer = replace(LAYOUT, dp_replicate=1)
    shrunk = History(layout=LAYOUT, layouts=((3, fewer),))
    assert (await asked(shrunk)).outcome.why == "other_layout"
    assert (await asked(shrunk, step=10)).outcome.accepted, "an earlier one had all"
