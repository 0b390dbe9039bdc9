"""What hosts say and nobody hears: reports and answers that are lost, and clocks that jump.

Drawn from a stream of its own, beside the faults, so that the faults of a seed stay what they are.
"""

from __future__ import annotations

import asyncio
from random import Random
from typing import Final

from everstep.core.time import HOUR_MS, SECOND_MS
from everstep.sim.faults import Fault, Strike, draw_kinds
from everstep.sim.world import World

LAST_STEPS: Final = 2
LOOK_S: Final = 0.2
LOOKS_MAX: Final = 600  # two minutes


def _serving(world: World) -> list[str]:
    hosts = {host for training in world.trainings.values() for host in training.runs}
    return sorted(host for host in hosts if world.hosts[host].agent is not None)


async def lose_reports(world: World, random: Random) -> None:
    """What a host wants stored is lost for a while, perhaps just as its run ends."""
    if random.random() < 0.5:
        await _last_steps(world)
    hosts = _serving(world)
    if not hosts:
        return
    host_id = random.choice(hosts)
    agent = world.hosts[host_id].agent
    assert agent is not None
    world.note(host_id, "its reports are lost")
    agent.endpoint.loses_stored = True
    await asyncio.sleep(random.choice((2.0, 10.0, 20.0)))
    agent.endpoint.loses_stored = False


async def lose_answers(world: World, random: Random) -> None:
    """What a host answers is lost for a moment; it has done what it was asked."""
    hosts = sorted(host_id for host_id, host in world.hosts.items() if host.agent is not None)
    if not hosts:
        return
    host_id = random.choice(hosts)
    agent = world.hosts[host_id].agent
    assert agent is not None
    world.note(host_id, "its answers are lost")
    agent.endpoint.loses_answers = True
    await asyncio.sleep(random.choice((0.3, 1.0, 4.0)))
    agent.endpoint.loses_answers = False


async def jump_clock(world: World, random: Random) -> None:
    """A host's clock is set, by seconds or by an hour, and stays wrong."""
    host_id = random.choice(sorted(world.hosts))
    jump_ms = random.choice((-HOUR_MS, -5 * SECOND_MS, 5 * SECOND_MS, HOUR_MS))
    world.note(host_id, f"its clock jumps to {jump_ms} ms off")
    world.hosts[host_id].skew_ms = jump_ms


async def _last_steps(world: World) -> None:
    """Wait until some job is about to end, for a while."""
    for _ in range(LOOKS_MAX):
        live = [training for training in world.trainings.values() if training.stepping]
        if any(training.step >= training.spec.steps - LAST_STEPS for training in live):
            return
        await asyncio.sleep(LOOK_S)


KINDS: Final[dict[str, Strike]] = {
    "lose_reports": lose_reports,
    "lose_answers": lose_answers,
    "jump_clock": jump_clock,
}


def draw_silences(random: Random, *, until_s: float) -> list[Fault]:
    """Draw what is not heard in this run, and when: in half of the runs nothing."""
    return draw_kinds(KINDS, random, nothing_share=0.5, count_max=3, until_s=until_s)
