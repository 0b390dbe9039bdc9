"""Brings a database's tables up to date from ordered SQL files.

Each component (the event store, the service) has a directory of ``NNNN_what.sql`` files that only
ever grows. A file runs once, in its own transaction, together with the row that records it. An
advisory lock makes two instances that start at once take turns. Rejected: alembic. Its strengths,
generating from ORM models and branching histories, are of no use to a few hand-written tables; and
it would bring its own synchronous engine, a Mako environment and a Python module for each change.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import asyncpg

from everstep.core.errors import CorruptData

_NAME: Final = re.compile(r"\d{4}_[a-z0-9_]+\.sql")
_LOCK: Final = 0x65_76_65_72_01  # "ever" and a number: advisory locks of one database share a space

_TABLE: Final = """
create table if not exists schema_migrations (
    component  text        not null,
    name       text        not null,
    checksum   text        not null,
    applied_at timestamptz not null default now(),
    primary key (component, name)
)
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Migration:
    """One SQL file; ``checksum`` tells whether it was changed after it had run."""

    component: str
    name: str
    sql: str
    checksum: str


def read_migrations(directory: Path) -> list[Migration]:
    """Read a directory's files in order; the component is named after the directory's parent.

    Raises:
        CorruptData: a file name is not ``NNNN_what.sql``, or a number is used twice.
    """
    found = []
    for path in sorted(directory.glob("*.sql")):
        if not _NAME.fullmatch(path.name):
            raise CorruptData(f"{path} is not named NNNN_what.sql, e.g. 0001_jobs.sql")
        sql = path.read_text(encoding="utf-8")
        found.append(
            Migration(
                component=directory.parent.name,
                name=path.stem,
                sql=sql,
                checksum=hashlib.sha256(sql.encode()).hexdigest(),
            )
        )
    numbers = [migration.name[:4] for migration in found]
    if len(set(numbers)) < len(numbers):
        raise CorruptData(f"{directory} has two migrations with the same number: {numbers}")
    return found


async def migrate(connection: asyncpg.Connection[Any], directories: Sequence[Path]) -> list[str]:
    """Apply what is missing and return its names, e.g. ``eventstore/0001_events``.

    Raises:
        CorruptData: an applied file was changed or removed since; nothing is applied then.
    """
    await connection.execute("select pg_advisory_lock($1)", _LOCK)
    try:
        await connection.execute(_TABLE)
        applied = []
        for directory in directories:
            for migration in await _pending(connection, directory):
                async with connection.transaction():
                    await connection.execute(migration.sql)
                    await connection.execute(
                        "insert into schema_migrations (component, name, checksum)"
                        " values ($1, $2, $3)",
                        migration.component,
                        migration.name,
                        migration.checksum,
                    )
                applied.append(f"{migration.component}/{migration.name}")
        return applied
    finally:
        await connection.execute("select pg_advisory_unlock($1)", _LOCK)


async def _pending(connection: asyncpg.Connection[Any], directory: Path) -> list[Migration]:
    """Return the files that have not run yet, after checking those that have."""
    component = directory.parent.name
    known = {migration.name: migration for migration in read_migrations(directory)}
    rows = await connection.fetch(
        "select name, checksum from schema_migrations where component = $1", component
    )
    for row in rows:
        migration = known.get(row["name"])
        if migration is None:
            raise CorruptData(
                f"the database has {component}/{row['name']}, which {directory} has not: it was "
                "migrated by a newer version; start that one"
            )
        if migration.checksum != row["checksum"]:
            raise CorruptData(
                f"{component}/{row['name']} was changed after it had been applied (checksum "
                f"{migration.checksum[:12]}, applied {row['checksum'][:12]}): restore the file "
                "and put the change into a new one"
            )
    done = {row["name"] for row in rows}
    return [migration for name, migration in sorted(known.items()) if name not in done]
