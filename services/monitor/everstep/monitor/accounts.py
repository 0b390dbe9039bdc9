"""Keeps the ledgers of jobs that are asked for: a question costs what is new since the last one.

A run of months has a million steps, and whoever follows it asks twice a second. Of each generation
the steps that have settled are laid once, page by page, and kept as a dozen sums; only what came
after them is read again. Between two pages the event loop goes on: the monitor has to see
meanwhile.

Rows may still come, or change, long after their step: hosts tell again what was lost on the way,
and another instance of the monitor writes too. What is kept is held against the table once a
minute; what is not the same there any more is read anew.
"""

from __future__ import annotations

import asyncio
import math
from collections import Counter, OrderedDict
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field, replace
from typing import Any, Final

from sqlalchemy import func, select
from sqlalchemy.ext.asyncio import AsyncConnection

from everstep.core.system import Clock
from everstep.monitor.events import Mark
from everstep.monitor.ledger import Facts, Generation, Laying, Ledger, usual_ms
from everstep.monitor.numerics import HEALTH_SKIPPED
from everstep.monitor.projections import INCIDENTS, MARKS, STEP_METRICS
from everstep.monitor.state import BESIDE
from everstep.monitor.tape import Rule, Step, Stretch

PAGE: Final = 1_000  # steps; laying them takes some 10 ms, a tenth of the watch loop's period
# All hosts have told of a step by then, and what they told is written.
SETTLED_MS: Final = 30_000
CHECK_MS: Final = 60_000
JOBS_MAX: Final = 64  # chosen: more than are followed at once; what is kept of one is some 100 KiB
PARTS_SCALE: Final = 1_024  # a digest tells a thousandth of a millisecond, in whole numbers

Digest = tuple[int, ...]
Reading = Callable[[], AbstractAsyncContextManager[AsyncConnection]]

_STEP: Final = STEP_METRICS.c
_PARTS: Final = (_STEP.stall_ms, _STEP.data_wait_ms, _STEP.shadow_ms, _STEP.step_time_ms)
_COLUMNS: Final = (_STEP.step, _STEP.completed_at_ms, _STEP.health, *_PARTS)
_DIGEST: Final = (
    func.count(),
    func.coalesce(func.sum(_STEP.completed_at_ms), 0),
    *(func.coalesce(func.sum(func.floor(part * PARTS_SCALE)), 0) for part in _PARTS),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Row:
    """A step, and what it adds to a digest."""

    step: Step
    digest: Digest


@dataclass(slots=True, kw_only=True)
class _Kept:
    """What is kept of a generation: its first step, and the settled ones after it, laid."""

    first: _Row
    stretch: Stretch
    digest: Digest
    times: Counter[int] = field(default_factory=Counter)
    whole: bool = False  # it was over for long when it was read to its end


@dataclass(frozen=True, slots=True, kw_only=True)
class _Place:
    """Where the first step of a generation has ended, and how the others are laid from there."""

    start_ms: int
    end_ms: int
    rule: Rule
    settled_ms: int
    over: bool


class Account:
    """The ledger of one job; asked by one at a time."""

    def __init__(self, job_id: str) -> None:
        self._job_id = job_id
        self._kept: dict[int, _Kept] = {}
        self._empty: set[int] = set()  # generations that were over long ago, without a step
        self._times: Counter[int] = Counter()  # of all steps that are kept
        self._checked_ms = 0

    @property
    def kept(self) -> dict[int, int]:
        """Return up to which step each generation is kept."""
        return {generation: kept.stretch.step for generation, kept in self._kept.items()}

    async def ledger(self, connection: AsyncConnection, now_ms: int) -> Ledger | None:
        """Return the ledger up to the job's end or ``now_ms``; None for an unknown job."""
        facts = await _facts(connection, self._job_id, now_ms)
        if facts is None:
            return None
        if now_ms - self._checked_ms >= CHECK_MS:
            await self.check(connection)
            self._checked_ms = now_ms
        first: dict[int, Step] = {}
        laid: dict[int, Stretch] = {}
        fresh: Counter[int] = Counter()
        settled_ms = now_ms - SETTLED_MS
        # Where steps end does not depend on their usual time, which is a matter of all of them.
        laying = Laying(facts, None, steps=True)
        for index, generation in enumerate(facts.generations):
            number = generation.generation
            later = facts.generations[index + 1 : index + 2]
            over = bool(later) and later[0].begun_at_ms <= settled_ms
            row = await self._first(connection, number, over=over)
            laying.open(index, None if row is None else row.step)
            if row is not None:
                place = _Place(
                    start_ms=laying.tape.at_ms,
                    end_ms=laying.tape.end_ms,
                    rule=laying.rule(index),
                    settled_ms=settled_ms,
                    over=over,
                )
                first[number] = row.step
                laid[number] = await self._rest(connection, row, place, fresh)
                laying.rest(laid[number])
            laying.close(index)
        laying = Laying(facts, usual_ms(self._times + fresh), steps=bool(first))
        for index, generation in enumerate(facts.generations):
            number = generation.generation
            laying.open(index, first.get(number))
            if number in laid:
                laying.rest(laid[number])
            laying.close(index)
        return laying.finish()

    async def _first(
        self, connection: AsyncConnection, generation: int, *, over: bool
    ) -> _Row | None:
        """Return the first step of a generation; None: it has none."""
        if generation in self._kept:
            return self._kept[generation].first
        if generation in self._empty:
            return None
        for row in await self._rows(connection, generation, after_step=-1, limit=1):
            return row
        if over:
            self._empty.add(generation)
        return None

    async def _rest(
        self, connection: AsyncConnection, first: _Row, place: _Place, fresh: Counter[int]
    ) -> Stretch:
        """Return the steps of a generation after its first; ``fresh`` takes times not kept."""
        kept = self._keeping(first, place)
        tail: Stretch | None = None
        if first.step.completed_at_ms > place.settled_ms:
            tail = kept.stretch.copied()
        while not kept.whole:
            stretch = kept.stretch if tail is None else tail
            rows = await self._rows(
                connection, first.step.generation, after_step=stretch.step, limit=PAGE
            )
            count = 0 if tail is not None else _settled(rows, place.settled_ms)
            self._keep(kept, rows[:count])
            if count < len(rows):
                tail = tail or kept.stretch.copied()
                tail.lay(row.step for row in rows[count:])
                fresh.update(row.step.step_time_ms for row in rows[count:])
            if len(rows) < PAGE:
                kept.whole = place.over and tail is None
                break
            await asyncio.sleep(0)
        return tail or kept.stretch

    def _keeping(self, first: _Row, place: _Place) -> _Kept:
        """Return what is kept of a generation and still holds; it may be nothing yet."""
        number = first.step.generation
        kept = self._kept.get(number)
        if kept is not None:
            if kept.stretch.goes_on(place.start_ms, place.end_ms, place.rule):
                return kept
            self._drop(number)
        stretch = Stretch(place.start_ms, place.end_ms, place.rule, first.step.step)
        kept = _Kept(first=first, stretch=stretch, digest=first.digest)
        if first.step.completed_at_ms <= place.settled_ms:
            self._kept[number] = kept
        return kept

    def _keep(self, kept: _Kept, rows: Sequence[_Row]) -> None:
        times = [row.step.step_time_ms for row in rows]
        kept.stretch.lay(row.step for row in rows)
        kept.times.update(times)
        self._times.update(times)
        kept.digest = _sum([kept.digest, *(row.digest for row in rows)])

    def _drop(self, generation: int) -> None:
        self._times -= self._kept.pop(generation).times

    async def check(self, connection: AsyncConnection) -> None:
        """Drop what is not the same in the table any more; look for more steps in all of them."""
        self._empty.clear()
        for generation, kept in list(self._kept.items()):
            kept.whole = False
            query = select(*_DIGEST).where(
                _STEP.job_id == self._job_id,
                _STEP.generation == generation,
                _STEP.step <= kept.stretch.step,
            )
            found = (await connection.execute(query)).one()
            if tuple(int(value) for value in found) != kept.digest:
                self._drop(generation)

    async def _rows(
        self, connection: AsyncConnection, generation: int, *, after_step: int, limit: int
    ) -> list[_Row]:
        query = (
            select(*_COLUMNS)
            .where(
                _STEP.job_id == self._job_id,
                _STEP.generation == generation,
                _STEP.step > after_step,
            )
            .order_by(_STEP.step)
            .limit(limit)
        )
        return [_row(generation, row) for row in await connection.execute(query)]


class Accounts:
    """The ledgers of the jobs that were asked for last; whoever asks at once shares one answer."""

    def __init__(self, reading: Reading, clock: Clock) -> None:
        """``reading`` lends a connection."""
        self._reading = reading
        self._clock = clock
        self._accounts: OrderedDict[str, Account] = OrderedDict()
        self._asked: dict[str, asyncio.Task[Ledger | None]] = {}

    async def ledger(self, job_id: str) -> Ledger | None:
        """Return a job's ledger up to its end or now; None for an unknown job."""
        task = self._asked.get(job_id)
        if task is None:
            task = self._asked[job_id] = asyncio.create_task(self._answer(job_id))
            task.add_done_callback(lambda done: self._answered(job_id, done))
        return await asyncio.shield(task)  # who asks may go; the others wait on

    async def _answer(self, job_id: str) -> Ledger | None:
        account = self._accounts.get(job_id) or Account(job_id)
        async with self._reading() as connection:
            ledger = await account.ledger(connection, self._clock.now_ms())
        if ledger is not None:
            self._accounts[job_id] = account
            self._accounts.move_to_end(job_id)
        while len(self._accounts) > JOBS_MAX:
            self._accounts.popitem(last=False)
        return ledger

    def _answered(self, job_id: str, task: asyncio.Task[Ledger | None]) -> None:
        del self._asked[job_id]
        if not task.cancelled():
            task.exception()  # raised where it was asked, if anybody still waits


def _settled(rows: Sequence[_Row], settled_ms: int) -> int:
    """Return how many rows from the first on are not expected to change."""
    for count, row in enumerate(rows):
        if row.step.completed_at_ms > settled_ms:
            return count
    return len(rows)


def _row(generation: int, row: Any) -> _Row:
    step, completed_at_ms, health, *parts = row
    stall_ms, data_wait_ms, shadow_ms, step_time_ms = (round(part) for part in parts)
    return _Row(
        step=Step(
            generation=generation,
            step=step,
            completed_at_ms=completed_at_ms,
            stall_ms=stall_ms,
            data_wait_ms=data_wait_ms,
            shadow_ms=shadow_ms,
            step_time_ms=step_time_ms,
            skipped=health == HEALTH_SKIPPED,
        ),
        digest=(1, completed_at_ms, *(math.floor(part * PARTS_SCALE) for part in parts)),
    )


def _sum(digests: Sequence[Digest]) -> Digest:
    return tuple(map(sum, zip(*digests, strict=True)))


async def _facts(connection: AsyncConnection, job_id: str, now_ms: int) -> Facts | None:
    """Return what the marks and incidents of a job tell; None: it has no marks."""
    query = select(MARKS).where(MARKS.c.job_id == job_id).order_by(MARKS.c.version)
    marks = [dict(row) for row in (await connection.execute(query)).mappings()]
    if not marks:
        return None
    generations = _generations(marks)
    table = INCIDENTS.c
    ends = (
        select(table.generation, table.action, table.failed_at_ms, table.detected_at_ms)
        .where(table.job_id == job_id)
        .order_by(table.detected_at_ms, table.incident_id)
    )
    for incident in await connection.execute(ends):
        found = generations.get(incident.generation)
        if found is not None and incident.action not in BESIDE:
            generations[found.generation] = replace(
                found, failed_at_ms=incident.failed_at_ms, detected_at_ms=incident.detected_at_ms
            )
    cuts = [mark for mark in marks if mark["mark"] in (Mark.BEGUN.value, Mark.ENDED.value)]
    ended = bool(cuts) and cuts[-1]["mark"] == Mark.ENDED.value
    return Facts(
        submitted_at_ms=marks[0]["at_ms"],
        end_ms=cuts[-1]["at_ms"] if ended else now_ms,
        generations=[generations[number] for number in sorted(generations)],
        ended=ended,
        full_ranks=max(mark["ranks"] for mark in marks),
    )


def _generations(marks: list[dict[str, Any]]) -> dict[int, Generation]:
    found: dict[int, Generation] = {}
    ends: dict[int, int] = {}
    for mark in marks:
        number, at_ms = mark["generation"], mark["at_ms"]
        if mark["mark"] == Mark.BEGUN.value:
            found[number] = Generation(generation=number, cause=mark["cause"], begun_at_ms=at_ms)
            continue
        if number not in found:
            continue
        match mark["mark"]:
            case Mark.SHORT.value:
                first = found[number].short_at_ms
                found[number] = replace(
                    found[number], short_at_ms=at_ms if first is None else first
                )
            case Mark.PLACED.value:
                found[number] = replace(found[number], placed_at_ms=at_ms, ranks=mark["ranks"])
            case Mark.PLANNED.value:
                found[number] = replace(found[number], restore_step=mark["step"])
            case Mark.RUNNING.value:
                known_ms = found[number].running_at_ms
                found[number] = replace(
                    found[number], running_at_ms=at_ms if known_ms is None else known_ms
                )
            case Mark.PAUSED.value:
                found[number] = replace(found[number], paused_at_ms=at_ms)
            case Mark.ENDED.value:
                ends[number] = at_ms
            case _:
                pass
    # A job that is restarted after its end has rested until then.
    for number, at_ms in ends.items():
        if number < max(found):
            found[number] = replace(found[number], paused_at_ms=at_ms)
    return found
