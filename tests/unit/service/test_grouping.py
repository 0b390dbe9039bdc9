from __future__ import annotations

import asyncio

import pytest

from everstep.core.errors import Unavailable
from everstep.service.grouping import Grouped


class Work:
    """Notes its batches and goes on when it is let."""

    def __init__(self) -> None:
        self.batches: list[list[int]] = []
        self.may_go_on = asyncio.Event()
        self.fault: Exception | None = None

    async def __call__(self, items):
        """Take a batch."""
        self.batches.append(list(items))
        await self.may_go_on.wait()
        if self.fault is not None:
            raise self.fault
        return sum(items)


async def started(grouped: Grouped, *items: int) -> list[asyncio.Task]:
    """Put items without waiting for them."""
    tasks = [asyncio.create_task(grouped.put(item)) for item in items]
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    return tasks


async def test_item_that_comes_alone_goes_alone():
    """Nobody waits for a batch to fill."""
    work = Work()
    work.may_go_on.set()
    grouped = Grouped(work, batch_max=10)
    assert [await grouped.put(1), await grouped.put(2)] == [1, 2]
    assert work.batches == [[1], [2]]


async def test_items_that_come_meanwhile_go_together_in_order():
    """One batch at a time, none larger than allowed; each item gets its batch's result."""
    work = Work()
    grouped = Grouped(work, batch_max=3)
    tasks = await started(grouped, 1)
    tasks += await started(grouped, 2, 3, 4, 5)
    work.may_go_on.set()
    assert await asyncio.gather(*tasks) == [1, 9, 9, 9, 5]
    assert work.batches == [[1], [2, 3, 4], [5]]


async def test_fault_of_a_batch_is_raised_to_each_item_and_ends_nothing():
    """The next batch runs as if nothing had been."""
    work = Work()
    work.fault = Unavailable("away")
    work.may_go_on.set()
    grouped = Grouped(work, batch_max=3)
    results = await asyncio.gather(grouped.put(1), grouped.put(2), return_exceptions=True)
    assert results == [work.fault, work.fault]
    work.fault = None
    assert await grouped.put(3) == 3


async def test_item_whose_sender_went_away_does_not_disturb_the_others():
    """Its work is done all the same."""
    work = Work()
    grouped = Grouped(work, batch_max=3)
    gone, stays = await started(grouped, 1, 2)
    gone.cancel()
    with pytest.raises(asyncio.CancelledError):
        await gone
    work.may_go_on.set()
    assert await stays == 3
