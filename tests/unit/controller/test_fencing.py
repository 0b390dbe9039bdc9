"""Hosts are told to end ranks: how long they are asked, and what for."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from everstep.bus.memory import MemoryBus
from everstep.controller.fencing import (
    GRACEFUL_S_MAX,
    START_S_MAX,
    STORE_S_MAX,
    UNREACHABLE_AFTER_S,
    start_host,
    stop_hosts,
    until_silent,
)
from everstep.core.ports import Message
from everstep.service.commands import host_subject
from everstep.sim import loop
from everstep.sim.loop import VirtualClock
from everstep.wire.v1.agents_pb2 import ProbeHostReply, StartRanks, StopRanks, StopRanksReply
from everstep.wire.v1.common_pb2 import CommandReply, Outcome

Lets = Callable[[StopRanks, int], bool]  # whether the n-th stop of a host is answered
LOST_PROBES = 3  # none of which may cost a host its job
GRACEFUL = StopRanks(job_id="job", generation=2, graceful=True)


def stopped(
    there: dict[str, Lets], *gone: str, command: StopRanks = GRACEFUL, broken: str = ""
) -> tuple[dict[str, list[bool]], set[str], float]:
    """Stop hosts that answer probes, if not the first ones, and others that answer nothing.

    Returns:
        Whether each stop that a host was asked for was graceful, who has done it, and how long all
        that took [s].
    """
    asked: dict[str, list[bool]] = {host: [] for host in there}
    go_on: list[bool] = []

    async def serve(bus: MemoryBus, host: str, answers: Lets) -> None:
        async def stop(message: Message) -> bytes:
            command = StopRanks.FromString(message.data)
            asked[host].append(command.graceful)
            if not answers(command, len(asked[host])):
                await asyncio.Event().wait()
            go_on.append(command.graceful or command.uploads_go_on)
            done = Outcome(accepted=True)
            return StopRanksReply(outcome=done, broken=host == broken).SerializeToString()

        probed: list[Message] = []

        async def probe(message: Message) -> bytes:
            probed.append(message)
            if len(probed) <= LOST_PROBES:
                await asyncio.Event().wait()
            return ProbeHostReply(outcome=Outcome(accepted=True)).SerializeToString()

        await bus.serve(host_subject(host, "cmd.stop"), stop)
        await bus.serve(host_subject(host, "cmd.probe"), probe)

    async def scene() -> tuple[set[str], float]:
        running = asyncio.get_running_loop()
        bus, clock, begun_s = MemoryBus(), VirtualClock(running), running.time()
        for host, answers in there.items():
            await serve(bus, host, answers)
        async with asyncio.timeout(2 * STORE_S_MAX):
            got = await stop_hosts(bus, clock, (*there, *gone), command)
        return set(got), running.time() - begun_s

    done, took_s = loop.run(scene())
    assert all(go_on)  # what is stored is of use, however the ranks have ended
    return asked, done, took_s


def test_host_whose_answer_is_lost_is_asked_again():
    """And gracefully, as long as all say that they are there: two lost answers take longer."""
    asked, done, took_s = stopped({"h1": lambda _, number: number == 3})
    assert (asked, done) == ({"h1": [True, True, True]}, {"h1"})
    assert took_s < 3 * UNREACHABLE_AFTER_S


def test_host_that_is_silent_ends_the_grace_of_the_others():
    """Their ranks wait for its ranks, and there will be no last common step."""
    asked, done, took_s = stopped({"h1": lambda command, _: not command.graceful}, "h2")
    assert done == {"h1"}
    assert asked["h1"][0]
    assert not asked["h1"][-1]
    assert took_s < 3 * UNREACHABLE_AFTER_S


def test_host_that_is_there_without_its_ranks_ends_the_grace_of_the_others():
    """Back from a reset, or with a rank that went in the middle of a step: no less is missing."""
    lets = {"h1": lambda command, _: not command.graceful, "h2": lambda *_: True}
    asked, done, took_s = stopped(lets, broken="h2")
    assert (asked, done) == ({"h1": [True, False], "h2": [True]}, {"h1", "h2"})
    assert took_s < 3 * UNREACHABLE_AFTER_S


def test_grace_has_an_end():
    """Ranks that neither stop nor are killed by their agent are killed then."""
    asked, done, took_s = stopped({"h1": lambda command, _: not command.graceful})
    assert done == {"h1"}
    assert asked["h1"].count(False) == 1
    assert GRACEFUL_S_MAX <= took_s < GRACEFUL_S_MAX + UNREACHABLE_AFTER_S


def test_grace_lasts_as_long_as_an_upload_where_the_last_step_is_to_be_stored():
    """Agents kill ranks that do something else than wait for that."""
    storing = StopRanks(job_id="job", generation=2, graceful=True, store=True)
    there = {"h1": lambda command, _: not command.graceful}
    asked, done, took_s = stopped(there, command=storing)
    assert done == {"h1"}
    assert asked["h1"].count(False) == 1
    assert STORE_S_MAX <= took_s < STORE_S_MAX + UNREACHABLE_AFTER_S


def started(answered: int, *, probed: bool = True) -> tuple[bool, int, float]:
    """Start a host that answers the ``answered``-th start, and probes or not.

    Returns:
        Whether it was started, how often it was asked, and how long that took [s].
    """
    asked: list[Message] = []

    async def start(message: Message) -> bytes:
        asked.append(message)
        if len(asked) < answered:
            await asyncio.Event().wait()
        return CommandReply(outcome=Outcome(accepted=True)).SerializeToString()

    async def probe(_: Message) -> bytes:
        if not probed:
            await asyncio.Event().wait()
        return ProbeHostReply(outcome=Outcome(accepted=True)).SerializeToString()

    async def scene() -> tuple[bool, int, float]:
        running = asyncio.get_running_loop()
        bus, clock, begun_s = MemoryBus(), VirtualClock(running), running.time()
        await bus.serve(host_subject("h1", "cmd.start"), start)
        await bus.serve(host_subject("h1", "cmd.probe"), probe)
        reply = await start_host(bus, clock, "h1", StartRanks(job_id="job", generation=2))
        return reply is not None, len(asked), running.time() - begun_s

    return loop.run(scene())


def test_host_whose_answer_to_a_start_is_lost_is_started_all_the_same():
    """It is there: one lost answer, or two, costs no host."""
    assert started(3)[:2] == (True, 3)


def test_host_that_is_silent_at_a_start_is_given_up_soon():
    """Asked once, and probed for as long as it takes to be sure."""
    was_started, _, took_s = started(9, probed=False)
    assert not was_started
    assert UNREACHABLE_AFTER_S <= took_s < 3 * UNREACHABLE_AFTER_S


def test_host_that_is_there_and_never_starts_is_given_up():
    """Whatever keeps it, the job does not wait for ever."""
    was_started, _, took_s = started(99)
    assert not was_started
    assert START_S_MAX <= took_s < 2 * START_S_MAX


def test_host_is_watched_until_it_has_been_silent():
    """A lost answer is no silence."""
    probed: list[Message] = []

    async def probe(message: Message) -> bytes:
        probed.append(message)
        if len(probed) > 10 or len(probed) == 5:
            await asyncio.Event().wait()
        return ProbeHostReply(outcome=Outcome(accepted=True)).SerializeToString()

    async def scene() -> float:
        running = asyncio.get_running_loop()
        bus = MemoryBus()
        await bus.serve(host_subject("h1", "cmd.probe"), probe)
        await until_silent(bus, VirtualClock(running), "h1")
        return running.time()

    assert 10 < loop.run(scene()) < 10 + 2 * UNREACHABLE_AFTER_S
