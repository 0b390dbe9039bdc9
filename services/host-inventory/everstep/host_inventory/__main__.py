"""Run the inventory: ``python -m everstep.host_inventory``."""

from __future__ import annotations

import asyncio
from pathlib import Path

from everstep.host_inventory.api import routes
from everstep.host_inventory.heartbeats import Heartbeats
from everstep.host_inventory.projections import FleetProjection
from everstep.host_inventory.settings import Settings
from everstep.host_inventory.wiring import CODECS, NAME, make_keeper, wire_inventory
from everstep.service.bootstrap import ServiceShell


async def main() -> None:
    """Open everything and serve until told to stop."""
    async with ServiceShell.open(
        NAME,
        Settings(),  # type: ignore[call-arg]  # the environment fills it
        codecs=CODECS,
        migrations=Path(__file__).parent / "migrations",
        projections=[FleetProjection()],
    ) as shell:
        heartbeats = Heartbeats(shell.clock)
        keeper = make_keeper(shell, heartbeats)
        shell.app.include_router(routes(keeper, shell.store, shell.clock))
        shell.spawn("heartbeats", lambda: heartbeats.keep_saving(shell.store))
        await wire_inventory(shell, keeper, heartbeats)
        await shell.run()


if __name__ == "__main__":
    asyncio.run(main())
