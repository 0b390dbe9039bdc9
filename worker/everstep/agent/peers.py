"""Finds a peer that does not answer where it was.

An agent keeps its port over restarts, but another program may have taken it meanwhile; it joins
the inventory with a new one. Who cannot reach its peer asks the inventory where it is. Rejected:
the controller telling everybody who keeps copies there, which takes an event, a command and a
retry for what only those hosts need to know that find out by themselves.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace
from typing import Final

from everstep.agent.replication import Replicator
from everstep.agent.runs import Peer, Runs
from everstep.core.errors import EverstepError
from everstep.core.ports import Bus
from everstep.service.commands import send_command
from everstep.wire.v1.hosts_pb2 import ListHosts, ListHostsReply

log = logging.getLogger(__name__)

# An agent that is back has joined within a second. Even if each of 2,048 hosts had lost its peer,
# the inventory would be asked some 400 times a second, by one name each; copies wait for 30 s.
LOOK_S: Final = 5.0
REQUEST_S_MAX: Final = 2.0


async def keep_found(bus: Bus, runs: Runs, replicator: Replicator) -> None:
    """Look for the peers of runs whose snapshots cannot be pushed, for ever."""
    while True:
        await asyncio.sleep(LOOK_S)
        for run in runs.all():
            peer = run.start.peer
            if peer is None or not replicator.is_failing(run.job_id, run.generation):
                continue
            found = await _look(bus, peer)
            if found is None or found == peer:
                continue
            log.warning(
                "peer %s of job %s is at %s:%d now, not at %s:%d",
                peer.host_id, run.job_id, found.address, found.peer_port,
                peer.address, peer.peer_port,
            )  # fmt: skip
            run.start = replace(run.start, peer=found)
            runs.save(run)
            replicator.move(run.job_id, run.generation, found)


async def _look(bus: Bus, peer: Peer) -> Peer | None:
    """Return where the inventory says a peer is; None if it does not say."""
    try:
        told = await send_command(
            bus,
            "host_inventory",
            ListHosts(hosts=[peer.host_id]),
            ListHostsReply,
            timeout_s=REQUEST_S_MAX,
        )
    except EverstepError as error:
        log.info("peer %s cannot be looked for: %s", peer.host_id, error)
        return None
    # One of an older version names all hosts.
    there = [one for one in told.addresses if one.host_id == peer.host_id]
    return next(
        (Peer(host_id=o.host_id, address=o.address, peer_port=o.peer_port) for o in there), None
    )
