"""Which hosts there are, for who has heard no event yet."""

from __future__ import annotations

from dataclasses import replace

from tests.unit.host_inventory.fleet import join, place

from everstep.core.system import RandomIds, SystemClock
from everstep.eventstore.memory import MemoryStore
from everstep.host_inventory.codec import FLEET
from everstep.host_inventory.commands import CordonHost, LeaveHost
from everstep.host_inventory.heartbeats import Heartbeats
from everstep.host_inventory.keeper import FleetKeeper
from everstep.service.handler import Handler
from everstep.wire.v1.hosts_pb2 import ListHosts


async def keeper_of(*host_ids):
    """A keeper of hosts that have joined."""
    clock = SystemClock()
    handler = Handler(FLEET, MemoryStore(clock=clock), RandomIds())
    keeper = FleetKeeper(handler, Heartbeats(clock))
    for host_id in host_ids:
        await keeper.apply(join(host_id))
    return keeper


async def test_hosts_that_may_work_are_listed():
    """Busy or free; neither cordoned ones nor those that left."""
    keeper = await keeper_of("busy", "free", "sick", "left")
    await keeper.apply(place())
    await keeper.apply(CordonHost(host_id="sick", reason="x", incident_id="", at_ms=2))
    await keeper.apply(LeaveHost(host_id="left", at_ms=2))
    reply = await keeper.list_hosts(ListHosts())
    assert list(reply.hosts) == ["busy", "free"]
    assert [one.host_id for one in reply.addresses] == ["busy", "free"]
    assert all(one.address and one.peer_port for one in reply.addresses)


async def test_only_hosts_that_are_named_are_listed_where_they_are_now():
    """Who looks for one of 2,048 is not told of all; a host that nobody knows is left out."""
    keeper = await keeper_of("moved", "other")
    await keeper.apply(replace(join("moved", epoch="e2", at_ms=2), peer_port=7001))
    reply = await keeper.list_hosts(ListHosts(hosts=["moved", "nobody"]))
    [one] = reply.addresses
    assert (one.host_id, one.address, one.peer_port) == ("moved", "moved.net", 7001)
    assert list(reply.hosts) == ["moved"]
