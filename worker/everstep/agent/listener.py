"""Takes what ranks say on their channel, and sees to what follows from it."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor
from typing import Final

from everstep.agent.exits import ExitClass, Intent, LastWords
from everstep.agent.ranks import (
    Failed,
    Finished,
    Hello,
    RankChannel,
    Ready,
    SlotBad,
    StepTold,
    Told,
)
from everstep.agent.replication import Replicator
from everstep.agent.reports import RankReporter, refused_messages
from everstep.agent.runs import JobRun, RankKey, RankRun, Runs
from everstep.agent.steps import StepMessages
from everstep.agent.store import HostMemory
from everstep.agent.upload import Uploads

# With its second snapshot a rank knows that every rank holds a newer step than the restored one,
# so whatever an earlier placement left here is of no more use (the two-slot rule).
SNAPSHOTS_BEFORE_TIDY: Final = 2


class RankListener:
    """Implements ``RankEvents``."""

    def __init__(
        self,
        *,
        runs: Runs,
        memory: HostMemory,
        replicator: Replicator,
        uploads: Uploads,
        steps: StepMessages,
        reporter: RankReporter,
        executor: Executor,
        channel: RankChannel,
        slot_bad: Callable[[JobRun, RankRun, SlotBad], None],
    ) -> None:
        self._runs = runs
        self._memory = memory
        self._replicator = replicator
        self._uploads = uploads
        self._steps = steps
        self._reporter = reporter
        self._executor = executor
        self._channel = channel
        self._slot_bad = slot_bad

    def hello(self, hello: Hello) -> bool:
        """Answer a rank, if its snapshot is here; else the restore answers it."""
        found = self._runs.find(hello.key)
        if found is None or not found[1].alive:
            return False
        rank = found[1]
        rank.last_step = max(rank.last_step, hello.step)
        if rank.answer is not None:
            self._channel.send(hello.key, rank.answer.frame())
        schedule = found[0].start.schedule
        if schedule is not None:
            self._channel.tell_schedule(hello.key, schedule)
        if rank.intent is Intent.STOP:
            self._channel.ask(hello.key, "stop")
        return True

    def told(self, key: RankKey, what: Told) -> None:
        """Take what a rank says; one that is fenced off says nothing that counts."""
        found = self._runs.find(key)
        if found is None or found[1].intent is Intent.KILL:
            return
        run, rank = found
        match what:
            case StepTold():
                self._step(run, rank, what)
            case Ready():
                self._reporter.report(
                    run,
                    rank,
                    "RANK_READY",
                    source_kind=what.source_kind,
                    restored_step=what.restored_step,
                    restore_problems=what.problems,
                    refused_sources=refused_messages(rank.answer),
                )
            case SlotBad():
                self._slot_bad(run, rank, what)
            case Failed():
                self._failed(run, rank, what)
            case Finished():
                rank.last_step = max(rank.last_step, what.step)
                rank.words = LastWords(exit_class=what.exit_class)

    def _step(self, run: JobRun, rank: RankRun, told: StepTold) -> None:
        rank.last_step = max(rank.last_step, told.step)
        if told.snapshot_slot >= 0:
            rank.snapshots_count += 1
            self._replicator.newest_changed(run.job_id, rank.rank)
            if rank.snapshots_count >= SNAPSHOTS_BEFORE_TIDY and not run.tidied:
                run.tidied = True
                self._tidy(run)
        if told.durable:
            self._uploads.add(run.job_id, run.generation, rank, frozenset(run.ranks))
        self._steps.add(run, told.rank_step(rank.rank))

    def _failed(self, run: JobRun, rank: RankRun, told: Failed) -> None:
        # A rank that fails right after a restore has completed no step since, but stands at one:
        # the monitor tells a repeated error by it.
        rank.last_step = max(rank.last_step, told.step)
        rank.words = LastWords(
            exit_class=told.exit_class, error=told.error, traceback=told.traceback
        )
        if told.exit_class is ExitClass.COLLECTIVE and not rank.exit_seen:
            self._reporter.report(
                run,
                rank,
                "COLLECTIVE_ERROR",
                exit_class="COLLECTIVE",
                error=told.error,
                traceback=told.traceback,
            )

    def _tidy(self, run: JobRun) -> None:
        replicas = frozenset(run.start.replicas)
        self._executor.submit(
            self._memory.drop_strangers,
            run.job_id,
            run.generation,
            frozenset(run.ranks),
            replicas,
        )
