"""The bundled servers: private, durable, and as a supervisor needs them."""

from __future__ import annotations

import asyncio
import io
import json
import os
import signal
import stat
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import asyncpg
import psutil
import pytest
from minio import Minio
from minio.error import S3Error
from tests.waiting import until

from everstep.bus.nats import NatsBus
from everstep.core.errors import InvalidInput, Unavailable
from everstep.core.ports import Message
from everstep.core.system import RandomIds
from everstep.local.bundled_nats import ACCOUNT
from everstep.local.server_command import ServerCommand, free_ports
from everstep.local.servers import (
    RunningServer,
    RunningServers,
    local_servers,
    new_credentials,
    new_ports,
    new_service_ports,
    prepare_servers,
)

TOPIC = "everstep.v1.event.test.x.happened"


@pytest.fixture
async def own(tmp_path: Path) -> AsyncIterator[RunningServers]:
    """All three, for this test alone."""
    async with local_servers(tmp_path, RandomIds()) as running:
        yield running


def s3_client(own: RunningServers, secret_key: str = "") -> Minio:
    """A plain client."""
    credentials = own.servers.credentials
    return Minio(
        own.servers.s3_endpoint,
        access_key=credentials.s3_access_key,
        secret_key=secret_key or credentials.s3_secret_key,
        secure=False,
    )


async def test_servers_listen_on_loopback_only(own: RunningServers) -> None:
    """Nothing of a one-machine stack can be reached from another machine."""
    for server in (own.postgres, own.nats, own.s3):
        process = psutil.Process(server.pid)
        listening = {
            connection.laddr.ip
            for connection in process.net_connections("inet")
            if connection.status == psutil.CONN_LISTEN
        }
        assert listening == {"127.0.0.1"}, server.command.name


async def test_servers_ask_for_credentials(own: RunningServers) -> None:
    """Another user of the machine does not get in."""
    servers = own.servers
    with pytest.raises(asyncpg.InvalidPasswordError):
        await asyncpg.connect(
            servers.database_url("postgres").replace(
                servers.credentials.postgres_password, "guessed"
            )
        )
    async with NatsBus.open(f"nats://127.0.0.1:{servers.ports.nats}", name="intruder") as bus:
        with pytest.raises(Unavailable):
            await bus.request("test.x", b"", timeout_s=0.5)
        assert not bus.connected
    with pytest.raises(S3Error, match="SignatureDoesNotMatch"):
        s3_client(own, secret_key="guessed").list_buckets()


async def test_files_with_secrets_are_private(own: RunningServers, tmp_path: Path) -> None:
    """Whoever reads them could get in."""
    secrets = [
        value for name, value in vars_of(own.servers.credentials) if "access_key" not in name
    ]
    files = files_that_hold(secrets, tmp_path)
    assert {path.name for path in files} == {"nats.conf", "s3.json"}
    assert {stat.S_IMODE(path.stat().st_mode) for path in files} == {0o600}
    for server in (own.postgres, own.nats, own.s3):
        assert not any(s in " ".join(server.command.argv) for s in secrets)


def files_that_hold(texts: list[str], directory: Path) -> list[Path]:
    """The files, down to the second level, in which any of the texts is found."""
    return [
        path
        for pattern in ("*", "*/*")
        for path in directory.glob(pattern)
        if path.is_file() and any(text in path.read_text(errors="replace") for text in texts)
    ]


def vars_of(value: object) -> list[tuple[str, str]]:
    """Fields of a slotted dataclass."""
    return [(name, getattr(value, name)) for name in type(value).__dataclass_fields__]


@pytest.mark.parametrize("end", ["stop", "kill"])
async def test_data_survives_a_restart_on_the_same_ports(own: RunningServers, end: str) -> None:
    """Orderly or not: the same tables, messages and objects, found at the same addresses."""
    url = own.servers.database_url("postgres")
    connection = await asyncpg.connect(url)
    await connection.execute("create table kept (id int); insert into kept values (7)")
    await connection.close()
    client = s3_client(own)
    client.make_bucket("kept")
    client.put_object("kept", "a/b", io.BytesIO(b"x" * 100_000), 100_000)
    async with NatsBus.open(own.servers.nats_url, name="test") as bus:
        await bus.wait_connected()
        await bus.publish_durable(TOPIC, b"kept", message_id="1")
    for server in (own.postgres, own.nats, own.s3):
        await getattr(server, end)()
        assert not server.is_alive()
    for server in (own.postgres, own.nats, own.s3):
        await server.start()
    connection = await asyncpg.connect(url)
    assert await connection.fetchval("select id from kept") == 7
    await connection.close()
    response = client.get_object("kept", "a/b")
    assert response.read() == b"x" * 100_000
    response.release_conn()
    received: list[bytes] = []

    async def receive(message: Message) -> None:
        received.append(message.data)

    async with NatsBus.open(own.servers.nats_url, name="test") as bus:
        await bus.consume(TOPIC, receive, durable="test")
        await until(lambda: received == [b"kept"])


async def test_system_account_tells_of_a_killed_client(own: RunningServers) -> None:
    """The fastest sign that a host is gone: its connection, by name."""
    gone: list[str] = []

    async def receive(message: Message) -> None:
        event = json.loads(message.data)
        gone.append(event["client"]["name"])

    program = (
        "import asyncio, os, signal, sys\n"
        "from everstep.bus.nats import NatsBus\n"
        "async def main():\n"
        "    async with NatsBus.open(sys.argv[1], name='agent:h7') as bus:\n"
        "        await bus.wait_connected()\n"
        "        os.kill(os.getpid(), signal.SIGKILL)\n"
        "asyncio.run(main())\n"
    )
    async with NatsBus.open(own.servers.nats_system_url, name="monitor") as system:
        await system.subscribe(f"$SYS.ACCOUNT.{ACCOUNT}.DISCONNECT", receive)
        await until_ended(sys.executable, "-c", program, own.servers.nats_url)
        await until(lambda: gone == ["agent:h7"])


async def until_ended(*argv: str) -> None:
    """Run a program and wait for its end."""
    process = await asyncio.create_subprocess_exec(*argv)
    await process.wait()


async def test_postgres_does_not_run_as_root(own: RunningServers) -> None:
    """It refuses to; started by root it runs as nobody, its children too."""
    process = psutil.Process(own.postgres.pid)
    assert all(p.uids().effective != 0 for p in [process, *process.children(recursive=True)])


async def test_second_preparation_keeps_the_cluster(tmp_path: Path) -> None:
    """``up`` prepares each time; only the first time creates."""
    ids = RandomIds()
    ports, credentials = new_ports(ids), new_credentials(ids)
    prepare_servers(tmp_path, ports, credentials)
    version = tmp_path / "postgres" / "data" / "PG_VERSION"
    created = version.stat().st_mtime_ns
    half_done = tmp_path / "postgres" / "data.new"
    half_done.mkdir()
    again = prepare_servers(tmp_path, ports, credentials)
    assert version.stat().st_mtime_ns == created
    assert [command.name for command in again.commands] == ["postgres", "nats", "s3"]


async def test_server_that_cannot_start_says_why(tmp_path: Path) -> None:
    """The end of its log is in the message."""

    async def never() -> bool:
        return False

    command = ServerCommand(
        name="broken",
        argv=("/bin/sh", "-c", "echo no space on the moon; exit 1"),
        env={"PATH": os.defpath},
        cwd=tmp_path,
        ready=never,
    )
    server = RunningServer(command, tmp_path / "log")
    with pytest.raises(Unavailable, match="no space on the moon"):
        await server.start()


async def test_stop_ends_what_ignores_its_signal(tmp_path: Path) -> None:
    """After its grace a server is killed, and its leftovers are removed."""
    leftover = tmp_path / "leftover.sock"
    ready = tmp_path / "ready"
    command = ServerCommand(
        name="stubborn",
        argv=(
            "/bin/sh",
            "-c",
            f"trap '' TERM; touch {leftover} {ready}; while :; do sleep 1; done",
        ),
        env={"PATH": os.defpath},
        cwd=tmp_path,
        ready=lambda: exists(ready),
        stop_grace_s=0.1,
        leftovers=(leftover,),
    )
    server = RunningServer(command, tmp_path / "log")
    await server.start()
    pid = server.pid
    await server.stop()
    assert not server.is_alive()
    assert not await exists(leftover)
    assert pid is not None
    with pytest.raises(ProcessLookupError):
        os.kill(pid, signal.SIG_DFL)


async def exists(path: Path) -> bool:
    """Whether the file is there."""
    return await asyncio.to_thread(path.exists)


def test_free_ports_are_different_and_below_the_ephemeral_range() -> None:
    """A port in the ephemeral range can be taken by any outgoing connection."""
    ports = free_ports(50, RandomIds())
    assert len(set(ports)) == 50
    assert max(ports) < 32_768


def test_stack_has_a_port_for_each_of_its_parts(monkeypatch) -> None:
    """Those that were chosen first are still free when the others are."""
    monkeypatch.setenv("EVERSTEP_PORTS", "23200-23219")
    servers = new_ports(RandomIds())
    for _ in range(20):  # by chance they may miss each other
        services = new_service_ports(servers, RandomIds())
        assert len({*servers.all, *services.values()}) == len(servers.all) + len(services)
    with pytest.raises(Unavailable, match="only 4 of 9 ports"):
        free_ports(9, RandomIds(), besides={*servers.all, *services.values()})


def test_ports_come_from_the_range_that_the_environment_names(monkeypatch) -> None:
    """So that two who choose at the same time do not choose the same."""
    monkeypatch.setenv("EVERSTEP_PORTS", "23100-23119")
    assert set(free_ports(10, RandomIds())) <= set(range(23_100, 23_120))
    monkeypatch.setenv("EVERSTEP_PORTS", "23100-23101")
    with pytest.raises(Unavailable, match="2 of 3 ports are free in 23100-23101: name another"):
        free_ports(3, RandomIds())


@pytest.mark.parametrize("asked", ["all", "23100", "80-90", "23100-23000", "60000-70000"])
def test_a_range_of_ports_that_is_none_is_refused(monkeypatch, asked: str) -> None:
    """Nothing is guessed from it."""
    monkeypatch.setenv("EVERSTEP_PORTS", asked)
    with pytest.raises(InvalidInput, match="give two ports from 1024 to 65535"):
        free_ports(1, RandomIds())
