"""When each host was last heard: kept in memory, written to the database once a second.

Not events: 2,048 of them come every second and nobody decides on an old one. Time is this
process's clock, because the hosts' clocks may differ.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import Final

from google.protobuf.message import DecodeError

from everstep.core.errors import Unavailable
from everstep.core.ports import Message
from everstep.core.system import Clock
from everstep.eventstore.database import transaction
from everstep.eventstore.postgres import PostgresStore
from everstep.host_inventory.projections import save_heartbeats
from everstep.wire.v1.agents_pb2 import Heartbeat

FLUSH_S: Final = 1.0  # a heartbeat's own period: writing more often would write nothing new
# An agent that restarts in a circle makes new ones; only the newest of the others matters.
EPOCHS_MAX: Final = 4
SUBJECT: Final = "everstep.v1.host.*.heartbeat"

_log = logging.getLogger(__name__)


class Heartbeats:
    """The newest heartbeat of every host."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._heard: dict[str, dict[str, int]] = {}
        self._unsaved: dict[str, int] = {}

    async def receive(self, message: Message) -> None:
        """Take a heartbeat; one that cannot be read is dropped."""
        try:
            heartbeat = Heartbeat.FromString(message.data)
        except DecodeError:
            _log.warning("unreadable heartbeat", extra={"subject": message.subject})
            return
        now_ms = self._clock.now_ms()
        epochs = self._heard.setdefault(heartbeat.host_id, {})
        epochs.pop(heartbeat.agent_epoch, None)
        epochs[heartbeat.agent_epoch] = now_ms
        while len(epochs) > EPOCHS_MAX:
            del epochs[next(iter(epochs))]
        self._unsaved[heartbeat.host_id] = now_ms

    def others_silent_ms(self, host_id: str, agent_epoch: str) -> int | None:
        """Return how long ago another agent was heard under this id; None for never."""
        others = [at for epoch, at in self._heard.get(host_id, {}).items() if epoch != agent_epoch]
        return self._clock.now_ms() - max(others) if others else None

    def newest_ms(self) -> Mapping[str, int]:
        """Return when each host was heard last, whichever of its agents it was."""
        return {host_id: max(epochs.values()) for host_id, epochs in self._heard.items()}

    async def save(self, store: PostgresStore) -> None:
        """Write what came since the last time. Raises Unavailable, and keeps it then."""
        taken, self._unsaved = self._unsaved, {}
        if not taken:
            return
        try:
            async with transaction(store.engine) as connection:
                await save_heartbeats(connection, taken)
        except Unavailable:
            self._unsaved = taken | self._unsaved
            raise

    async def keep_saving(self, store: PostgresStore) -> None:
        """Write once a second, for good."""
        while True:
            await asyncio.sleep(FLUSH_S)
            await self.save(store)
