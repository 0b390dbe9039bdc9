"""Plays a named story in a world of its own, and holds it to what every run is held to."""

from __future__ import annotations

from everstep.sim import loop
from everstep.sim.network import Conditions
from everstep.sim.scenarios import SCENARIOS
from everstep.sim.stage import Stage
from everstep.sim.world import Fleet


def play(
    name: str,
    *,
    seed: int = 1,
    conditions: Conditions | None = None,
    lines: list[str] | None = None,
) -> Stage:
    """Play a scenario; raises AssertionError when it does not go as told.

    Args:
        name: of the scenario.
        seed: of its world.
        conditions: of its network.
        lines: takes the trace, however it goes.

    Returns:
        The stage as it is afterwards; nothing is wrong on it.
    """

    async def scene() -> Stage:
        stage = Stage(seed, fleet=Fleet(pods=2, hosts_per_pod=3), conditions=conditions)
        try:
            await SCENARIOS[name](stage)
            wrong = await stage.wrong()
        finally:
            if lines is not None:
                lines.extend(stage.world.trace.lines)
        assert not wrong, wrong
        return stage

    return loop.run(scene())
