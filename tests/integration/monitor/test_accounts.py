"""The ledger's own statements in a real database."""

from __future__ import annotations

from pathlib import Path

from sqlalchemy import insert, update

import everstep.monitor.projections as monitor
from everstep.core.system import SystemClock
from everstep.eventstore.database import transaction
from everstep.eventstore.postgres import PostgresStore
from everstep.monitor.accounts import CHECK_MS, SETTLED_MS, Account
from everstep.monitor.ledger import Cause
from everstep.monitor.measurements import Rollup, flush
from everstep.wire.v1.agents_pb2 import RankStep, StepMetrics

MIGRATIONS = Path(str(monitor.__file__)).parent / "migrations"
STEPS = 2_500


def _metrics() -> StepMetrics:
    return StepMetrics(
        job_id="j",
        generation=1,
        ranks=[
            RankStep(
                rank=0,
                step=step,
                completed_at_ms=100 * step + 100,
                step_time_ms=100.3,
                stall_ms=2.7,
                data_wait_ms=0.7,
                health="ok",
            )
            for step in range(1, STEPS + 1)
        ],
    )


async def test_what_is_kept_is_told_from_what_has_changed(database_url):
    """Sums of the table are those of the rows that were read; one that changes is read again."""
    async with PostgresStore.open(
        database_url, clock=SystemClock(), migrations=[MIGRATIONS]
    ) as store:
        facts = {"job_id": "j", "generation": 1, "cause": "launch", "step": 0, "at_ms": 0}
        async with transaction(store.engine) as connection:
            mark = facts | {"version": 1, "mark": "begun", "ranks": 8}
            await connection.execute(insert(monitor.MARKS), [mark])
        rollup = Rollup()
        rollup.add(_metrics())
        await flush(rollup, lambda: transaction(store.engine))
        account, now_ms = Account("j"), 100 * STEPS + 100 + SETTLED_MS
        async with store.reading() as connection:
            ledger = await account.ledger(connection, now_ms)
            assert ledger is not None
            assert ledger.causes[Cause.CHECKPOINT_STALL] == 3 * STEPS
            assert sum(ledger.causes.values()) == ledger.wall_ms == now_ms
            assert account.kept == {1: STEPS}
            await account.check(connection)
            assert account.kept == {1: STEPS}
            async with transaction(store.engine) as writing:
                table = monitor.STEP_METRICS
                later = update(table).where(table.c.step == 7).values(stall_ms=50.0)
                await writing.execute(later)
            ledger = await account.ledger(connection, now_ms + CHECK_MS)
            assert ledger is not None
            assert ledger.causes[Cause.CHECKPOINT_STALL] == 3 * STEPS + 47
