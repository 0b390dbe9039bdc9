"""Performs what ``policy.next_actions`` asks for, and feeds the answers back as commands.

One driver task a job. It remembers nothing that matters: answers that are too large for events
(who holds which snapshot, the plan's sources) are cached for the generation, and asked for again
when the cache is empty, for instance in a controller that has just been restarted. Two controllers
may drive one job at once: every action is idempotent on the other side, and the stream's versions
decide.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any, Final

from everstep.controller.answers import Answers
from everstep.controller.auditing import Audits
from everstep.controller.codec import STREAM_PREFIX
from everstep.controller.commands import (
    BeginDrain,
    BeginGrow,
    Command,
    RecordFenced,
    RecordLost,
    RecordPlacement,
    RecordPlan,
    RecordRefused,
    RecordShort,
    RecordStarted,
)
from everstep.controller.events import Event
from everstep.controller.making_do import makes_do
from everstep.controller.outside import Looked, Outside
from everstep.controller.policy import (
    Action,
    AwaitRoom,
    AwaitSpares,
    Fence,
    Forget,
    KeepTwice,
    Measure,
    Place,
    Plan,
    Reschedule,
    Start,
    next_actions,
)
from everstep.controller.second_copies import keep_twice
from everstep.controller.starting import source_counts
from everstep.controller.state import TERMINAL, Job, Phase
from everstep.controller.strays import Strays
from everstep.controller.troubles import Troubles
from everstep.controller.watching import Watch
from everstep.core.decision import Rejected
from everstep.core.errors import EverstepError
from everstep.core.system import Clock
from everstep.service.handler import Handler
from everstep.wire.v1.checkpoints_pb2 import HostHoldings

log = logging.getLogger(__name__)

# Another controller may have moved the job, or an event that frees hosts may have been missed.
POLL_S: Final = 1.0
RETRY_S: Final = 0.3  # pause after a service did not answer; they are back within seconds


class Runner:
    """Drives all jobs that have not ended."""

    def __init__(
        self, handler: Handler[Command, Job, Event], outside: Outside, clock: Clock
    ) -> None:
        self._handler = handler
        self._outside = outside
        self._clock = clock
        self._drivers: dict[str, asyncio.Task[None]] = {}
        self._wakes: dict[str, asyncio.Event] = {}
        self._answers: dict[str, Answers] = {}
        self._strays = Strays(outside, self.state)
        self._hosts_freed = asyncio.Event()
        self._audits = Audits()
        self.watch = Watch(outside, self.apply, clock)
        self.troubles = Troubles(clock)

    async def apply(self, command: Command, **consumed: Any) -> Any:
        """Handle a command and let the job's driver act on what follows."""
        handled = await self._handler.handle(command, **consumed)
        if handled.events:
            self.wake(command.job_id)
        return handled

    def wake(self, job_id: str) -> None:
        """Look at the job again, now."""
        driver = self._drivers.get(job_id)
        if driver is None or driver.done():
            self._wakes[job_id] = asyncio.Event()
            self._drivers[job_id] = asyncio.create_task(self._drive(job_id), name=f"job-{job_id}")
            self._drivers[job_id].add_done_callback(lambda task: self._ended(job_id, task))
        self._wakes[job_id].set()

    async def state(self, job_id: str) -> Job:
        """Return a job as it is stored; an absent one has no phase. Raises Unavailable."""
        return await self._handler.state(STREAM_PREFIX + job_id)

    def wake_all(self) -> None:
        """Place waiting jobs again, now: hosts may have become free."""
        freed, self._hosts_freed = self._hosts_freed, asyncio.Event()
        freed.set()

    async def save(self, job: Job) -> None:
        """Ask the ranks for a durable checkpoint."""
        if job.placement is not None:
            await self._outside.save(job.job_id, job.generation, job.placement.host_ids)

    async def look_at_step(self, job_id: str, step: int) -> Looked:
        """Say whether a job can go back to ``step``, while the run still goes on undisturbed.

        The newest (-1) is not looked at: what it is follows from the fence. Raises Unavailable.
        """
        return Looked() if step < 0 else await self._outside.look_at_step(job_id, step)

    def end_stray(self, job_id: str, host_id: str, generation: int) -> None:
        """Begin to end ranks of ``generation`` that no fence has reached."""
        self._strays.end(job_id, host_id, generation)

    async def close(self) -> None:
        """Stop driving; what is unfinished is carried on by the next controller."""
        drivers = [*self._drivers.values(), *self._strays.tasks]
        for driver in drivers:
            driver.cancel()
        await asyncio.gather(*drivers, return_exceptions=True)

    def _ended(self, job_id: str, task: asyncio.Task[None]) -> None:
        if self._drivers.get(job_id) is task:
            self._drivers.pop(job_id, None)
            self._wakes.pop(job_id, None)
            self._answers.pop(job_id, None)
            self.troubles.forget(job_id)
            self.watch.forget(job_id)
        if not task.cancelled() and task.exception() is not None:
            log.error("driver of job %s failed", job_id, exc_info=task.exception())

    async def _drive(self, job_id: str) -> None:
        wake = self._wakes[job_id]
        running: dict[Action, asyncio.Task[None]] = {}
        waiter: asyncio.Task[bool] | None = None
        try:
            while True:
                wake.clear()
                job = await self._state(job_id)
                if job is None:
                    continue
                self._audits.note(job)
                wanted = next_actions(job)
                for action in [a for a in running if a not in wanted]:
                    running.pop(action).cancel()
                for action in wanted:
                    if action not in running:
                        running[action] = asyncio.create_task(self._perform(job, action))
                if job.phase in TERMINAL:
                    await asyncio.gather(*running.values())
                    if not wake.is_set():
                        return
                    running.clear()
                    continue  # it may have been restarted meanwhile
                waiter = asyncio.create_task(wake.wait())
                done, _ = await asyncio.wait(
                    {waiter, *running.values()}, timeout=POLL_S, return_when=asyncio.FIRST_COMPLETED
                )
                waiter.cancel()
                running = {a: task for a, task in running.items() if task not in done}
        finally:
            for task in running.values():
                task.cancel()
            if waiter is not None:
                waiter.cancel()

    async def _state(self, job_id: str) -> Job | None:
        try:
            return await self._handler.state(STREAM_PREFIX + job_id)
        except EverstepError as error:
            log.warning("job %s: state not readable, trying again: %s", job_id, error)
            await asyncio.sleep(RETRY_S)
            return None

    async def _perform(self, job: Job, action: Action) -> None:
        step: Coroutine[Any, Any, Command | None]
        match action:
            case Fence():
                step = self._fence(job, action)
            case Place():
                step = self._place(job, action)
            case Plan():
                step = self._plan(job, action)
            case Start():
                step = self._start(job)
            case Forget():
                step = self._forget(job, action)
            case Reschedule():
                step = self._reschedule(job)
            case Measure():
                step = self.watch.measure(job, action)
            case AwaitSpares():
                step = self._await_spares(job, action)
            case AwaitRoom():
                step = self._await_room(job, action)
            case KeepTwice():
                got = self._answers_of(job)
                step = keep_twice(self._outside, job, action.hosts, got.fenced, got.asked_for)
        name = type(action).__name__.lower()
        try:
            command = await step
            self.troubles.over(job.job_id, name)
            if command is not None:
                await self.apply(command)
        except EverstepError as error:
            self.troubles.note(job, name, error)
            log.warning(
                "job %s generation %d: %s did not work, trying again: %s",
                job.job_id,
                job.generation,
                name,
                error,
            )
            await asyncio.sleep(RETRY_S)

    def _answers_of(self, job: Job) -> Answers:
        answers = self._answers.get(job.job_id)
        if answers is None or answers.generation != job.generation:
            answers = self._answers[job.job_id] = Answers(generation=job.generation)
        return answers

    async def _fence(self, job: Job, action: Fence) -> Command:
        for host_id in job.lost_hosts if job.lost_why else ():  # there, and only wrong
            self._strays.end(job.job_id, host_id, job.generation - 1)
        silent = await self._ask_hosts(
            job, action.hosts, graceful=action.graceful, store=action.store
        )
        return RecordFenced(
            job_id=job.job_id,
            generation=job.generation,
            hosts=tuple([h for h in action.hosts if h not in silent]) if silent else action.hosts,
            unreachable=silent,
            at_ms=self._clock.now_ms(),
        )

    async def _ask_hosts(
        self, job: Job, hosts: tuple[str, ...], *, graceful: bool = False, store: bool = False
    ) -> tuple[str, ...]:
        """Fence hosts at the job's generation; returns those that did not answer."""
        answers = self._answers_of(job)
        got = await self._outside.fence(
            job.job_id, job.generation, hosts, graceful=graceful, store=store, forget=False
        )
        answers.fenced.update(got)
        return tuple([host for host in hosts if host not in got])

    async def _place(self, job: Job, action: Place) -> Command | None:
        for _ in self._audits.ended_for(job, self._clock.now_ms()):  # each gives its hosts back
            if not await makes_do(self._outside, job, action.lost_hosts):
                break
            await self._while_short(job, waits=True)
        placed = await self._outside.place(job, action.lost_hosts)
        at_ms = self._clock.now_ms()
        if isinstance(placed, Rejected):
            await self._while_short(job)
            return None if placed.why == "stale_generation" else self._refused(job, placed, at_ms)
        if placed.placement is None:
            short = RecordShort(
                job_id=job.job_id, generation=job.generation, missing=placed.missing, at_ms=at_ms
            )
            await self.apply(short)
            await self._while_short(job)
            return None
        return RecordPlacement(
            job_id=job.job_id,
            generation=job.generation,
            placement=placed.placement,
            replacements=placed.replacements,
            remark=placed.remark,
            at_ms=at_ms,
        )

    async def _plan(self, job: Job, action: Plan) -> Command:
        """Bring the holdings of every placed host together and ask the registry."""
        assert job.placement is not None
        answers = self._answers_of(job)
        first = job.placement.hosts[0].host_id
        hosts = (*job.placement.host_ids, *job.leftovers)
        asked = answers.to_ask(hosts, self._clock.monotonic_ms())
        silent = set(await self._ask_hosts(job, asked)) - set(job.leftovers)
        if silent:
            return self._lost(job, tuple(sorted(silent)))
        holdings: list[HostHoldings] = []
        fenced = answers.fenced
        for seat in job.placement.hosts:
            told = fenced[seat.host_id].holdings
            told.peer_port = seat.peer_port
            holdings.append(told)
        holdings += [fenced[host].holdings for host in job.leftovers if host in fenced]
        plan = await self._outside.plan(job, holdings, action.from_step)
        at_ms = self._clock.now_ms()
        if isinstance(plan, Rejected):
            return self._refused(job, plan, at_ms)
        answers.plan = plan
        counts = source_counts(job.placement, plan.sources)
        return RecordPlan(
            job_id=job.job_id,
            generation=job.generation,
            step=plan.step,
            own_memory=counts.own_memory,
            peer_memory=counts.peer_memory,
            object_store=counts.object_store,
            rendezvous_address=fenced[first].address,
            rendezvous_port=fenced[first].rendezvous_port,
            at_ms=at_ms,
        )

    async def _start(self, job: Job) -> Command | None:
        assert job.placement is not None
        answers = self._answers_of(job)
        if answers.plan is None:  # restarted in between: the registry knows the plan it made
            plan = await self._outside.plan(job, [], job.from_step)
            if isinstance(plan, Rejected):
                return self._refused(job, plan, self._clock.now_ms())
            answers.plan = plan
        hosts = job.placement.host_ids
        got = await self._outside.start(job, answers.plan.sources)
        silent = tuple([host for host in hosts if host not in got])
        if silent:
            return self._lost(job, silent)
        for host_id in hosts if any(got.values()) else ():  # most starts are refused by nobody
            refusal = got[host_id]
            if refusal is not None:
                if refusal.why == "stale_generation":
                    return None
                if refusal.why == "no_space" and job.stepped:  # the job fits; this host is full
                    return self._lost(job, (host_id,))
                detail = f"host {host_id} refused to start its ranks: {refusal.detail}"
                return self._refused(job, Rejected(refusal.why, detail), self._clock.now_ms())
        return RecordStarted(
            job_id=job.job_id, generation=job.generation, at_ms=self._clock.now_ms()
        )

    async def _forget(self, job: Job, action: Forget) -> None:
        await self._outside.fence(
            job.job_id, action.generation, action.hosts, graceful=False, forget=True
        )

    async def _reschedule(self, job: Job) -> None:
        """Tell the first rank; told again in a while if it is not seen to follow."""
        await self._outside.reschedule(job)
        await asyncio.sleep(POLL_S)

    async def _await_spares(self, job: Job, action: AwaitSpares) -> Command | None:
        """Begin to move once spares are there; asked again when hosts are freed, or in a while."""
        hosts = await self._outside.replaceable(job.job_id, action.hosts)
        if hosts:
            return BeginDrain(
                job_id=job.job_id,
                generation=job.generation,
                hosts=hosts,
                at_ms=self._clock.now_ms(),
            )
        await self._while_short(job)
        return None

    async def _await_room(self, job: Job, action: AwaitRoom) -> Command | None:
        """Begin to grow once there is room; asked again when hosts are freed, or in a while."""
        if await self._outside.placeable(job.job_id, action.layouts):
            return BeginGrow(
                job_id=job.job_id, generation=job.generation, at_ms=self._clock.now_ms()
            )
        await self._while_short(job)
        return None

    async def _while_short(self, job: Job, *, waits: bool = False) -> None:
        """Wait until hosts are freed, for a while, if the job waits or runs; end audits for it."""
        freed = self._hosts_freed
        for command in self._audits.ended_for(job, self._clock.now_ms()):
            await self.apply(command)
        if waits or job.phase in {Phase.WAITING_FOR_HOSTS, Phase.RUNNING}:
            with suppress(TimeoutError):
                await asyncio.wait_for(freed.wait(), POLL_S)

    def _lost(self, job: Job, hosts: tuple[str, ...]) -> RecordLost:
        return RecordLost(
            job_id=job.job_id, generation=job.generation, hosts=hosts, at_ms=self._clock.now_ms()
        )

    def _refused(self, job: Job, refusal: Rejected, at_ms: int) -> RecordRefused:
        return RecordRefused(
            job_id=job.job_id,
            generation=job.generation,
            why=refusal.why,
            detail=refusal.detail,
            at_ms=at_ms,
        )
