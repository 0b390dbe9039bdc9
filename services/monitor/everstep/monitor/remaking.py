"""Asks for work to be done once more: by a job's ranks among one another, or by spare hosts."""

from __future__ import annotations

import logging
from typing import Final

from everstep.core.errors import Unavailable
from everstep.core.ports import Bus
from everstep.monitor.state import Watch
from everstep.service.commands import host_subject, request, send_command
from everstep.wire.v1.agents_pb2 import RecomputeRanks
from everstep.wire.v1.common_pb2 import CommandReply
from everstep.wire.v1.jobs_pb2 import AuditStep

log = logging.getLogger(__name__)

ANSWER_S_MAX: Final = 1.0  # an agent passes it on in milliseconds; what is lost is asked again
AUDIT_S_MAX: Final = 5.0  # the controller stores a job; what is not answered is asked once more


async def ask_recompute(bus: Bus, watch: Watch, rank: int) -> None:
    """Have it passed on by the host of ``rank``; all ranks do it at the step they agree on."""
    host_id = next((host.host_id for host in watch.hosts if rank in host.ranks), "")
    command = RecomputeRanks(job_id=watch.job_id, generation=watch.generation)
    subject = host_subject(host_id, "cmd.recompute")
    try:
        await request(bus, subject, command, CommandReply, timeout_s=ANSWER_S_MAX)
    except Unavailable as error:
        log.warning("job %s: no recompute could be asked for: %s", watch.job_id, error)


async def ask_audit(bus: Bus, command: AuditStep) -> str:
    """Ask the controller to have a step done again elsewhere; returns why it is not, or ""."""
    try:
        reply = await send_command(bus, "controller", command, CommandReply, timeout_s=AUDIT_S_MAX)
    except Unavailable as error:
        return str(error)
    outcome = reply.outcome
    return "" if outcome.accepted else f"{outcome.why}: {outcome.detail}"
