"""Puts commands to the fleet: from the bus, from HTTP, and from other services' events."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import Final

from everstep.core.ports import Consumed
from everstep.host_inventory.codec import Done
from everstep.host_inventory.commands import Command, CordonHost, JoinHost, ReleaseJob
from everstep.host_inventory.events import Event
from everstep.host_inventory.heartbeats import Heartbeats
from everstep.host_inventory.state import Fleet
from everstep.service.handler import Handler
from everstep.wire.v1.envelope_pb2 import EventEnvelope

ENDINGS: Final = frozenset({"job_succeeded", "job_failed", "job_stopped"})
EVENT_TEXT_MAX: Final = 500  # a placement of 2,048 hosts is no log line

_log = logging.getLogger(__name__)


class FleetKeeper:
    """The one way to the fleet's handler."""

    def __init__(self, handler: Handler[Command, Fleet, Event], heartbeats: Heartbeats) -> None:
        self._handler = handler
        self._heartbeats = heartbeats

    async def apply(self, command: Command, consumed: Consumed | None = None) -> Done:
        """Decide and store. Raises Conflict, Unavailable as ``Handler.handle`` does."""
        if isinstance(command, JoinHost):
            command = self._with_silence(command)
        done = await self._handler.handle(command, consumed=consumed)
        if done.rejected is not None:
            what = type(command).__name__
            _log.warning("refused %s (%s): %s", what, done.rejected.why, done.rejected.detail)
        for event in done.events:
            _log.info("%s", str(event)[:EVENT_TEXT_MAX])
        return done

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
        """Free the hosts of a job that has ended."""
        kind = envelope.WhichOneof("payload")
        if kind not in ENDINGS:
            return
        ended = getattr(envelope, kind)
        await self.apply(
            ReleaseJob(job_id=ended.job_id, generation=ended.generation, at_ms=ended.at_ms),
            consumed,
        )

    def _with_silence(self, command: JoinHost) -> JoinHost:
        """Add when another agent was heard under this id, on the joining host's clock."""
        silent_ms = self._heartbeats.others_silent_ms(command.host_id, command.agent_epoch)
        return (
            command if silent_ms is None else replace(command, heard_ms=command.at_ms - silent_ms)
        )
