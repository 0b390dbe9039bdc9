"""What several files of tests of real agents begin with."""

from __future__ import annotations

import pytest
from tests.integration.agent.harness import hosts_on, new_plane


@pytest.fixture
async def two(tmp_path):
    """Two hosts with agents, one rank each, replicated to one another."""
    async with (
        hosts_on(tmp_path, "h1", "h2") as hosts,
        new_plane() as plane,
        hosts[0].up(plane),
        hosts[1].up(plane),
    ):
        yield plane, hosts
