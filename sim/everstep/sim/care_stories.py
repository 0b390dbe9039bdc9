"""Named stories of hosts that fail again, come back, do not pass, or are wanted by a person."""

from __future__ import annotations

import asyncio
from typing import Final

from everstep.core.errors import EverstepError
from everstep.core.probes import Depth
from everstep.core.time import HOUR_MS, SECOND_MS
from everstep.host_inventory.care import Care
from everstep.host_inventory.events import HostCordoned, HostProbed
from everstep.host_inventory.state import HostState
from everstep.service.commands import send_command
from everstep.sim.services import CARE
from everstep.sim.stage import Stage, spec_of
from everstep.sim.telling import JOB, Story, launch
from everstep.wire.v1 import hosts_pb2
from everstep.wire.v1.common_pb2 import CommandReply

COMMAND_S_MAX: Final = 5.0
HOLD_S: Final = 10
STORM_S: Final = 240.0
# Held out for 10, 20, 40, 80 and 160 s: more often than this it cannot have failed by then.
FAILURES_MAX: Final = 6
SHORT: Final = Care(hold_ms=HOLD_S * SECOND_MS, burn_in_s=2)


def state_of(stage: Stage, host_id: str) -> HostState:
    """Return what the inventory says of a host."""
    host = stage.invariants.fleet.hosts.get(host_id)
    return HostState.LEFT if host is None else host.state


async def cordons(stage: Stage, host_id: str) -> list[HostCordoned]:
    """Return every cordon of a host."""
    events = await stage.events("host_inventory")
    return [e for e in events if isinstance(e, HostCordoned) and e.host_id == host_id]


async def host_flaps(stage: Stage) -> None:
    """The only spare fails whenever it is used: it is used less and less."""
    world = stage.world
    world.backing.care = SHORT
    await stage.up()
    world.launched.append(JOB)
    await world.launch(JOB, spec_of(steps=300))
    await stage.step_reached(JOB, 5)
    flapping, away = sorted(set(world.hosts) - set(stage.hosts_of(JOB)))
    world.power_off(away)
    world.power_off(stage.hosts_of(JOB)[0])
    end_s = asyncio.get_running_loop().time() + STORM_S
    failures = 0
    while asyncio.get_running_loop().time() < end_s:
        run = world.hosts[flapping].runs.get(JOB)
        if run is not None and run.alive:
            world.power_off(flapping)
            failures += 1
            await asyncio.sleep(3.0)
            world.power_on(flapping)
        await asyncio.sleep(1.0)
    out = await cordons(stage, flapping)
    assert 3 <= failures <= FAILURES_MAX, failures
    assert [one.relapses for one in out] == list(range(1, len(out) + 1)), out
    await stage.finish(1)


async def lost_host_comes_back(stage: Stage) -> None:
    """It was only switched off: held out, burnt in, and the spare of the next loss."""
    world = stage.world
    world.backing.care = SHORT
    await launch(stage)
    await stage.step_reached(JOB, 10)
    idle = sorted(set(world.hosts) - set(stage.hosts_of(JOB)))
    world.power_off(idle[0])
    await asyncio.sleep(8.0)  # it is found out before anybody needs it
    lost, other = stage.hosts_of(JOB)[:2]
    world.power_off(lost)
    await stage.running(JOB, 2)
    world.power_on(lost)
    await stage.until(lambda: state_of(stage, lost) is HostState.SPARE, "a spare again", limit_s=60)
    world.power_off(other)
    await stage.running(JOB, 3)
    assert lost in stage.hosts_of(JOB)
    events = await stage.events("host_inventory")
    passed = [e for e in events if isinstance(e, HostProbed) and e.host_id == lost]
    assert [one.report.depth for one in passed] == [Depth.QUICK, Depth.BURN_IN], passed
    await stage.finish(1)


async def lost_while_it_is_probed(stage: Stage) -> None:
    """Found by seed 2061: what the lost agent was asked kept the next one waiting, for minutes."""
    world = stage.world
    world.backing.care = Care(
        hold_ms=HOLD_S * SECOND_MS, burn_in_s=2, check_every_ms=HOLD_S * SECOND_MS
    )
    await launch(stage)
    await stage.step_reached(JOB, 5)
    lost = min(set(world.hosts) - set(stage.hosts_of(JOB)))
    world.hosts[lost].probe_delay_s = 1e9  # it will be asked, and not have answered
    await asyncio.sleep(HOLD_S)
    world.vanish(lost)
    world.hosts[lost].probe_delay_s = 0.0
    await stage.until(lambda: state_of(stage, lost) is HostState.CORDONED, "found", limit_s=30)
    world.power_on(lost)
    await stage.until(lambda: state_of(stage, lost) is HostState.SPARE, "a spare again", limit_s=30)
    await stage.finish(1)


async def answer_is_lost(stage: Stage) -> None:
    """What a host found when it was probed is lost on its way: it is asked again, and soon."""
    world = stage.world
    await stage.up()
    host_id = min(world.hosts)
    world.power_off(host_id)
    await stage.until(lambda: state_of(stage, host_id) is HostState.CORDONED, "out", limit_s=30)
    world.power_on(host_id)
    agent = world.hosts[host_id].agent
    assert agent is not None
    agent.endpoint.loses_answers = True
    await stage.clear(host_id)
    await stage.until(lambda: state_of(stage, host_id) is HostState.PROBING, "asked", limit_s=5)
    await asyncio.sleep(CARE.burn_in_s + 1.0)
    agent.endpoint.loses_answers = False
    await stage.until(lambda: state_of(stage, host_id) is HostState.SPARE, "a spare", limit_s=10)
    events = await stage.events("host_inventory")
    burnt = [e.report for e in events if isinstance(e, HostProbed) and e.host_id == host_id]
    assert [one.depth for one in burnt] == [Depth.QUICK, Depth.BURN_IN], burnt
    world.launched.append(JOB)
    await world.launch(JOB, spec_of())
    await stage.finish(1)


async def clock_is_set_back(stage: Stage) -> None:
    """Found by seed 30002: a host that comes up an hour earlier by its clock than it did before."""
    world = stage.world
    await stage.up()
    host_id = min(world.hosts)
    world.power_off(host_id)
    await stage.until(lambda: state_of(stage, host_id) is HostState.CORDONED, "out", limit_s=30)
    world.hosts[host_id].skew_ms = -HOUR_MS
    world.power_on(host_id)
    await stage.clear(host_id)
    await stage.until(lambda: state_of(stage, host_id) is HostState.SPARE, "a spare", limit_s=30)
    world.launched.append(JOB)
    await world.launch(JOB, spec_of())
    await stage.finish(1)


async def cut_off_host_comes_back(stage: Stage) -> None:
    """Found by seed 11: only the way to it was away, so its agent is no new one; it is heard."""
    world = stage.world
    world.backing.care = SHORT
    await launch(stage)
    await stage.step_reached(JOB, 10)
    lost = stage.hosts_of(JOB)[1]
    agent = world.hosts[lost].agent
    assert agent is not None
    agent.endpoint.cut()
    world.cut_peers(lost)
    await stage.running(JOB, 2)
    await asyncio.sleep(2.0 * HOLD_S)
    assert state_of(stage, lost) is HostState.CORDONED, "nobody has heard of it since"
    agent.endpoint.mend()
    world.mend_peers(lost)
    await stage.until(lambda: state_of(stage, lost) is HostState.SPARE, "a spare again", limit_s=60)
    await stage.finish(1)


async def no_host_passes(stage: Stage) -> None:
    """All compute wrongly: none is ever used, and a person who says otherwise is not believed."""
    world = stage.world
    for host in world.hosts.values():
        host.wrong = "product_float32"
    await stage.up()
    world.launched.append(JOB)
    await world.launch(JOB, spec_of())
    await asyncio.sleep(30.0)
    await stage.clear()
    await asyncio.sleep(30.0)
    assert stage.training(JOB) is None, "ranks were started on a host that computes wrongly"
    states = {state_of(stage, host_id) for host_id in world.hosts}
    assert states == {HostState.CORDONED}, states
    for host in world.hosts.values():
        host.wrong = ""
    await stage.finish(1)


async def spare_goes_bad(stage: Stage) -> None:
    """An idle spare begins to compute wrongly: it is out before anybody needs it."""
    world = stage.world
    world.backing.care = Care(check_every_ms=20 * SECOND_MS)
    await launch(stage)
    await stage.step_reached(JOB, 5)
    bad, good = sorted(set(world.hosts) - set(stage.hosts_of(JOB)))
    world.hosts[bad].wrong = "memory"
    await stage.until(lambda: state_of(stage, bad) is HostState.CORDONED, "found out", limit_s=30)
    assert state_of(stage, good) is HostState.SPARE
    world.power_off(stage.hosts_of(JOB)[0])
    await stage.running(JOB, 2)
    assert good in stage.hosts_of(JOB)
    world.hosts[bad].wrong = ""
    await stage.finish(1)


async def host_is_maintained(stage: Stage) -> None:
    """A person wants a host: its job moves off it and loses no step; then it comes back."""
    world = stage.world
    await launch(stage)
    await stage.step_reached(JOB, 15)
    wanted = stage.hosts_of(JOB)[1]
    at_ms = world.clock.now_ms()
    await _tell(stage, hosts_pb2.MaintainHost(host_id=wanted, reason="firmware", at_ms=at_ms))
    await stage.running(JOB, 2)
    assert wanted not in stage.hosts_of(JOB)
    assert world.truth.lost[JOB] == [], world.truth.lost[JOB]
    [out] = await cordons(stage, wanted)
    assert (out.maintenance, out.fault, out.reason) == (True, "", "maintenance: firmware"), out
    await _tell(stage, hosts_pb2.UncordonHost(host_id=wanted, at_ms=world.clock.now_ms()))
    await stage.until(
        lambda: state_of(stage, wanted) is HostState.SPARE, "a spare again", limit_s=30
    )
    await stage.finish(1)
    assert await stage.causes(JOB) == ["launch", "drain"]


async def _tell(stage: Stage, command: hosts_pb2.MaintainHost | hosts_pb2.UncordonHost) -> None:
    """Tell the inventory until it answers."""
    while True:
        try:
            reply = await send_command(
                stage.world.person,
                "host_inventory",
                command,
                CommandReply,
                timeout_s=COMMAND_S_MAX,
            )
        except EverstepError:
            await asyncio.sleep(1.0)
        else:
            assert reply.outcome.accepted, reply.outcome
            return


STORIES: Final[tuple[Story, ...]] = (
    host_flaps,
    lost_host_comes_back,
    lost_while_it_is_probed,
    answer_is_lost,
    clock_is_set_back,
    cut_off_host_comes_back,
    no_host_passes,
    spare_goes_bad,
    host_is_maintained,
)
