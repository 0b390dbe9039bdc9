"""How the fleet's events are stored and its commands and answers look on the wire."""

from __future__ import annotations

from typing import Final, cast

from everstep.core.decision import Rejected
from everstep.eventstore.codec import EventCodec
from everstep.host_inventory import commands, decider, events, state
from everstep.host_inventory.policy import place, reduced
from everstep.host_inventory.seats import HostsShort, kept, relaxed
from everstep.service.handler import Aggregate, Handled
from everstep.wire.codec import from_wire, to_wire
from everstep.wire.v1 import hosts_pb2
from everstep.wire.v1.common_pb2 import CommandReply, Outcome

STREAM: Final = "fleet"

EVENTS: Final[EventCodec[events.Event]] = EventCodec(
    {
        "host_joined.v1": events.HostJoined,
        "host_left.v1": events.HostLeft,
        "host_cordoned.v1": events.HostCordoned,
        "host_uncordoned.v1": events.HostUncordoned,
        "host_returning.v1": events.HostReturning,
        "host_probed.v1": events.HostProbed,
        "maintenance_planned.v1": events.MaintenancePlanned,
        "maintenance_ended.v1": events.MaintenanceEnded,
        "host_errors_counted.v1": events.HostErrorsCounted,
        "job_placed.v1": events.JobPlaced,
        "job_released.v1": events.JobReleased,
    }
)

FLEET: Final[Aggregate[commands.Command, state.Fleet, events.Event]] = Aggregate(
    name="fleet",
    stream_of=lambda _command: STREAM,
    initial=state.Fleet,
    decide=decider.decide,
    evolve=state.evolve,
    codec=EVENTS,
)

Done = Handled[state.Fleet, events.Event]

# Request message -> command class; the names and fields are the same.
COMMANDS: Final[dict[type, type]] = {
    hosts_pb2.JoinHost: commands.JoinHost,
    hosts_pb2.LeaveHost: commands.LeaveHost,
    hosts_pb2.CordonHost: commands.CordonHost,
    hosts_pb2.UncordonHost: commands.UncordonHost,
    hosts_pb2.MaintainHost: commands.MaintainHost,
    hosts_pb2.CountErrors: commands.CountErrors,
    hosts_pb2.PlaceJob: commands.PlaceJob,
    hosts_pb2.ReleaseJob: commands.ReleaseJob,
}

RequestMessage = (
    hosts_pb2.JoinHost
    | hosts_pb2.LeaveHost
    | hosts_pb2.CordonHost
    | hosts_pb2.UncordonHost
    | hosts_pb2.MaintainHost
    | hosts_pb2.CountErrors
    | hosts_pb2.PlaceJob
    | hosts_pb2.ReleaseJob
)


def command_of(message: RequestMessage) -> commands.Command:
    """Read a command. Raises ``msgspec.ValidationError`` when a field does not fit."""
    return cast("commands.Command", from_wire(message, COMMANDS[type(message)]))


def outcome(rejected: Rejected | None, *, detail: str = "") -> Outcome:
    """Say whether a command was accepted; ``detail`` is for an acceptance with a remark."""
    if rejected is not None:
        return Outcome(accepted=False, why=rejected.why, detail=rejected.detail)
    return Outcome(accepted=True, detail=detail)


def command_reply(done: Done) -> CommandReply:
    """Answer a command that has no reply of its own."""
    return CommandReply(outcome=outcome(done.rejected))


def place_job_reply(command: commands.PlaceJob, done: Done) -> hosts_pb2.PlaceJobReply:
    """Answer from the state after the command, so that a repeated one gets the same answer."""
    if done.rejected is not None:
        return hosts_pb2.PlaceJobReply(outcome=outcome(done.rejected))
    job = done.state.jobs.get(command.job_id)
    if job and job.held and job.generation == command.generation and job.placement:
        remarks = (
            kept(command.unsound_hosts, job.placement),
            relaxed(job.placement, done.state.hosts),
            reduced(command.layout, job.placement.layout),
        )
        reply = hosts_pb2.PlaceJobReply(
            outcome=outcome(None, detail="; ".join(filter(None, remarks))),
            replacements=job.replacements,
        )
        to_wire(job.placement, reply.placement)
        return reply
    answer = place(command.job_id, command.layouts[-1], done.state)
    assert isinstance(answer, HostsShort), f"{command.job_id} was not placed although {answer}"
    return hosts_pb2.PlaceJobReply(
        outcome=outcome(None, detail=answer.detail), hosts_short=answer.missing
    )
