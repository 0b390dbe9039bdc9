"""The migration runner on a real database."""

from __future__ import annotations

import asyncio
from pathlib import Path

import asyncpg
import pytest

from everstep.core.errors import CorruptData
from everstep.eventstore.database import connect_once
from everstep.eventstore.migrations import migrate

FIRST = "create table first (id int); insert into first values (1);"
SECOND = "create table second (id int);"


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """A service's migrations, one file so far."""
    path = tmp_path / "toy" / "migrations"
    path.mkdir(parents=True)
    (path / "0001_first.sql").write_text(FIRST)
    return path


async def apply(url: str, directory: Path) -> list[str]:
    """Run as a service does at its start."""
    async with connect_once(url) as connection:
        return await migrate(connection, [directory])


async def tables(url: str) -> set[str]:
    """What there is."""
    async with connect_once(url) as connection:
        rows = await connection.fetch("select tablename from pg_tables where schemaname = 'public'")
    return {row["tablename"] for row in rows} - {"schema_migrations"}


async def test_files_are_applied_once_and_in_order(database_url: str, directory: Path) -> None:
    """A second start applies only what is new."""
    assert await apply(database_url, directory) == ["toy/0001_first"]
    (directory / "0002_second.sql").write_text(SECOND)
    assert await apply(database_url, directory) == ["toy/0002_second"]
    assert await apply(database_url, directory) == []
    assert await tables(database_url) == {"first", "second"}


async def test_instances_that_start_at_once_take_turns(database_url: str, directory: Path) -> None:
    """Exactly one of them applies each file."""
    (directory / "0002_second.sql").write_text(SECOND)
    results = await asyncio.gather(*(apply(database_url, directory) for _ in range(8)))
    assert sorted(name for applied in results for name in applied) == [
        "toy/0001_first",
        "toy/0002_second",
    ]


async def test_failing_file_leaves_nothing_behind(database_url: str, directory: Path) -> None:
    """A file is applied as a whole, and the ones before it stay."""
    second = directory / "0002_second.sql"
    second.write_text("create table second (id int); select nonsense;")
    with pytest.raises(asyncpg.PostgresError, match="nonsense"):
        await apply(database_url, directory)
    assert await tables(database_url) == {"first"}
    second.write_text(SECOND)
    assert await apply(database_url, directory) == ["toy/0002_second"]


async def test_changed_file_is_refused(database_url: str, directory: Path) -> None:
    """A history that was rewritten is named before anything is applied."""
    await apply(database_url, directory)
    (directory / "0001_first.sql").write_text(FIRST + " -- harmless?")
    (directory / "0002_second.sql").write_text(SECOND)
    with pytest.raises(CorruptData, match="toy/0001_first was changed after"):
        await apply(database_url, directory)
    assert await tables(database_url) == {"first"}


async def test_database_of_a_newer_version_is_refused(database_url: str, directory: Path) -> None:
    """An old program does not run on tables that it does not know."""
    (directory / "0002_second.sql").write_text(SECOND)
    await apply(database_url, directory)
    (directory / "0002_second.sql").unlink()
    with pytest.raises(CorruptData, match="migrated by a newer version"):
        await apply(database_url, directory)


@pytest.mark.parametrize("name", ["1_x.sql", "0002-x.sql", "0001_again.sql"])
async def test_unclear_file_name_is_refused(database_url: str, directory: Path, name: str) -> None:
    """Order must not depend on who sorts."""
    (directory / name).write_text(SECOND)
    with pytest.raises(CorruptData):
        await apply(database_url, directory)
