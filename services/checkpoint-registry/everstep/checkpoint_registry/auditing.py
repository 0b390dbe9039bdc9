"""Says where an audit's ranks load one replica of another job's step from.

Only complete checkpoints that a restore may go back to are audited, and only from the object store:
what lies in the hosts' memory is theirs to overwrite. The answer is no plan: it is in no history,
the job goes on, and what is loaded is changed by nobody. An audit that comes too late finds a
shard gone, and ends.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

from everstep.checkpoint_registry import codec
from everstep.checkpoint_registry.catalog import Catalog
from everstep.checkpoint_registry.commands import CompleteFacts
from everstep.checkpoint_registry.looking import Looks
from everstep.checkpoint_registry.state import History
from everstep.core.decision import Rejected
from everstep.core.placement import Layout
from everstep.core.resharding import coordinate_of
from everstep.wire.codec import from_wire, to_wire
from everstep.wire.v1 import checkpoints_pb2 as wire
from everstep.wire.v1.common_pb2 import Layout as WireLayout

NO_SUCH_STEP: Final = "no_such_step"
OTHER_LAYOUT: Final = "other_layout"


class Audits:
    """Answers ``PlanAudit``."""

    def __init__(
        self,
        history_of: Callable[[str], Awaitable[History]],
        catalog: Catalog,
        looks: Looks,
    ) -> None:
        """``history_of`` returns what is known of a job."""
        self._history_of = history_of
        self._catalog = catalog
        self._looks = looks

    async def plan_audit(self, message: wire.PlanAudit) -> wire.PlanRestoreReply:
        """Return the sources of one replica's ranks, or why there are none."""
        job_id, step = message.job_id, message.step
        good = [one for one in await self._looks.restorable(job_id) if one.step == step]
        newest = max((one.generation for one in good), default=0)
        for facts in await self._catalog.complete(job_id):
            if (facts.step, facts.generation) == (step, newest):
                history = await self._history_of(job_id)
                return _answer(message, facts, history.layout_of(newest) or history.layout)
        detail = f"job {job_id!r} has no checkpoint of step {step} that may be restored"
        return _refused(NO_SUCH_STEP, detail)


def _answer(
    message: wire.PlanAudit, facts: CompleteFacts, layout: Layout | None
) -> wire.PlanRestoreReply:
    expected = from_wire(message.layout, Layout)
    if layout != expected:
        return _refused(
            OTHER_LAYOUT,
            f"the checkpoint of step {facts.step} of job {message.job_id!r} was taken under the "
            f"layout {layout}, and {expected} was asked for",
        )
    ranks = range(expected.world_size)
    theirs = {one for one in ranks if coordinate_of(expected, one).replicate == message.replica}
    return wire.PlanRestoreReply(
        outcome=codec.outcome(None),
        step=facts.step,
        sources=wire.RestoreSources(
            shards=[
                wire.Shard(
                    rank=shard.rank, uri=shard.uri, bytes=shard.bytes, checksum=shard.checksum
                )
                for shard in facts.shards
                if shard.rank in theirs
            ],
            shards_generation=facts.generation,
            old_layout=to_wire(expected, WireLayout()),
            lost=[one for one in ranks if one not in theirs],
            of_job_id=message.job_id,
        ),
    )


def _refused(why: str, detail: str) -> wire.PlanRestoreReply:
    return wire.PlanRestoreReply(outcome=codec.outcome(Rejected(why, detail)), step=-1)
