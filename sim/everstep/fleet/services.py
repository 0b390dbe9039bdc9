"""The four services' deciders behind their own handlers, and the events that go between them.

What travels over the bus between real services is handed on here in one process, in the order in
which it was stored: no message is late, lost or doubled (``everstep.sim`` does that, for small
fleets).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from itertools import islice, zip_longest
from typing import Any, Final, TypeVar

from everstep.checkpoint_registry import commands as registry
from everstep.checkpoint_registry.codec import HISTORIES
from everstep.checkpoint_registry.events import HistoryEvent
from everstep.checkpoint_registry.state import History
from everstep.controller import commands as controller
from everstep.controller import events as jobs
from everstep.controller.codec import AGGREGATE as JOBS
from everstep.controller.codec import STREAM_PREFIX
from everstep.controller.outside import Outside
from everstep.controller.policy import (
    AwaitRoom,
    Measure,
    Reschedule,
    next_actions,
    wanted_layouts,
)
from everstep.controller.runner import Runner
from everstep.controller.state import TERMINAL, Job, Phase
from everstep.core.placement import HostPlacement, Placement
from everstep.core.ports import StoredEvent
from everstep.core.system import Clock, IdSource
from everstep.fleet.store import AsIs, NewestStore
from everstep.host_inventory import commands as inventory
from everstep.host_inventory import events as hosts
from everstep.host_inventory.codec import FLEET, STREAM
from everstep.host_inventory.state import Fleet
from everstep.monitor import commands as monitor
from everstep.monitor import events as incidents
from everstep.monitor.codec import AGGREGATE as WATCHES
from everstep.monitor.codec import watch_stream
from everstep.monitor.state import Watch
from everstep.service.handler import Aggregate, Handler

C = TypeVar("C")
S = TypeVar("S")
E = TypeVar("E")

JOB_ID: Final = "sim"
FREES_HOSTS: Final = (hosts.HostJoined, hosts.HostUncordoned, hosts.JobReleased)
VERDICTS: Final = {action: controller.Verdict[action.name] for action in incidents.Action}


class Services:
    """Handlers of all four services on one store, and the controller's runner."""

    def __init__(
        self,
        clock: Clock,
        ids: IdSource,
        on_event: Callable[[StoredEvent], None],
    ) -> None:
        """``on_event`` sees every stored event before anybody acts on it."""
        self._clock = clock
        self._on_event = on_event
        self._queue: asyncio.Queue[Any] = asyncio.Queue()
        self._freed_since = False
        self.store = NewestStore(clock, self._stored)
        self.jobs: Handler[controller.Command, Job, jobs.Event] = self._handler(JOBS, ids)
        self.watches: Handler[monitor.Command, Watch, incidents.Event] = self._handler(WATCHES, ids)
        self.fleet: Handler[inventory.Command, Fleet, hosts.Event] = self._handler(FLEET, ids)
        self.histories: Handler[registry.HistoryCommand, History, HistoryEvent] = self._handler(
            HISTORIES, ids
        )
        self._runner: Runner | None = None
        # The seats that the monitor was last told of, and the words in which it was.
        self._told: tuple[tuple[HostPlacement, ...], tuple[incidents.WatchedHost, ...]] = ((), ())

    def drive(self, outside: Outside) -> None:
        """Start the controller's runner on ``outside``."""
        self._runner = Runner(self.jobs, outside, self._clock)

    @property
    def runner(self) -> Runner:
        """The controller's."""
        assert self._runner is not None, "drive() comes first"
        return self._runner

    async def job(self) -> Job:
        """Return the job's fold."""
        return await self.jobs.state(STREAM_PREFIX + JOB_ID)

    async def watch(self) -> Watch:
        """Return the fold of the job's watch."""
        return await self.watches.state(watch_stream(JOB_ID))

    async def hosts(self) -> Fleet:
        """Return the fleet's fold."""
        return await self.fleet.state(STREAM)

    async def route(self) -> None:
        """Hand events on, for ever."""
        while True:
            event = await self._queue.get()
            await self._hand_on(event)
            if self._queue.empty():
                await self._rest()

    def asks_for_hosts(self) -> None:
        """The inventory is asked now: what was freed before this is taken into account."""
        self._freed_since = False

    def still_short(self) -> None:
        """The inventory has too few hosts: nothing changes until some are freed."""
        self._queue.put_nowait(None)

    async def _rest(self) -> None:
        """Let the runner sleep while only an event can change anything.

        A real one looks once a second at a job that rests or comes up, for weeks, at nothing.
        """
        job = await self.job()
        short = not self._freed_since
        waiting = job.phase is Phase.WAITING_FOR_HOSTS and job.fenced and short
        idle = (Reschedule, Measure, *((AwaitRoom,) if short else ()))
        busy = any(not isinstance(one, idle) for one in next_actions(job))
        if waiting or (job.phase not in TERMINAL and not busy):
            await self.runner.close()

    def _stored(self, event: StoredEvent) -> None:
        self._on_event(event)
        self._queue.put_nowait(event.data["event"])

    def _handler(self, aggregate: Aggregate[C, S, E], ids: IdSource) -> Handler[C, S, E]:
        codec: AsIs[E] = AsIs(aggregate.codec.types)
        return Handler(replace(aggregate, codec=codec), self.store, ids)

    async def _hand_on(self, event: Any) -> None:
        match event:
            case jobs.GenerationBegun():
                await self._begun(event)
            case jobs.PlacementDecided():
                watched = self._watched(event.placement)
                await self._mark(event, incidents.Mark.PLACED, hosts=watched)
            case jobs.HostsShort():
                await self._mark(event, incidents.Mark.SHORT)
            case jobs.RestoreDecided():
                await self._mark(event, incidents.Mark.PLANNED, step=event.step)
            case jobs.JobRunning():
                await self._mark(event, incidents.Mark.RUNNING, step=event.step)
            case jobs.JobFailed():
                await self._mark(event, incidents.Mark.ENDED, cause="failed")
                await self.fleet.handle(
                    inventory.ReleaseJob(
                        job_id=JOB_ID, generation=event.generation, at_ms=event.at_ms
                    )
                )
            case incidents.IncidentOpened():
                await self._opened(event)
            case incidents.GenerationProgressed():
                await self.runner.apply(
                    controller.RecordProgress(
                        job_id=JOB_ID,
                        generation=event.generation,
                        step=event.step,
                        at_ms=event.at_ms,
                    )
                )
            case hosts.HostJoined() | hosts.HostUncordoned() | hosts.JobReleased():
                await self._freed()
            case _:
                pass

    def _watched(self, placement: Placement) -> tuple[incidents.WatchedHost, ...]:
        """Return the hosts and their ranks; of most seats nothing has changed since the last."""
        seats = placement.hosts
        beside = islice(zip_longest(seats, *self._told), len(seats))
        watched = [
            host if was is seat else incidents.WatchedHost(host_id=seat.host_id, ranks=seat.ranks)
            for seat, was, host in beside
        ]
        self._told = (seats, tuple(watched))
        return self._told[1]

    async def _begun(self, event: jobs.GenerationBegun) -> None:
        await self._mark(event, incidents.Mark.BEGUN, cause=event.cause)
        await self.histories.handle(
            registry.NoteGeneration(
                job_id=JOB_ID,
                generation=event.generation,
                at_ms=event.at_ms,
                from_step=event.from_step,
            )
        )

    async def _mark(self, event: Any, mark: incidents.Mark, **fields: Any) -> None:
        await self.watches.handle(
            monitor.MarkJob(
                job_id=JOB_ID,
                generation=event.generation,
                mark=mark,
                at_ms=event.at_ms,
                **fields,
            )
        )

    async def _opened(self, event: incidents.IncidentOpened) -> None:
        if event.job_id:
            await self.runner.apply(
                controller.RecoverJob(
                    job_id=event.job_id,
                    generation=event.generation,
                    incident_id=event.incident_id,
                    verdict=VERDICTS[event.action],
                    hosts=event.hosts,
                    ranks=event.ranks,
                    kind=event.kind,
                    reason=event.reason,
                    detail=event.detail or event.reason,
                    at_ms=self._clock.now_ms(),
                )
            )
            return
        for host_id in event.hosts:
            await self.fleet.handle(
                inventory.CordonHost(
                    host_id=host_id,
                    reason=event.kind,
                    incident_id=event.incident_id,
                    at_ms=event.detected_at_ms,
                )
            )

    async def _freed(self) -> None:
        self._freed_since = True
        self.runner.wake_all()
        job = await self.job()
        if job.phase is Phase.WAITING_FOR_HOSTS or wanted_layouts(job):
            self.runner.wake(JOB_ID)
