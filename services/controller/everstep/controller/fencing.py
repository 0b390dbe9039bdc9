"""Ends older ranks on hosts, and starts new ones; says which hosts are silent.

Ended gently while all hosts answer, at once when one is silent, or there without its ranks: ranks
that may take a last step together need time for it, and without one host's there is no such step.
An answer that is lost must cost neither that time nor a host that is there, so hosts are asked
again meanwhile.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

from everstep.core.errors import NoResponders, Unavailable
from everstep.core.ports import Bus
from everstep.core.system import Clock
from everstep.service.commands import host_subject, request
from everstep.wire.v1.agents_pb2 import (
    ProbeHost,
    ProbeHostReply,
    StartRanks,
    StopRanks,
    StopRanksReply,
)
from everstep.wire.v1.common_pb2 import CommandReply

# An agent that was killed alone is back within about 2 s (its supervisor restarts it, the ranks it
# left are re-adopted); a host that has not answered for 3 s is taken for lost. DESIGN asks for 5 s.
UNREACHABLE_AFTER_S: Final = 3.0
RETRY_PAUSE_S: Final = 0.1
ANSWER_S_MAX: Final = 2.0  # killing and reaping ranks takes milliseconds; a loaded host may be slow
LOOK_S: Final = 1.0  # between two looks at a host that is busy; chosen, a look is one small message
PROBE_S_MAX: Final = 0.4  # as the monitor gives a host to say that it is there
# A host may have to end another job's ranks first, for which agents take up to some seconds.
START_S_MAX: Final = 15.0
GRACEFUL_S_MAX: Final = 70.0  # agents give ranks 60 s to agree on a last step, and kill them then
# Where the last step is to be stored, also those that wait for an earlier upload, up to 25 minutes.
STORE_S_MAX: Final = GRACEFUL_S_MAX + 1_500.0


async def stop_hosts(
    bus: Bus, clock: Clock, hosts: Sequence[str], command: StopRanks
) -> dict[str, StopRanksReply]:
    """Ask each host until it has done it or has been silent for ``UNREACHABLE_AFTER_S``.

    Args:
        bus: the way to the hosts.
        clock: the asker's.
        hosts: with ranks of the job; ``command`` is graceful until one is silent or broken.
        command: what they are told.

    Returns:
        The answers of those that have.

    Raises:
        Unavailable: another controller is ahead.
    """
    shared = StopRanks()
    shared.CopyFrom(command)
    got = await asyncio.gather(*(_stop(bus, clock, host, shared) for host in hosts))
    return {host: reply for host, reply in zip(hosts, got, strict=True) if reply is not None}


async def start_host(
    bus: Bus, clock: Clock, host_id: str, command: StartRanks
) -> CommandReply | None:
    """Ask a host until it answers; None when it has been silent for ``UNREACHABLE_AFTER_S``.

    Also when it is there and has not answered for ``START_S_MAX``: it is not usable.
    """
    subject = host_subject(host_id, "cmd.start")
    begun_ms = heard_ms = clock.monotonic_ms()
    while True:
        try:
            return await request(bus, subject, command, CommandReply, timeout_s=ANSWER_S_MAX)
        except Unavailable as error:
            if await _is_there(bus, clock, host_id):
                heard_ms = clock.monotonic_ms()
            now_ms = clock.monotonic_ms()
            silent = now_ms >= heard_ms + UNREACHABLE_AFTER_S * 1_000
            if silent or now_ms >= begun_ms + START_S_MAX * 1_000:
                return None
            if isinstance(error, NoResponders):
                await asyncio.sleep(RETRY_PAUSE_S)


async def until_silent(bus: Bus, clock: Clock, host_id: str) -> None:
    """Ask whether a host is there, again and again; returns when it has been silent."""
    there = True
    while there:
        there = await _is_there(bus, clock, host_id)
        await asyncio.sleep(LOOK_S * there)


async def _stop(bus: Bus, clock: Clock, host_id: str, command: StopRanks) -> StopRanksReply | None:
    subject = host_subject(host_id, "cmd.stop")
    begun_ms = heard_ms = clock.monotonic_ms()
    end_ms = begun_ms + 1_000 * (STORE_S_MAX if command.store else GRACEFUL_S_MAX)
    while True:
        gently = command.graceful
        try:
            reply = await request(bus, subject, command, StopRanksReply, timeout_s=ANSWER_S_MAX)
        except Unavailable as error:
            # Who is busy with a last step need not have answered yet.
            if gently and (not command.graceful or await _is_there(bus, clock, host_id)):
                heard_ms = clock.monotonic_ms()
            now_ms = clock.monotonic_ms()
            silent = now_ms >= heard_ms + UNREACHABLE_AFTER_S * 1_000
            if silent or now_ms >= end_ms:
                _hurry(command)
            if silent:
                return None
            if isinstance(error, NoResponders):
                await asyncio.sleep(RETRY_PAUSE_S)
            continue
        if reply.outcome.why == "stale_generation":
            # Another controller is ahead: nothing is known against the host.
            raise Unavailable(f"fence of {host_id} came late: {reply.outcome.detail}")
        if reply.outcome.accepted:
            if reply.broken:
                _hurry(command)
            return reply
        # Ranks that cannot be ended: the host is not usable.
        if clock.monotonic_ms() >= begun_ms + UNREACHABLE_AFTER_S * 1_000:
            return None
        await asyncio.sleep(RETRY_PAUSE_S)


def _hurry(command: StopRanks) -> None:
    """Let ranks that cannot make a last step be ended; what they have stored is still of use."""
    if command.graceful:
        command.graceful, command.uploads_go_on = False, True


async def _is_there(bus: Bus, clock: Clock, host_id: str) -> bool:
    """Whether a host says a word within ``UNREACHABLE_AFTER_S``."""
    subject = host_subject(host_id, "cmd.probe")
    end_ms = clock.monotonic_ms() + UNREACHABLE_AFTER_S * 1_000
    while clock.monotonic_ms() < end_ms:
        try:
            await request(bus, subject, ProbeHost(), ProbeHostReply, timeout_s=PROBE_S_MAX)
        except Unavailable:
            await asyncio.sleep(RETRY_PAUSE_S)
        else:
            return True
    return False
