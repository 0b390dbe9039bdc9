"""Asks a job's agents what their ranks are doing."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, Final

from everstep.core.errors import Unavailable
from everstep.core.ports import Bus
from everstep.core.record import changed
from everstep.core.spec import LayoutSpec
from everstep.core.system import Clock
from everstep.monitor.detectors.hang_stacks import RankLook
from everstep.monitor.detectors.hang_verdict import Look
from everstep.monitor.state import Watch
from everstep.service.commands import host_subject, request
from everstep.wire.codec import from_wire
from everstep.wire.v1.agents_pb2 import TellStacks, TellStacksReply

# An agent takes at most 0.8 s to look; the rest is for a host whose cores are all busy.
ANSWER_S_MAX: Final = 2.0


async def look_at(
    bus: Bus,
    clock: Clock,
    job_id: str,
    generation: int,
    host_ids: Sequence[str],
    layout: LayoutSpec,
) -> Look:
    """Return what every rank of a generation is doing; hosts that do not say are left out."""
    command = TellStacks(job_id=job_id, generation=generation)

    async def ask(host_id: str) -> tuple[RankLook, ...]:
        subject = host_subject(host_id, "cmd.stacks")
        try:
            reply = await request(bus, subject, command, TellStacksReply, timeout_s=ANSWER_S_MAX)
        except Unavailable:
            return ()
        return rank_looks(reply)

    answers = await asyncio.gather(*(ask(host_id) for host_id in host_ids))
    ranks = (one for answer in answers for one in answer)
    return Look.of(clock.now_ms(), ranks, layout)


def rank_looks(reply: TellStacksReply) -> tuple[RankLook, ...]:
    """Return what an agent says of its ranks; nothing when it refuses."""
    return tuple(changed(from_wire(one, RankLook), host_id=reply.host_id) for one in reply.ranks)


def told(look: Look, watch: Watch) -> dict[str, Any]:
    """Return a look for a person or a program: groups of ranks by what they do and where."""
    outliers = frozenset(look.grouping.outliers)
    return {
        "job_id": watch.job_id,
        "generation": watch.generation,
        "at_ms": look.at_ms,
        "groups": [
            {
                "role": group.place.role.value,
                "where": group.place.where,
                "ranks": list(group.ranks),
                "hosts": list(group.hosts),
                "stands_out": bool(outliers & set(group.ranks)),
                "frames": list(group.frames),
            }
            for group in look.grouping.groups
        ],
        "unseen": list(look.grouping.unseen),
        "ranks": [
            {
                "rank": one.rank,
                "host_id": one.host_id,
                "step": one.step,
                "state": one.state.value.removeprefix("PROCESS_").lower(),
                "phase": one.phase.value.removeprefix("PHASE_").lower(),
                "cpu_share": round(one.cpu_share, 3),
            }
            for _, one in sorted(look.ranks.items())
        ],
    }
