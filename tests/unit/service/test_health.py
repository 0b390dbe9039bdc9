"""What a service says about itself."""

from __future__ import annotations

from everstep.core.errors import Unavailable
from everstep.service.health import Health


async def well() -> str:
    """A part that works."""
    return ""


async def away() -> str:
    """A part that does not answer."""
    raise Unavailable("database at h:1/d: connection refused")


async def test_service_is_ready_when_it_runs_and_all_parts_answer() -> None:
    """Each part is listed."""
    health = Health()
    health.check("bus", well)
    assert await health.report() == (False, {"bus": "ok", "process": "starting"})
    health.phase("running")
    assert await health.report() == (True, {"bus": "ok"})
    health.phase("stopping")
    assert await health.report() == (False, {"bus": "ok", "process": "stopping"})


async def test_part_that_does_not_answer_is_named_with_the_reason() -> None:
    """A person can act on it."""
    health = Health()
    health.phase("running")
    health.check("bus", well)
    health.check("database", away)
    ready, parts = await health.report()
    assert not ready
    assert parts == {"bus": "ok", "database": "database at h:1/d: connection refused"}


async def test_trouble_of_a_loop_counts_until_it_is_over() -> None:
    """A loop that fails again and again is not ready."""
    health = Health()
    health.phase("running")
    health.trouble("watch", "ValueError: x")
    assert await health.report() == (False, {"watch": "ValueError: x"})
    health.trouble("watch", "")
    assert await health.report() == (True, {})
