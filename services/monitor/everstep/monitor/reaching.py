"""Asks the hosts of a job, and a few others, whether they reach one another."""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import Iterable, Sequence
from typing import Final

from everstep.core.errors import Unavailable
from everstep.core.ports import Bus
from everstep.core.system import Clock
from everstep.monitor.detectors.links import (
    REFEREES_MAX,
    LinkCheck,
    LinkLook,
    plan_checks,
)
from everstep.service.commands import host_subject, request, send_command
from everstep.wire.v1.agents_pb2 import CheckLinks, CheckLinksReply, LinkPeer
from everstep.wire.v1.hosts_pb2 import ListHosts, ListHostsReply

log = logging.getLogger(__name__)

LIST_S_MAX: Final = 1.0
ANSWER_S_MAX: Final = 1.5  # an agent takes at most 0.8 s; the rest is for busy cores


async def try_links(bus: Bus, clock: Clock, hosts: Sequence[str], salt: str) -> LinkLook | None:
    """Return what the hosts say of their ways to one another.

    Whoever does not answer in time is judged by what others say of it.

    Args:
        bus: to the hosts, and to the inventory, which knows their addresses.
        clock: dates the look.
        hosts: of the job.
        salt: chooses who checks whom.

    Returns:
        None when the inventory does not tell any addresses.
    """
    try:
        listed = await send_command(
            bus, "host_inventory", ListHosts(), ListHostsReply, timeout_s=LIST_S_MAX
        )
    except Unavailable as error:
        log.warning("links cannot be tried: %s", error)
        return None
    peers = {
        one.host_id: LinkPeer(host_id=one.host_id, address=one.address, port=one.peer_port)
        for one in listed.addresses
        if one.peer_port
    }
    if len(peers) < 2:
        return None
    plan = plan_checks(hosts, _referees(peers.keys() - set(hosts), salt), salt=salt)

    async def ask(host_id: str, targets: Sequence[str]) -> list[LinkCheck]:
        command = CheckLinks(peers=[peers[target] for target in targets if target in peers])
        subject = host_subject(host_id, "cmd.links")
        try:
            reply = await request(bus, subject, command, CheckLinksReply, timeout_s=ANSWER_S_MAX)
        except Unavailable:
            return []
        return [
            LinkCheck(source=host_id, target=one.host_id, reached=one.reached)
            for one in reply.links
        ]

    answers = await asyncio.gather(*(ask(host_id, plan[host_id]) for host_id in sorted(plan)))
    checks = tuple(check for answer in answers for check in answer)
    return LinkLook(at_ms=clock.now_ms(), hosts=tuple(sorted(hosts)), checks=checks)


def _referees(others: Iterable[str], salt: str) -> list[str]:
    """Choose a few hosts outside the job, others with another salt."""
    return sorted(others, key=lambda host: hashlib.sha256(f"{salt}/{host}".encode()).digest())[
        :REFEREES_MAX
    ]
