"""The watch loop: gathers evidence, probes suspects, and turns verdicts into incidents.

Everything that is decided is decided elsewhere (``detectors/``, ``decider.py``); this file only
carries. It judges whenever a sign comes in, and every ``TICK_S`` for what shows itself by absence.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from typing import Final

from everstep.core.errors import EverstepError, Unavailable
from everstep.core.ports import Consumed
from everstep.core.system import Clock, IdSource
from everstep.monitor.codec import watch_stream
from everstep.monitor.commands import (
    CloseHostIncident,
    Command,
    MarkJob,
    ObserveExit,
    ObserveProgress,
    ObserveRefusal,
    ObserveStray,
    OpenIncident,
)
from everstep.monitor.detectors.root_cause import Echo, Judgement, Probe, Verdict, judge
from everstep.monitor.detectors.sight import PAUSE_MS, Sight, blind_because
from everstep.monitor.events import Action, Event, Mark
from everstep.monitor.evidence import Gathered
from everstep.monitor.policy import Limits
from everstep.monitor.state import Watch
from everstep.service.handler import Handled, Handler

log = logging.getLogger(__name__)

TICK_S: Final = 0.1  # a tenth of the tightest limit that shows itself by absence (detection, 1 s)

# Hosts that run what is over; after an outage of a whole fleet's agents at most all of them.
STRAYS_MAX: Final = 10_000

ProbeHost = Callable[[str], Awaitable[Probe]]


class Watcher:
    """Watches every live job and every idle host."""

    def __init__(
        self,
        handler: Handler[Command, Watch, Event],
        probe: ProbeHost,
        connected: Callable[[], bool],
        clock: Clock,
        ids: IdSource,
        limits: Limits,
    ) -> None:
        self._handler = handler
        self._probe = probe
        self._connected = connected
        self._clock = clock
        self._ids = ids
        self._limits = limits
        self._jobs: dict[str, Gathered] = {}
        self._watches: dict[str, Watch] = {}
        self._fleet: dict[str, int] = {}  # host -> last heard, all that are not cordoned
        self._unanswered: dict[str, tuple[int, int]] = {}  # idle host -> probes, heard before
        self._strays: dict[tuple[str, int, str], int] = {}  # -> when to look at it (again)
        self._asking: set[asyncio.Task[None]] = set()
        self._locks: dict[str, asyncio.Lock] = {}
        self._was_connected = False
        self._connected_since_ms = 0
        self._ticked_ms = 0
        self._started_ms = 0
        self._paused_until_ms = 0
        self._unrecorded_ms = 0
        self._blind = "starting"

    @property
    def blind(self) -> str:
        """Why the monitor cannot judge now, or ""."""
        return self._blind

    async def adopt(self, job_id: str, generation: int, step: int) -> Watch:
        """Take up a job that an earlier process watched up to a generation's ``step``."""
        watch = await self._handler.state(watch_stream(job_id))
        gathered = self._take(job_id, watch)
        if gathered is not None and generation == watch.generation:
            gathered.step = max(gathered.step, step)
        return watch

    async def mark(self, command: MarkJob, consumed: Consumed | None = None) -> None:
        """Record a mark of the controller and follow its generation."""
        handled = await self._record(command, consumed)
        self._take(command.job_id, handled.state)
        if command.mark is Mark.ENDED:
            self._jobs.pop(command.job_id, None)
            self._watches.pop(command.job_id, None)

    async def refused(self, command: ObserveRefusal) -> None:
        """Take an agent's report of a source that it could not use."""
        handled = await self._record(command)
        self._take(command.job_id, handled.state)
        for _ in handled.events:
            log.warning("job %s: source refused: %s", command.job_id, command.detail)

    async def exited(self, command: ObserveExit) -> None:
        """Take an agent's report of a rank's end."""
        handled = await self._record(command)
        gathered = self._take(command.job_id, handled.state)
        if gathered is None or command.generation != gathered.generation:
            return
        now_ms = self._clock.now_ms()
        gathered.step = max(gathered.step, command.step)
        gathered.root_ms = gathered.root_ms or now_ms
        await self._consider(command.job_id)

    async def echoed(self, command: ObserveExit) -> None:
        """Take a collective error: an echo."""
        gathered = self._jobs.get(command.job_id)
        if gathered is None or command.generation != gathered.generation:
            return
        gathered.echoes.setdefault(
            command.rank,
            Echo(
                rank=command.rank,
                host_id=command.host_id,
                at_ms=command.at_ms,
                error=command.error,
            ),
        )
        gathered.echo_ms = gathered.echo_ms or self._clock.now_ms()
        await self._consider(command.job_id)

    def jobs_on(self, host_id: str) -> list[str]:
        """Return the jobs that a host serves."""
        return [job_id for job_id, seen in self._jobs.items() if host_id in seen.hosts]

    def heard(self, host_id: str) -> None:
        """Note any sign of life of a host."""
        now_ms = self._clock.now_ms()
        self._fleet[host_id] = now_ms
        self._unanswered.pop(host_id, None)
        for gathered in self._jobs.values():
            gathered.heard(host_id, now_ms)

    def expect(self, host_ids: Iterable[str]) -> None:
        """Take hosts that should be there for heard just now, unless they were heard already."""
        now_ms = self._clock.now_ms()
        self._fleet = dict.fromkeys(host_ids, now_ms) | self._fleet

    async def saw_ranks(
        self, job_id: str, generation: int, host_id: str, alive: frozenset[int]
    ) -> None:
        """Note which ranks of a job an agent sees.

        A script that has never told of a step may not take the SDK: it counts as come up when every
        host sees all its ranks.
        """
        gathered = self._jobs.get(job_id)
        if gathered is None:
            return
        alive = alive if gathered.generation == generation else frozenset()
        now_ms = self._clock.now_ms()
        whole = gathered.saw_ranks(host_id, alive, now_ms)
        watch = self._watches[job_id]
        if whole and watch.script and not (watch.progressed or watch.stepped):
            await self._progressed(job_id, generation, 0, now_ms)

    async def saw_running(self, job_id: str, generation: int, host_id: str) -> None:
        """Note a run that a host names in its heartbeat: it may be one that is over.

        Its agent was away when it was fenced, with all the job's other hosts perhaps, so that
        nothing broke it. Nobody else would ever end it.
        """
        gathered = self._jobs.get(job_id)
        key = (job_id, generation, host_id)
        if gathered is not None and gathered.generation <= generation:
            self._strays.pop(key, None)
            return
        now_ms = self._clock.now_ms()
        if len(self._strays) > STRAYS_MAX:
            self._strays.clear()
        due_ms = self._strays.setdefault(key, now_ms + self._limits.stray_ms)
        if now_ms < due_ms:
            return
        self._strays[key] = now_ms + self._limits.stray_again_ms
        handled = await self._record(
            ObserveStray(job_id=job_id, generation=generation, host_id=host_id, at_ms=now_ms)
        )
        for _ in handled.events:
            log.warning("job %s: %s still runs generation %d", job_id, host_id, generation)

    async def stepped(self, job_id: str, generation: int, host_id: str, step: int) -> None:
        """Note that a host's ranks have completed a step."""
        gathered = self._jobs.get(job_id)
        if gathered is None or gathered.generation != generation:
            return
        now_ms = self._clock.now_ms()
        first = gathered.stepped(host_id, step, now_ms)
        watch = self._watches[job_id]
        if first is None or (watch.progressed and watch.stepped):
            return
        await self._progressed(job_id, generation, first, now_ms)

    async def _progressed(self, job_id: str, generation: int, step: int, now_ms: int) -> None:
        handled = await self._record(
            ObserveProgress(job_id=job_id, generation=generation, step=step, at_ms=now_ms)
        )
        self._take(job_id, handled.state)

    async def dropped(self, host_id: str) -> None:
        """Note that the bus lost an agent's connection: ask at once."""
        now_ms = self._clock.now_ms()
        for job_id, gathered in list(self._jobs.items()):
            if host_id in gathered.hosts:
                gathered.dropped(host_id, now_ms)
                await self._consider(job_id)

    def forget_host(self, host_id: str) -> None:
        """Stop listening for a host that left or is cordoned."""
        self._fleet.pop(host_id, None)
        self._unanswered.pop(host_id, None)
        for key in [key for key in self._strays if key[2] == host_id]:
            del self._strays[key]

    async def returned(self, host_id: str) -> None:
        """End the incident of an idle host that is back in service."""
        self.heard(host_id)
        await self._record(CloseHostIncident(host_id=host_id, at_ms=self._clock.now_ms()))

    async def watch(self) -> None:
        """Judge what shows itself by absence, for ever."""
        while True:
            await asyncio.sleep(TICK_S)
            await self.tick()

    async def tick(self) -> None:
        """Look once at every job and every idle host."""
        now_ms = self._clock.now_ms()
        self._look_at_oneself(now_ms)
        for job_id in list(self._jobs):
            await self._consider(job_id)
        if not self._blind:
            await self._look_at_idle_hosts(now_ms)

    def _look_at_oneself(self, now_ms: int) -> None:
        connected = self._connected()
        if connected and not self._was_connected:
            self._connected_since_ms = now_ms
        if self._ticked_ms and now_ms - self._ticked_ms > PAUSE_MS:
            self._paused_until_ms = now_ms
        self._was_connected, self._ticked_ms = connected, now_ms
        self._started_ms = self._started_ms or now_ms
        sight = Sight(
            started_ms=self._started_ms,
            connected=connected,
            connected_since_ms=self._connected_since_ms,
            paused_until_ms=self._paused_until_ms,
            unrecorded_ms=self._unrecorded_ms,
            heard_ms=tuple(self._fleet.values()),
            silence_ms=self._limits.silence_ms,
        )
        blind = blind_because(now_ms, sight)
        if blind != self._blind:
            log.warning("blind: %s; judging nobody" if blind else "sees again%s", blind)
            if not blind:
                for gathered in self._jobs.values():
                    gathered.reset_hearing(now_ms)
                self._fleet = dict.fromkeys(self._fleet, now_ms)
                self._unanswered.clear()
        self._blind = blind

    async def _record(
        self, command: Command, consumed: Consumed | None = None
    ) -> Handled[Watch, Event]:
        """Decide and store; what cannot be stored blinds us for a while. Raises Unavailable."""
        try:
            return await self._handler.handle(command, consumed=consumed)
        except Unavailable:
            self._unrecorded_ms = self._clock.now_ms()
            raise

    def _take(self, job_id: str, watch: Watch) -> Gathered | None:
        if watch.over or not watch.job_id:
            return None
        self._watches[job_id] = watch
        gathered = self._jobs.setdefault(job_id, Gathered())
        gathered.begin(watch, self._clock.now_ms())
        return gathered

    async def _consider(self, job_id: str) -> None:
        """Judge one job on what is known now; one at a time, so that one verdict comes of it."""
        gathered, watch = self._jobs.get(job_id), self._watches.get(job_id)
        if gathered is None or watch is None or not gathered.hosts:
            return
        if watch.judged_generation >= gathered.generation:
            return
        async with self._locks.setdefault(job_id, asyncio.Lock()):
            evidence = gathered.weigh(watch, blind=bool(self._blind))
            judgement: Judgement = judge(self._clock.now_ms(), evidence, self._limits)
            for host_id in judgement.probe:
                self._ask(job_id, gathered, host_id)
            if judgement.verdict is not None:
                await self._open(job_id, gathered, judgement.verdict)

    def _ask(self, job_id: str, gathered: Gathered, host_id: str) -> None:
        now_ms = self._clock.now_ms()
        gathered.asked(host_id, now_ms)
        generation = gathered.generation

        async def ask() -> None:
            answer = await self._probe(host_id)
            if gathered.generation == generation:
                gathered.answered(host_id, now_ms, answer, self._clock.now_ms())
                await self._consider(job_id)

        self._spawn(ask())

    def _spawn(self, work: Awaitable[None]) -> None:
        async def guarded() -> None:
            try:
                await work
            except EverstepError as error:
                log.warning(
                    "could not finish a probe's verdict, the next tick tries again: %s", error
                )

        task = asyncio.create_task(guarded())
        self._asking.add(task)
        task.add_done_callback(self._asking.discard)

    async def _open(self, job_id: str, gathered: Gathered, verdict: Verdict) -> None:
        now_ms = self._clock.now_ms()
        handled = await self._record(
            OpenIncident(
                incident_id=self._ids.new_id("i"),
                job_id=job_id,
                generation=gathered.generation,
                kind=verdict.kind,
                ranks=verdict.ranks,
                hosts=verdict.hosts,
                step=gathered.step,
                action=verdict.action,
                reason=verdict.reason,
                detail=verdict.detail,
                failed_at_ms=min(verdict.failed_at_ms, now_ms),
                detected_at_ms=now_ms,
            )
        )
        self._take(job_id, handled.state)
        if handled.events:
            log.warning("job %s: %s: %s", job_id, verdict.kind, verdict.reason)

    async def _look_at_idle_hosts(self, now_ms: int) -> None:
        busy = {host for gathered in self._jobs.values() for host in gathered.hosts}
        for host_id, heard_ms in list(self._fleet.items()):
            if host_id in busy or now_ms - heard_ms <= self._limits.silence_ms:
                continue
            # Asked once a second while it is silent, not once a tick.
            self._fleet[host_id] = now_ms - self._limits.silence_ms + self._limits.probe_again_ms
            _, first_heard_ms = self._unanswered.setdefault(host_id, (0, heard_ms))
            self._spawn(self._judge_idle(host_id, first_heard_ms))

    async def _judge_idle(self, host_id: str, heard_ms: int) -> None:
        answer = await self._probe(host_id)
        now_ms = self._clock.now_ms()
        if answer is Probe.ANSWERED or self._blind:
            self.heard(host_id)
            return
        if host_id not in self._unanswered:
            return  # it has spoken meanwhile
        count = self._unanswered[host_id][0] + 1
        self._unanswered[host_id] = (count, heard_ms)
        if answer is Probe.NO_ANSWER and count < self._limits.idle_probes:
            return
        await self._record(
            OpenIncident(
                incident_id=self._ids.new_id("i"),
                job_id="",
                generation=0,
                kind="host_lost",
                hosts=(host_id,),
                action=Action.REPLACE,
                reason=f"{host_id} serves no job, was silent for {now_ms - heard_ms} ms and did "
                "not answer a probe",
                failed_at_ms=heard_ms,
                detected_at_ms=now_ms,
            )
        )
        self.forget_host(host_id)  # only now: what could not be stored is found once more
