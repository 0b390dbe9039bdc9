"""Which hosts there are, for who has heard no event yet."""

from __future__ import annotations

from tests.unit.host_inventory.fleet import join, place

from everstep.core.system import RandomIds, SystemClock
from everstep.eventstore.memory import MemoryStore
from everstep.host_inventory.codec import FLEET
from everstep.host_inventory.commands import CordonHost, LeaveHost
from everstep.host_inventory.heartbeats import Heartbeats
from everstep.host_inventory.keeper import FleetKeeper
from everstep.service.handler import Handler
from everstep.wire.v1.hosts_pb2 import ListHosts


async def test_hosts_that_may_work_are_listed():
    """Busy or free; neither cordoned ones nor those that left."""
    clock = SystemClock()
    handler = Handler(FLEET, MemoryStore(clock=clock), RandomIds())
    keeper = FleetKeeper(handler, Heartbeats(clock))
    for host_id in ("busy", "free", "sick", "left"):
        await keeper.apply(join(host_id))
    await keeper.apply(place())
    await keeper.apply(CordonHost(host_id="sick", reason="x", incident_id="", at_ms=2))
    await keeper.apply(LeaveHost(host_id="left", at_ms=2))
    reply = await keeper.list_hosts(ListHosts())
    assert list(reply.hosts) == ["busy", "free"]
    assert [one.host_id for one in reply.addresses] == ["busy", "free"]
    assert all(one.address and one.peer_port for one in reply.addresses)
