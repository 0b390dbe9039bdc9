"""The inventory over NATS and HTTP, on a real database."""

from __future__ import annotations

import asyncio

from tests.integration.service_process import FakeService, ServiceProcess, service_process
from tests.waiting import until

from everstep.bus.nats import NatsBus
from everstep.core.system import RandomIds, SystemClock
from everstep.service.commands import host_subject, send_command
from everstep.wire.v1 import hosts_pb2
from everstep.wire.v1.agents_pb2 import Heartbeat
from everstep.wire.v1.common_pb2 import CommandReply, Layout, Outcome
from everstep.wire.v1.envelope_pb2 import EventEnvelope

CLOCK = SystemClock()
DEMO = Layout(pp=2, dp_replicate=1, dp_shard=2, tp=2)
REPLY_S = 20.0


async def join(bus: NatsBus, host_id: str, *, pod: str = "a", epoch: str = "e1") -> Outcome:
    """Let a host of two chips join."""
    command = hosts_pb2.JoinHost(
        host_id=host_id,
        pod=pod,
        power="",
        chips=2,
        address=f"{host_id}.net",
        peer_port=7000,
        agent_epoch=epoch,
        at_ms=CLOCK.now_ms(),
    )
    return (await ask(bus, command)).outcome


async def ask(bus: NatsBus, command) -> CommandReply:
    """Send a command without a reply of its own."""
    return await send_command(bus, "host_inventory", command, CommandReply, timeout_s=REPLY_S)


async def place(bus: NatsBus, job_id: str, generation: int = 1, lost=(), layout: Layout = DEMO):
    """Ask for hosts."""
    command = hosts_pb2.PlaceJob(
        job_id=job_id,
        generation=generation,
        layout=layout,
        lost_hosts=lost,
        reason="host_lost",
        incident_id="i1",
        at_ms=CLOCK.now_ms(),
    )
    return await send_command(
        bus, "host_inventory", command, hosts_pb2.PlaceJobReply, timeout_s=REPLY_S
    )


async def five_hosts(bus: NatsBus) -> None:
    """Two pods, one spare."""
    for host_id, pod in (("a1", "a"), ("a2", "a"), ("a3", "a"), ("b1", "b"), ("b2", "b")):
        assert (await join(bus, host_id, pod=pod)).accepted


async def states(inventory: ServiceProcess) -> dict[str, str]:
    """Return host -> state as the API tells."""
    found = await inventory.get("/v1/hosts")
    return {host["host_id"]: host["state"] for host in found["hosts"]}


async def test_hosts_join_are_placed_replaced_and_released(inventory, bus):
    """A job's life as the controller sees it, and as people see it."""
    await five_hosts(bus)
    assert set((await states(inventory)).values()) == {"spare"}
    first = await place(bus, "job")
    assert [h.host_id for h in first.placement.hosts] == ["a1", "b1", "a2", "b2"]
    assert first.placement.hosts[0].replica_host_id == "b2"
    assert await place(bus, "job") == first
    second = await place(bus, "job", 2, ["a1"])
    assert list(second.replacements) == ["a3"]
    assert await states(inventory) == {
        "a1": "cordoned",
        "a2": "active",
        "a3": "active",
        "b1": "active",
        "b2": "active",
    }
    (placement,) = (await inventory.get("/v1/placements"))["placements"]
    assert (placement["job_id"], placement["generation"]) == ("job", 2)
    assert [host["host_id"] for host in placement["hosts"]] == ["a3", "b1", "a2", "b2"]
    stale = await place(bus, "job", 1)
    assert (stale.outcome.accepted, stale.outcome.why) == (False, "stale_generation")
    await ask(bus, hosts_pb2.ReleaseJob(job_id="job", at_ms=CLOCK.now_ms()))
    assert (await inventory.get("/v1/placements"))["placements"] == []
    found = await states(inventory)
    assert {found.pop("a1"), *found.values()} == {"cordoned", "spare"}


async def test_events_are_published_under_their_host_or_job(inventory, bus):
    """What other services follow."""
    seen: list[tuple[str, EventEnvelope]] = []

    async def receive(message) -> None:
        seen.append((message.subject, EventEnvelope.FromString(message.data)))

    host = RandomIds().new_id("h")
    job = RandomIds().new_id("j")
    await bus.consume(
        "everstep.v1.event.host_inventory.>", receive, durable=RandomIds().new_id("test")
    )
    await join(bus, host)
    await place(bus, job, layout=Layout(pp=1, dp_replicate=1, dp_shard=1, tp=2))
    prefix = "everstep.v1.event.host_inventory"

    def subjects() -> list[str]:
        return [subject for subject, _ in seen]

    await until(lambda: f"{prefix}.{job}.job_placed" in subjects())
    assert f"{prefix}.{host}.host_joined" in subjects()
    (placed,) = (e.job_placed for s, e in seen if s == f"{prefix}.{job}.job_placed")
    assert list(placed.placement.hosts[0].ranks) == [0, 1]


async def test_person_cordons_and_uncordons_over_http(inventory, bus):
    """The API says what became of the host, and 404 for one that nobody knows."""
    await join(bus, "h1")
    answer = await inventory.http.post("/v1/hosts/h1/cordon", json={"reason": "fan"})
    assert answer.status_code == 200
    assert (answer.json()["state"], answer.json()["cordon_reason"]) == ("cordoned", "fan")
    answer = await inventory.http.post("/v1/hosts/h1/uncordon", json={})
    assert (answer.json()["state"], answer.json()["cordon_reason"]) == ("spare", "")
    for method, path in (("GET", ""), ("POST", "/cordon"), ("POST", "/uncordon")):
        missing = await inventory.http.request(method, f"/v1/hosts/nobody{path}")
        assert missing.status_code == 404
        assert "nobody" in missing.json()["error"]["message"]


async def test_errors_add_up_and_leaving_hides_the_host(inventory, bus):
    """Counts survive a goodbye and a return."""
    await join(bus, "h1")
    for at_ms, count in ((10, 2), (10, 2), (11, 3)):
        await ask(bus, hosts_pb2.CountErrors(host_id="h1", kind="ecc", count=count, at_ms=at_ms))
    assert (await inventory.get("/v1/hosts/h1"))["error_counts"] == {"ecc": 5}
    await ask(bus, hosts_pb2.LeaveHost(host_id="h1", at_ms=CLOCK.now_ms()))
    assert await states(inventory) == {}
    assert (await inventory.get("/v1/hosts", left=True))["hosts"][0]["state"] == "left"
    await join(bus, "h1", epoch="e2")
    assert (await inventory.get("/v1/hosts/h1"))["error_counts"] == {"ecc": 5}


async def test_heartbeats_are_kept_and_guard_a_working_hosts_id(inventory, bus):
    """A second machine under the id of one that works and lives is refused."""
    await join(bus, "h1")
    await place(bus, "job", layout=Layout(pp=1, dp_replicate=1, dp_shard=1, tp=2))
    assert (await inventory.get("/v1/hosts/h1"))["last_heartbeat_ms"] is None
    beat = Heartbeat(host_id="h1", agent_epoch="e1", sequence=1, at_ms=CLOCK.now_ms())
    await bus.publish(host_subject("h1", "heartbeat"), beat.SerializeToString())
    await bus.publish(host_subject("h1", "heartbeat"), b"\xff\xff not a heartbeat")

    async def heard() -> int | None:
        await bus.publish(host_subject("h1", "heartbeat"), beat.SerializeToString())
        return (await inventory.get("/v1/hosts/h1"))["last_heartbeat_ms"]

    heard_ms = await until(heard)
    assert abs(CLOCK.now_ms() - heard_ms) < 60_000
    twin = hosts_pb2.JoinHost(
        host_id="h1",
        chips=2,
        address="elsewhere.net",
        agent_epoch="e2",
        at_ms=CLOCK.now_ms(),
    )
    outcome = (await ask(bus, twin)).outcome
    assert (outcome.accepted, outcome.why) == (False, "host_id_in_use")


async def test_incident_without_a_job_cordons_its_hosts_once(inventory, bus):
    """The monitor's word; its repetition after a person's uncordon changes nothing."""
    monitor = FakeService(bus, "monitor")
    for host_id in ("h1", "h2", "h3"):
        await join(bus, host_id)
    await monitor.publish("incident_opened", incident_id="i0", job_id="job", hosts=["h3"])
    opened = await monitor.publish(
        "incident_opened", incident_id="i9", kind="host_lost", hosts=["h1", "h2", "nobody"]
    )

    async def are(h1_and_h2: str, h3: str) -> bool:
        return await states(inventory) == {"h1": h1_and_h2, "h2": h1_and_h2, "h3": h3}

    await until(lambda: are("cordoned", "spare"))
    assert (await inventory.get("/v1/hosts/h1"))["cordon_incident_id"] == "i9"
    for host_id in ("h1", "h2"):
        await inventory.http.post(f"/v1/hosts/{host_id}/uncordon")
    opened.position += 1
    await monitor.send(opened)
    monitor.skip()
    await monitor.publish("incident_opened", incident_id="i10", kind="x", hosts=["h3"])
    await until(lambda: are("spare", "cordoned"))


async def test_end_of_a_job_frees_its_hosts_but_not_those_of_a_later_life(inventory, bus):
    """The controller's word, with the generation that has ended."""
    controller = FakeService(bus, "controller")
    await five_hosts(bus)
    await place(bus, "over")
    await controller.publish("job_succeeded", job_id="over", generation=1, at_ms=1)
    await until(lambda: _freed(inventory))
    await place(bus, "again", 2)
    await controller.publish("job_failed", job_id="again", generation=1, at_ms=1)
    await controller.publish("job_stopped", job_id="marker", generation=7, at_ms=1)
    await until(lambda: _refused(bus, "marker"))
    (placement,) = (await inventory.get("/v1/placements"))["placements"]
    assert placement["job_id"] == "again"


async def _freed(inventory: ServiceProcess) -> bool:
    return (await inventory.get("/v1/placements"))["placements"] == []


async def _refused(bus: NatsBus, job_id: str) -> bool:
    """Say whether the end of the job at generation 7 has arrived: placing at it is refused."""
    layout = Layout(pp=1, dp_replicate=1, dp_shard=64, tp=2)
    return (await place(bus, job_id, 7, layout=layout)).outcome.why == "stale_generation"


async def test_killed_inventory_comes_back_with_its_fleet(inventory, bus):
    """SIGKILL loses nothing that was answered."""
    await five_hosts(bus)
    before = await place(bus, "job")
    await inventory.kill()
    await inventory.start()
    assert await place(bus, "job") == before
    assert (await states(inventory))["a3"] == "spare"


async def test_two_inventories_share_one_fleet(inventory, bus, environment, tmp_path):
    """Joins and placements that go to either never put a host into two jobs."""
    async with service_process("host_inventory", environment, tmp_path):
        joins = await asyncio.gather(*(join(bus, f"h{i:02d}") for i in range(24)))
        assert all(outcome.accepted for outcome in joins)
        jobs = [f"job-{i}" for i in range(6)]
        await asyncio.gather(*(place(bus, job) for job in jobs for _ in range(3)))
        placements = (await inventory.get("/v1/placements"))["placements"]
        assert [p["job_id"] for p in placements] == jobs
        held = [host["host_id"] for p in placements for host in p["hosts"]]
        assert len(held) == len(set(held)) == 24
