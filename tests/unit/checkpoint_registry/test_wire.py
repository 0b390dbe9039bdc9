from __future__ import annotations

import dataclasses

import pytest
from tests.fields import field_names
from tests.unit.checkpoint_registry.words import ask, copy_of, facts, host, own, report

from everstep.checkpoint_registry import codec, commands, events
from everstep.wire.codec import from_wire, to_wire
from everstep.wire.v1 import checkpoints_pb2, common_pb2

# Facts that the shell looks up; they are not on the wire.
SHELL_FIELDS = {
    "ReportShards": {"newest_generation", "kept_to_step"},
    "PlanRestore": {"checkpoints", "unfinished"},
    "DecideTrust": {"phase"},
    "PinCheckpoint": {"phase"},
}
PAIRS = [
    events.Shard,
    commands.ReportShards,
    commands.PlanRestore,
    commands.HostHoldings,
    commands.HeldSnapshots,
    events.Holder,
    commands.DropJobCheckpoints,
    commands.SuspectSteps,
    commands.EndSuspicion,
    commands.DecideTrust,
    commands.PinCheckpoint,
    commands.UnpinCheckpoint,
    events.ShardsStored,
    events.ShardsRefused,
    events.CheckpointCompleted,
    events.CheckpointDeleted,
    events.RestorePlanned,
    events.CheckpointsSuspected,
    events.SuspicionEnded,
    events.TrustDecided,
    events.CheckpointPinned,
    events.CheckpointUnpinned,
]


@pytest.mark.parametrize("kind", PAIRS, ids=lambda kind: kind.__name__)
def test_class_has_the_fields_of_its_message(kind):
    """One converter serves all, so names must not drift."""
    fields = set(field_names(kind))
    module = common_pb2 if hasattr(common_pb2, kind.__name__) else checkpoints_pb2
    message = getattr(module, kind.__name__)
    assert fields - SHELL_FIELDS.get(kind.__name__, set()) == set(message.DESCRIPTOR.fields_by_name)


def test_every_message_of_the_contract_has_its_class():
    """All of checkpoints.proto but replies and questions, which are written by field."""
    names = set(checkpoints_pb2.DESCRIPTOR.message_types_by_name)
    answers = {"PlanRestoreReply", "RestoreSources"}
    answers |= {"ListSteps", "ListStepsReply", "CheckStep", "CheckStepReply", "PlanAudit"}
    assert names - answers == {
        kind.__name__ for kind in PAIRS if not hasattr(common_pb2, kind.__name__)
    }


def test_report_survives_the_wire():
    """What an agent says is what is decided on."""
    command = report(0, 1, newest_generation=0)
    message = checkpoints_pb2.ReportShards(
        job_id="job",
        step=20,
        generation=1,
        host_id="h1",
        world_size=2,
        data_state=command.data_state,
        at_ms=5,
    )
    for shard in command.shards:
        to_wire(shard, message.shards.add())
    received = checkpoints_pb2.ReportShards.FromString(message.SerializeToString())
    assert codec.report_shards(received) == command


def test_request_for_a_plan_survives_the_wire():
    """Holdings arrive whole, with the complete checkpoints added."""
    command = ask(host("h1", own(0, 17), copy_of(1, 17, 3)), host("h2"), checkpoints=[facts(10)])
    wire = {
        k: v for k, v in dataclasses.asdict(command).items() if k not in SHELL_FIELDS["PlanRestore"]
    }
    message = to_wire(wire, checkpoints_pb2.PlanRestore())
    received = checkpoints_pb2.PlanRestore.FromString(message.SerializeToString())
    assert codec.plan_restore(received, (facts(10),)) == command


def test_published_event_survives_the_wire():
    """Lists come back as tuples."""
    event = events.RestorePlanned(
        job_id="job",
        generation=2,
        step=17,
        own_memory=1,
        peer_memory=1,
        object_store=0,
        passed_over=("step 18: rank 0 has no source",),
        at_ms=2**40,
    )
    assert from_wire(to_wire(event, checkpoints_pb2.RestorePlanned()), type(event)) == event
