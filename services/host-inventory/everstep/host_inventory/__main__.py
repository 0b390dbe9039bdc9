"""Run the inventory: ``python -m everstep.host_inventory``."""

from __future__ import annotations

import asyncio
from pathlib import Path

from everstep.host_inventory.api import routes
from everstep.host_inventory.heartbeats import Heartbeats
from everstep.host_inventory.projections import FleetProjection, reports_into
from everstep.host_inventory.repair_hook import Hook, RepairHook
from everstep.host_inventory.settings import Settings
from everstep.host_inventory.wiring import CODECS, NAME, make_keeper, wire_inventory
from everstep.service.bootstrap import ServiceShell


async def main() -> None:
    """Open everything and serve until told to stop."""
    settings = Settings()  # type: ignore[call-arg]  # the environment fills it
    care = settings.care
    async with ServiceShell.open(
        NAME,
        settings,
        codecs=CODECS,
        migrations=Path(__file__).parent / "migrations",
        projections=[FleetProjection(repairs_wanted=bool(settings.repair_hook))],
    ) as shell:
        heartbeats = Heartbeats(shell.clock)
        keeper = make_keeper(shell, heartbeats, care)
        shell.app.include_router(routes(keeper, shell.store, shell.clock))
        shell.spawn("heartbeats", lambda: heartbeats.keep_saving(shell.store))
        if settings.repair_hook:
            hook = Hook(
                url=settings.repair_hook, secret=settings.repair_hook_secret.get_secret_value()
            )
            teller = RepairHook(shell.store, shell.clock, hook, shell.metrics)
            shell.spawn("repair hook", teller.run)
        save_report = reports_into(shell.store)
        await wire_inventory(shell, keeper, heartbeats, care=care, save_report=save_report)
        await shell.run()


if __name__ == "__main__":
    asyncio.run(main())
