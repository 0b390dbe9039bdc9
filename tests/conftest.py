"""Fixtures for every level: the bundled servers once a session, a fresh database a test."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import settings
from tests.only_where import say_what_was_not_run

from everstep.core.system import RandomIds, SystemClock
from everstep.local.server_command import PORT_MAX, PORT_MIN, PORTS_VARIABLE
from everstep.local.servers import (
    RunningServers,
    create_database,
    drop_database,
    local_servers,
)

# How long an example takes says how busy the machine is, and nothing about the code.
settings.register_profile("everstep", deadline=None)
settings.load_profile("everstep")


# Whole files go to workers: begun last, one of these would leave the others without work. What runs
# many processes comes beside what runs one, as far as that can be had.
FIRST = (
    "integration/cli/test_real_stack.py",
    "sim/test_scenarios.py",
    "sim/test_swarm.py",
    "integration/checkpoints/test_crash_points.py",
    "integration/train/test_stragglers.py",
    "sim/fleet/test_interval.py",
    "sim/fleet/test_counterfactuals.py",
    "sim/fleet/test_fleet.py",
    "integration/train/test_resharding.py",
    "integration/agent/test_training.py",
    "e2e/test_faults.py",
    "e2e/test_survival.py",
    "e2e/test_numerics.py",
    "e2e/test_hangs.py",
    "e2e/test_interval.py",
    "e2e/test_standing_still.py",
)

PORT_SLICES = 16  # a process of the suite keeps to one: 1,062 ports


def pytest_configure() -> None:
    """Give each process of the suite ports of its own: tests stop servers and start them again."""
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    size = (PORT_MAX + 1 - PORT_MIN) // PORT_SLICES
    low = PORT_MIN + worker % PORT_SLICES * size
    os.environ[PORTS_VARIABLE] = f"{low}-{low + size - 1}"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Let golden traces be rewritten."""
    parser.addoption(
        "--update-goldens", action="store_true", help="rewrite the golden traces of tests/sim"
    )


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with what takes long, and mark what needs the bundled servers."""
    places = {Path(__file__).parent / name: place for place, name in enumerate(FIRST)}
    assert all(path.is_file() for path in places), "FIRST names a file that is not there"
    items.sort(key=lambda item: places.get(item.path, len(FIRST)))
    for item in items:  # so that ``-m 'not stack'`` leaves it out
        if "servers" in getattr(item, "fixturenames", ()):
            item.add_marker("stack")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say what was not run, and why."""
    say_what_was_not_run(terminalreporter)


@pytest.fixture(autouse=True)
def _logs_as_before() -> Iterator[None]:
    """Take back what a command has done to logging, as if it had been a process of its own."""
    before = logging.root.manager.disable
    yield
    logging.disable(before)


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
