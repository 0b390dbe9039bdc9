from __future__ import annotations

import pytest
from tests.fields import field_names

from everstep.core import placement
from everstep.host_inventory import commands, events
from everstep.host_inventory.codec import COMMANDS, EVENTS, command_of
from everstep.wire.codec import from_wire, to_wire
from everstep.wire.v1 import common_pb2, hosts_pb2

# Facts that the shell fills in; they are not on the wire.
SHELL_FIELDS = {"JoinHost": {"heard_ms"}}
WORDS = [placement.Layout, placement.HostPlacement, placement.Placement]


@pytest.mark.parametrize(
    "kind", [*COMMANDS.values(), *EVENTS.types.values()], ids=lambda kind: kind.__name__
)
def test_class_has_the_fields_of_its_message(kind):
    """One converter serves all, so names must not drift."""
    fields = set(field_names(kind))
    message = getattr(hosts_pb2, kind.__name__)
    assert fields - SHELL_FIELDS.get(kind.__name__, set()) == set(message.DESCRIPTOR.fields_by_name)


@pytest.mark.parametrize("kind", WORDS, ids=lambda kind: kind.__name__)
def test_placement_words_have_the_fields_of_their_messages(kind):
    """The same, for what placements are made of."""
    fields = set(field_names(kind))
    assert fields == set(getattr(common_pb2, kind.__name__).DESCRIPTOR.fields_by_name)


def test_every_command_of_the_contract_is_served():
    """Commands are those messages that are neither events nor replies, nor questions."""
    names = set(hosts_pb2.DESCRIPTOR.message_types_by_name)
    published = {kind.__name__ for kind in EVENTS.types.values()}
    questions = {"ListHosts", "ListHostsReply", "CanReplace", "CanReplaceReply"}
    questions |= {"CanPlace", "CanPlaceReply"}
    others = {"PlaceJobReply", "HostAddress", *questions}
    assert names - published - others == {kind.__name__ for kind in COMMANDS.values()}


def test_command_survives_the_wire():
    """Lists arrive as tuples, and nested messages as their classes."""
    command = commands.PlaceJob(
        job_id="job",
        generation=3,
        layout=placement.Layout(pp=2, tp=2),
        lost_hosts=("h1", "h2"),
        reason="host_lost",
        incident_id="i1",
        at_ms=2**40,
    )
    sent = to_wire(command, hosts_pb2.PlaceJob()).SerializeToString()
    assert command_of(hosts_pb2.PlaceJob.FromString(sent)) == command


def test_placement_survives_the_wire():
    """An event with a whole placement is published and read back as it was."""
    event = events.JobPlaced(
        job_id="job",
        generation=1,
        placement=placement.Placement(
            layout=placement.Layout(tp=2),
            hosts=(placement.HostPlacement(host_id="h1", ranks=(0, 1), replica_host_id="h2"),),
        ),
        replacements=("h1",),
        at_ms=5,
    )
    message = to_wire(event, hosts_pb2.JobPlaced())
    assert from_wire(message, events.JobPlaced) == event
