"""Rolls step metrics of all hosts up to one row a step, and writes the rows in batches.

Measurements are no decisions: they are not events, and losing the last half second of them with the
process loses a point of a curve.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import func
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncConnection

from everstep.monitor.detectors.spike import Sound
from everstep.monitor.projections import STEP_METRICS
from everstep.wire.v1.agents_pb2 import RankStep, StepMetrics

FLUSH_S: Final = 0.5  # people watch curves, not milliseconds
ROWS_MAX: Final = 20_000  # while the database is away: about a day of 4 s steps, some 10 MB
BATCH_MAX: Final = 1_000

# Of a step's row: what the slowest rank has told.
SLOWEST: Final = (
    "step_time_ms",
    "data_wait_ms",
    "stall_ms",
    "shadow_ms",
    "completed_at_ms",
    "tokens",
)

Key = tuple[str, int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """What is stored of a job's steps: the newest, and the window of sound ones that ends there."""

    generation: int
    step: int
    window: tuple[Sound, ...] = ()


class Rollup:
    """Pending rows by (job, generation, step)."""

    def __init__(self) -> None:
        self._rows: dict[Key, dict[str, Any]] = {}

    def add(self, metrics: StepMetrics) -> None:
        """Merge one host's message."""
        for rank in metrics.ranks:
            key = (metrics.job_id, metrics.generation, rank.step)
            self._rows[key] = _merge(self._rows.get(key), key, rank)
        while len(self._rows) > ROWS_MAX:
            del self._rows[next(iter(self._rows))]

    def take(self) -> list[dict[str, Any]]:
        """Return up to ``BATCH_MAX`` rows and forget them."""
        keys = list(self._rows)[:BATCH_MAX]
        return [self._rows.pop(key) for key in keys]

    def put_back(self, rows: list[dict[str, Any]]) -> None:
        """Keep rows that could not be written; newer values of the same step win."""
        for row in rows:
            self._rows.setdefault((row["job_id"], row["generation"], row["step"]), row)


def _merge(row: dict[str, Any] | None, key: Key, rank: RankStep) -> dict[str, Any]:
    """Slowest rank for times; loss, norm and batch are the same on every rank."""
    worst = {name: getattr(rank, name) for name in SLOWEST}
    if row is None:
        return {
            "job_id": key[0],
            "generation": key[1],
            "step": key[2],
            "loss": _finite(rank.loss),
            "grad_norm": _finite(rank.grad_norm),
            "blocked_ms_min": rank.blocked_ms,
            "health": rank.health,
            "position": rank.position,
            **worst,
        }
    for name, value in worst.items():
        row[name] = max(row[name], value)
    row["blocked_ms_min"] = min(row["blocked_ms_min"], rank.blocked_ms)
    return row


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


async def flush(
    rollup: Rollup, writing: Callable[[], AbstractAsyncContextManager[AsyncConnection]]
) -> int:
    """Write what is pending; returns the rows written. Keeps what could not be written."""
    written = 0
    while rows := rollup.take():
        statement = insert(STEP_METRICS)
        fresh = statement.excluded
        table = STEP_METRICS.c
        merged = {name: func.greatest(table[name], fresh[name]) for name in SLOWEST}
        statement = statement.on_conflict_do_update(
            index_elements=["job_id", "generation", "step"],
            set_={
                **merged,
                "blocked_ms_min": func.least(table.blocked_ms_min, fresh.blocked_ms_min),
            },
        )
        stored = False
        try:
            async with writing() as connection:
                await connection.execute(statement, rows)
            stored = True
        finally:  # whatever went wrong: a point that is lost here is a hole that nobody sees
            if not stored:
                rollup.put_back(rows)
        written += len(rows)
    return written
