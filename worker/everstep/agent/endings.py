"""Sees ranks come into being and end, as the fork server tells it, and reports the ends."""

from __future__ import annotations

import logging
import signal as signals
from collections.abc import Callable, Sequence
from typing import Final

from everstep.agent import processes
from everstep.agent.exits import Intent, Status, merge
from everstep.agent.forks import Exited, Forked, ForkFailed, ForkServer
from everstep.agent.ranks import RankChannel
from everstep.agent.reports import RankReporter
from everstep.agent.runs import JobRun, RankRun, Runs, Spawn
from everstep.agent.steps import StepMessages
from everstep.core.system import Clock
from everstep.memory.control import Phase

log = logging.getLogger(__name__)

# A dead rank's last words are in our socket already; only its own orphans could hold it open.
LAST_WORDS_S_MAX: Final = 0.5
# Where a rank that goes leaves the others without it: they cannot end the step that they are in.
# One that goes while it snapshots, or between two steps, may have made the last one with them.
IN_A_STEP: Final = frozenset({Phase.STARTING, Phase.LOADING, Phase.COMPUTING, Phase.AGREEING})
KILL_S_MAX: Final = 5.0  # SIGKILL takes milliseconds; longer is a process stuck in a driver


class Endings:
    """Implements ``ForkEvents``; the only place where a rank's end is concluded."""

    def __init__(
        self,
        *,
        runs: Runs,
        forks: ForkServer,
        channel: RankChannel,
        steps: StepMessages,
        reporter: RankReporter,
        clock: Clock,
        spawn: Spawn,
        fork: Callable[[JobRun, RankRun], None],
    ) -> None:
        self._runs = runs
        self._forks = forks
        self._channel = channel
        self._steps = steps
        self._reporter = reporter
        self._clock = clock
        self._spawn = spawn
        self._fork = fork

    def forked(self, forked: Forked) -> None:
        """Take note of a live rank."""
        found = self._runs.find((forked.job_id, forked.generation, forked.rank))
        if found is not None and found[1].pid != forked.pid:
            found[1].pid = forked.pid
            self._runs.save(found[0])

    def fork_failed(self, failed: ForkFailed) -> None:
        """Report that a rank cannot be started."""
        found = self._runs.find((failed.job_id, failed.generation, failed.rank))
        if found is None or not found[1].alive:
            return
        run, rank = found
        if rank.intent is not Intent.KILL:
            self._reporter.report(run, rank, "START_FAILED", error=failed.error)
        rank.gone.set()
        self._runs.save(run)

    def exited(self, exited: Exited) -> None:
        """Conclude a rank; the fork server repeats this until it is stored."""
        found = self._runs.find((exited.job_id, exited.generation, exited.rank))
        if found is None or not found[1].alive:
            self._forks.acknowledge(exited.pid)
        elif not found[1].exit_seen:
            self._conclude_soon(*found, exited)

    def listed(self, alive: Sequence[Forked]) -> None:
        """Compare all live ranks with the expected ones."""
        strays = {(one.job_id, one.generation, one.rank): one for one in alive}
        for run in self._runs.all():
            for rank in run.alive:
                process = strays.pop(run.key(rank), None)
                if process is not None:
                    self.forked(process)
                elif rank.exit_seen:
                    continue  # it has run, also if nobody noted its pid; its words are on their way
                elif rank.pid == 0 and rank.intent is Intent.RUN:
                    self._fork(run, rank)
                else:
                    self._lost(run, rank)
            if any(rank.intent is Intent.KILL for rank in run.alive):
                self._forks.kill(run.job_id, run.generation + 1, signals.SIGKILL)
        for stray in strays.values():
            log.warning("rank %d of job %s is none of ours: killed", stray.rank, stray.job_id)
            self._forks.kill(stray.job_id, stray.generation + 1, signals.SIGKILL)

    def server_gone(self) -> None:
        """See which ranks died with the fork server."""
        log.warning("the connection to the fork server is gone")
        for run in self._runs.all():
            for rank in run.alive:
                if rank.pid and not rank.exit_seen:
                    self._spawn(self._look_after(run, rank))

    def _conclude_soon(self, run: JobRun, rank: RankRun, exited: Exited) -> None:
        rank.exit_seen = True
        if rank.intent is Intent.KILL:  # somebody waits, and there is nothing to say
            self._conclude(run, rank, exited)
        else:
            self._spawn(self._hear_out(run, rank, exited))

    async def _hear_out(self, run: JobRun, rank: RankRun, exited: Exited) -> None:
        await self._channel.drained(run.key(rank), LAST_WORDS_S_MAX)
        self._conclude(run, rank, exited)

    def _conclude(self, run: JobRun, rank: RankRun, exited: Exited) -> None:
        status = Status(exit_code=exited.exit_code, signal=exited.signal)
        tail = processes.log_tail(run.log_path(rank))
        ending = merge(status, rank.words, rank.intent, tail)
        if ending is not None:
            if not status.left and rank.control.phase in IN_A_STEP:
                run.broken.set()
            self._steps.flush(run.job_id)
            self._reporter.report(
                run,
                rank,
                "RANK_EXITED",
                exit_class=ending.exit_class.value,
                exit_code=ending.exit_code,
                signal=ending.signal,
                error=ending.error,
                traceback=ending.traceback,
                at_ms=exited.at_ms,
            )
        rank.gone.set()
        self._runs.save(run)
        self._forks.acknowledge(exited.pid)

    def _lost(self, run: JobRun, rank: RankRun) -> None:
        """Conclude a rank whose parent died before it could tell how the rank ended."""
        exited = Exited(
            job_id=run.job_id,
            generation=run.generation,
            rank=rank.rank,
            pid=rank.pid,
            exit_code=0,
            signal=signals.SIGKILL,
            at_ms=self._clock.now_ms(),
        )
        self._conclude_soon(run, rank, exited)

    async def _look_after(self, run: JobRun, rank: RankRun) -> None:
        if await processes.wait_gone(rank.pid, KILL_S_MAX) and not rank.exit_seen:
            self._lost(run, rank)
