"""One service in its own process on the bundled servers, and a connection to talk to it."""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import httpx

from everstep.bus.nats import NatsBus
from everstep.core.system import RandomIds
from everstep.local.server_command import free_ports
from everstep.local.servers import RunningServers, create_database, local_servers

READY_TIMEOUT_S: Final = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Running:
    """What a benchmark needs."""

    bus: NatsBus
    url: str
    servers: RunningServers


@asynccontextmanager
async def running_service(name: str) -> AsyncIterator[Running]:
    """Run ``python -m everstep.<name>`` with an empty database until the block ends."""
    with tempfile.TemporaryDirectory() as directory:
        async with local_servers(Path(directory), RandomIds()) as servers:
            await create_database(servers.servers, "bench")
            (port,) = free_ports(1, RandomIds())
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", f"everstep.{name}", env=_environment(servers, port)
            )
            url = f"http://127.0.0.1:{port}"
            try:
                await _wait_ready(url)
                async with NatsBus.open(servers.servers.nats_url, name="bench") as bus:
                    await bus.wait_connected()
                    yield Running(bus=bus, url=url, servers=servers)
            finally:
                process.terminate()
                await process.wait()


def _environment(servers: RunningServers, port: int) -> dict[str, str]:
    credentials = servers.servers.credentials
    return {
        **os.environ,
        "EVERSTEP_DATABASE_URL": servers.servers.database_url("bench"),
        "EVERSTEP_NATS_URL": servers.servers.nats_url,
        "EVERSTEP_S3_ENDPOINT": servers.servers.s3_endpoint,
        "EVERSTEP_S3_ACCESS_KEY": credentials.s3_access_key,
        "EVERSTEP_S3_SECRET_KEY": credentials.s3_secret_key,
        "EVERSTEP_S3_SECURE": "false",
        "EVERSTEP_HTTP_PORT": str(port),
        "EVERSTEP_LOG_LEVEL": "WARNING",
        "EVERSTEP_LOG_FORMAT": "text",
    }


async def _wait_ready(url: str) -> None:
    async with httpx.AsyncClient(base_url=url) as client, asyncio.timeout(READY_TIMEOUT_S):
        while True:
            if await _is_ready(client):
                return
            await asyncio.sleep(0.05)


async def _is_ready(client: httpx.AsyncClient) -> bool:
    try:
        return (await client.get("/readyz")).is_success
    except httpx.HTTPError:
        return False
