"""Wrong bits as a swarm draws them: a host whose memory flips one, in a step to come.

Drawn from a stream of its own, beside the faults, so that the faults of a seed stay what they are.
"""

from __future__ import annotations

from random import Random
from typing import Final

from everstep.sim.faults import Fault, Strike, draw_kinds
from everstep.sim.world import World

AHEAD_MAX: Final = 3  # steps


async def wrong_bit(world: World, random: Random) -> None:
    """One rank of some host of a job that runs holds another bit than those beside it."""
    live = sorted(key for key, training in world.trainings.items() if training.stepping)
    if not live:
        return
    training = world.trainings[random.choice(live)]
    host_id = random.choice(sorted(training.runs))
    step = training.step + random.randint(1, AHEAD_MAX)
    world.bits.flips.setdefault((training.job_id, step), set()).add(host_id)


KINDS: Final[dict[str, Strike]] = {"wrong_bit": wrong_bit}


def draw_flips(random: Random, *, until_s: float) -> list[Fault]:
    """Draw the wrong bits of this run, and when: in most runs none."""
    return draw_kinds(KINDS, random, nothing_share=0.7, count_max=2, until_s=until_s)
