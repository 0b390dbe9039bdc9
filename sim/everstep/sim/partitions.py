"""Partitions as a swarm draws them: hosts that do not reach their peers, for a while.

Drawn from a stream of its own, beside the faults, so that the faults of a seed stay what they are.
"""

from __future__ import annotations

import asyncio
from random import Random
from typing import Final

from everstep.sim.faults import Fault, Strike, draw_kinds
from everstep.sim.world import World


async def partition(world: World, random: Random) -> None:
    """Cut one host or a few from the others, both ways or one, for a blink or for minutes."""
    hosts = sorted(host_id for host_id, host in world.hosts.items() if host.on)
    if not hosts:
        return
    group = random.sample(hosts, min(len(hosts), random.choice((1, 1, 1, 2, 3))))
    world.links.cut(group, one_way=random.random() < 0.3, resets=random.random() < 0.5)
    await asyncio.sleep(random.choice((0.5, 3.0, 20.0, 200.0)))
    world.links.mend()


KINDS: Final[dict[str, Strike]] = {"partition": partition}


def draw_partitions(random: Random, *, until_s: float) -> list[Fault]:
    """Draw the partitions of this run, and when: in most runs none."""
    return draw_kinds(KINDS, random, nothing_share=0.7, count_max=2, until_s=until_s)
