"""What is kept of a ledger between two questions is what a fresh look would come to."""

from __future__ import annotations

import asyncio
import random
from contextlib import asynccontextmanager

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sqlalchemy import delete, insert, select, update
from tests.unit.monitor.test_counting import Clock

from everstep.monitor import accounts, queries
from everstep.monitor.accounts import CHECK_MS, PAGE, SETTLED_MS, Account, Accounts
from everstep.monitor.events import Mark
from everstep.monitor.ledger import Cause, account
from everstep.monitor.projections import INCIDENTS, MARKS, STEP_METRICS
from everstep.monitor.tape import Step
from everstep.sim.tables import Tables

PARTS = ("stall_ms", "data_wait_ms", "shadow_ms", "step_time_ms")


class Counted(Tables):
    """The monitor's tables, and how many rows of steps were read of them."""

    def __init__(self) -> None:
        super().__init__()
        self.steps_read = 0

    async def execute(self, statement, parameters=None):
        """Execute, and count."""
        found = await super().execute(statement, parameters)
        if getattr(statement, "is_select", False) and STEP_METRICS in statement.get_final_froms():
            rows = found.all()
            self.steps_read += len(rows)
            return _Rows(rows)
        return found

    async def mark(self, version: int, mark: Mark, at_ms: int, **fields) -> None:
        """Write a mark of job j."""
        row = {"generation": 1, "cause": "", "step": 0, "ranks": 0} | fields
        row |= {"job_id": "j", "version": version, "mark": mark.value, "at_ms": at_ms}
        await self.execute(insert(MARKS), [row])

    async def broke(self, generation: int, failed_at_ms: int, detected_at_ms: int) -> None:
        """Write an incident of job j."""
        row = {"incident_id": f"i{generation}", "job_id": "j", "generation": generation}
        row |= {"action": "RESTART", "failed_at_ms": failed_at_ms}
        await self.execute(insert(INCIDENTS), [row | {"detected_at_ms": detected_at_ms}])

    async def steps(self, generation: int, first: int, last: int, **fields) -> None:
        """Write steps of 100 ms; number n of generation g ended at (10 g + n) * 100 ms."""
        row = dict.fromkeys(PARTS, 0.0) | {"health": "ok", "job_id": "j", "step_time_ms": 100.0}
        row |= {"generation": generation} | fields
        rows = [
            {"completed_at_ms": (10 * generation + n) * 100, "step": n} | row
            for n in range(first, last + 1)
        ]
        await self.execute(insert(STEP_METRICS), rows)


class _Rows(list):
    """What was read."""

    def one(self):
        """Return the only row."""
        (row,) = self
        return row

    def all(self):
        """Return them."""
        return list(self)


@pytest.fixture
async def tables():
    """A job whose first generation has begun."""
    tables = Counted()
    await tables.mark(1, Mark.SUBMITTED, 0, generation=0)
    await tables.mark(2, Mark.BEGUN, 0, cause="launch")
    return tables


async def _fresh(tables, now_ms):
    return await Account("j").ledger(tables.connection, now_ms)


async def test_second_question_reads_only_what_is_new(tables):
    """Of a run that goes on, and of one whose older generations were read."""
    await tables.steps(1, 1, 3 * PAGE)
    now_ms = 2 * SETTLED_MS + 3 * PAGE * 100
    known = Account("j")
    assert await known.ledger(tables.connection, now_ms) == await _fresh(tables, now_ms)
    await tables.steps(1, 3 * PAGE + 1, 3 * PAGE + 7)
    tables.steps_read = 0
    later = await known.ledger(tables.connection, now_ms + 1_000)
    assert tables.steps_read == 7
    assert later == await _fresh(tables, now_ms + 1_000)

    await tables.mark(3, Mark.BEGUN, now_ms, generation=2, cause="recovery")
    await tables.mark(4, Mark.PLANNED, now_ms, generation=2, step=3 * PAGE + 7)
    await tables.steps(2, 3 * PAGE + 8, 3 * PAGE + 9, completed_at_ms=now_ms + 2_000)
    await known.ledger(tables.connection, now_ms + SETTLED_MS)
    tables.steps_read = 0
    later = await known.ledger(tables.connection, now_ms + SETTLED_MS + 500)
    assert tables.steps_read <= 2
    assert later == await _fresh(tables, now_ms + SETTLED_MS + 500)


async def test_step_that_has_just_been_told_is_read_again(tables):
    """Its other hosts may have been slower, and have not told yet."""
    await tables.steps(1, 1, 9)
    known = Account("j")
    await known.ledger(tables.connection, 2_000)
    await tables.execute(update(STEP_METRICS).where(STEP_METRICS.c.step == 9).values(stall_ms=40.0))
    later = await known.ledger(tables.connection, 2_100)
    assert later.causes[Cause.CHECKPOINT_STALL] == 40
    assert later == await _fresh(tables, 2_100)


@pytest.mark.parametrize(
    "change",
    [
        delete(STEP_METRICS).where(STEP_METRICS.c.step == 3),
        delete(STEP_METRICS).where(STEP_METRICS.c.step == 1),
        update(STEP_METRICS).where(STEP_METRICS.c.step == 3).values(stall_ms=40.0),
        update(STEP_METRICS).where(STEP_METRICS.c.step == 3).values(completed_at_ms=2_600),
    ],
    ids=["one less", "another first", "a stall", "a time"],
)
async def test_step_that_has_changed_long_after_is_found_within_a_minute(tables, change):
    """Told again by a host, or written by another instance."""
    await tables.steps(1, 1, 9, stall_ms=10.0)
    known, now_ms = Account("j"), 10 * SETTLED_MS
    before = await known.ledger(tables.connection, now_ms)
    await tables.execute(change)
    at_ms = now_ms + CHECK_MS
    later = await known.ledger(tables.connection, at_ms)
    assert later == await _fresh(tables, at_ms)
    assert later.causes != before.causes | {Cause.USEFUL: before.causes[Cause.USEFUL] + CHECK_MS}


async def test_event_loop_goes_on_while_a_long_run_is_read(tables):
    """The monitor has to see meanwhile; and whoever asks at once waits for the same answer."""
    await tables.steps(1, 1, 20 * PAGE)
    clock = Clock()
    clock.ms = 20 * PAGE * 100 + 2 * SETTLED_MS

    @asynccontextmanager
    async def reading():
        yield tables.connection

    book = Accounts(reading, clock)
    tables.steps_read = 0
    asked = [asyncio.create_task(book.ledger("j")) for _ in range(5)]
    turns = 0
    while not all(task.done() for task in asked):
        await asyncio.sleep(0)
        turns += 1
    assert turns > 20
    assert tables.steps_read == 20 * PAGE
    assert len({id(task.result()) for task in asked}) == 1


async def test_question_that_is_given_up_leaves_the_others_theirs(tables):
    """A client that goes away takes nobody's answer along; an unknown job has none."""
    clock = Clock()
    clock.ms = 1_000

    @asynccontextmanager
    async def reading():
        await asyncio.sleep(0)
        yield tables.connection

    book = Accounts(reading, clock)
    gone, stays = (asyncio.create_task(book.ledger("j")) for _ in range(2))
    await asyncio.sleep(0)
    gone.cancel()
    assert (await stays).wall_ms == 1_000
    assert await book.ledger("other") is None


@settings(max_examples=100, deadline=None)
@given(seed=st.integers(0, 2**32))
async def test_ledger_that_is_kept_is_that_of_a_fresh_look(seed):
    """Whatever comes in whatever order, in pages of three rows; and both are ``account``'s."""
    chance = random.Random(seed)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(accounts, "PAGE", 3)
        patch.setattr(accounts, "SETTLED_MS", 300)
        patch.setattr(accounts, "CHECK_MS", 0)
        tables, known, now_ms = Counted(), Account("j"), 0
        await tables.mark(1, Mark.SUBMITTED, 0, generation=0)
        await tables.mark(2, Mark.BEGUN, 0, cause="launch")
        for version in range(3, 3 + chance.randrange(5, 20)):
            now_ms += chance.randrange(500)
            await _happens(tables, chance, version, now_ms)
            ledger = await known.ledger(tables.connection, now_ms)
            assert ledger == await _fresh(tables, now_ms) == await _whole(tables, now_ms)
            assert sum(ledger.causes.values()) == ledger.wall_ms


async def _happens(tables, chance, version, now_ms):
    """Write some steps, mostly of the last seconds, or a mark, or an incident."""
    generation = chance.choice([1, 1, 2, 3])
    what = chance.choice(["steps"] * 16 + ["broke", *Mark, Mark.BEGUN, Mark.PLANNED])
    if what == "steps":
        first = chance.randrange(1, 12)
        for step in range(first, first + chance.randrange(1, 9)):
            parts = {part: float(chance.randrange(150)) for part in PARTS}
            key = (STEP_METRICS.c.generation == generation) & (STEP_METRICS.c.step == step)
            await tables.execute(delete(STEP_METRICS).where(key))
            completed_at_ms = now_ms + 50 * (step - first) - chance.choice([0, 500, 1_000])
            completed = {"completed_at_ms": max(0, completed_at_ms)}
            await tables.steps(generation, step, step, **parts, **completed)
    elif what == "broke":
        await tables.execute(delete(INCIDENTS).where(INCIDENTS.c.generation == generation))
        await tables.broke(generation, now_ms - 200, now_ms - chance.randrange(200))
    else:
        fields = {"step": chance.randrange(-1, 20), "ranks": chance.choice([6, 8])}
        fields["cause"] = chance.choice(["launch", "recovery", "resume", "pause"])
        at_ms = now_ms - chance.choice([0, 0, 500])
        await tables.mark(version, Mark(what), at_ms, generation=generation, **fields)


async def _whole(tables, now_ms):
    """The ledger by ``account``, from all steps at once."""
    facts = await accounts._facts(tables.connection, "j", now_ms)
    columns = STEP_METRICS.c
    rows = await tables.execute(
        select(
            columns.generation, columns.step, columns.completed_at_ms, *(columns[p] for p in PARTS)
        )
    )
    steps = [Step(**{name: round(value) for name, value in row._mapping.items()}) for row in rows]
    return account(
        submitted_at_ms=facts.submitted_at_ms,
        end_ms=facts.end_ms,
        generations=facts.generations,
        steps=steps,
        ended=facts.ended,
        full_ranks=facts.full_ranks,
    )


async def test_ledger_of_the_queries_is_the_same(tables):
    """It keeps nothing."""
    await tables.steps(1, 1, 9)
    assert await queries.ledger(tables.connection, "j", 2_000) == await _fresh(tables, 2_000)


async def test_script_that_tells_of_no_steps_is_useful_from_when_it_runs(tables):
    """The controller's word that all its ranks are at work is all that there is."""
    await tables.mark(3, Mark.RUNNING, 300)
    await tables.mark(4, Mark.RUNNING, 400)  # told again
    ledger = await _fresh(tables, 1_000)
    assert ledger.causes[Cause.STARTUP] == 300
    assert ledger.causes[Cause.USEFUL] == 700
