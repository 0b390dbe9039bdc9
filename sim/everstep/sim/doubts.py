"""What people say about checkpoints while a world runs: they doubt, clear, pin and unpin.

Drawn from a stream of its own, beside the faults, so that the faults of a seed stay what they are.
"""

from __future__ import annotations

import asyncio
from random import Random
from typing import Any, Final

from everstep.core.errors import EverstepError
from everstep.service.commands import send_command
from everstep.sim.faults import Fault, Strike, draw_kinds
from everstep.sim.world import World
from everstep.wire.v1 import checkpoints_pb2 as wire
from everstep.wire.v1.common_pb2 import CommandReply

REPLY_S: Final = 5.0
STEPS_MAX: Final = 8  # from a good checkpoint to what is doubted


async def say(world: World, command: Any) -> bool:
    """Send the registry a command; say whether it was accepted. A person does not insist."""
    try:
        reply = await send_command(
            world.person, "checkpoint_registry", command, CommandReply, timeout_s=REPLY_S
        )
    except EverstepError:
        return False
    answer = "accepted" if reply.outcome.accepted else f"refused: {reply.outcome.why}"
    world.note("person", f"{type(command).__name__}: {answer}")
    return bool(reply.outcome.accepted)


async def doubt(world: World, random: Random) -> None:
    """A person suspects everything from a step on, behind a good checkpoint, and thinks again."""
    job_id = random.choice(sorted(world.launched))
    good = sorted(world.keeping.of(job_id).good())
    if not good:
        return
    step, generation = random.choice(good)
    suspicion_id = f"doubt-{random.getrandbits(32):08x}"
    suspected = await say(
        world,
        wire.SuspectSteps(
            job_id=job_id,
            suspicion_id=suspicion_id,
            from_step=step + random.randint(1, STEPS_MAX),
            to_step=-1,
            by="a person",
            at_ms=world.clock.now_ms(),
        ),
    )
    # The one that was meant to be left may have been given up meanwhile.
    nothing_left = suspected and not world.keeping.of(job_id).good()
    await asyncio.sleep(0 if nothing_left else random.choice((1.0, 20.0, 120.0)))
    if nothing_left or random.random() < 0.5:
        await say(
            world,
            wire.EndSuspicion(
                job_id=job_id,
                suspicion_id=suspicion_id,
                false_alarm=nothing_left or random.random() < 0.5,
                by="a person",
                at_ms=world.clock.now_ms(),
            ),
        )
    else:
        job = world.keeping.of(job_id)
        suspect = sorted(one for one in job.complete if job.suspect(*one))
        step, generation = random.choice(suspect or [(step, generation)])
        await say(
            world,
            wire.DecideTrust(
                job_id=job_id,
                step=step,
                generation=generation,
                trust=random.choice(("clean", "verified")),
                by="a person",
                at_ms=world.clock.now_ms(),
            ),
        )


async def pin(world: World, random: Random) -> None:
    """A person pins a checkpoint, and perhaps unpins it later."""
    job_id = random.choice(sorted(world.launched))
    complete = sorted(world.keeping.of(job_id).complete)
    if not complete:
        return
    step, generation = random.choice(complete)
    which: dict[str, Any] = {"job_id": job_id, "step": step, "generation": generation}
    await say(world, wire.PinCheckpoint(**which, by="a person", at_ms=world.clock.now_ms()))
    await asyncio.sleep(random.choice((5.0, 60.0)))
    if random.random() < 0.5:
        await say(world, wire.UnpinCheckpoint(**which, by="a person", at_ms=world.clock.now_ms()))


KINDS: Final[dict[str, Strike]] = {"doubt": doubt, "pin": pin}


def draw_doubts(random: Random, *, until_s: float) -> list[Fault]:
    """Draw what is said in this run, and when: in most runs nothing."""
    return draw_kinds(KINDS, random, nothing_share=0.6, count_max=4, until_s=until_s)
