"""Servers that a test may kill: its own, not the session's."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import asyncpg
import pytest

from everstep.core.system import RandomIds
from everstep.local.bundled_nats import nats_url, prepare_nats
from everstep.local.bundled_postgres import postgres_url, prepare_postgres
from everstep.local.server_command import free_ports
from everstep.local.servers import RunningServer


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnServer:
    """A server process and its address."""

    process: RunningServer
    url: str

    async def start(self) -> None:
        """Start it and wait until it answers."""
        await self.process.start()

    async def kill(self) -> None:
        """SIGKILL, as a crash would."""
        await self.process.kill()

    async def stop(self) -> None:
        """End it in an orderly way."""
        await self.process.stop()


@pytest.fixture
async def own_nats(tmp_path: Path) -> AsyncIterator[OwnServer]:
    """A NATS server, not started."""
    (port,) = free_ports(1, RandomIds())
    command = prepare_nats(tmp_path / "nats", port=port, password="p", system_password="s")
    server = RunningServer(command, tmp_path / "nats.log")
    yield OwnServer(process=server, url=nats_url(port, "p"))
    await server.stop()


@pytest.fixture
async def own_postgres(tmp_path: Path) -> AsyncIterator[OwnServer]:
    """A PostgreSQL server, started, with an empty database."""
    (port,) = free_ports(1, RandomIds())
    command = prepare_postgres(tmp_path / "postgres", port=port, password="p")
    server = RunningServer(command, tmp_path / "postgres.log")
    await server.start()
    connection = await asyncpg.connect(postgres_url(port, "p", "postgres"))
    await connection.execute("create database toy")
    await connection.close()
    yield OwnServer(process=server, url=postgres_url(port, "p", "toy"))
    await server.stop()
