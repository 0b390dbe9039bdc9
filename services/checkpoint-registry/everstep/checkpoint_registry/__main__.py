"""Run the registry: ``python -m everstep.checkpoint_registry``."""

from __future__ import annotations

import asyncio
from pathlib import Path

from everstep.checkpoint_registry.api import routes
from everstep.checkpoint_registry.memory_map import MemoryMap
from everstep.checkpoint_registry.projections import CheckpointsProjection
from everstep.checkpoint_registry.queries import PostgresCatalog
from everstep.checkpoint_registry.settings import Settings
from everstep.checkpoint_registry.sweep import Sweeping
from everstep.checkpoint_registry.wiring import CODECS, NAME, wire_registry
from everstep.objectstore.s3 import S3Store
from everstep.service.bootstrap import ServiceShell


async def main() -> None:
    """Open everything and serve until told to stop."""
    settings = Settings()  # type: ignore[call-arg]  # the environment fills it
    async with (
        S3Store.open(
            endpoint=settings.s3_endpoint,
            access_key=settings.s3_access_key.get_secret_value(),
            secret_key=settings.s3_secret_key.get_secret_value(),
            bucket=settings.s3_bucket,
            secure=settings.s3_secure,
        ) as objects,
        ServiceShell.open(
            NAME,
            settings,
            codecs=CODECS,
            migrations=Path(__file__).parent / "migrations",
            projections=[CheckpointsProjection()],
        ) as shell,
    ):
        memory = MemoryMap()
        sweeping = Sweeping(objects=objects, times=settings.sweep_times)
        catalog = PostgresCatalog(shell.store)
        registry = await wire_registry(shell, catalog, objects, memory, sweeping)
        shell.app.include_router(routes(shell.store, memory, registry, shell.clock))
        await shell.run()


if __name__ == "__main__":
    asyncio.run(main())
