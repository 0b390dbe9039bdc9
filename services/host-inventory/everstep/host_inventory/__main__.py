"""Run the inventory: ``python -m everstep.host_inventory``."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final

from google.protobuf.message import Message as ProtoMessage

from everstep.host_inventory.api import routes
from everstep.host_inventory.codec import (
    COMMANDS,
    EVENTS,
    FLEET,
    RequestMessage,
    command_of,
    command_reply,
    place_job_reply,
)
from everstep.host_inventory.commands import PlaceJob
from everstep.host_inventory.heartbeats import SUBJECT, Heartbeats
from everstep.host_inventory.keeper import FleetKeeper
from everstep.host_inventory.projections import FleetProjection
from everstep.host_inventory.settings import Settings
from everstep.service.bootstrap import ServiceShell
from everstep.service.commands import command_name

NAME: Final = "host_inventory"


async def main() -> None:
    """Wire everything by hand and serve until told to stop."""
    async with ServiceShell.open(
        NAME,
        Settings(),  # type: ignore[call-arg]  # the environment fills it
        codecs=[EVENTS],
        migrations=Path(__file__).parent / "migrations",
        projections=[FleetProjection()],
    ) as shell:
        heartbeats = Heartbeats(shell.clock)
        keeper = FleetKeeper(shell.handler(FLEET), heartbeats)
        shell.app.include_router(routes(keeper, shell.store, shell.clock))
        await shell.bus.subscribe(SUBJECT, heartbeats.receive)
        shell.spawn("heartbeats", lambda: heartbeats.keep_saving(shell.store))
        for request in COMMANDS:
            await shell.serve_command(command_name(request), request, _serve(keeper))
        await shell.consume_events("controller", keeper.on_controller_event)
        await shell.consume_events("monitor", keeper.on_monitor_event)
        await shell.run()


def _serve(keeper: FleetKeeper) -> Callable[[RequestMessage], Awaitable[ProtoMessage]]:
    async def reply(message: RequestMessage) -> ProtoMessage:
        command = command_of(message)
        done = await keeper.apply(command)
        if isinstance(command, PlaceJob):
            return place_job_reply(command, done)
        return command_reply(done)

    return reply


if __name__ == "__main__":
    asyncio.run(main())
