"""A whole service as a process, on real servers that come, go and come back."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.integration.lib.conftest import OwnServer
from tests.waiting import until

from everstep.bus.nats import NatsBus
from everstep.core.errors import InvalidInput, Unavailable
from everstep.core.ports import Message
from everstep.core.system import RandomIds
from everstep.local.server_command import free_ports
from everstep.local.servers import create_database
from everstep.service.commands import command_subject, send_command
from everstep.wire.v1.common_pb2 import CommandReply
from everstep.wire.v1.envelope_pb2 import EventEnvelope
from everstep.wire.v1.hosts_pb2 import CordonHost

ROOT = Path(__file__).parents[3]


class Toy:
    """One process of the toy service."""

    def __init__(self, name: str, process: asyncio.subprocess.Process, port: int, log: Path):
        self.name = name
        self.process = process
        self.log = log
        self.http = httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=30)

    async def ready(self) -> dict[str, Any]:
        """What /readyz says; nothing while HTTP is not up."""
        try:
            return (await self.http.get("/readyz")).json()
        except httpx.TransportError:
            return {}

    async def wait_ready(self) -> None:
        async def is_ready() -> bool:
            assert self.process.returncode is None, self.log.read_text()
            return (await self.ready()).get("ready", False)

        await until(is_ready, what=f"{self.name} is ready")

    @property
    def lines(self) -> list[dict[str, Any]]:
        """Its log."""
        return [json.loads(line) for line in self.log.read_text().splitlines()]

    async def end(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Stop it and return its exit code."""
        self.process.send_signal(number)
        await self.http.aclose()
        return await asyncio.wait_for(self.process.wait(), 30)


Start = Callable[..., Awaitable[Toy]]


@pytest.fixture
async def start(tmp_path: Path) -> AsyncIterator[Start]:
    """Starts toy services; what is left over is killed."""
    running: list[Toy] = []

    async def start_one(name: str, *, database: str, nats: str, **env: str) -> Toy:
        (port,) = free_ports(1, RandomIds())
        log = tmp_path / f"{name}-{len(running)}.log"
        with log.open("wb") as file:
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "tests.integration.lib.toy.service",
                cwd=ROOT, stderr=file,
                env={
                    **os.environ, "TOY_NAME": name, "EVERSTEP_DATABASE_URL": database,
                    "EVERSTEP_NATS_URL": nats, "EVERSTEP_HTTP_PORT": str(port), **env,
                },
            )  # fmt: skip
        running.append(Toy(name, process, port, log))
        return running[-1]

    yield start_one
    for toy in running:
        if toy.process.returncode is None:
            toy.process.kill()
            await toy.process.wait()
        await toy.http.aclose()


@pytest.fixture
def name() -> str:
    """A service name, and so subjects, of this test's own."""
    return RandomIds().new_id("toy").replace("-", "_")


@pytest.fixture
async def bus(nats_url: str) -> AsyncIterator[NatsBus]:
    """The session's bus."""
    async with NatsBus.open(nats_url, name="test") as opened:
        yield opened


async def cordon(bus: NatsBus, name: str, host_id: str, incident_id: str = "") -> CommandReply:
    """Send the command until somebody answers, as every client does."""
    command = CordonHost(host_id=host_id, incident_id=incident_id)
    while True:
        try:
            return await send_command(bus, name, command, CommandReply, timeout_s=5)
        except Unavailable:
            await asyncio.sleep(0.05)


async def test_command_runs_through_the_whole_service(
    start: Start, bus: NatsBus, database_url: str, nats_url: str, name: str
) -> None:
    """From NATS to the decider, the tables, HTTP, the event stream and the metrics."""
    toy = await start(name, database=database_url, nats=nats_url)
    await toy.wait_ready()
    events: list[EventEnvelope] = []

    async def see(message: Message) -> None:
        events.append(EventEnvelope.FromString(message.data))

    await bus.subscribe(f"everstep.v1.event.{name}.>", see)
    assert (await cordon(bus, name, "h1", "i1")).outcome.accepted
    assert (await cordon(bus, name, "h1", "i1")).outcome.accepted
    refused = (await cordon(bus, name, "bad")).outcome
    assert (refused.accepted, refused.why) == (False, "unknown_host")
    await until(lambda: events)
    assert [event.host_cordoned.incident_id for event in events] == ["i1"]
    assert (await toy.http.get("/v1/hosts/h1")).json() == {"cordoned": 1}
    lines = (
        'everstep_commands_total{aggregate="host",command="Cordon",outcome="accepted"} 1.0',
        'everstep_commands_total{aggregate="host",command="Cordon",outcome="already_so"} 1.0',
        'everstep_commands_total{aggregate="host",command="Cordon",outcome="rejected"} 1.0',
        'everstep_events_appended_total{aggregate="host",type="HostCordoned"} 1.0',
        "everstep_outbox_lag_seconds 0.0",
    )

    async def told() -> bool:  # the event is noted as published only after it was
        metrics = (await toy.http.get("/metrics")).text
        return all(line in metrics for line in lines)

    await until(told)


async def test_errors_have_one_shape(
    start: Start, bus: NatsBus, database_url: str, nats_url: str, name: str
) -> None:
    """Over HTTP a status, a code and a sentence; over NATS an exception at once."""
    toy = await start(name, database=database_url, nats=nats_url)
    await toy.wait_ready()
    missing = await toy.http.get("/v1/hosts/none")
    assert missing.status_code == 404
    assert missing.json() == {"error": {"code": "not_found", "message": "no host 'none'"}}
    invalid = await toy.http.get("/v1/slow", params={"count": "many"})
    assert invalid.status_code == 422
    assert invalid.json()["error"]["code"] == "invalid_input"
    assert "query.count" in invalid.json()["error"]["message"]
    mistyped = await toy.http.get("/v1/slow", params={"cuont": "2"})
    assert mistyped.status_code == 422
    assert mistyped.json()["error"]["message"] == (
        "query.'cuont': unknown parameter; there are: count"
    )
    assert (await toy.http.get("/healthz", params={"probe": "1"})).status_code == 200
    unknown = await toy.http.get("/v2")
    assert (unknown.status_code, unknown.json()["error"]["code"]) == (404, "not_found")
    document = (await toy.http.get("/openapi.json")).json()
    answers = document["paths"]["/v1/hosts/{host_id}"]["get"]["responses"]
    assert answers.keys() >= {"200", "404", "409", "422", "503"}
    bodies = [answers[status]["content"]["application/json"] for status in ("404", "422")]
    assert {body["schema"]["$ref"] for body in bodies} == {"#/components/schemas/ErrorAnswer"}
    subject = command_subject(name, "cordon_host")
    with pytest.raises(InvalidInput):
        await bus.request(subject, b"\xff\xff\xff", timeout_s=30)
    with pytest.raises(Unavailable, match="a bug"):
        await bus.request(subject, CordonHost(host_id="bug").SerializeToString(), timeout_s=30)


async def test_service_waits_for_its_servers_and_says_so(
    start: Start, own_postgres: OwnServer, own_nats: OwnServer, name: str
) -> None:
    """Alive at once, ready when both are there; until then it names what is missing."""
    await own_postgres.stop()
    toy = await start(name, database=own_postgres.url, nats=own_nats.url)
    first = await until(toy.ready)
    assert first["ready"] is False
    assert first["parts"]["process"] == "starting"
    waiting = await until(lambda: named(toy, "database"))
    assert "127.0.0.1" in waiting
    assert "not connected" in await until(lambda: named(toy, "bus"))
    assert (await toy.http.get("/healthz")).status_code == 200
    closed = await toy.http.get("/v1/hosts/h1")
    assert closed.status_code == 503
    assert "not ready" in closed.json()["error"]["message"]
    await own_postgres.start()
    await own_nats.start()
    await toy.wait_ready()
    log = toy.log.read_text()
    assert "waiting for the database" in log
    assert "everstep:p@" not in log


async def named(toy: Toy, part: str) -> str:
    """What /readyz says of a part that is not well."""
    state = (await toy.ready()).get("parts", {}).get(part, "ok")
    return "" if state == "ok" else state


async def test_service_survives_restarts_of_its_servers(
    start: Start, own_postgres: OwnServer, own_nats: OwnServer, name: str
) -> None:
    """Not ready while one is away; afterwards it works on, without having been restarted."""
    await own_nats.start()
    toy = await start(name, database=own_postgres.url, nats=own_nats.url)
    await toy.wait_ready()
    async with NatsBus.open(own_nats.url, name="test") as bus:
        await cordon(bus, name, "h1", "i1")
        await own_nats.kill()
        await until(lambda: named(toy, "bus"))
        assert (await toy.http.get("/v1/hosts/h1")).json() == {"cordoned": 1}
        await own_nats.start()
        await toy.wait_ready()
        await cordon(bus, name, "h1", "i2")
        await own_postgres.kill()
        await until(lambda: named(toy, "database"))
        away = await toy.http.get("/v1/hosts/h1")
        assert (away.status_code, away.json()["error"]["code"]) == (503, "unavailable")
        await own_postgres.start()
        await toy.wait_ready()
        await cordon(bus, name, "h1", "i3")
        assert (await toy.http.get("/v1/hosts/h1")).json() == {"cordoned": 3}
    assert toy.process.returncode is None


async def test_stopped_service_finishes_requests_in_work(
    start: Start, bus: NatsBus, database_url: str, nats_url: str, name: str
) -> None:
    """SIGTERM is an orderly end: exit code 0, no error in the log."""
    toy = await start(name, database=database_url, nats=nats_url)
    await toy.wait_ready()
    await cordon(bus, name, "h1")
    request = asyncio.create_task(toy.http.get("/v1/slow", params={"count": 1}))
    await until(lambda: "a slow request has begun" in toy.log.read_text())
    toy.process.send_signal(signal.SIGTERM)
    assert (await request).json() == {"count": 1}
    assert await asyncio.wait_for(toy.process.wait(), 30) == 0
    assert {line["level"] for line in toy.lines} == {"INFO"}
    assert all(line["service"] == name for line in toy.lines)


async def test_failing_loop_is_restarted_and_seen_in_readiness(
    start: Start, database_url: str, nats_url: str, name: str, tmp_path: Path
) -> None:
    """A loop that raises takes nothing down with it, and is not silently gone."""
    fuse = tmp_path / "fuse"
    toy = await start(name, database=database_url, nats=nats_url, TOY_FUSE=str(fuse))
    await toy.wait_ready()
    fuse.touch()
    assert "the fuse is there" in await until(lambda: named(toy, "fragile"))
    fuse.unlink()
    await toy.wait_ready()
    assert any("loop fragile failed" in line["message"] for line in toy.lines)


async def test_events_of_one_service_take_effect_once_in_another(
    start: Start, bus: NatsBus, database_url: str, nats_url: str, servers: Any, name: str
) -> None:
    """Two instances follow another service's events, one is killed and replaced: once each."""
    await create_database(servers.servers, f"{name}_two")
    two = servers.servers.database_url(f"{name}_two")
    source = await start(f"{name}_one", database=database_url, nats=nats_url)
    follow = {"database": two, "nats": nats_url, "TOY_SOURCE": f"{name}_one"}
    first, second = [await start(f"{name}_two", **follow) for _ in range(2)]
    for toy in (source, first, second):
        await toy.wait_ready()
    for index in range(20):
        await cordon(bus, f"{name}_one", f"h{index % 4}", f"i{index}")
        if index == 10:
            await first.end(signal.SIGKILL)
    third = await start(f"{name}_two", **follow)
    await third.wait_ready()

    async def counts() -> list[int]:
        answers = [await third.http.get(f"/v1/hosts/also-h{n}") for n in range(4)]
        return [answer.json().get("cordoned", 0) for answer in answers]

    async def all_there() -> bool:
        return sum(await counts()) >= 20

    await until(all_there)
    assert await counts() == [5, 5, 5, 5]


async def test_killed_service_publishes_what_it_had_committed(
    start: Start, database_url: str, own_nats: OwnServer, name: str
) -> None:
    """The commit was there, the bus was not, the process died: the next one tells the others."""
    await own_nats.start()
    toy = await start(name, database=database_url, nats=own_nats.url)
    await toy.wait_ready()
    async with NatsBus.open(own_nats.url, name="test") as bus:
        await cordon(bus, name, "h1", "i1")
    await toy.end(signal.SIGKILL)
    events: list[EventEnvelope] = []

    async def see(message: Message) -> None:
        events.append(EventEnvelope.FromString(message.data))

    again = await start(name, database=database_url, nats=own_nats.url)
    async with NatsBus.open(own_nats.url, name="test") as bus:
        await bus.consume(f"everstep.v1.event.{name}.>", see, durable="test")
        await again.wait_ready()
        await until(lambda: events)
    assert [event.host_cordoned.incident_id for event in events] == ["i1"]


async def test_taken_port_is_said_in_one_sentence(
    start: Start, database_url: str, nats_url: str, name: str
) -> None:
    """Two services on one port: the second says which setting to change."""
    toy = await start(name, database=database_url, nats=nats_url)
    await toy.wait_ready()
    port = str(toy.http.base_url.port)
    other = await start(name, database=database_url, nats=nats_url, EVERSTEP_HTTP_PORT=port)
    assert await asyncio.wait_for(other.process.wait(), 30) != 0
    assert "set EVERSTEP_HTTP_PORT" in other.log.read_text()
