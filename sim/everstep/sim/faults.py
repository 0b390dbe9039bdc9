"""What goes wrong, drawn from the seed: each run mixes its own few kinds of faults (swarm testing).

A run that has everything at once seldom gets far, and hides what needs one fault twice. So a run
draws which kinds it has, how many, and when; every fault repairs itself after a while.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from random import Random
from typing import Final

from everstep.core.errors import EverstepError
from everstep.service.commands import send_command
from everstep.sim.network import Conditions
from everstep.sim.services import SERVICES
from everstep.sim.world import World
from everstep.wire.v1 import hosts_pb2, jobs_pb2
from everstep.wire.v1.common_pb2 import CommandReply

RESUME_TRIES_MAX: Final = 60  # a pause takes a minute at most; then the job is not paused at all

Strike = Callable[[World, Random], Awaitable[None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One fault: what, and when [s after the first launch].

    With a ``moment`` (``moments.py``) it lies in wait from then on, and strikes ``after_s`` later.
    """

    kind: str
    at_s: float
    seed: str
    moment: str = ""
    after_s: float = 0.0

    def __str__(self) -> str:
        """Say what it is, and at which moment."""
        return f"{self.kind} at {self.moment}" if self.moment else self.kind


def _serving(world: World) -> list[str]:
    return sorted(h for h, host in world.hosts.items() if any(r.alive for r in host.runs.values()))


def _machines(world: World) -> list[str]:
    return sorted(host_id for host_id, host in world.hosts.items() if host.on)


async def kill_rank(world: World, random: Random) -> None:
    """Kill one rank."""
    hosts = _serving(world)
    if not hosts:
        return
    host = world.hosts[random.choice(hosts)]
    ranks = sorted(rank for run in host.runs.values() for rank in run.alive)
    rank = random.choice(ranks)
    world.note(host.host_id, f"rank {rank} killed")
    host.kill_rank(rank)


async def kill_host(world: World, random: Random) -> None:
    """Lose a machine; it comes back later, and a person clears it."""
    hosts = _machines(world)
    if not hosts:
        return
    host_id = random.choice(hosts)
    world.power_off(host_id)
    await asyncio.sleep(random.uniform(2, 90))
    world.power_on(host_id)


async def vanish_host(world: World, random: Random) -> None:
    """Lose a machine without a reset of its connections; it comes back later."""
    hosts = _machines(world)
    if not hosts:
        return
    host_id = random.choice(hosts)
    world.vanish(host_id)
    await asyncio.sleep(random.uniform(2, 90))
    world.power_on(host_id)


async def blink_host(world: World, random: Random) -> None:
    """Lose a machine that is soon there again."""
    hosts = _serving(world) or _machines(world)
    if not hosts:
        return
    host_id = random.choice(hosts)
    if not world.hosts[host_id].on:
        return
    lose = world.power_off if random.random() < 0.5 else world.vanish
    lose(host_id)
    await asyncio.sleep(random.uniform(1, 15))
    world.power_on(host_id)


async def kill_agent(world: World, random: Random) -> None:
    """Kill an agent alone; its supervisor starts it again."""
    hosts = [h for h in _machines(world) if world.hosts[h].agent is not None]
    if not hosts:
        return
    host = world.hosts[random.choice(hosts)]
    assert host.agent is not None
    world.note(host.host_id, "agent killed")
    host.agent.kill()
    await asyncio.sleep(random.choice((0.3, 1.5, 6.0)))
    if host.on and host.agent is None:
        world.start_agent(host.host_id)


async def kill_service(world: World, random: Random) -> None:
    """Kill a service; its supervisor starts it again."""
    name = random.choice(SERVICES)
    service = world.services[name]
    if not service.up:
        return
    world.note(name, "killed")
    service.kill()
    await asyncio.sleep(random.choice((0.2, 1.0, 5.0, 30.0)))
    if not service.up:
        world.note(name, "started")
        service.start()


async def restart_bus(world: World, random: Random) -> None:
    """Take the bus away for a while."""
    if not world.network.server_up.is_set():
        return
    away_s = random.choice((0.3, 2.0, 10.0))
    world.note("bus", f"away for {away_s} s")
    await world.network.restart_server(away_s)


async def cut_agent(world: World, random: Random) -> None:
    """Cut a host from the bus, but not from its peers; or from both."""
    hosts = [h for h in _machines(world) if world.hosts[h].agent is not None]
    if not hosts:
        return
    host = world.hosts[random.choice(hosts)]
    everything = random.random() < 0.5
    world.note(host.host_id, f"cut from the bus{' and its peers' if everything else ''}")
    assert host.agent is not None
    endpoint = host.agent.endpoint
    endpoint.cut()
    if everything:
        world.cut_peers(host.host_id)
    await asyncio.sleep(random.choice((0.5, 4.0, 20.0, 200.0)))
    endpoint.mend()
    if everything:
        world.mend_peers(host.host_id)
    world.note(host.host_id, "reachable again")


async def objects_away(world: World, random: Random) -> None:
    """Take the object store away."""
    if not world.objects.up:
        return
    world.note("objects", "away")
    world.objects.up = False
    await asyncio.sleep(random.choice((2.0, 30.0)))
    world.objects.up = True


async def database_away(world: World, random: Random) -> None:
    """Take one service's database away."""
    name = random.choice(SERVICES)
    database = world.backing.databases[name]
    if not database.up:
        return
    world.note(name, "database away")
    database.up = False
    await asyncio.sleep(random.choice((0.5, 3.0, 15.0)))
    database.up = True
    database.since_s = asyncio.get_running_loop().time()


async def spoil_copy(world: World, random: Random) -> None:
    """Let one copy in some host's memory go bad."""
    places = [
        (host_id, key, copy.step)
        for host_id, host in sorted(world.hosts.items())
        for key, copies in sorted(host.memory.slots.items())
        for copy in copies
    ]
    if not places:
        return
    host_id, key, step = random.choice(places)
    world.note(host_id, f"copy of rank {key[1]} step {step} (own: {key[2]}) goes bad")
    world.hosts[host_id].memory.spoil(key, step)


async def pause(world: World, random: Random) -> None:
    """A person pauses the job and resumes it later."""
    job_id = random.choice(sorted(world.launched))
    await world.order(jobs_pb2.PauseJob(job_id=job_id, at_ms=world.clock.now_ms()))
    await asyncio.sleep(random.choice((1.0, 20.0, 120.0)))
    for _ in range(RESUME_TRIES_MAX):
        command = jobs_pb2.ResumeJob(job_id=job_id, at_ms=world.clock.now_ms())
        if (await world.order(command)).outcome.accepted:
            return
        await asyncio.sleep(2.0)


async def restart(world: World, random: Random) -> None:
    """A person restarts the job, from its newest state or from an older checkpoint."""
    job_id = random.choice(sorted(world.launched))
    complete = await world.backing.catalog.complete(job_id)
    steps = [-1, *sorted({facts.step for facts in complete})]
    await world.order(
        jobs_pb2.RestartJob(
            job_id=job_id, from_step=random.choice(steps), at_ms=world.clock.now_ms()
        )
    )


async def twin_service(world: World, random: Random) -> None:
    """Run a second instance of a service for a while."""
    name = random.choice(SERVICES)
    twin = world.twin(name)
    world.note(name, "a second instance starts")
    twin.start()
    await asyncio.sleep(random.choice((2.0, 15.0, 60.0)))
    world.note(name, "the second instance is killed")
    if twin.up:
        twin.kill()


async def save(world: World, random: Random) -> None:
    """A person asks for a checkpoint."""
    job_id = random.choice(sorted(world.launched))
    await world.order(jobs_pb2.SaveCheckpoint(job_id=job_id, at_ms=world.clock.now_ms()))


async def cordon(world: World, random: Random) -> None:
    """A person cordons a host and clears it later."""
    host_id = random.choice(sorted(world.hosts))
    command = hosts_pb2.CordonHost(host_id=host_id, reason="by hand", at_ms=world.clock.now_ms())
    try:
        await send_command(world.person, "host_inventory", command, CommandReply, timeout_s=5.0)
        world.note("person", f"cordoned {host_id}")
    except EverstepError:
        return


KINDS: Final[dict[str, Strike]] = {
    "kill_rank": kill_rank,
    "kill_host": kill_host,
    "vanish_host": vanish_host,
    "kill_agent": kill_agent,
    "kill_service": kill_service,
    "twin_service": twin_service,
    "restart_bus": restart_bus,
    "cut_agent": cut_agent,
    "objects_away": objects_away,
    "database_away": database_away,
    "spoil_copy": spoil_copy,
    "pause": pause,
    "restart": restart,
    "save": save,
    "cordon": cordon,
}


# Drawn beside the others, where a job may shrink.
LOSSES: Final[dict[str, Strike]] = {"blink_host": blink_host}


def draw_losses(random: Random, *, until_s: float) -> list[Fault]:
    """Draw hosts that are lost beside all else: what a job that may shrink is there for."""
    return draw_kinds(LOSSES, random, nothing_share=0.1, count_max=3, until_s=until_s)


def draw_conditions(random: Random) -> Conditions:
    """Draw how bad the network is: half of the runs have a good one."""
    if random.random() < 0.5:
        return Conditions()
    return Conditions(
        latency_s=random.choice((0.0005, 0.005, 0.05)),
        late_share=random.choice((0.0, 0.01, 0.1)),
        late_s=random.choice((0.2, 1.0)),
        lost_share=random.choice((0.0, 0.01, 0.1)),
        doubled_share=random.choice((0.0, 0.05, 0.3)),
    )


def draw_skew_ms(random: Random) -> int:
    """Draw how wrong a host's clock is: most are right, some are seconds off, a few hours."""
    kind = random.random()
    if kind < 0.7:
        return 0
    if kind < 0.95:
        return random.randint(-5_000, 5_000)
    return random.choice((-3_600_000, 3_600_000))


def draw_faults(random: Random, *, until_s: float) -> list[Fault]:
    """Draw which kinds this run has, and when each of them strikes."""
    kinds = random.sample(sorted(KINDS), random.randint(1, 5))
    count = random.randint(1, 12)
    times = sorted(random.uniform(0, until_s) for _ in range(count))
    if random.random() < 0.4:  # close together: faults that meet
        centre = random.uniform(5, until_s)
        times = sorted(max(0.0, random.gauss(centre, 2.0)) for _ in range(count))
    return [
        Fault(kind=random.choice(kinds), at_s=round(at, 3), seed=f"{random.getrandbits(48):012x}")
        for at in times
    ]


def draw_kinds(
    kinds: Iterable[str], random: Random, *, nothing_share: float, count_max: int, until_s: float
) -> list[Fault]:
    """Draw what happens beside the faults, and when: in ``nothing_share`` of the runs nothing."""
    if random.random() < nothing_share:
        return []
    return [
        Fault(
            kind=random.choice(sorted(kinds)),
            at_s=round(random.uniform(0, until_s), 3),
            seed=f"{random.getrandbits(48):012x}",
        )
        for _ in range(random.randint(1, count_max))
    ]
