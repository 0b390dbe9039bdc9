"""Run the registry: ``python -m everstep.checkpoint_registry``."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Final

from everstep.checkpoint_registry import codec
from everstep.checkpoint_registry.api import routes
from everstep.checkpoint_registry.keeper import CheckpointKeeper
from everstep.checkpoint_registry.memory_map import SUBJECT, MemoryMap
from everstep.checkpoint_registry.projections import CheckpointsProjection
from everstep.checkpoint_registry.queries import PostgresCatalog
from everstep.checkpoint_registry.registry import Registry
from everstep.checkpoint_registry.settings import Settings
from everstep.objectstore.s3 import S3Store
from everstep.service.bootstrap import ServiceShell
from everstep.service.commands import command_name
from everstep.wire.v1 import checkpoints_pb2 as wire

NAME: Final = "checkpoint_registry"


async def main() -> None:
    """Wire everything by hand and serve until told to stop."""
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
            codecs=[codec.CHECKPOINT_EVENTS, codec.HISTORY_EVENTS],
            migrations=Path(__file__).parent / "migrations",
            projections=[CheckpointsProjection()],
        ) as shell,
    ):
        memory = MemoryMap()
        catalog = PostgresCatalog(shell.store)
        checkpoints = shell.handler(codec.CHECKPOINTS)
        histories = shell.handler(codec.HISTORIES)
        keeper = CheckpointKeeper(checkpoints, histories, catalog, objects, shell.clock)
        registry = Registry(checkpoints, histories, catalog, keeper, memory)
        shell.on_commit(keeper.wake)
        shell.spawn("keeper", keeper.run)
        shell.app.include_router(routes(shell.store, memory))
        await shell.bus.subscribe(SUBJECT, memory.receive)
        await _serve(shell, registry)
        await shell.consume_events("controller", registry.on_controller_event)
        await shell.consume_events("monitor", registry.on_monitor_event)
        await shell.run()


async def _serve(shell: ServiceShell, registry: Registry) -> None:
    await shell.serve_command(
        command_name(wire.ReportShards), wire.ReportShards, registry.report_shards
    )
    await shell.serve_command(
        command_name(wire.PlanRestore), wire.PlanRestore, registry.plan_restore
    )
    await shell.serve_command(command_name(wire.ListSteps), wire.ListSteps, registry.list_steps)
    await shell.serve_command(
        command_name(wire.DropJobCheckpoints),
        wire.DropJobCheckpoints,
        registry.drop_job_checkpoints,
    )


if __name__ == "__main__":
    asyncio.run(main())
