"""Idle hosts: one that left is not missed; one that is back, or falls silent, is."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.monitor.test_watcher import Stage

from everstep.core.ports import Consumed
from everstep.monitor.codec import CODEC
from everstep.monitor.events import IncidentClosed
from everstep.monitor.idle import IdleHosts
from everstep.monitor.inputs import on_inventory
from everstep.monitor.policy import Limits
from everstep.wire.v1.envelope_pb2 import EventEnvelope
from everstep.wire.v1.hosts_pb2 import HostJoined, HostLeft

LEFT = {"host_left": HostLeft(host_id="spare")}
JOINED = {"host_joined": HostJoined(host_id="spare")}


@pytest.mark.parametrize(
    ("told", "lost"), [((), ["spare"]), ((LEFT,), []), ((LEFT, JOINED), ["spare"])]
)
async def test_host_whose_heartbeat_comes_after_it_left_is_not_lost(
    told: tuple[dict[str, Any], ...], lost: list[str]
):
    """Messages of hosts and events of the inventory may overtake one another."""
    stage = Stage()
    await stage.tick(7_000)
    receive = on_inventory(stage.watcher)
    stage.watcher.heard("spare")
    for payload in told:
        await receive(EventEnvelope(**payload), Consumed(consumer="x", source="y", position=1))
    stage.watcher.heard("spare")
    stage.dead.add("spare")
    await stage.tick(5_000)
    assert [host for incident in await stage.incidents() for host in incident.hosts] == lost


async def test_host_that_is_told_to_have_left_after_it_was_taken_for_lost_is_missed_no_more():
    """Its loss is closed, and when it is back and falls silent again that is another one."""
    stage = Stage()
    await stage.tick(7_000)
    receive = on_inventory(stage.watcher)
    stage.watcher.heard("spare")
    stage.dead.add("spare")
    await stage.tick(5_000)
    for payload in (LEFT, LEFT, JOINED):
        await receive(EventEnvelope(**payload), Consumed(consumer="x", source="y", position=1))
    events = await stage.store.read_all(after_position=0, limit=1_000)
    facts = [CODEC.decode(event.type, event.data) for event in events]
    ends = [fact for fact in facts if isinstance(fact, IncidentClosed)]
    assert [one.why for one in ends] == ["the host has left the fleet"]
    await stage.tick(5_000)
    assert [(one.kind, one.hosts) for one in await stage.incidents()] == [
        ("host_lost", ("spare",)),
        ("host_lost", ("spare",)),
    ]


def test_host_that_is_back_after_it_left_is_heard_again():
    """It lives, and would be missed otherwise."""
    idle = IdleHosts(Limits())
    idle.heard("h", 1)
    idle.forget("h", left=True)
    idle.heard("h", 2)
    assert idle.heard_ms == ()
    idle.expect(["h"], 3)
    idle.heard("h", 4)
    assert idle.heard_ms == (4,)


async def test_idle_host_whose_incident_could_not_be_stored_is_found_again():
    """A database that is away for a moment must not hide a dead spare for good."""
    stage = Stage()
    await stage.tick(7_000)
    stage.watcher.heard("spare")
    stage.dead.add("spare")
    stage.store.away = True
    await stage.tick(4_000)
    stage.store.away = False
    await stage.tick(12_000)
    (incident,) = await stage.incidents()
    assert incident.hosts == ("spare",)


async def test_idle_host_that_does_not_answer_once_is_asked_again():
    """A late answer is likelier than a lost machine, and nobody waits for the verdict."""
    stage = Stage()
    await stage.tick(7_000)
    stage.watcher.heard("spare")
    stage.mute.add("spare")
    await stage.tick(3_500)
    assert await stage.incidents() == []
    stage.watcher.heard("spare")
    await stage.tick(3_500)
    assert await stage.incidents() == [], "it has spoken meanwhile: the count begins anew"
    await stage.tick(1_500)
    [incident] = await stage.incidents()
    assert (incident.job_id, incident.hosts) == ("", ("spare",))
    assert "silent for 4" in incident.reason
