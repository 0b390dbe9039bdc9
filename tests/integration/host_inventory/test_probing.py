"""Hosts that are probed, held out and mended: a real inventory, agents of a few lines."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from tests.integration.host_inventory.test_service import ask, place
from tests.integration.service_process import service_process
from tests.waiting import until

from everstep.bus.nats import NatsBus
from everstep.core.ports import Message
from everstep.core.system import SystemClock
from everstep.service.commands import host_subject
from everstep.wire.v1 import hosts_pb2, probes_pb2
from everstep.wire.v1.common_pb2 import CommandReply, Layout, Outcome
from everstep.wire.v1.jobs_pb2 import DrainHosts

CLOCK = SystemClock()
ONE_HOST = Layout(pp=1, dp_replicate=1, dp_shard=1, tp=2)


@dataclass
class Agent:
    """Joins, and answers that all probes pass but ``wrong``."""

    bus: NatsBus
    host_id: str
    epoch: str = "e1"
    wrong: str = ""
    asked: list[probes_pb2.ExamineHost] = field(default_factory=list)

    async def up(self) -> None:
        """Answer, and join."""
        await self.bus.serve(host_subject(self.host_id, "cmd.examine"), self._examine)
        await self.join()

    async def join(self) -> None:
        """Tell the host's facts."""
        facts = hosts_pb2.JoinHost(
            host_id=self.host_id,
            chips=2,
            address=f"{self.host_id}.net",
            peer_port=7000,
            agent_epoch=self.epoch,
            at_ms=CLOCK.now_ms(),
            probes=True,
        )
        assert (await ask(self.bus, facts)).outcome.accepted

    async def _examine(self, message: Message) -> bytes:
        command = probes_pb2.ExamineHost.FromString(message.data)
        self.asked.append(command)
        results = [
            probes_pb2.ProbeResult(
                name=name,
                verdict="failed" if name == self.wrong else "passed",
                detail="bit 3" if name == self.wrong else "",
            )
            for name in ("memory", "product_float32")
        ]
        return probes_pb2.ExamineHostReply(
            outcome=Outcome(accepted=True),
            host_id=self.host_id,
            agent_epoch=self.epoch,
            report=probes_pb2.ProbeReport(
                examination_id=command.examination_id,
                depth=command.depth,
                at_ms=CLOCK.now_ms(),
                duration_ms=5,
                probes=results,
            ),
        ).SerializeToString()


@dataclass
class Receiver:
    """A web server that notes what is posted to it; answers 503 to the first ``refusals``."""

    refusals: int = 0
    posts: list[tuple[str, dict[str, Any]]] = field(default_factory=list)  # key, body
    tokens: set[str] = field(default_factory=set)
    url: str = ""


@contextmanager
def receiving(receiver: Receiver) -> Iterator[Receiver]:
    """Serve until the block ends."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            receiver.posts.append((self.headers["Idempotency-Key"], body))
            receiver.tokens.add(self.headers["Authorization"])
            refused = len(receiver.posts) <= receiver.refusals
            self.send_response(503 if refused else 204)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    receiver.url = f"http://127.0.0.1:{server.server_address[1]}/repair"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield receiver
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@pytest.fixture
def environment(environment):
    """Short times, so that the way back can be watched."""
    return {**environment, "EVERSTEP_HOLD_OUT_S": "1", "EVERSTEP_BURN_IN_S": "1"}


async def is_in(inventory, host_id: str, state: str) -> dict[str, Any] | None:
    """The host, once it is in this state."""
    hosts = (await inventory.get("/v1/hosts"))["hosts"]
    known = [host for host in hosts if (host["host_id"], host["state"]) == (host_id, state)]
    return known[0] if known else None


async def test_host_that_joins_passes_its_probes_and_is_a_spare(inventory, bus):
    """A job that came first gets it as soon as it has passed."""
    agent = Agent(bus, "h1")
    await agent.join()  # nobody answers for it yet
    assert (await place(bus, "job", layout=ONE_HOST)).hosts_short == 1
    assert (await is_in(inventory, "h1", "probing"))["awaits"] == "quick"
    await agent.up()
    spare = await until(lambda: is_in(inventory, "h1", "spare"))
    assert [one["verdict"] for one in spare["last_probe"]["probes"]] == ["passed", "passed"]
    assert (await place(bus, "job", layout=ONE_HOST)).hosts_short == 0
    assert [one.depth for one in agent.asked] == ["quick"]


async def test_host_that_fails_a_probe_is_out_with_the_numbers(inventory, bus):
    """And comes back by hand, through a burn-in, once it is mended."""
    agent = Agent(bus, "h1", wrong="memory")
    await agent.up()
    out = await until(lambda: is_in(inventory, "h1", "cordoned"))
    assert (out["cordon_reason"], out["fault"], out["relapses"], out["returns"]) == (
        "probe failed: memory: bit 3", "probe", 1, False,
    )  # fmt: skip
    agent.wrong = ""
    answer = await inventory.http.post("/v1/hosts/h1/uncordon", json={})
    assert (answer.json()["state"], answer.json()["awaits"]) == ("probing", "burn_in")
    await until(lambda: is_in(inventory, "h1", "spare"))
    assert [one.depth for one in agent.asked] == ["quick", "burn_in"]


async def test_lost_host_comes_back_by_itself_after_its_hold_out(inventory, bus):
    """A new agent, a second of hold-out, a burn-in; the inventory is killed on the way."""
    agent = Agent(bus, "h1")
    await agent.up()
    await until(lambda: is_in(inventory, "h1", "spare"))
    lost = hosts_pb2.CordonHost(
        host_id="h1", reason="host_lost", incident_id="i1", at_ms=CLOCK.now_ms()
    )
    await ask(bus, lost)
    await inventory.kill()
    await inventory.start()
    assert (await inventory.get("/v1/hosts/h1"))["returns"]
    agent.epoch = "e2"
    await agent.join()
    spare = await until(lambda: is_in(inventory, "h1", "spare"))
    assert (spare["relapses"], spare["last_probe"]["depth"]) == (1, "burn_in")


async def test_maintenance_drains_first_and_comes_back_when_told(inventory, bus):
    """The controller is asked to move the job; the host is out when it has."""
    asked: list[DrainHosts] = []

    async def drain(message: Message) -> bytes:
        asked.append(DrainHosts.FromString(message.data))
        return CommandReply(outcome=Outcome(accepted=True)).SerializeToString()

    await bus.serve("everstep.v1.cmd.controller.drain_hosts", drain)
    agents = [Agent(bus, "h1"), Agent(bus, "h2")]
    await agents[0].up()
    await until(lambda: is_in(inventory, "h1", "spare"))
    await place(bus, "job", layout=ONE_HOST)
    answer = await inventory.http.post("/v1/hosts/h1/maintain", json={"reason": "firmware"})
    assert (answer.json()["state"], answer.json()["maintenance"]) == (
        "active", "maintenance: firmware",
    )  # fmt: skip
    await until(lambda: asked)
    assert (asked[0].job_id, list(asked[0].hosts)) == ("job", ["h1"])
    await agents[1].up()
    await until(lambda: is_in(inventory, "h2", "spare"))
    moved = hosts_pb2.PlaceJob(
        job_id="job",
        generation=2,
        layout=ONE_HOST,
        reason="drained",
        unsound_hosts=["h1"],
        unsound_reason="drained",
        at_ms=CLOCK.now_ms(),
    )
    await ask(bus, moved)
    out = await until(lambda: is_in(inventory, "h1", "cordoned"))
    assert (out["cordon_reason"], out["fault"]) == ("maintenance: firmware", "")
    await inventory.http.post("/v1/hosts/h1/uncordon", json={})
    await until(lambda: is_in(inventory, "h1", "spare"))


async def test_repair_hook_is_told_of_every_cordon_but_maintenance(environment, bus, tmp_path):
    """At least once, again after a refusal and a kill, each with one key and the same words."""
    with receiving(Receiver(refusals=2)) as receiver:
        settings = {
            **environment,
            "EVERSTEP_REPAIR_HOOK": receiver.url,
            "EVERSTEP_REPAIR_HOOK_SECRET": "s3cret",
        }
        async with service_process("host_inventory", settings, tmp_path) as inventory:
            await Agent(bus, "h1", wrong="memory").up()
            await Agent(bus, "h2").up()
            await until(lambda: is_in(inventory, "h2", "spare"))
            await inventory.http.post("/v1/hosts/h2/maintain", json={})
            await until(lambda: receiver.posts)
            await inventory.kill()
            await inventory.start()
            told = await until(lambda: _told(inventory, "h1"))
            assert told["attempts"] >= 2  # a kill may come before a try is written down
            assert len(receiver.posts) >= 3
            assert (await inventory.get("/v1/hosts/h2"))["repair"] is None
            assert "s3cret" not in inventory.log.read_text()
    keys = {key for key, _ in receiver.posts}
    bodies = [body for _, body in receiver.posts]
    assert len(keys) == 1
    assert all(body == bodies[0] for body in bodies)
    assert receiver.tokens == {"Bearer s3cret"}
    body = bodies[0]
    assert body.pop("probe_report")["probes"][0]["detail"] == "bit 3"
    assert abs(body.pop("cordoned_at_ms") - CLOCK.now_ms()) < 600_000
    assert body == {
        "host_id": "h1",
        "reason": "probe failed: memory: bit 3",
        "incident_id": "",
        "fault": "probe",
        "relapses": 1,
        "errors": {},
    }


async def _told(inventory, host_id: str) -> dict[str, Any] | None:
    repair = (await inventory.get(f"/v1/hosts/{host_id}"))["repair"]
    return repair if repair and repair["delivered_ms"] else None


async def test_idle_spare_is_probed_again_in_its_turn(environment, bus, tmp_path):
    """Every second here; it stays a spare, and a job gets it at any time."""
    settings = {**environment, "EVERSTEP_PROBE_EVERY_S": "1"}
    async with service_process("host_inventory", settings, tmp_path) as inventory:
        agents = [Agent(bus, "h1"), Agent(bus, "h2")]
        await asyncio.gather(*(agent.up() for agent in agents))
        await until(lambda: all(len(agent.asked) >= 3 for agent in agents))
        assert {one.partner.host_id for one in agents[0].asked[1:]} <= {"", "h2"}
        assert await is_in(inventory, "h1", "spare")
        agents[1].wrong = "product_float32"
        await until(lambda: is_in(inventory, "h2", "cordoned"))
