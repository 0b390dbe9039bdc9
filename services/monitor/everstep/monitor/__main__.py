"""Run the monitor: ``python -m everstep.monitor``."""

from __future__ import annotations

import asyncio
import json
import logging
from contextlib import AsyncExitStack
from pathlib import Path

from everstep.bus.nats import NatsBus
from everstep.core.ports import Message, Receive
from everstep.eventstore.database import transaction
from everstep.monitor import queries
from everstep.monitor.api import routes
from everstep.monitor.doubts import Doubt
from everstep.monitor.measurements import FLUSH_S, Kept, Rollup, flush
from everstep.monitor.projections import MonitorProjection
from everstep.monitor.settings import Settings
from everstep.monitor.siblings import newest_position
from everstep.monitor.uncopied import UncopiedRanks
from everstep.monitor.watcher import Watcher
from everstep.monitor.wiring import CODECS, NAME, make_watcher, wire_monitor
from everstep.service.bootstrap import ServiceShell

log = logging.getLogger(__name__)

DISCONNECTS = "$SYS.ACCOUNT.*.DISCONNECT"
AGENT_PREFIX = "agent:"


async def main() -> None:
    """Open everything and serve until told to stop."""
    settings = Settings()  # type: ignore[call-arg]  # the environment fills it
    async with (
        ServiceShell.open(
            NAME,
            settings,
            codecs=CODECS,
            migrations=Path(__file__).parent / "migrations",
            projections=[MonitorProjection()],
        ) as shell,
        AsyncExitStack() as stack,
    ):

        async def recall_doubts(job_id: str) -> tuple[Doubt, ...]:
            async with shell.store.reading() as connection:
                return await queries.doubts_elsewhere(connection, job_id)

        async def recall_steps(job_id: str) -> Kept:
            async with shell.store.reading() as connection:
                return await queries.kept_of(connection, job_id)

        watcher = make_watcher(shell, lambda: shell.bus.connected, recall_doubts, recall_steps)
        rollup, uncopied = Rollup(), UncopiedRanks(shell.clock)
        shell.app.include_router(routes(shell.store, watcher, uncopied, shell.clock))
        async with shell.store.reading() as connection:
            position = await newest_position(connection)
            watched = await queries.watched_jobs(connection)
        await wire_monitor(shell, watcher, rollup, watched, uncopied, position)
        if settings.nats_system_url is not None:
            system = await stack.enter_async_context(
                NatsBus.open(
                    settings.nats_system_url.get_secret_value(),
                    name="monitor-system",
                    durable=False,
                )
            )
            await system.subscribe(DISCONNECTS, _on_disconnect(watcher))

        async def write_measurements() -> None:
            while True:
                await asyncio.sleep(FLUSH_S)
                await flush(rollup, lambda: transaction(shell.store.engine))

        shell.spawn("measurements", write_measurements)
        await shell.run()


def _on_disconnect(watcher: Watcher) -> Receive:
    async def receive(message: Message) -> None:
        client = json.loads(message.data).get("client", {})
        name = str(client.get("name", ""))
        if name.startswith(AGENT_PREFIX):
            log.info("the bus lost the connection of %s", name)
            await watcher.dropped(name.removeprefix(AGENT_PREFIX))

    return receive


if __name__ == "__main__":
    asyncio.run(main())
