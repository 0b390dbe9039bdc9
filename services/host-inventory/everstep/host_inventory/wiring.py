"""Puts the inventory together on any shell: the real one, or the simulator's."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial
from typing import Final

from google.protobuf.message import Message as ProtoMessage

from everstep.host_inventory.care import CARE, Care
from everstep.host_inventory.caretaker import Caretaker, SaveReport, no_report
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
from everstep.host_inventory.decider import decide
from everstep.host_inventory.heartbeats import SUBJECT, Heartbeats
from everstep.host_inventory.keeper import FleetKeeper
from everstep.service.commands import command_name
from everstep.service.shell import Shell
from everstep.wire.v1 import hosts_pb2

NAME: Final = "host_inventory"
CODECS: Final = (EVENTS,)


def make_keeper(shell: Shell, heartbeats: Heartbeats, care: Care = CARE) -> FleetKeeper:
    """Return the one way to the fleet; ``care`` says how hosts come back."""
    aggregate = replace(FLEET, decide=partial(decide, care=care))
    return FleetKeeper(shell.handler(aggregate), heartbeats)


async def wire_inventory(
    shell: Shell,
    keeper: FleetKeeper,
    heartbeats: Heartbeats,
    *,
    care: Care = CARE,
    save_report: SaveReport = no_report,
) -> None:
    """Serve commands, hear heartbeats, follow events, look after idle hosts."""
    await shell.bus.subscribe(SUBJECT, heartbeats.receive)
    for request in COMMANDS:
        await shell.serve_command(command_name(request), request, _serve(keeper))
    await shell.serve_command(
        command_name(hosts_pb2.ListHosts), hosts_pb2.ListHosts, keeper.list_hosts
    )
    await shell.serve_command(
        command_name(hosts_pb2.CanReplace), hosts_pb2.CanReplace, keeper.can_replace
    )
    await shell.serve_command(
        command_name(hosts_pb2.CanPlace), hosts_pb2.CanPlace, keeper.can_place
    )
    await shell.consume_events("controller", keeper.on_controller_event)
    await shell.consume_events("monitor", keeper.on_monitor_event)
    caretaker = Caretaker(keeper, shell.bus, shell.clock, shell.ids, care, save_report)
    shell.on_commit(caretaker.wake)
    shell.spawn("caretaker", caretaker.run)


def _serve(keeper: FleetKeeper) -> Callable[[RequestMessage], Awaitable[ProtoMessage]]:
    async def reply(message: RequestMessage) -> ProtoMessage:
        command = command_of(message)
        done = await keeper.apply(command)
        if isinstance(command, PlaceJob):
            return place_job_reply(command, done)
        return command_reply(done)

    return reply
