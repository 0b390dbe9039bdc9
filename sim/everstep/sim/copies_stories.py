"""Named stories of what lies in memory once only, and what becomes of it."""

from __future__ import annotations

import asyncio
from typing import Final

from everstep.controller.wiring import NAME as CONTROLLER
from everstep.host_inventory.wiring import NAME as INVENTORY
from everstep.service.commands import send_command
from everstep.sim.elastic_stories import elastic, ranks_of, without_spares
from everstep.sim.stage import Stage
from everstep.sim.telling import JOB, Story, launch, step_of
from everstep.wire.v1.common_pb2 import CommandReply
from everstep.wire.v1.hosts_pb2 import CordonHost

WAIT_S: Final = 60.0
BETWEEN_S: Final = 0.7  # a step's snapshot is whole and at its peer, and the next step is not made


async def pair_lost_one_by_one_while_waiting(stage: Stage) -> None:
    """No spare: a host dies, a minute later the one with its copies, before anybody has trained.

    The job goes on from the step that it had, not from its last checkpoint.
    """
    holder, step = await _one_lost_while_nobody_is_spare(stage)
    stage.world.power_off(holder)
    await _goes_on_from(stage, step)


async def pod_of_the_only_copies_lost_while_waiting(stage: Stage) -> None:
    """No spare: a host dies, a minute later all of the pod of the one with its copies.

    The copies that were made meanwhile lie in the other pod.
    """
    holder, step = await _one_lost_while_nobody_is_spare(stage)
    hosts = stage.world.hosts
    for host_id, host in sorted(hosts.items()):
        if host.on and host.pod == hosts[holder].pod:
            stage.world.power_off(host_id)
    await _goes_on_from(stage, step)


async def bad_copy_of_the_newest_step_while_waiting(stage: Stage) -> None:
    """What cannot be brought to a second place, the step before it can stand in for.

    The pair's second host is lost, too, and the job goes on from there.
    """
    world = stage.world
    owner, holder, step = await _one_lost(stage, after_s=BETWEEN_S)
    [rank, *_] = world.trainings[JOB, 1].runs[owner].ranks
    world.hosts[holder].memory.spoil((JOB, rank, False), step)
    await _waits(stage)
    world.power_off(holder)
    await _goes_on_from(stage, step)


async def taker_of_copies_lost_while_waiting(stage: Stage) -> None:
    """A second host dies as it is told what to bring; that must not keep the others waiting.

    Half a minute later the one with the first one's copies is lost, too.
    """
    world = stage.world
    owner, holder, step = await _one_lost(stage)
    [taker] = (
        host_id
        for host_id in stage.hosts_of(JOB)
        if host_id not in {owner, holder} and world.hosts[host_id].pod != world.hosts[holder].pod
    )
    await stage.appended(CONTROLLER, "hosts_short")
    await asyncio.sleep(0.01)
    world.power_off(taker)
    await asyncio.sleep(WAIT_S / 2)
    world.power_off(holder)
    await _goes_on_from(stage, step)


async def own_copy_goes_bad_before_it_is_anywhere_else(stage: Stage) -> None:
    """It is dropped when it is to be copied, and the next snapshot is taken."""
    await launch(stage)
    await stage.step_reached(JOB, 10)
    training = stage.training(JOB)
    assert training is not None
    run = training.runs[stage.hosts_of(JOB)[0]]
    memory, rank = run.host.memory, run.ranks[0]

    def fresh() -> bool:
        newest = memory.newest(JOB, rank)
        return newest is not None and newest.step > run.replicated_step

    await stage.until(fresh, "a snapshot that is not copied yet", limit_s=10.0)
    step = run.held_step
    memory.spoil((JOB, rank, True), step)
    await stage.until(lambda: run.replicated_step > step, "the next one", limit_s=4.0)
    await stage.finish(1)
    assert await stage.causes(JOB) == ["launch"]


async def waits_with_what_more_ranks_have_left(stage: Stage) -> None:
    """It has shrunk, made no step, and has no hosts: what it had before is kept twice.

    One of the two hosts that are left is lost as well.
    """
    world = stage.world
    await without_spares(stage, elastic(layout={"dp_replicate": 4, "tp": 2}))
    step, [first, *others] = step_of(stage), stage.hosts_of(JOB)
    world.power_off(first)
    await stage.until(lambda: ranks_of(stage) == 6, "fewer ranks", limit_s=30)
    for host_id in others:
        await cordon(stage, host_id)
    gone = stage.hosts_of(JOB)[0]
    world.power_off(gone)
    await _waits(stage)
    world.power_off(next(one for one in others if one != gone))
    await _goes_on_from(stage, step)


async def cordon(stage: Stage, host_id: str) -> None:
    """A person takes a host out of service; it serves on where it does."""
    command = CordonHost(host_id=host_id, reason="by hand", at_ms=stage.world.now_ms)
    await send_command(stage.world.person, INVENTORY, command, CommandReply, timeout_s=5.0)


async def _one_lost_while_nobody_is_spare(stage: Stage) -> tuple[str, int]:
    """Let a job wait for a minute; returns who holds the lost host's copies, and the step."""
    _, holder, step = await _one_lost(stage)
    await _waits(stage)
    return holder, step


async def _one_lost(stage: Stage, *, after_s: float = 0.0) -> tuple[str, str, int]:
    """Lose a job's host without a spare; returns it, who holds its copies, and the step."""
    world = stage.world
    await launch(stage)
    await stage.step_reached(JOB, 18)
    for host_id in sorted(set(world.hosts) - set(stage.hosts_of(JOB))):
        world.power_off(host_id)
    await asyncio.sleep(after_s)
    training, step = stage.training(JOB), step_of(stage)
    assert training is not None
    owner = stage.hosts_of(JOB)[0]
    world.power_off(owner)
    return owner, training.runs[owner].placement.replica_host_id, step


async def _waits(stage: Stage) -> None:
    await stage.until(lambda: stage.job(JOB).phase == "waiting_for_hosts", "waiting", limit_s=60)
    await asyncio.sleep(WAIT_S)


async def _goes_on_from(stage: Stage, step: int) -> None:
    await asyncio.sleep(WAIT_S)
    await stage.finish(1)
    assert min((await stage.restores(JOB))[1:]) >= step - 1, await stage.restores(JOB)


STORIES: Final[tuple[Story, ...]] = (
    pair_lost_one_by_one_while_waiting,
    pod_of_the_only_copies_lost_while_waiting,
    bad_copy_of_the_newest_step_while_waiting,
    taker_of_copies_lost_while_waiting,
    own_copy_goes_bad_before_it_is_anywhere_else,
    waits_with_what_more_ranks_have_left,
)
