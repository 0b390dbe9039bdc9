"""Where another instance's events begin, in a real database."""

from __future__ import annotations

from pathlib import Path

import everstep.monitor.projections as monitor
from everstep.core.ports import NewEvent
from everstep.core.system import SystemClock
from everstep.eventstore.postgres import PostgresStore
from everstep.monitor.siblings import newest_position

MIGRATIONS = Path(str(monitor.__file__)).parent / "migrations"


async def test_newest_position_is_that_of_the_last_event(database_url):
    """What is read from there on was stored later."""
    async with PostgresStore.open(
        database_url, clock=SystemClock(), migrations=[MIGRATIONS]
    ) as store:
        async with store.reading() as connection:
            assert await newest_position(connection) == 0
        await store.append("watch-j", 0, [NewEvent(event_id="e1", type="x.v1", data={})])
        async with store.reading() as connection:
            position = await newest_position(connection)
        assert await store.read_all(after_position=position, limit=1) == []
        (last,) = await store.append("watch-j", 1, [NewEvent(event_id="e2", type="x.v1", data={})])
        assert await store.read_all(after_position=position, limit=9) == [last]
