"""Time that passes only when nothing else is left to do."""

from __future__ import annotations

import asyncio
import time

import pytest

from everstep.sim import loop
from everstep.sim.loop import EPOCH_MS, StalledError, VirtualClock


def test_a_year_passes_at_once():
    """Nobody waits for a sleep."""

    async def main():
        clock = VirtualClock(asyncio.get_running_loop())
        await asyncio.sleep(365 * 86_400)
        return clock.now_ms() - EPOCH_MS

    before = time.monotonic()
    assert loop.run(main()) == 365 * 86_400 * 1_000
    assert time.monotonic() - before < 60.0


def test_timers_fire_in_order_and_every_run_alike():
    """Also those of one moment: in some order, but always in the same."""

    async def main():
        seen = []

        async def one(name, delay_s):
            await asyncio.sleep(delay_s)
            seen.append(name)

        await asyncio.gather(one("late", 2.0), one("early", 0.5), *(one(i, 1.0) for i in range(9)))
        return seen

    first = loop.run(main())
    assert (first[0], first[-1], sorted(first[1:-1])) == ("early", "late", list(range(9)))
    assert all(loop.run(main()) == first for _ in range(5))


def test_limits_of_time_hold():
    """What takes too long times out, in virtual time too."""

    async def main():
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(asyncio.sleep(10.0), 3.0)
        return asyncio.get_running_loop().time()

    assert loop.run(main()) == pytest.approx(3.0)


def test_world_in_which_nothing_can_happen_any_more_is_told():
    """A deadlock is an error, not a hang."""
    with pytest.raises(StalledError, match="nothing is left to happen"):
        loop.run(asyncio.Event().wait())
