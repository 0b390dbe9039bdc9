"""Run the controller: ``python -m everstep.controller``."""

from __future__ import annotations

import asyncio
from pathlib import Path

from everstep.controller import queries
from everstep.controller.api import routes
from everstep.controller.outside import BusOutside
from everstep.controller.projections import JobsProjection
from everstep.controller.settings import Settings
from everstep.controller.wiring import CODECS, NAME, make_runner, wire_controller
from everstep.service.bootstrap import ServiceShell


async def main() -> None:
    """Open everything and serve until told to stop."""
    async with ServiceShell.open(
        NAME,
        Settings(),  # type: ignore[call-arg]  # the environment fills it
        codecs=CODECS,
        migrations=Path(__file__).parent / "migrations",
        projections=[JobsProjection()],
    ) as shell:
        runner = make_runner(shell, BusOutside(shell.bus, shell.clock))
        shell.app.include_router(routes(runner, shell.store, shell.clock, shell.ids))

        async def live() -> list[str]:
            async with shell.store.reading() as connection:
                return await queries.live_job_ids(connection)

        await wire_controller(shell, runner, live)
        try:
            await shell.run()
        finally:
            await runner.close()


if __name__ == "__main__":
    asyncio.run(main())
