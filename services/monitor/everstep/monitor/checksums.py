"""Asks hosts for the checksums of what their ranks hold of a step."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import Final

from everstep.core.errors import Unavailable
from everstep.core.ports import Bus
from everstep.monitor.detectors.corruption import Values
from everstep.monitor.state import Watch
from everstep.service.commands import host_subject, request
from everstep.wire.v1.agents_pb2 import TellChecksums, TellChecksumsReply

# Headers of a few hundred tensors a rank are read in milliseconds; the rest is for a busy host. A
# verdict does without whoever takes longer: the run makes wrong steps meanwhile.
ANSWER_S_MAX: Final = 1.0
TRIES: Final = 2  # a message may be lost


async def ask_checksums(
    bus: Bus, watch: Watch, step: int, ranks: Iterable[int]
) -> Mapping[int, Values]:
    """Return by rank what its snapshot of a step has, where its host answers in time."""
    wanted = frozenset(ranks)

    async def ask(host_id: str, there: list[int]) -> TellChecksumsReply | None:
        command = TellChecksums(job_id=watch.job_id, step=step, ranks=there)
        subject = host_subject(host_id, "cmd.checksums")
        for _ in range(TRIES):
            try:
                return await request(
                    bus, subject, command, TellChecksumsReply, timeout_s=ANSWER_S_MAX
                )
            except Unavailable:
                continue
        return None

    questions = [
        ask(host.host_id, there)
        for host in watch.hosts
        if (there := sorted(wanted.intersection(host.ranks)))
    ]
    replies = await asyncio.gather(*questions)
    return {
        one.rank: {(tensor.over, tensor.name): tensor.checksum for tensor in one.tensors}
        for reply in replies
        if reply is not None
        for one in reply.ranks
    }
