"""The read tables of the fleet, kept in the transaction that appends; see ``migrations``."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final, assert_never

import msgspec
from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    DateTime,
    Integer,
    MetaData,
    Table,
    Text,
    and_,
    bindparam,
    case,
    cast,
    delete,
    func,
    not_,
    select,
    text,
    update,
)
from sqlalchemy.dialects.postgresql import ARRAY, JSONB
from sqlalchemy.dialects.postgresql import insert as upsert
from sqlalchemy.ext.asyncio import AsyncConnection

from everstep.core.ports import StoredEvent
from everstep.core.probes import ProbeReport
from everstep.eventstore.database import transaction
from everstep.eventstore.postgres import PostgresStore
from everstep.host_inventory import events as e
from everstep.host_inventory import repairs
from everstep.host_inventory.codec import EVENTS

METADATA: Final = MetaData()
OfOneHost = (
    e.HostLeft
    | e.HostCordoned
    | e.HostUncordoned
    | e.HostErrorsCounted
    | e.HostReturning
    | e.HostProbed
    | e.MaintenancePlanned
    | e.MaintenanceEnded
)
_NO_MAINTENANCE: Final[dict[str, Any]] = {"maintenance": "", "maintenance_until_ms": None}

HOST_FACTS: Final = Table(
    "host_facts",
    METADATA,
    Column("id", Text, primary_key=True),
    Column("pod", Text),
    Column("power", Text),
    Column("chips", Integer),
    Column("address", Text),
    Column("peer_port", Integer),
    Column("agent_epoch", Text),
    Column("joined_at_ms", BigInteger),
    Column("present", Boolean),
    Column("job_id", Text),
    Column("cordoned", Boolean),
    Column("cordon_reason", Text),
    Column("cordon_incident_id", Text),
    Column("cordoned_at_ms", BigInteger),
    Column("probes", Boolean),
    Column("awaits", Text),
    Column("fault", Text),
    Column("relapses", Integer),
    Column("held_until_ms", BigInteger),
    Column("returns", Boolean),
    Column("maintenance", Text),
    Column("maintenance_until_ms", BigInteger),
    Column("last_probe", JSONB),
    Column("error_counts", JSONB),
    Column("state", Text),
)

HEARTBEATS: Final = Table(
    "heartbeats",
    METADATA,
    Column("host_id", Text, primary_key=True),
    Column("last_heartbeat", DateTime(timezone=True)),
)

PLACEMENTS: Final = Table(
    "placements",
    METADATA,
    Column("job_id", Text, primary_key=True),
    Column("generation", BigInteger),
    Column("layout", JSONB),
    Column("hosts", JSONB),
    Column("replacements", JSONB),
    Column("placed_at_ms", BigInteger),
)


_SAVE_HEARTBEATS: Final = text("""
    insert into heartbeats (host_id, last_heartbeat)
    select heard.id, to_timestamp(heard.at_ms / 1000.0)
    from unnest(:ids, :times) as heard (id, at_ms) join host_facts using (id)
    order by heard.id
    on conflict (host_id) do update
    set last_heartbeat = greatest(heartbeats.last_heartbeat, excluded.last_heartbeat)
""").bindparams(bindparam("ids", type_=ARRAY(Text)), bindparam("times", type_=ARRAY(BigInteger)))
# Hosts as one array: a parameter and a placeholder for each of 2,048 take 30 ms to write. Rows that
# are so already, nearly all of them when one host is replaced, are not written again.
_HOLD_HOSTS: Final = text("""
    update host_facts set job_id = :job_id where id = any(:ids) and job_id <> :job_id
""").bindparams(bindparam("ids", type_=ARRAY(Text)))
_FREE_HOSTS: Final = text("""
    update host_facts set job_id = '' where job_id = :job_id and id <> all(:ids)
""").bindparams(bindparam("ids", type_=ARRAY(Text)))
_HOSTS: Final = (
    select(HOST_FACTS, HEARTBEATS.c.last_heartbeat)
    .join_from(HOST_FACTS, HEARTBEATS, HEARTBEATS.c.host_id == HOST_FACTS.c.id, isouter=True)
    .order_by(HOST_FACTS.c.id)
)


class FleetProjection:
    """Implements ``core.ports.Projection`` on an SQLAlchemy connection."""

    def __init__(self, *, repairs_wanted: bool = False) -> None:
        """``repairs_wanted``: somebody is to be told of cordoned hosts."""
        self._repairs_wanted = repairs_wanted

    async def apply(self, transaction: Any, event: StoredEvent) -> None:
        """Bring the tables to where the event leads."""
        connection: AsyncConnection = transaction
        decided = EVENTS.decode(event.type, event.data)
        match decided:
            case e.HostJoined():
                await _joined(connection, decided)
            case e.JobPlaced():
                await _placed(connection, decided)
            case e.JobReleased():
                await _free(connection, decided.job_id, ())
                gone = PLACEMENTS.c.job_id == decided.job_id
                await connection.execute(delete(PLACEMENTS).where(gone))
            case _:
                row = update(HOST_FACTS).where(HOST_FACTS.c.id == decided.host_id)
                await connection.execute(row.values(**_changes(decided)))
                if isinstance(decided, e.HostCordoned) and self._repairs_wanted:
                    await repairs.note(connection, event, decided)


def _changes(event: OfOneHost) -> dict[str, Any]:
    match event:
        case e.HostLeft():
            return {"present": False}
        case e.HostCordoned():
            return {
                "cordoned": True,
                "cordon_reason": event.reason,
                "cordon_incident_id": event.incident_id,
                "cordoned_at_ms": event.at_ms,
                "awaits": "",
                "fault": event.fault,
                "relapses": event.relapses,
                "held_until_ms": event.at_ms + event.held_ms if event.held_ms else None,
                "returns": event.returns,
                **_NO_MAINTENANCE,
            }
        case e.HostUncordoned():
            return {
                "cordoned": False,
                "cordon_reason": "",
                "cordon_incident_id": "",
                "cordoned_at_ms": None,
                "awaits": "",
                "fault": "",
                "held_until_ms": None,
                "returns": False,
                **_NO_MAINTENANCE,
            }
        case e.HostReturning():
            return {"awaits": event.depth}
        case e.HostProbed():
            probed: dict[str, Any] = {"last_probe": msgspec.to_builtins(event.report)}
            # A cordoned host that passed is uncordoned in the same breath.
            return probed | ({"awaits": ""} if event.passed else {})
        case e.MaintenancePlanned():
            until_ms = event.until_ms or None
            return {"maintenance": event.reason, "maintenance_until_ms": until_ms}
        case e.MaintenanceEnded():
            return _NO_MAINTENANCE
        case e.HostErrorsCounted():
            counts = HOST_FACTS.c.error_counts
            before = func.coalesce(cast(counts[event.kind].astext, Integer), 0)
            added = func.jsonb_build_object(event.kind, before + event.count)
            return {"error_counts": counts.concat(added)}
        case _:
            assert_never(event)


async def _joined(connection: AsyncConnection, event: e.HostJoined) -> None:
    facts = {
        "pod": event.pod,
        "power": event.power,
        "chips": event.chips,
        "address": event.address,
        "peer_port": event.peer_port,
        "agent_epoch": event.agent_epoch,
        "joined_at_ms": event.at_ms,
        "present": True,
    }
    unproven = "quick" if event.probes else ""
    facts["probes"] = event.probes
    row = upsert(HOST_FACTS).values(id=event.host_id, awaits=unproven, **facts)
    # As in ``state``: a new agent on a host that is neither cordoned nor at work is to be probed.
    came_up = HOST_FACTS.c.agent_epoch != event.agent_epoch
    idle = and_(not_(HOST_FACTS.c.cordoned), HOST_FACTS.c.job_id == "")
    awaits = case((and_(came_up, idle), unproven), else_=HOST_FACTS.c.awaits)
    changed = {**facts, "awaits": awaits}
    await connection.execute(row.on_conflict_do_update(index_elements=["id"], set_=changed))


async def _placed(connection: AsyncConnection, event: e.JobPlaced) -> None:
    await _free(connection, event.job_id, event.placement.host_ids)
    held = {"job_id": event.job_id, "ids": list(event.placement.host_ids)}
    await connection.execute(_HOLD_HOSTS, held)
    values = {
        "generation": event.generation,
        "layout": msgspec.to_builtins(event.placement.layout),
        "hosts": msgspec.to_builtins(event.placement.hosts),
        "replacements": list(event.replacements),
        "placed_at_ms": event.at_ms,
    }
    row = upsert(PLACEMENTS).values(job_id=event.job_id, **values)
    await connection.execute(row.on_conflict_do_update(index_elements=["job_id"], set_=values))


async def _free(connection: AsyncConnection, job_id: str, but: tuple[str, ...]) -> None:
    await connection.execute(_FREE_HOSTS, {"job_id": job_id, "ids": list(but)})


async def hosts(connection: AsyncConnection, *, with_left: bool = False) -> list[dict[str, Any]]:
    """Return the hosts by id; those that left only if asked."""
    query = _HOSTS if with_left else _HOSTS.where(HOST_FACTS.c.present)
    return [_host(dict(row)) for row in (await connection.execute(query)).mappings()]


async def host(connection: AsyncConnection, host_id: str) -> dict[str, Any] | None:
    """Return one host, also one that left."""
    rows = await connection.execute(_HOSTS.where(HOST_FACTS.c.id == host_id))
    row = rows.mappings().first()
    return None if row is None else _host(dict(row))


async def placements(connection: AsyncConnection) -> list[dict[str, Any]]:
    """Return the placement of every job that holds hosts, by job."""
    rows = await connection.execute(select(PLACEMENTS).order_by(PLACEMENTS.c.job_id))
    return [dict(row) for row in rows.mappings()]


async def save_heartbeats(connection: AsyncConnection, heard_ms: dict[str, int]) -> None:
    """Note when hosts were last heard [ms since epoch]; those that never joined are left out.

    In the order of their ids, so that two instances that write at once never wait in a circle.
    """
    ids = sorted(heard_ms)
    values = {"ids": ids, "times": [heard_ms[host_id] for host_id in ids]}
    await connection.execute(_SAVE_HEARTBEATS, values)


def reports_into(store: PostgresStore) -> Callable[[str, ProbeReport], Awaitable[None]]:
    """Return what notes a report that decided nothing: a measurement, for people."""

    async def save(host_id: str, report: ProbeReport) -> None:
        row = update(HOST_FACTS).where(HOST_FACTS.c.id == host_id)
        async with transaction(store.engine) as connection:
            await connection.execute(row.values(last_probe=msgspec.to_builtins(report)))

    return save


def _host(row: dict[str, Any]) -> dict[str, Any]:
    heard = row.pop("last_heartbeat")
    row["host_id"] = row.pop("id")
    row["last_heartbeat_ms"] = None if heard is None else int(heard.timestamp() * 1000)
    return row
