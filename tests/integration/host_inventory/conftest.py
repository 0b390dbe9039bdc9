"""The inventory as a process on real servers."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.integration.service_process import ServiceProcess, service_process

from everstep.bus.nats import NatsBus


@pytest.fixture
def environment(database_url: str, nats_url: str) -> dict[str, str]:
    """What the inventory needs to start."""
    return {"EVERSTEP_DATABASE_URL": database_url, "EVERSTEP_NATS_URL": nats_url}


@pytest.fixture
async def inventory(environment: dict[str, str], tmp_path: Path) -> AsyncIterator[ServiceProcess]:
    """The inventory, running, with an empty fleet."""
    async with service_process("host_inventory", environment, tmp_path) as process:
        yield process


@pytest.fixture
async def bus(nats_url: str) -> AsyncIterator[NatsBus]:
    """A connection of the test's own."""
    async with NatsBus.open(nats_url, name="test") as opened:
        await opened.wait_connected()
        yield opened
