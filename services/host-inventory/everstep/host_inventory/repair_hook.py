"""Delivers what ``repairs`` has noted to the repair hook, at least once and not for ever.

A hook that is away delays nobody else's news: each host has its own tries, with growing pauses.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import httpx
from prometheus_client import Counter
from sqlalchemy import text

from everstep.core.system import Clock
from everstep.eventstore.database import transaction
from everstep.eventstore.postgres import PostgresStore
from everstep.service.metrics import Metrics

POLL_S: Final = 1.0  # what was noted is minutes of a person's work: a second more is nothing
ANSWER_S_MAX: Final = 10.0
AT_ONCE_MAX: Final = 8  # tries at a time; the next ones wait for the slowest
PAUSE_MS: Final = 1_000  # after the first try; doubles
PAUSE_MS_MAX: Final = 600_000
# With those pauses an hour and a half: longer than a restart of whoever listens, shorter than a
# hold-out that nobody knows of.
ATTEMPTS_MAX: Final = 18
ERROR_CHARS_MAX: Final = 200

_DUE: Final = text("""
    select position, event_id, host_id, body, attempts from repairs
    where delivered_ms is null and given_up_ms is null and due_ms <= :now_ms
    order by position limit :most
""")
_DELIVERED: Final = text("""
    update repairs set delivered_ms = :now_ms, attempts = attempts + 1, last_error = ''
    where position = :position
""")
_FAILED: Final = text("""
    update repairs set attempts = attempts + 1, due_ms = :due_ms, last_error = :error,
        given_up_ms = cast(:given_up_ms as bigint)
    where position = :position
""")

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Hook:
    """Who is told; ``secret`` goes along as a bearer token unless it is ""."""

    url: str
    secret: str


class RepairHook:
    """The delivering loop."""

    def __init__(self, store: PostgresStore, clock: Clock, hook: Hook, metrics: Metrics) -> None:
        self._store = store
        self._clock = clock
        self._hook = hook
        self._tries = Counter(
            "everstep_repair_hook_tries",
            "Tries to tell the repair hook of a cordoned host, by what became of them.",
            ["outcome"],
            registry=metrics.registry,
        )

    async def run(self) -> None:
        """Deliver for ever."""
        headers = {"Authorization": f"Bearer {self._hook.secret}"} if self._hook.secret else {}
        async with httpx.AsyncClient(timeout=ANSWER_S_MAX, headers=headers) as client:
            while True:
                if not await self.deliver(client):
                    await asyncio.sleep(POLL_S)

    async def deliver(self, client: httpx.AsyncClient) -> int:
        """Try what is due; returns how much that was. Raises Unavailable."""
        values = {"now_ms": self._clock.now_ms(), "most": AT_ONCE_MAX}
        async with self._store.reading() as connection:
            due = [dict(row) for row in (await connection.execute(_DUE, values)).mappings()]
        errors = await asyncio.gather(*(self._post(client, row) for row in due))
        for row, error in zip(due, errors, strict=True):
            await self._record(row, error)
        return len(due)

    async def _post(self, client: httpx.AsyncClient, row: Mapping[str, Any]) -> str:
        """Return what went wrong, "" for nothing."""
        key = {"Idempotency-Key": str(row["event_id"])}
        try:
            answer = await client.post(self._hook.url, json=row["body"], headers=key)
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            return f"{type(error).__name__}: {error}"[:ERROR_CHARS_MAX]
        return "" if answer.is_success else f"answered {answer.status_code}"

    async def _record(self, row: Mapping[str, Any], error: str) -> None:
        now_ms, position, attempts = self._clock.now_ms(), row["position"], row["attempts"] + 1
        outcome = "delivered"
        async with transaction(self._store.engine) as connection:
            if not error:
                values = {"position": position, "now_ms": now_ms}
                await connection.execute(_DELIVERED, values)
            else:
                over = attempts >= ATTEMPTS_MAX
                outcome = "given_up" if over else "failed"
                failed = {
                    "position": position,
                    "due_ms": now_ms + min(PAUSE_MS << (attempts - 1), PAUSE_MS_MAX),
                    "error": error,
                    "given_up_ms": now_ms if over else None,
                }
                await connection.execute(_FAILED, failed)
        self._tries.labels(outcome).inc()
        if outcome == "given_up":
            _log.error(
                "the repair hook was never told that host %s is out, after %d tries: %s",
                row["host_id"], attempts, error,
            )  # fmt: skip
        elif error and attempts == 1:
            _log.warning("repair hook of host %s: %s: tried again", row["host_id"], error)
