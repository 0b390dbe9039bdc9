"""Subjects and the client side of commands."""

from __future__ import annotations

import pytest

from everstep.bus.memory import MemoryBus
from everstep.core.errors import NoResponders, Unavailable
from everstep.core.ports import Message
from everstep.service.commands import command_name, command_subject, host_subject, send_command
from everstep.wire.v1.checkpoints_pb2 import PlanRestore
from everstep.wire.v1.common_pb2 import CommandReply, Outcome
from everstep.wire.v1.hosts_pb2 import CordonHost
from everstep.wire.v1.jobs_pb2 import LaunchJob


def test_names_follow_from_the_messages() -> None:
    """Nobody types a subject."""
    assert [command_name(kind) for kind in (CordonHost, PlanRestore, LaunchJob)] == [
        "cordon_host",
        "plan_restore",
        "launch_job",
    ]
    subject = command_subject("host_inventory", "cordon_host")
    assert subject == "everstep.v1.cmd.host_inventory.cordon_host"
    assert host_subject("h1", "cmd.stop") == "everstep.v1.host.h1.cmd.stop"


async def test_refusal_is_an_answer() -> None:
    """The caller looks at the outcome; nothing is raised."""
    bus = MemoryBus()

    async def refuse(message: Message) -> bytes:
        assert CordonHost.FromString(message.data).host_id == "h1"
        return CommandReply(outcome=Outcome(why="unknown_host")).SerializeToString()

    await bus.serve("everstep.v1.cmd.host_inventory.cordon_host", refuse)
    reply = await send_command(
        bus, "host_inventory", CordonHost(host_id="h1"), CommandReply, timeout_s=5
    )
    assert reply.outcome.why == "unknown_host"


async def test_absent_service_and_nonsense_are_unavailable() -> None:
    """Both may pass: the service may start, or be replaced by a right version."""
    bus = MemoryBus()
    command = CordonHost(host_id="h1")
    with pytest.raises(NoResponders):
        await send_command(bus, "host_inventory", command, CommandReply, timeout_s=5)

    async def nonsense(_: Message) -> bytes:
        return b"\xff\xff"

    await bus.serve("everstep.v1.cmd.host_inventory.cordon_host", nonsense)
    with pytest.raises(Unavailable, match="2 bytes"):
        await send_command(bus, "host_inventory", command, CommandReply, timeout_s=5)
