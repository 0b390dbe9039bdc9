"""Tells a web hook of every host that was taken out of service, so that somebody mends it.

What is to be told is written in the transaction of the cordon and delivered from there: at least
once, with the event's id as the idempotency key, whoever is killed in between.
"""

from __future__ import annotations

from typing import Any, Final

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from everstep.core.ports import StoredEvent
from everstep.host_inventory.events import HostCordoned

# Of what a hook has not taken: a fleet that loses more hosts at once than this has another problem,
# and the list of cordoned hosts tells it as well.
OPEN_MAX: Final = 1_000

_NOTE: Final = text("""
    insert into repairs (position, event_id, host_id, body)
    select :position, :event_id, host_facts.id, jsonb_build_object(
        'host_id', host_facts.id,
        'reason', cast(:reason as text),
        'incident_id', cast(:incident_id as text),
        'fault', cast(:fault as text),
        'cordoned_at_ms', cast(:at_ms as bigint),
        'relapses', cast(:relapses as int),
        'errors', host_facts.error_counts,
        'probe_report', host_facts.last_probe)
    from host_facts where host_facts.id = :host_id
      and (select count(*) from repairs where delivered_ms is null and given_up_ms is null)
          < :open_max
""")


_NEWEST: Final = text("""
    select attempts, delivered_ms, given_up_ms, last_error from repairs
    where host_id = :host_id order by position desc limit 1
""")


async def newest(connection: AsyncConnection, host_id: str) -> dict[str, Any] | None:
    """Return what became of telling of a host's newest cordon; None if nobody is told."""
    row = (await connection.execute(_NEWEST, {"host_id": host_id})).mappings().first()
    return None if row is None else dict(row)


async def note(connection: AsyncConnection, event: StoredEvent, cordon: HostCordoned) -> None:
    """Write down what the hook is to be told, with what is known of the host right now.

    A maintenance is nothing to mend.
    """
    if cordon.maintenance:
        return
    values: dict[str, Any] = {
        "position": event.position,
        "event_id": event.event_id,
        "host_id": cordon.host_id,
        "reason": cordon.reason,
        "incident_id": cordon.incident_id,
        "fault": cordon.fault,
        "at_ms": cordon.at_ms,
        "relapses": cordon.relapses,
        "open_max": OPEN_MAX,
    }
    await connection.execute(_NOTE, values)
