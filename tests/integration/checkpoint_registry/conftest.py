"""The registry as a process on real servers, with a bucket of its own."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.integration.checkpoint_registry.agents import Agents
from tests.integration.service_process import ServiceProcess, service_process

from everstep.bus.nats import NatsBus
from everstep.core.system import RandomIds
from everstep.local.servers import RunningServers
from everstep.objectstore.s3 import S3Store


@pytest.fixture
def bucket() -> str:
    """The name of a bucket that does not exist yet."""
    return RandomIds().new_id("registry")


@pytest.fixture
def environment(
    servers: RunningServers, database_url: str, nats_url: str, bucket: str
) -> dict[str, str]:
    """What the registry needs to start."""
    credentials = servers.servers.credentials
    return {
        "EVERSTEP_DATABASE_URL": database_url,
        "EVERSTEP_NATS_URL": nats_url,
        "EVERSTEP_S3_ENDPOINT": servers.servers.s3_endpoint,
        "EVERSTEP_S3_ACCESS_KEY": credentials.s3_access_key,
        "EVERSTEP_S3_SECRET_KEY": credentials.s3_secret_key,
        "EVERSTEP_S3_BUCKET": bucket,
        "EVERSTEP_S3_SECURE": "false",
    }


@pytest.fixture
async def registry(environment: dict[str, str], tmp_path: Path) -> AsyncIterator[ServiceProcess]:
    """The registry, running, with nothing stored."""
    async with service_process("checkpoint_registry", environment, tmp_path) as process:
        yield process


@pytest.fixture
async def objects(servers: RunningServers, bucket: str) -> AsyncIterator[S3Store]:
    """The agents' side of the object store."""
    credentials = servers.servers.credentials
    async with S3Store.open(
        endpoint=servers.servers.s3_endpoint,
        access_key=credentials.s3_access_key,
        secret_key=credentials.s3_secret_key,
        bucket=bucket,
        secure=False,
    ) as opened:
        yield opened


@pytest.fixture
async def bus(nats_url: str) -> AsyncIterator[NatsBus]:
    """A connection of the test's own."""
    async with NatsBus.open(nats_url, name="test") as opened:
        await opened.wait_connected()
        yield opened


@pytest.fixture
def job_id() -> str:
    """A job of the test's own: the session's event streams outlive it."""
    return RandomIds().new_id("job")


@pytest.fixture
def agents(bus: NatsBus, objects: S3Store, job_id: str) -> Agents:
    """The two hosts."""
    return Agents(bus, objects, job_id)
