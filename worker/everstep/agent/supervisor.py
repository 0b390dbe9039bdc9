"""Starts, stops and fences the runs of this host, for the control plane or after a restart."""

from __future__ import annotations

import asyncio
import logging
import signal as signals
from concurrent.futures import Executor
from dataclasses import replace
from pathlib import Path
from typing import Final

from everstep.agent import processes
from everstep.agent.endings import KILL_S_MAX
from everstep.agent.environment import rank_environment
from everstep.agent.exits import Intent
from everstep.agent.forks import Fork, ForkServer
from everstep.agent.membership import HostFacts
from everstep.agent.ranks import RankChannel, SlotBad
from everstep.agent.replication import Replicator
from everstep.agent.reports import RankReporter, refused_messages
from everstep.agent.resharding import Resharder, answered_of
from everstep.agent.restore import Damaged, Restorer
from everstep.agent.runs import Answer, JobRun, RankRun, RunRecord, Runs, Spawn, Start
from everstep.agent.steps import StepMessages
from everstep.agent.store import HostMemory
from everstep.agent.upload import Uploads
from everstep.core.schedule import Schedule
from everstep.core.spec import parse_spec_json
from everstep.memory import layout
from everstep.memory.control import Control, Phase

log = logging.getLogger(__name__)

STOP_S_MAX: Final = 60.0  # to agree on a step, snapshot, leave and store; then they are killed
STORE_LOOK_S: Final = 1.0  # between looks whether ranks still wait to store their last step
LEAVE_S_MAX: Final = 10.0  # to take groups down, once that is over
# A job that is over is not waited for by anybody, and its last checkpoint is its result: as long as
# ranks wait at their end for the upload before it (``train.saving``).
LAST_UPLOAD_S_MAX: Final = 1_500.0


class Supervisor:
    """The runs of one host."""

    def __init__(
        self,
        *,
        facts: HostFacts,
        runs: Runs,
        memory: HostMemory,
        forks: ForkServer,
        channel: RankChannel,
        restorer: Restorer,
        replicator: Replicator,
        uploads: Uploads,
        steps: StepMessages,
        reporter: RankReporter,
        executor: Executor,
        spawn: Spawn,
    ) -> None:
        self._facts = facts
        self._runs = runs
        self._memory = memory
        self._forks = forks
        self._channel = channel
        self._restorer = restorer
        self._resharder = Resharder(restorer, executor)
        self._replicator = replicator
        self._uploads = uploads
        self._steps = steps
        self._reporter = reporter
        self._executor = executor
        self._spawn = spawn

    def start(self, start: Start, seek_position: int) -> None:
        """Begin a generation; the host must be in its placement and fenced at it."""
        self._uploads.end(start.job_id, start.generation)
        if start.layout is not None:
            self._memory.set_aside(start.job_id, start.generation, start.layout)
        self._memory.forget_after(start.job_id, start.restore_step)
        ranks: dict[int, RankRun] = {}
        for rank in start.ranks:
            control = self._control(start.job_id, rank)
            control.reset(replication_off=start.peer is None)
            ranks[rank] = RankRun(rank=rank, control=control)
        run = self._run(start, seek_position, ranks)
        self._runs.add(run)
        self._begin(run)

    def adopt(self, record: RunRecord) -> None:
        """Go on with what an earlier agent of this host had started.

        Unless the host's memory is gone: then so are the ranks, and the control plane knows better.
        """
        start = record.start
        fence = self._memory.fence(start.job_id)
        if fence < start.generation:
            log.warning("host memory is gone: job %s is not taken up again", start.job_id)
            self._runs.forget(start.job_id)
            return
        ranks: dict[int, RankRun] = {}
        for one in record.ranks:
            control = self._control(start.job_id, one.rank)
            rank = RankRun(rank=one.rank, control=control, pid=one.pid, answer=one.answer)
            if one.ended:
                rank.gone.set()
            if start.generation < fence:
                rank.intent = Intent.KILL  # the earlier agent ended before it was reaped
            ranks[one.rank] = rank
        run = self._run(start, record.seek_position, ranks)
        if record.broken:
            run.broken.set()
        self._runs.add(run)
        self._begin(run)
        for rank in run.ranks.values():
            self._replicator.newest_changed(run.job_id, rank.rank)
            if rank.control.durable_busy:
                self._uploads.add(run.job_id, run.generation, rank, frozenset(run.ranks))
        if self._memory.is_retired(run.job_id, run.generation):
            self._spawn(self._drop_when_stored(run.job_id, run.generation))

    def ask(self, job_id: str, generation: int, what: str) -> bool:
        """Ask a generation's ranks to ``save``, ``stop``, ``recompute``; False: none is here."""
        run = self._runs.get(job_id)
        if run is None or run.generation != generation or not run.alive:
            return False
        for rank in run.alive:
            if what == "stop":
                rank.intent = Intent.STOP
            self._channel.ask(run.key(rank), what)
        return True

    def reschedule(self, job_id: str, generation: int, schedule: Schedule) -> bool:
        """Let ranks snapshot by another schedule; False when none of the generation runs here.

        An older one than was told before changes nothing. Ranks that connect later are told too.
        """
        run = self._runs.get(job_id)
        if run is None or run.generation != generation or not run.alive:
            return False
        known = run.start.schedule
        if known is None or known.version < schedule.version:
            run.start = replace(run.start, schedule=schedule)
            self._runs.save(run)
            for rank in run.alive:
                self._channel.tell_schedule(run.key(rank), schedule)
        return True

    async def stop_gracefully(self, job_id: str, generation: int, *, store: bool = False) -> bool:
        """Let the ranks of this and older generations agree on a last step and store it.

        After ``STOP_S_MAX`` in all, however often it is asked for, ranks are killed and uploads are
        left to themselves.

        Args:
            job_id: of which job.
            generation: of the ranks, or a newer one.
            store: ranks that have made their last step may wait on for the upload of an earlier
                one: of this step nothing else will be left.

        Returns:
            False when a rank could not be killed either.
        """
        run = self._runs.get(job_id)
        if run is None or run.generation > generation:
            return True
        loop = asyncio.get_running_loop()
        # Who asks waits for seconds only and asks again: it is the same stop, and all are answered
        # at its end. Else the newest, which alone is listened to, would be the last.
        run.stop_by_s = run.stop_by_s or loop.time() + STOP_S_MAX
        self.ask(job_id, run.generation, "stop")
        gone = await run.wait_left(run.stop_by_s - loop.time())
        if run.broken.is_set():
            log.warning("a rank of job %s broke off: there is no last step to wait for", job_id)
            return gone or await self._kill(run)
        if not gone and not (store and await self._wait_to_store(run)):
            log.warning("ranks of job %s did not stop in %d s: killed", job_id, STOP_S_MAX)
            return await self._kill(run)
        if not await self._uploads.drained(job_id, run.stop_by_s - loop.time()):
            log.warning("the last checkpoint of job %s is not stored yet", job_id)
        return True

    def is_broken(self, job_id: str) -> bool:
        """Say whether ranks of a job that ran here are gone in the middle of a step, or unknown."""
        run = self._runs.get(job_id)
        return run is None or run.broken.is_set()

    async def _wait_to_store(self, run: JobRun) -> bool:
        """Wait for ranks that have nothing left to do but to store; False: one is elsewhere."""
        loop = asyncio.get_running_loop()
        if not run.waits_to_store:
            run.waits_to_store = True
            log.info("job %s: the last checkpoint waits until an earlier one is stored", run.job_id)
        while loop.time() < run.stop_by_s + LAST_UPLOAD_S_MAX:
            if any(rank.control.phase is not Phase.SNAPSHOTTING for rank in run.alive):
                return await run.wait_gone(LEAVE_S_MAX)  # on its way out, or hanging
            if await run.wait_gone(STORE_LOOK_S):
                return True
        return False

    async def fence(self, job_id: str, below: int, *, uploads_go_on: bool = False) -> bool:
        """End everything of generations below ``below`` and see that nothing writes any more.

        Args:
            job_id: of which job.
            below: the lowest generation that may act from now on.
            uploads_go_on: what the job stored last is its result, or newer than what is stored by
                now. The next start ends them: new ranks write into the same slots.

        Returns:
            False when a process or a writer could not be ended in time.
        """
        self._memory.raise_fence(job_id, below)
        self._replicator.end(job_id, below)
        self._restorer.end(job_id, below)
        if not uploads_go_on:
            self._uploads.end(job_id, below)
        run = self._runs.get(job_id)
        reaped = True
        if run is not None and run.generation < below:
            self._steps.flush(job_id)
            for rank in run.alive:
                rank.intent = Intent.KILL
            reaped = await self._kill(run)
        loop = asyncio.get_running_loop()
        quiet = await loop.run_in_executor(self._executor, self._memory.wait_quiet, job_id, below)
        return reaped and quiet

    async def forget(self, job_id: str, generation: int) -> None:
        """Drop all memory of a job that is over and fenced, once its uploads are through."""
        self._memory.retire(job_id, generation)
        if await self._uploads.drained(job_id, 0):
            await self._drop(job_id, generation)
        else:
            self._spawn(self._drop_when_stored(job_id, generation))

    async def give_up(self, run: JobRun) -> None:
        """End a job that this host does not serve any more, and drop its memory for the next one.

        What an elastic job left stays: after a change of its layout, that may be the only copy of
        a rank's state, and hosts that it has left are asked for it. So do copies of a job that
        never ran here.
        """
        job_id, generation, alive = run.job_id, run.generation, bool(run.alive)
        elastic = parse_spec_json(run.start.spec_json).recovery.no_spare == "elastic"
        if self._memory.is_retired(job_id, generation) or (elastic and not alive):
            return
        log.warning("generation %d of job %s makes way", generation, job_id)
        ended = await self.fence(job_id, generation + 1, uploads_go_on=not alive)
        if ended and not elastic:
            await self.forget(job_id, generation)

    async def _drop_when_stored(self, job_id: str, generation: int) -> None:
        if not await self._uploads.drained(job_id, LAST_UPLOAD_S_MAX):
            log.error("the last checkpoint of job %s could not be stored", job_id)
        await self._drop(job_id, generation)

    async def _drop(self, job_id: str, generation: int) -> None:
        run = self._runs.get(job_id)
        newer = run is not None and run.generation > generation
        if newer or not self._memory.is_retired(job_id, generation):
            return  # the job began anew while we waited, and goes on from what is here
        self._runs.forget(job_id)
        self._uploads.end(job_id, generation + 1)
        self._replicator.end(job_id, generation + 1)
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(self._executor, self._memory.forget, job_id, generation)

    def fork(self, run: JobRun, rank: RankRun) -> None:
        """Ask the fork server for a rank."""
        spec = parse_spec_json(run.start.spec_json)
        request = Fork(
            job_id=run.job_id,
            generation=run.generation,
            rank=rank.rank,
            env=rank_environment(
                start=run.start,
                spec=spec,
                host_id=self._facts.host_id,
                rank=rank.rank,
                agent_socket=self._facts.agent_socket,
                memory_dir=self._facts.memory_dir,
                interface=self._facts.interface,
                emulated=self._facts.emulated,
                seek_position=run.seek_position,
            ),
            cwd=str(Path(spec.cwd).absolute()),
            argv=(spec.entry, *spec.argv),
            log_path=str(run.log_path(rank)),
        )
        self._forks.fork(request)

    async def _kill(self, run: JobRun) -> bool:
        """Kill a run's ranks and wait until they are reaped; False when one cannot be killed."""
        self._forks.kill(run.job_id, run.generation + 1, signals.SIGKILL)
        if not self._forks.warm:
            for rank in run.alive:
                if rank.pid:
                    processes.kill_session(rank.pid)
                else:
                    rank.gone.set()  # was never forked, and will not be
        gone = await run.wait_gone(KILL_S_MAX)
        if not gone:
            left = [rank.rank for rank in run.alive]
            log.error("ranks %s of job %s cannot be killed", left, run.job_id)
        return gone

    def _run(self, start: Start, seek_position: int, ranks: dict[int, RankRun]) -> JobRun:
        directory = self._facts.run_dir / "logs" / start.job_id / f"gen-{start.generation}"
        return JobRun(start=start, seek_position=seek_position, ranks=ranks, log_dir=directory)

    def _begin(self, run: JobRun) -> None:
        """Set everything going that has not gone before."""
        start = run.start
        self._steps.begin(run)
        peer = start.peer
        for rank in run.alive:
            if rank.intent is Intent.KILL:
                continue
            if rank.pid == 0:
                self.fork(run, rank)
            if peer is not None:
                self._replicator.begin(run.job_id, run.generation, rank, peer)
            if rank.answer is not None:
                continue
            if start.restore_step < 0:
                self._answer(run, rank, Answer(kind="fresh"))
            else:
                self._spawn(self._restore(run, rank))

    def slot_bad(self, run: JobRun, rank: RankRun, bad: SlotBad) -> None:
        """Take back what a rank was answered: the slot is damaged, another source must serve."""
        answer = rank.answer
        across = bad.old_rank >= 0
        if answer is not None and across:
            answer = answered_of(answer, bad.old_rank)
        if answer is None or answer.step != bad.step or not (across or answer.slot == bad.slot):
            return  # said again on a new connection
        log.warning("rank %d of job %s: %s", rank.rank, run.job_id, bad.problem)
        rank.answer = None
        self._runs.save(run)
        if not across:
            self._replicator.damaged(run.job_id, rank.rank)
        damaged = Damaged(answer=answer, problem=bad.problem)
        self._spawn(self._restore(run, rank, damaged, bad.old_rank))

    async def _restore(
        self,
        run: JobRun,
        rank: RankRun,
        damaged: Damaged | None = None,
        old_rank: int = -1,
    ) -> None:
        if run.start.old_layout is not None:
            answer = await self._resharder.restore(
                run.start, rank.rank, damaged=damaged, old_rank=old_rank
            )
        else:
            plan = run.start.restore_of(rank.rank)
            answer = await self._restorer.restore(
                run.job_id, run.generation, run.start.restore_step, plan, damaged
            )
        if self._runs.get(run.job_id) is run and rank.intent is not Intent.KILL:
            self._answer(run, rank, answer)

    def _answer(self, run: JobRun, rank: RankRun, answer: Answer) -> None:
        rank.answer = answer
        self._runs.save(run)  # first: a rank that was answered must never be restored again
        self._channel.send(run.key(rank), answer.frame())
        if answer.kind == "slot_ready":
            self._replicator.newest_changed(run.job_id, rank.rank)
        elif answer.kind == "restore_failed":
            self._reporter.report(
                run,
                rank,
                "START_FAILED",
                exit_class="RESTORE_FAILED",
                error=f"no source of step {answer.step} could be loaded",
                restore_problems=answer.problems,
                refused_sources=refused_messages(answer),
            )

    def _control(self, job_id: str, rank: int) -> Control:
        return Control(layout.control_path(self._memory.directory(job_id, rank, own=True)))
