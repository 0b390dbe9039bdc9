"""Asks a job's ranks to make each other's gradients, because somebody is under suspicion."""

from __future__ import annotations

import logging
from typing import Final

from everstep.core.errors import Unavailable
from everstep.core.ports import Bus
from everstep.monitor.state import Watch
from everstep.service.commands import host_subject, request
from everstep.wire.v1.agents_pb2 import RecomputeRanks
from everstep.wire.v1.common_pb2 import CommandReply

log = logging.getLogger(__name__)

ANSWER_S_MAX: Final = 1.0  # an agent passes it on in milliseconds; what is lost is asked again


async def ask_recompute(bus: Bus, watch: Watch, rank: int) -> None:
    """Have it passed on by the host of ``rank``; all ranks do it at the step they agree on."""
    host_id = next((host.host_id for host in watch.hosts if rank in host.ranks), "")
    command = RecomputeRanks(job_id=watch.job_id, generation=watch.generation)
    subject = host_subject(host_id, "cmd.recompute")
    try:
        await request(bus, subject, command, CommandReply, timeout_s=ANSWER_S_MAX)
    except Unavailable as error:
        log.warning("job %s: no recompute could be asked for: %s", watch.job_id, error)
