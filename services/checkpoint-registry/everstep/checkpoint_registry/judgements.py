"""Takes what people and the monitor say about checkpoints, and says what would be restored now."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Final

from google.protobuf.message import Message as ProtoMessage

from everstep.checkpoint_registry import codec
from everstep.checkpoint_registry.catalog import Catalog
from everstep.checkpoint_registry.commands import (
    DecideTrust,
    EndSuspicion,
    HistoryCommand,
    NoteCheck,
    NoteIncident,
    NoteIncidentEnd,
    PinCheckpoint,
    PlanRestore,
    SuspectSteps,
    UnpinCheckpoint,
)
from everstep.checkpoint_registry.events import HistoryEvent
from everstep.checkpoint_registry.keeper import CheckpointKeeper
from everstep.checkpoint_registry.memory_map import MemoryMap
from everstep.checkpoint_registry.policy import FRESH, Plan, plan_restore
from everstep.checkpoint_registry.state import Checkpoint, History
from everstep.checkpoint_registry.trust import NUMERICAL
from everstep.core.decision import Rejected
from everstep.core.ports import Consumed
from everstep.core.system import Clock
from everstep.service.handler import Handled, Handler
from everstep.wire.codec import from_wire
from everstep.wire.v1 import checkpoints_pb2 as wire
from everstep.wire.v1.common_pb2 import CommandReply
from everstep.wire.v1.incidents_pb2 import Action, IncidentOpened

PERSON: Final = "a person"  # who says so, when a command over the bus does not name them

_log = logging.getLogger(__name__)

Told = SuspectSteps | EndSuspicion | DecideTrust | NoteCheck | PinCheckpoint | UnpinCheckpoint
COMMANDS: Final[dict[type[ProtoMessage], type[Told]]] = {
    wire.SuspectSteps: SuspectSteps,
    wire.EndSuspicion: EndSuspicion,
    wire.DecideTrust: DecideTrust,
    wire.PinCheckpoint: PinCheckpoint,
    wire.UnpinCheckpoint: UnpinCheckpoint,
}
Done = Handled[History, HistoryEvent]
StateOf = Callable[[str], Awaitable[Checkpoint]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Outlook:
    """What would be restored now, or why nothing would; ``generation`` would be the next one."""

    generation: int
    world_size: int
    plan: Plan | Rejected


class Judgements:
    """Suspicions, words, pins, and plans that nobody carries out."""

    def __init__(
        self,
        checkpoint: StateOf,
        histories: Handler[HistoryCommand, History, HistoryEvent],
        catalog: Catalog,
        keeper: CheckpointKeeper,
        memory: MemoryMap,
        clock: Clock,
    ) -> None:
        """``checkpoint`` returns the state of a checkpoint's stream."""
        self._checkpoint = checkpoint
        self._histories = histories
        self._catalog = catalog
        self._keeper = keeper
        self._memory = memory
        self._clock = clock

    async def take(self, message: ProtoMessage) -> CommandReply:
        """Answer one of ``COMMANDS``, decided on the newest state."""
        done = await self.decide(from_wire(message, COMMANDS[type(message)]))
        return codec.command_reply(done.rejected)

    async def decide(self, command: Told) -> Done:
        """Look up how far the checkpoint is, decide, and look again at what is kept."""
        if isinstance(command, DecideTrust | NoteCheck | PinCheckpoint):
            stream = codec.checkpoint_stream(command.job_id, command.generation, command.step)
            known = await self._checkpoint(stream)
            command = replace(command, phase=known.phase.value if known.job_id else "")
            if isinstance(command, NoteCheck):
                command = replace(command, world_size=known.world_size)
        if not command.by:
            command = replace(command, by=PERSON)
        done = await self._histories.handle(command)
        for event in done.events:
            _log.info("%s", event)
        if done.events:
            self._keeper.look_at(command.job_id)
        return done

    async def incident_opened(self, opened: IncidentOpened, consumed: Consumed) -> None:
        """Make suspect what a numerical incident says something about."""
        goes_on = opened.action in {Action.NOTE, Action.DRAIN}  # with the state that it has
        if opened.kind not in NUMERICAL or not opened.job_id or goes_on:
            return
        command = NoteIncident(
            job_id=opened.job_id,
            incident_id=opened.incident_id,
            kind=opened.kind,
            generation=opened.generation,
            step=opened.step,
            why=opened.reason,
            at_ms=opened.detected_at_ms,
            from_step=opened.suspect_from_step,
        )
        done = await self._histories.handle(command, consumed=consumed)
        for event in done.events:
            _log.warning("%s", event)

    async def incident_ended(
        self, job_id: str, incident_id: str, *, why: str, at_ms: int, consumed: Consumed
    ) -> None:
        """Note that a job has recovered, or (``why``) has ended without."""
        if not job_id:
            return
        command = NoteIncidentEnd(
            job_id=job_id, incident_id=incident_id, recovered=not why, why=why, at_ms=at_ms
        )
        done = await self._histories.handle(command, consumed=consumed)
        if done.events:
            self._keeper.look_at(job_id)

    async def outlook(self, job_id: str, from_step: int = FRESH) -> Outlook:
        """Plan a restore without deciding it: from what hosts told with their newest step."""
        history = await self._histories.state(codec.history_stream(job_id))
        known = await self._catalog.known(job_id)
        complete = await self._catalog.complete(job_id)
        holdings = self._memory.holdings(job_id)
        sizes = [len(facts.shards) for facts in complete]
        sizes += [one.world_size for one in known]
        sizes += [h.ranks[-1] + 1 for host in holdings for h in host.held if h.ranks]
        layout = history.layout_of(history.newest_generation)
        if layout is not None:
            sizes = [layout.world_size]
        request = PlanRestore(
            job_id=job_id,
            generation=history.newest_generation + 1,
            world_size=max(sizes, default=0),
            holdings=holdings,
            from_step=from_step,
            at_ms=self._clock.now_ms(),
            checkpoints=complete,
            unfinished=tuple(one for one in known if not one.complete),
            layout=layout,
        )
        return Outlook(
            generation=request.generation,
            world_size=request.world_size,
            plan=plan_restore(request, history),
        )
