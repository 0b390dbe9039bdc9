"""Puts commands to the fleet: from the bus, from HTTP, and from other services' events."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from everstep.core.decision import Rejected
from everstep.core.placement import Layout
from everstep.core.ports import Consumed
from everstep.host_inventory.codec import STREAM, Done
from everstep.host_inventory.commands import (
    Command,
    CordonHost,
    JoinHost,
    JoinHosts,
    ReleaseJob,
)
from everstep.host_inventory.decider import decide
from everstep.host_inventory.events import Event, HostCordoned, JobPlaced, JobReleased
from everstep.host_inventory.heartbeats import Heartbeats
from everstep.host_inventory.policy import placeable, replaceable
from everstep.host_inventory.state import Fleet, HostState
from everstep.service.grouping import Grouped
from everstep.service.handler import Handler
from everstep.wire.codec import from_wire, to_wire
from everstep.wire.v1.common_pb2 import Layout as WireLayout
from everstep.wire.v1.common_pb2 import Outcome
from everstep.wire.v1.envelope_pb2 import EventEnvelope
from everstep.wire.v1.hosts_pb2 import (
    CanPlace,
    CanPlaceReply,
    CanReplace,
    CanReplaceReply,
    HostAddress,
    ListHosts,
    ListHostsReply,
)
from everstep.wire.v1.jobs_pb2 import IncidentNoted

MAY_WORK: Final = frozenset({HostState.ACTIVE, HostState.SPARE})
ENDINGS: Final = frozenset({"job_succeeded", "job_failed", "job_stopped"})
# As many as the bus hands over at once; their events go into one transaction of some 100 ms.
JOINS_MAX: Final = 256

_log = logging.getLogger(__name__)


class FleetKeeper:
    """The one way to the fleet's handler."""

    def __init__(self, handler: Handler[Command, Fleet, Event], heartbeats: Heartbeats) -> None:
        self._handler = handler
        self._heartbeats = heartbeats
        self._joins: Grouped[JoinHost, Done] = Grouped(self._join_all, batch_max=JOINS_MAX)

    async def apply(self, command: Command, consumed: Consumed | None = None) -> Done:
        """Decide and store. Raises Conflict, Unavailable as ``Handler.handle`` does."""
        if isinstance(command, JoinHost):
            return await self._join(self._with_silence(command))
        return await self._handle(command, consumed)

    async def fleet(self) -> Fleet:
        """Return the fleet as it is stored."""
        return await self._handler.state(STREAM)

    def heard_ms(self) -> Mapping[str, int]:
        """Return when each host was heard last [ms since epoch], by this process's clock."""
        return self._heartbeats.newest_ms()

    async def list_hosts(self, asked: ListHosts) -> ListHostsReply:
        """Name the hosts that may work, of those that are named or of all, and where they are."""
        fleet = await self._handler.state(STREAM)
        wanted = sorted(set(asked.hosts) & fleet.hosts.keys() if asked.hosts else fleet.hosts)
        hosts = [h for h in wanted if fleet.hosts[h].state in MAY_WORK]
        addresses = [
            HostAddress(
                host_id=h, address=fleet.hosts[h].address, peer_port=fleet.hosts[h].peer_port
            )
            for h in hosts
        ]
        return ListHostsReply(outcome=Outcome(accepted=True), hosts=hosts, addresses=addresses)

    async def can_replace(self, asked: CanReplace) -> CanReplaceReply:
        """Name the hosts of a job whose seats spares could take now."""
        fleet = await self._handler.state(STREAM)
        hosts = replaceable(asked.job_id, asked.hosts, fleet)
        return CanReplaceReply(outcome=Outcome(accepted=True), hosts=hosts)

    async def can_place(self, asked: CanPlace) -> CanPlaceReply:
        """Name the first layout that a job could be placed under now."""
        fleet = await self._handler.state(STREAM)
        layouts = [from_wire(layout, Layout) for layout in asked.layouts]
        found = placeable(asked.job_id, layouts, fleet)
        wire = None if found is None else to_wire(found, WireLayout())
        return CanPlaceReply(outcome=Outcome(accepted=True), layout=wire)

    async def on_monitor_event(self, envelope: EventEnvelope, consumed: Consumed) -> None:
        """Cordon the hosts of an incident that concerns no job; a job's are its placement's."""
        incident = envelope.incident_opened
        if envelope.WhichOneof("payload") != "incident_opened" or incident.job_id:
            return
        # The position is recorded with the last one: a crash in between cordons the first ones
        # again, which is already so.
        for i, host_id in enumerate(incident.hosts, start=1):
            command = CordonHost(
                host_id=host_id,
                reason=incident.kind,
                incident_id=incident.incident_id,
                at_ms=incident.detected_at_ms or envelope.recorded_at_ms,
            )
            await self.apply(command, consumed if i == len(incident.hosts) else None)

    async def on_controller_event(self, envelope: EventEnvelope, consumed: Consumed) -> None:
        """Free the hosts of a job that has ended; cordon those that one has found at fault."""
        kind = envelope.WhichOneof("payload")
        if kind == "incident_noted":
            await self._cordon_noted(envelope.incident_noted, consumed)
        if kind not in ENDINGS:
            return
        ended = getattr(envelope, kind)
        await self.apply(
            ReleaseJob(job_id=ended.job_id, generation=ended.generation, at_ms=ended.at_ms),
            consumed,
        )

    async def _cordon_noted(self, noted: IncidentNoted, consumed: Consumed) -> None:
        for i, host_id in enumerate(noted.hosts, start=1):
            command = CordonHost(
                host_id=host_id,
                reason=noted.kind,
                incident_id=noted.incident_id,
                at_ms=noted.at_ms,
                job_id=noted.job_id,
            )
            await self.apply(command, consumed if i == len(noted.hosts) else None)

    def _with_silence(self, command: JoinHost) -> JoinHost:
        """Add when another agent was heard under this id, on the joining host's clock."""
        silent_ms = self._heartbeats.others_silent_ms(command.host_id, command.agent_epoch)
        if silent_ms is None:
            return command
        return replace(command, heard_ms=command.at_ms - silent_ms)

    async def _join(self, command: JoinHost) -> Done:
        """Join together with whoever joins now; the answer is what the join would be told again."""
        done = await self._joins.put(command)
        decision = decide(command, done.state)
        if isinstance(decision, Rejected):
            _log_refusal(command, decision)
            return replace(done, rejected=decision)
        return done

    async def _join_all(self, joins: Sequence[JoinHost]) -> Done:
        return await self._handle(JoinHosts(joins=tuple(joins)))

    async def _handle(self, command: Command, consumed: Consumed | None = None) -> Done:
        done = await self._handler.handle(command, consumed=consumed)
        if done.rejected is not None:
            _log_refusal(command, done.rejected)
        for event in done.events:
            _log.info("%s %s", type(event).__name__, _about(event))
        return done


def _log_refusal(command: Command, refusal: Rejected) -> None:
    _log.warning("refused %s (%s): %s", type(command).__name__, refusal.why, refusal.detail)


def _about(event: Event) -> str:
    match event:
        case JobPlaced():
            return f"{event.job_id} generation {event.generation}, new: {event.replacements}"
        case JobReleased():
            return f"{event.job_id} generation {event.generation}"
        case HostCordoned():
            return f"{event.host_id}: {event.reason} {event.incident_id}"
        case _:
            return event.host_id
