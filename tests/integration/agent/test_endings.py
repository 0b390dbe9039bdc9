"""A rank's end, when its two witnesses come in an awkward order."""

from __future__ import annotations

import asyncio

import pytest
from tests.clocks import ManualClock

from everstep.agent.endings import Endings
from everstep.agent.exits import ExitClass, LastWords
from everstep.agent.forks import Exited, Forked, ForkFailed
from everstep.agent.reports import RankReporter, Reports
from everstep.agent.runs import JobRun, RankRun, RunFiles, Runs, Start
from everstep.memory.control import Control
from everstep.wire.v1.agents_pb2 import RankReport, ReportKind


class Forks:
    """Remembers what the fork server was asked."""

    warm = True

    def __init__(self) -> None:
        self.acknowledged = []
        self.killed = []

    def acknowledge(self, pid):
        self.acknowledged.append(pid)

    def kill(self, job_id, generation_below, number):
        self.killed.append((job_id, generation_below))


class Channel:
    """Says when a rank's connection has been read to its end."""

    def __init__(self) -> None:
        self.read = asyncio.Event()

    async def drained(self, key, timeout_s):
        await self.read.wait()


class Steps:
    """Nothing is gathered."""

    def flush(self, job_id):
        pass


class Kit:
    """An ``Endings`` with one run of two ranks."""

    def __init__(self, directory):
        self.forks, self.channel, self.tasks, self.forked = Forks(), Channel(), [], []
        self.runs = Runs(RunFiles(directory / "jobs"))
        start = Start(
            job_id="j",
            generation=3,
            spec_json="{}",
            rendezvous_address="",
            rendezvous_port=0,
            restore_step=-1,
            world_size=2,
            host_index=0,
            host_count=1,
            ranks=(0, 1),
            peer=None,
        )
        ranks = {
            number: RankRun(rank=number, control=Control(directory / f"control-{number}"))
            for number in (0, 1)
        }
        self.run = JobRun(start=start, seek_position=-1, ranks=ranks, log_dir=directory)
        self.runs.add(self.run)
        self.reports_dir = directory / "reports"
        reports = Reports(self.reports_dir, "h")
        self.endings = Endings(
            runs=self.runs,
            forks=self.forks,
            channel=self.channel,
            steps=Steps(),
            reporter=RankReporter(reports, "h", "e", ManualClock()),
            clock=ManualClock(),
            spawn=self.spawn,
            fork=lambda run, rank: self.forked.append(rank.rank),
        )

    def spawn(self, work):
        self.tasks.append(asyncio.create_task(work))
        return self.tasks[-1]

    async def settle(self):
        """Let everything that was begun come to its end."""
        self.channel.read.set()
        await asyncio.gather(*self.tasks)

    def reported(self):
        """Kind, class, signal and time of every report."""
        found = [
            RankReport.FromString(path.read_bytes())
            for path in sorted(self.reports_dir.glob("*.report"))
        ]
        return [(ReportKind.Name(one.kind), one.exit_class, one.signal) for one in found]


@pytest.fixture
def kit(tmp_path):
    """A fresh one."""
    return Kit(tmp_path)


def exited(rank=0, **fields):
    """The fork server's word."""
    return Exited(
        **{
            "job_id": "j",
            "generation": 3,
            "rank": rank,
            "pid": 40 + rank,
            "exit_code": 0,
            "signal": 9,
            "at_ms": 5,
            **fields,
        }
    )


async def test_words_that_come_after_the_status_still_count(kit):
    """The kernel is faster than the socket: the report waits for what the rank said last."""
    kit.endings.exited(exited())
    for _ in range(5):
        await asyncio.sleep(0)  # whatever is ready to run has run
    assert kit.reported() == []
    kit.run.ranks[0].words = LastWords(exit_class=ExitClass.COLLECTIVE)
    await kit.settle()
    assert kit.reported() == [("RANK_EXITED", 5, 9)]
    assert kit.forks.acknowledged == [40]


async def test_repeated_exit_is_reported_once(kit):
    """The fork server repeats an exit until it is acknowledged."""
    kit.endings.exited(exited())
    kit.endings.exited(exited())
    await kit.settle()
    kit.endings.exited(exited())
    assert len(kit.reported()) == 1
    assert kit.forks.acknowledged == [40, 40]


async def test_exit_of_an_older_generation_is_only_acknowledged(kit):
    """What has been fenced is nobody's news."""
    kit.endings.exited(exited(generation=2))
    assert (kit.reported(), kit.forks.acknowledged) == ([], [40])


async def test_rank_in_neither_list_was_lost_or_never_forked(kit):
    """After a connection: one without a pid is forked, one with a pid is gone."""
    kit.endings.forked(Forked(job_id="j", generation=3, rank=1, pid=41))
    kit.endings.listed([])
    await kit.settle()
    assert kit.forked == [0]
    assert kit.reported() == [("RANK_EXITED", 3, 9)]
    assert not kit.run.ranks[1].alive


async def test_exit_under_way_is_not_taken_for_a_loss(kit):
    """A rank whose exit has come, and whose words have not, is not lost a second time."""
    kit.endings.forked(Forked(job_id="j", generation=3, rank=1, pid=41))
    kit.endings.exited(exited(rank=1, signal=11))
    kit.endings.listed([])
    await kit.settle()
    assert kit.reported() == [("RANK_EXITED", 3, 11)]


async def test_rank_that_died_before_its_fork_was_noted_is_not_forked_again(kit):
    """An agent that ended in between comes back and is told of the exit, but has no pid."""
    kit.endings.exited(exited(rank=0, signal=11))
    kit.endings.listed([Forked(job_id="j", generation=3, rank=1, pid=41)])
    await kit.settle()
    assert kit.forked == []
    assert kit.reported() == [("RANK_EXITED", 3, 11)]


async def test_stray_rank_is_killed(kit):
    """A rank that no record knows has nobody who would ever end it."""
    kit.endings.listed([Forked(job_id="other", generation=7, rank=0, pid=99)])
    assert kit.forks.killed == [("other", 8)]


async def test_failed_fork_fails_the_start(kit):
    """The reason is told, and the rank is not waited for."""
    kit.endings.fork_failed(ForkFailed(job_id="j", generation=3, rank=0, error="no memory"))
    assert kit.reported() == [("START_FAILED", 0, 0)]
    assert not kit.run.ranks[0].alive
