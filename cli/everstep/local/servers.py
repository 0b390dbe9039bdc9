"""The three bundled servers as one: their ports, secrets, commands and addresses.

``prepare_servers`` writes what they need under one directory and starts nothing, so that a
supervisor can own the processes and start them again on the same data and ports. ``local_servers``
is the small supervisor of the tests.
"""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import asyncpg

from everstep.core.errors import Unavailable
from everstep.core.system import IdSource
from everstep.local.bundled_nats import nats_system_url, nats_url, prepare_nats
from everstep.local.bundled_postgres import postgres_url, prepare_postgres
from everstep.local.bundled_s3 import INTERNAL_PORT_COUNT, prepare_s3, s3_endpoint
from everstep.local.keys import Credentials, Ports
from everstep.local.server_command import ServerCommand, free_ports, wait_ready
from everstep.local.state import SERVICES

START_TIMEOUT_S: Final = 60.0  # seconds at most on an idle machine; a loaded one may swap


@dataclass(frozen=True, slots=True, kw_only=True)
class Servers:
    """The commands of the three servers, and how clients reach them."""

    postgres: ServerCommand
    nats: ServerCommand
    s3: ServerCommand
    ports: Ports
    credentials: Credentials

    @property
    def commands(self) -> tuple[ServerCommand, ...]:
        """All three."""
        return (self.postgres, self.nats, self.s3)

    @property
    def nats_url(self) -> str:
        """For everybody."""
        return nats_url(self.ports.nats, self.credentials.nats_password)

    @property
    def nats_system_url(self) -> str:
        """For the monitor: the server's own events."""
        return nats_system_url(self.ports.nats, self.credentials.nats_system_password)

    @property
    def s3_endpoint(self) -> str:
        """Host and port; plain HTTP."""
        return s3_endpoint(self.ports.s3)

    def database_url(self, database: str) -> str:
        """Return the URL of one database."""
        return postgres_url(self.ports.postgres, self.credentials.postgres_password, database)


def new_credentials(ids: IdSource) -> Credentials:
    """Draw the secrets of a new stack, 128 bits each."""

    def secret() -> str:
        return ids.new_id("") + ids.new_id("")

    return Credentials(
        postgres_password=secret(),
        nats_password=secret(),
        nats_system_password=secret(),
        s3_access_key=ids.new_id(""),
        s3_secret_key=secret(),
    )


def new_ports(ids: IdSource) -> Ports:
    """Choose ports that are free now."""
    postgres, nats, s3, *internal = free_ports(3 + INTERNAL_PORT_COUNT, ids)
    return Ports(postgres=postgres, nats=nats, s3=s3, s3_internal=tuple(internal))


def new_service_ports(servers: Ports, ids: IdSource) -> dict[str, int]:
    """Choose a port for each service that is free now and none of the servers', up or not."""
    ports = free_ports(len(SERVICES), ids, besides=servers.all)
    return dict(zip(SERVICES, ports, strict=True))


def prepare_servers(directory: Path, ports: Ports, credentials: Credentials) -> Servers:
    """Write what the servers need (half a second the first time) and return how to run them.

    Raises:
        NotFoundError: a binary is missing; says how to get it.
        Unavailable: the database cluster cannot be created.
    """
    return Servers(
        postgres=prepare_postgres(
            directory / "postgres", port=ports.postgres, password=credentials.postgres_password
        ),
        nats=prepare_nats(
            directory / "nats",
            port=ports.nats,
            password=credentials.nats_password,
            system_password=credentials.nats_system_password,
        ),
        s3=prepare_s3(
            directory / "s3",
            port=ports.s3,
            internal_ports=ports.s3_internal,
            access_key=credentials.s3_access_key,
            secret_key=credentials.s3_secret_key,
        ),
        ports=ports,
        credentials=credentials,
    )


async def create_database(servers: Servers, database: str) -> None:
    """Create a database in the running PostgreSQL; already there is fine."""
    connection = await asyncpg.connect(servers.database_url("postgres"))
    try:
        await connection.execute(f'create database "{database}"')
    except asyncpg.DuplicateDatabaseError:
        pass
    finally:
        await connection.close()


async def drop_database(servers: Servers, database: str) -> None:
    """Drop a database, ending whoever is connected; already gone is fine."""
    connection = await asyncpg.connect(servers.database_url("postgres"))
    try:
        await connection.execute(f'drop database if exists "{database}" with (force)')
    finally:
        await connection.close()


class RunningServer:
    """One server process that can be killed and started again."""

    def __init__(self, command: ServerCommand, log: Path) -> None:
        self.command = command
        self.log = log
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int | None:
        """Of the running process."""
        return self._process.pid if self._process is not None and self.is_alive() else None

    def is_alive(self) -> bool:
        """Whether the process runs."""
        return self._process is not None and self._process.poll() is None

    async def start(self) -> None:
        """Start it and wait until it answers. Raises Unavailable with the end of its log."""
        self._spawn()
        try:
            await wait_ready(self.command, is_alive=self.is_alive, timeout_s=START_TIMEOUT_S)
        except Unavailable as error:
            tail = self.log.read_text(errors="replace")[-2000:]
            raise Unavailable(f"{error}\n{tail}") from None

    def _spawn(self) -> None:
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                self.command.argv,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=dict(self.command.env),
                cwd=self.command.cwd,
                start_new_session=True,
            )

    async def kill(self) -> None:
        """SIGKILL, as a crash would."""
        if self._process is not None:
            self._process.kill()
            await asyncio.to_thread(self._process.wait)

    async def stop(self) -> None:
        """End it in an orderly way, by force after its grace."""
        if self._process is None:
            return
        self._process.send_signal(self.command.stop_signal)
        try:
            await asyncio.to_thread(self._process.wait, self.command.stop_grace_s)
        except subprocess.TimeoutExpired:
            await self.kill()
        for path in self.command.leftovers:
            path.unlink(missing_ok=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningServers:
    """All three, running."""

    servers: Servers
    postgres: RunningServer
    nats: RunningServer
    s3: RunningServer


@asynccontextmanager
async def local_servers(directory: Path, ids: IdSource) -> AsyncIterator[RunningServers]:
    """Run all three on fresh ports under ``directory`` until the block ends."""
    servers = await asyncio.to_thread(
        prepare_servers, directory, new_ports(ids), new_credentials(ids)
    )
    running = {
        command.name: RunningServer(command, directory / f"{command.name}.log")
        for command in servers.commands
    }
    async with AsyncExitStack() as stack:
        for server in running.values():
            stack.push_async_callback(server.stop)
        await asyncio.gather(*(server.start() for server in running.values()))
        yield RunningServers(servers=servers, **running)
