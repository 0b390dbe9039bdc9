"""Names of command subjects, and the client side of a command.

A command's subject follows from its message: ``PlaceJob`` to ``host_inventory`` is asked on
``everstep.v1.cmd.host_inventory.place_job``. Imports neither the database nor HTTP, so that agents
use it too.
"""

from __future__ import annotations

import re
from typing import Final, TypeVar

from google.protobuf.message import DecodeError
from google.protobuf.message import Message as ProtoMessage

from everstep.core.errors import Unavailable
from everstep.core.ports import Bus

P = TypeVar("P", bound=ProtoMessage)

_WORD_START: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


def command_name(kind: type[ProtoMessage]) -> str:
    """Return the snake_case name of a command message, e.g. ``place_job``."""
    return _WORD_START.sub("_", kind.DESCRIPTOR.name).lower()


def command_subject(service: str, name: str) -> str:
    """Return where ``service`` (snake_case) answers the command ``name``."""
    return f"everstep.v1.cmd.{service}.{name}"


def host_subject(host_id: str, what: str) -> str:
    """Return a host's subject, e.g. ``heartbeat``, ``metrics``, ``report``, ``cmd.stop``."""
    return f"everstep.v1.host.{host_id}.{what}"


async def send_command(
    bus: Bus, service: str, command: ProtoMessage, reply: type[P], *, timeout_s: float
) -> P:
    """Ask a service and return its answer, which may be a refusal (look at ``outcome``).

    Raises:
        NoResponders: no instance of the service runs.
        Unavailable: no usable answer in time.
    """
    subject = command_subject(service, command_name(type(command)))
    return await request(bus, subject, command, reply, timeout_s=timeout_s)


async def request(
    bus: Bus, subject: str, command: ProtoMessage, reply: type[P], *, timeout_s: float
) -> P:
    """Send a message to any subject and decode the answer. Raises as ``send_command``."""
    data = await bus.request(subject, command.SerializeToString(), timeout_s=timeout_s)
    try:
        return reply.FromString(data)
    except DecodeError as error:
        raise Unavailable(f"{subject} answered {len(data)} bytes that are no {reply}") from error
