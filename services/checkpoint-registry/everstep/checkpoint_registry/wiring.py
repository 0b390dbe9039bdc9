"""Puts the registry together on any shell: the real one, or the simulator's."""

from __future__ import annotations

from typing import Final

from everstep.checkpoint_registry import codec
from everstep.checkpoint_registry.auditing import Audits
from everstep.checkpoint_registry.catalog import Catalog
from everstep.checkpoint_registry.judgements import COMMANDS, Judgements
from everstep.checkpoint_registry.keeper import CheckpointKeeper
from everstep.checkpoint_registry.looking import Looks
from everstep.checkpoint_registry.memory_map import SUBJECT, MemoryMap
from everstep.checkpoint_registry.registry import Registry
from everstep.checkpoint_registry.state import History
from everstep.checkpoint_registry.sweep import Sweep, Sweeping
from everstep.core.ports import ObjectStore
from everstep.service.commands import command_name
from everstep.service.shell import Shell
from everstep.wire.v1 import checkpoints_pb2 as wire

NAME: Final = "checkpoint_registry"
CODECS: Final = (codec.CHECKPOINT_EVENTS, codec.HISTORY_EVENTS)


async def wire_registry(
    shell: Shell,
    catalog: Catalog,
    objects: ObjectStore,
    memory: MemoryMap,
    sweeping: Sweeping | None = None,
) -> Registry:
    """Serve commands, follow events, keep checkpoints going, sweep up orphans."""
    checkpoints = shell.handler(codec.CHECKPOINTS)
    histories = shell.handler(codec.HISTORIES)
    keeper = CheckpointKeeper(checkpoints, histories, catalog, objects, shell.clock)
    judgements = Judgements(checkpoints.state, histories, catalog, keeper, memory, shell.clock)

    async def history_of(job_id: str) -> History:
        return await histories.state(codec.history_stream(job_id))

    looks = Looks(history_of, catalog, objects, judgements, shell.clock)
    audits = Audits(history_of, catalog, looks)
    registry = Registry(checkpoints, histories, catalog, keeper, memory, judgements, looks, audits)
    shell.on_commit(keeper.wake)
    shell.spawn("keeper", keeper.run)
    if sweeping is not None:
        sweep = Sweep(checkpoints, histories, sweeping.objects, shell.clock, sweeping.times)
        shell.spawn("sweep", sweep.run)
    await shell.bus.subscribe(SUBJECT, memory.receive)
    await _serve(shell, registry)
    await shell.consume_events("controller", registry.on_controller_event)
    await shell.consume_events("monitor", registry.on_monitor_event)
    return registry


async def _serve(shell: Shell, registry: Registry) -> None:
    await shell.serve_command(
        command_name(wire.ReportShards), wire.ReportShards, registry.report_shards
    )
    await shell.serve_command(
        command_name(wire.PlanRestore), wire.PlanRestore, registry.plan_restore
    )
    await shell.serve_command(
        command_name(wire.PlanAudit), wire.PlanAudit, registry.audits.plan_audit
    )
    await shell.serve_command(command_name(wire.ListSteps), wire.ListSteps, registry.list_steps)
    await shell.serve_command(
        command_name(wire.CheckStep), wire.CheckStep, registry.looks.check_step
    )
    await shell.serve_command(
        command_name(wire.DropJobCheckpoints),
        wire.DropJobCheckpoints,
        registry.drop_job_checkpoints,
    )
    for message in COMMANDS:
        await shell.serve_command(command_name(message), message, registry.judgements.take)
