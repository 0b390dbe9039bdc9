"""What audits have come to, in a real database."""

from __future__ import annotations

from pathlib import Path

import everstep.monitor.projections as monitor
from everstep.core.ports import NewEvent
from everstep.core.system import SystemClock
from everstep.eventstore.postgres import PostgresStore
from everstep.monitor import queries
from everstep.monitor.codec import CODEC
from everstep.monitor.events import Finding, StepAudited

MIGRATIONS = Path(str(monitor.__file__)).parent / "migrations"


def _audited(number: int, finding: Finding) -> StepAudited:
    return StepAudited(
        job_id="j",
        step=2**40,
        replica=1,
        number=number,
        audit_job_id=f"a{number}",
        hosts=("s1", "s2"),
        ranks=(3, 7),
        finding=finding,
        why="h3 was wrong",
        at_ms=2**41,
        works=("1:1",) if finding is Finding.DIFFERS else (),
    )


async def test_audits_are_stored_with_their_events_and_read_newest_first(database_url):
    """The table has what the projection writes, and a limit is one."""
    found = [_audited(1, Finding.DIFFERS), _audited(2, Finding.NAMED)]
    async with PostgresStore.open(
        database_url,
        clock=SystemClock(),
        migrations=[MIGRATIONS],
        projections=[monitor.MonitorProjection()],
    ) as store:
        encoded = [CODEC.encode(one) for one in found]
        events = [
            NewEvent(event_id=f"e{number}", type=name, data=data)
            for number, (name, data) in enumerate(encoded)
        ]
        stored = await store.append("watch-j", 0, events)
        assert [CODEC.decode(event.type, event.data) for event in stored] == found
        async with store.reading() as connection:
            newest, oldest = await queries.audits(connection, "j", 10)
            assert await queries.audits(connection, "j", 1) == [newest]
            assert await queries.audits(connection, "k", 10) == []
    assert newest == {
        "step": 2**40,
        "replica": 1,
        "number": 2,
        "audit_job_id": "a2",
        "hosts": ["s1", "s2"],
        "ranks": [3, 7],
        "finding": "named",
        "why": "h3 was wrong",
        "at_ms": 2**41,
    }
    assert (oldest["number"], oldest["finding"]) == (1, "differs")
