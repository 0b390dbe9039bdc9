"""Runs these tests where there is a Docker engine, and says so where there is none."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import asyncpg
import pytest
from testcontainers.community.postgres import PostgresContainer
from testcontainers.core.config import testcontainers_config
from tests.containers.compose import Stack, open_stack
from tests.containers.engine import POSTGRES_IMAGE, why_not
from tests.only_where import only_where

from everstep.core.system import RandomIds

# The fixtures stop what they start; the watchdog container would be one more image to pull.
testcontainers_config.ryuk_disabled = True


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave them out where they cannot run."""
    only_where(config, items, Path(__file__).parent, mark="docker", why_not=why_not)


@pytest.fixture(scope="session")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """The whole stack of docker-compose.yml, with ports, passwords and volumes of its own."""
    with open_stack(tmp_path_factory.mktemp("compose")) as opened:
        yield opened


@pytest.fixture(scope="session")
def postgres_url() -> Iterator[str]:
    """A PostgreSQL in a container of its own."""
    with PostgresContainer(POSTGRES_IMAGE, driver=None) as container:
        yield str(container.get_connection_url())


@pytest.fixture
def database_url(postgres_url: str) -> Iterator[str]:
    """An empty database of that server."""
    name = RandomIds().new_id("test")
    with ThreadPoolExecutor(1) as thread:  # also asked for from within running loops
        thread.submit(asyncio.run, _execute(postgres_url, f'create database "{name}"')).result()
        yield f"{postgres_url.rpartition('/')[0]}/{name}"
        thread.submit(
            asyncio.run, _execute(postgres_url, f'drop database "{name}" with (force)')
        ).result()


async def _execute(url: str, statement: str) -> None:
    connection = await asyncpg.connect(url)
    try:
        await connection.execute(statement)
    finally:
        await connection.close()
