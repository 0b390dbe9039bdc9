"""The watch loop: gathers evidence, probes suspects, and turns verdicts into incidents.

Everything that is decided is decided elsewhere (``detectors/``, ``decider.py``); this file only
carries. It judges whenever a sign comes in, and every ``TICK_S`` for what shows itself by absence.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence

from everstep.core.errors import Unavailable
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
)
from everstep.monitor.counting import Counting
from everstep.monitor.detecting import Detecting
from everstep.monitor.detectors.root_cause import Judgement, Probe, judge
from everstep.monitor.detectors.spike import Sound
from everstep.monitor.detectors.verdict import Verdict
from everstep.monitor.echoes import EarlyEchoes, echo_of
from everstep.monitor.errands import Errands
from everstep.monitor.events import Event
from everstep.monitor.evidence import Gathered
from everstep.monitor.eyes import Eyes
from everstep.monitor.idle import IdleHosts
from everstep.monitor.linking import Linking
from everstep.monitor.lookout import NOBODY_TO_ASK, Asking, LookAtRanks, Lookout, ProbeHost
from everstep.monitor.opening import open_incident
from everstep.monitor.policy import TICK_S, Limits
from everstep.monitor.state import Watch
from everstep.monitor.strays import Strays
from everstep.monitor.untold import UntoldEnds
from everstep.service.handler import Handled, Handler
from everstep.wire.v1.agents_pb2 import StepMetrics

log = logging.getLogger(__name__)


class Watcher:
    """Watches every live job and every idle host."""

    def __init__(
        self,
        handler: Handler[Command, Watch, Event],
        probe: ProbeHost,
        look: LookAtRanks,
        connected: Callable[[], bool],
        clock: Clock,
        ids: IdSource,
        limits: Limits,
        asking: Asking = NOBODY_TO_ASK,
        counting: Counting | None = None,
        untold: UntoldEnds | None = None,
    ) -> None:
        self._handler = handler
        self._probe = probe
        self.look = look
        self.counting = counting or Counting(clock)
        self.untold = untold or UntoldEnds()
        self._clock = clock
        self._ids = ids
        self._limits = limits
        self._jobs: dict[str, Gathered] = {}
        self.watches: dict[str, Watch] = {}
        self.detecting: dict[str, Detecting] = {}
        self._idle = IdleHosts(limits)
        self._strays = Strays(limits)
        self._early_echoes = EarlyEchoes()
        self._spawn = Errands().spawn
        self._locks: dict[str, asyncio.Lock] = {}
        self._eyes = Eyes(connected, limits)
        self._lookout = Lookout(look, asking, self.counting, clock, self._eyes)

    @property
    def blind(self) -> str:
        """Why the monitor cannot judge now, or ""."""
        return self._eyes.blind

    def watched(self, job_id: str) -> Watch | None:
        """Return a live job as it is known."""
        return self.watches.get(job_id)

    async def adopt(
        self, job_id: str, generation: int, step: int, window: Sequence[Sound] = ()
    ) -> Watch:
        """Take up a job that an earlier process watched up to a generation's ``step``.

        ``window`` are the newest steps that it kept, oldest first.
        """
        watch = await self._handler.state(watch_stream(job_id))
        gathered = self._take(job_id, watch)
        if gathered is not None:
            if generation == watch.generation:
                gathered.reached(step)
            self.detecting[job_id].remember(window, generation, watch, self._clock.now_ms())
        return watch

    async def mark(self, command: MarkJob, consumed: Consumed | None = None) -> None:
        """Record a mark of the controller and follow its generation."""
        kept = None if command.job_id in self._jobs else await self._lookout.steps(command)
        handled = await self._record(command, consumed)
        self._take(command.job_id, handled.state)
        if kept is not None:
            await self.adopt(command.job_id, kept.generation, kept.step, kept.window)

    async def refresh(self, job_id: str) -> None:
        """Take up what another instance of the monitor has stored of a job."""
        self._take(job_id, await self._handler.state(watch_stream(job_id)))

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
        gathered.reached(command.step)
        gathered.root_ms = gathered.root_ms or self._clock.now_ms()
        await self._consider(command.job_id)

    async def echoed(self, command: ObserveExit) -> None:
        """Take a collective error: an echo."""
        gathered = self._jobs.get(command.job_id)
        if gathered is None or command.generation > gathered.generation:
            self._early_echoes.keep(command)
        elif command.generation == gathered.generation:
            gathered.echoed([echo_of(command)], self._clock.now_ms())
            await self._consider(command.job_id)

    def jobs_on(self, host_id: str) -> list[str]:
        """Return the jobs that a host serves."""
        return [job_id for job_id, seen in self._jobs.items() if host_id in seen.hosts]

    def heard(self, host_id: str) -> None:
        """Note any sign of life of a host."""
        now_ms = self._clock.now_ms()
        self._idle.heard(host_id, now_ms)
        for gathered in self._jobs.values():
            gathered.heard(host_id, now_ms)

    def expect(self, host_ids: Iterable[str]) -> None:
        """Take hosts that should be there for heard just now, unless they were heard already."""
        self._idle.expect(host_ids, self._clock.now_ms())

    async def saw_ranks(
        self, job_id: str, generation: int, host_id: str, seen: frozenset[int]
    ) -> None:
        """Note which ranks of a job an agent sees, or has seen end and not been able to tell.

        A script that has never told of a step may not take the SDK: it counts as come up when every
        host sees all its ranks.
        """
        gathered = self._jobs.get(job_id)
        if gathered is None:
            return
        seen = seen if gathered.generation == generation else frozenset()
        now_ms = self._clock.now_ms()
        whole = gathered.saw_ranks(host_id, seen, now_ms)
        watch = self.watches[job_id]
        if whole and watch.script and not (watch.progressed or watch.stepped):
            await self._progressed(job_id, generation, 0, now_ms)

    async def saw_running(self, job_id: str, generation: int, host_id: str) -> None:
        """Note a run, or snapshots, that a host names in its heartbeat: they may be of one over.

        Its agent was away when it was fenced, with all the job's other hosts perhaps, so that
        nothing broke it. Nobody else would ever end it.
        """
        newest = self._jobs[job_id].generation if job_id in self._jobs else None
        run = (job_id, generation, host_id)
        command = self._strays.found(run, newest, self._clock.now_ms())
        if command is None:
            return
        handled = await self._record(command)
        for _ in handled.events:
            log.warning("job %s: %s still has generation %d", job_id, host_id, generation)

    async def stepped(
        self, job_id: str, generation: int, host_id: str, step: int, took_ms: int = 0
    ) -> None:
        """Note that a host's ranks have completed a step, and how long it took by their word."""
        gathered = self._jobs.get(job_id)
        if gathered is None or gathered.generation != generation:
            return
        now_ms = self._clock.now_ms()
        self.detecting[job_id].stepped(job_id, step, now_ms, took_ms)
        first = gathered.stepped(host_id, step, now_ms)
        watch = self.watches[job_id]
        if first is None or (watch.progressed and watch.stepped):
            return
        await self._progressed(job_id, generation, first, now_ms)

    async def told(self, metrics: StepMetrics) -> None:
        """Look at what a host tells of its ranks' steps."""
        job_id = metrics.job_id
        if job_id in self._jobs:
            watch, detecting = self.watches[job_id], self.detecting[job_id]
            detecting.told(metrics, watch, self._clock.now_ms())
            for question in detecting.questions():
                asked = self._lookout.answer(watch, detecting, question)
                self._spawn(self._say_after(job_id, asked))
            await self._say(job_id)

    def told_again(self, metrics: StepMetrics) -> None:
        """Take what a host tells of steps whose first word was lost."""
        if metrics.job_id in self._jobs:
            self.detecting[metrics.job_id].numerics.told_again(metrics)

    async def _say_after(self, job_id: str, asked: Awaitable[Verdict | None]) -> None:
        verdict, detecting = await asked, self.detecting.get(job_id)
        if verdict is not None and detecting is not None:
            detecting.unsaid.append(verdict)
            await self._say(job_id)

    async def _say(self, job_id: str) -> None:
        """Store what the steps have shown; what cannot be stored is said at the next tick."""
        async with self._locks.setdefault(job_id, asyncio.Lock()):
            unsaid = self.detecting[job_id].unsaid if job_id in self._jobs else ()
            while unsaid:
                said = unsaid[0]
                if isinstance(said, Verdict):
                    await self._open(job_id, self._jobs[job_id], said)
                else:
                    await self._record(said)
                if unsaid and unsaid[0] is said:  # unless a new generation has begun meanwhile
                    unsaid.popleft()

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

    def forget_host(self, host_id: str, *, left: bool = False) -> None:
        """Stop listening for a host that left or is cordoned."""
        self._idle.forget(host_id, left=left)
        self._strays.forget_host(host_id)
        self.counting.forget(host_id)

    async def not_missed(self, host_id: str, *, left: bool) -> None:
        """End the incident of an idle host that is back in service, or its loss if it ``left``."""
        at_ms = self._clock.now_ms()
        await self._record(CloseHostIncident(host_id=host_id, at_ms=at_ms, left=left))

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
            await self._say(job_id)
            self._look_at_ranks(job_id, now_ms)
        if not self.blind:
            await self._look_at_idle_hosts(now_ms)

    def _look_at_oneself(self, now_ms: int) -> None:
        if self._eyes.open(now_ms, self._idle.heard_ms):
            for gathered in self._jobs.values():
                gathered.reset_hearing(now_ms)
            for detecting in self.detecting.values():
                detecting.hanging.excused(now_ms)
            self._idle.forget_silences(now_ms)

    async def _record(
        self, command: Command, consumed: Consumed | None = None
    ) -> Handled[Watch, Event]:
        """Decide and store; what cannot be stored blinds us for a while. Raises Unavailable."""
        try:
            return await self._handler.handle(command, consumed=consumed)
        except Unavailable:
            self._eyes.could_not_store(self._clock.now_ms())
            raise

    def _take(self, job_id: str, watch: Watch) -> Gathered | None:
        """Follow a job as it is stored; one that is over there, by whoever's word, is dropped."""
        if watch.over or not watch.job_id:
            self._jobs.pop(job_id, None)
            self.watches.pop(job_id, None)
            self.detecting.pop(job_id, Detecting()).unsaid.clear()  # somebody may be at it
            return None
        self.watches[job_id] = watch
        gathered = self._jobs.setdefault(job_id, Gathered())
        gathered.begin(watch, self._clock.now_ms())
        early = self._early_echoes.take(job_id, gathered.generation)
        gathered.echoed(early, self._clock.now_ms())
        self.detecting.setdefault(job_id, Detecting()).begin(watch, self._clock.now_ms())
        return gathered

    async def _consider(self, job_id: str) -> None:
        """Judge one job on what is known now; one at a time, so that one verdict comes of it."""
        gathered, watch = self._jobs.get(job_id), self.watches.get(job_id)
        if gathered is None or watch is None or not gathered.hosts:
            return
        if watch.judged_generation >= gathered.generation:
            return
        async with self._locks.setdefault(job_id, asyncio.Lock()):
            if job_id not in self._jobs:
                return  # over since
            linking = self.detecting[job_id].linking
            now_ms, blind = self._clock.now_ms(), bool(self.blind)
            broken = self.counting.fatal(gathered.hosts, now_ms)
            untold = self.untold.ranks(gathered.hosts, job_id, gathered.generation)
            evidence = gathered.weigh(watch, untold, blind=blind, links=linking.view, broken=broken)
            judgement: Judgement = judge(now_ms, evidence, self._limits)
            for host_id in judgement.probe:
                self._ask(job_id, gathered, host_id)
            if judgement.try_links:
                self._spawn(self._look_at_links(job_id, watch, linking))
            if judgement.verdict is not None:
                hanging = self.detecting[job_id].hanging
                verdict = hanging.instead(judgement.verdict, watch, gathered.echo_ms)
                await self._open(job_id, gathered, verdict)

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

    def _look_at_ranks(self, job_id: str, now_ms: int) -> None:
        """Ask what the ranks of a run do whose next step is overdue."""
        watch, detecting = self.watches.get(job_id), self.detecting.get(job_id)
        if self.blind or watch is None or detecting is None:
            return
        detecting.unsaid += self.counting.news(watch, now_ms)
        if detecting.hanging.is_due(watch, now_ms):
            hang = self._lookout.hang(watch, detecting, self.watches)
            self._spawn(self._say_after(job_id, hang))

    async def _look_at_links(self, job_id: str, watch: Watch, linking: Linking) -> None:
        if await self._lookout.links(watch, linking):
            await self._consider(job_id)

    async def _open(self, job_id: str, gathered: Gathered, verdict: Verdict) -> None:
        now_ms, elsewhere = self._clock.now_ms(), await self._lookout.doubts(verdict, job_id)
        step = gathered.step if verdict.step < 0 else verdict.step
        incident_id, generation = self._ids.new_id("i"), gathered.generation
        own = gathered.has_made(step)
        opening = open_incident(
            verdict, incident_id, job_id, generation, step, now_ms, elsewhere, own_step=own
        )
        handled = await self._record(opening)
        self._take(job_id, handled.state)
        if handled.events:
            log.warning("job %s: %s: %s", job_id, verdict.kind, verdict.reason)

    async def _look_at_idle_hosts(self, now_ms: int) -> None:
        busy = {host for gathered in self._jobs.values() for host in gathered.hosts}
        for host_id in self._idle.to_ask(now_ms, busy):
            self._spawn(self._judge_idle(host_id))
        for verdict in self.counting.idle(self._idle.hosts, busy, now_ms):
            await self._record(open_incident(verdict, self._ids.new_id("i"), "", 0, 0, now_ms))
            self.forget_host(verdict.hosts[0])

    async def _judge_idle(self, host_id: str) -> None:
        answer = await self._probe(host_id)
        if answer is Probe.ANSWERED or self.blind:
            self.heard(host_id)
            return
        lost = self._idle.answered(host_id, answer, self._clock.now_ms(), self._ids.new_id("i"))
        if lost is not None:
            await self._record(lost)
            self.forget_host(host_id)
