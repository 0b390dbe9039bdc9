"""Fixtures for every level: the bundled servers once a session, a fresh database a test."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import pytest

from everstep.core.system import RandomIds, SystemClock
from everstep.local.servers import (
    RunningServers,
    create_database,
    drop_database,
    local_servers,
)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Let golden traces be rewritten."""
    parser.addoption(
        "--update-goldens", action="store_true", help="rewrite the golden traces of tests/sim"
    )


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what needs the bundled servers, so that ``-m 'not stack'`` leaves it out."""
    for item in items:
        if "servers" in getattr(item, "fixturenames", ()):
            item.add_marker("stack")


@pytest.fixture(scope="session")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServers]:
    """PostgreSQL, NATS and S3, running."""
    context = local_servers(tmp_path_factory.mktemp("servers"), RandomIds())
    loop = asyncio.new_event_loop()
    with ThreadPoolExecutor(1) as thread, closing(loop):  # a loop of its own: tests bring theirs
        yield thread.submit(loop.run_until_complete, context.__aenter__()).result()
        thread.submit(loop.run_until_complete, context.__aexit__(None, None, None)).result()


@pytest.fixture
def database_url(servers: RunningServers) -> Iterator[str]:
    """The URL of an empty database."""
    name = RandomIds().new_id("test")
    with ThreadPoolExecutor(1) as thread:  # also asked for from within running loops
        thread.submit(asyncio.run, create_database(servers.servers, name)).result()
        yield servers.servers.database_url(name)
        thread.submit(asyncio.run, drop_database(servers.servers, name)).result()


@pytest.fixture
def nats_url(servers: RunningServers) -> str:
    """The URL of the bus."""
    return servers.servers.nats_url


@pytest.fixture
def clock() -> SystemClock:
    """The machine's clock."""
    return SystemClock()


@pytest.fixture
def ids() -> RandomIds:
    """Random ids."""
    return RandomIds()
