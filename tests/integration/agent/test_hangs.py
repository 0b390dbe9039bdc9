"""Real ranks that hang, looked at by their agents: the right one is named, and nobody else."""

from __future__ import annotations

import json
import os
import signal
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any

import pytest
import pytest_asyncio
from tests.integration.agent.harness import (
    JOB,
    ROOT,
    Host,
    Plane,
    hosts_on,
    new_plane,
    placed,
    start_all,
)
from tests.waiting import until

from everstep.core.spec import LayoutSpec
from everstep.core.system import SystemClock
from everstep.monitor.detectors.hang import HangLimits, Pace
from everstep.monitor.detectors.hang_conduct import WORKING_LOOKS
from everstep.monitor.detectors.hang_stacks import Phase, State
from everstep.monitor.detectors.hang_verdict import (
    HangKind,
    HangVerdict,
    Look,
    Unsure,
    judge_hang,
)
from everstep.monitor.looking import look_at
from everstep.service.commands import host_subject, request
from everstep.wire.v1.agents_pb2 import TellStacks, TellStacksReply

pytestmark = [pytest.mark.torch, pytest.mark.asyncio(loop_scope="module")]

RANKS_EACH = 2
LAYOUT = LayoutSpec(dp_shard=4)
GUILTY = 2  # the first rank of the second host
STEP = 3
LIMIT_S = 120.0  # four torch ranks on two busy cores


@dataclass(slots=True)
class Lab:
    """Two warm hosts; every test starts a generation of its own on them."""

    plane: Plane
    hosts: list[Host]
    generation: int = 0

    async def start(self, **fields: Any) -> None:
        """End what ran before, and start ranks that hang as told."""
        self.generation += 1
        for host in self.hosts:
            assert (await self.plane.stop(host.host_id, self.generation)).outcome.accepted
        self.plane.metrics.clear()
        replies = await start_all(
            self.plane, placed(self.hosts, RANKS_EACH), self.generation, spec_json(**fields)
        )
        assert all(one.outcome.accepted for one in replies), replies

    async def hang(self, how: str, **args: Any) -> None:
        """Start, and wait until the last step before the hang is done."""
        await self.start(args={"rank": GUILTY, "step": STEP, "how": how, **args})
        await self.step(STEP)

    async def step(self, step: int) -> None:
        """Wait for a step of this generation."""
        await until(
            lambda: self.plane.newest_step(self.generation) >= step, limit_s=LIMIT_S, what="steps"
        )

    async def look(self) -> Look:
        """Ask all agents."""
        host_ids = [host.host_id for host in self.hosts]
        return await look_at(self.plane.bus, SystemClock(), JOB, self.generation, host_ids, LAYOUT)

    async def verdict(self) -> HangVerdict:
        """Look until the judge is sure, with a run that has made no step for 20 s."""
        looks: list[Look] = []

        async def decided() -> HangVerdict | None:
            looks.append(await self.look())
            found = judged(looks)
            return found if isinstance(found, HangVerdict) else None

        verdict: HangVerdict = await until(decided, limit_s=LIMIT_S, what="a verdict")
        return verdict

    async def whole_look(self) -> Look:
        """Ask all agents until every rank has answered."""

        async def whole() -> Look | None:
            look = await self.look()
            answers = [one.answered for one in look.ranks.values()]
            return look if answers == [True] * LAYOUT.world_size else None

        look: Look = await until(whole, limit_s=LIMIT_S, what="an answer of every rank")
        return look

    def pid(self, rank: int) -> int:
        """The process of a rank."""
        agent = self.hosts[rank // RANKS_EACH].agent
        assert agent is not None
        run = agent.runs.get(JOB)
        assert run is not None
        return run.ranks[rank].pid


def judged(looks: list[Look]) -> HangVerdict | Unsure:
    """What the judge says of a fast run that has made no step for 20 s."""
    pace = Pace(stepped_ms=0, gaps_ms=(50,), progressed=True)
    return judge_hang(20_000, looks, pace, LAYOUT, HangLimits(), collective_timeout_ms=120_000)


def spec_json(**fields: Any) -> str:
    """A run of four ranks, each with a sample a step."""
    return json.dumps(
        {
            "name": "hanging",
            "entry": "tests.integration.agent.hanging:main",
            "layout": {"dp_shard": 4},
            "steps": 1_000_000,
            "data": {"path": "unused", "sequence_tokens": 1, "global_batch": 4},
            "checkpoint": {"object_every_steps": 0},
            "cwd": str(ROOT),
            **fields,
        }
    )


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def lab(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Lab]:
    """Two hosts with real fork servers."""
    directory = tmp_path_factory.mktemp("hangs")
    async with (
        hosts_on(directory, "a", "b") as hosts,
        new_plane() as plane,
        AsyncExitStack() as agents,
    ):
        for host in hosts:
            await agents.enter_async_context(host.up(plane, fork_arguments=()))
        yield Lab(plane, hosts)


def blamed(verdict: HangVerdict) -> tuple[HangKind, tuple[int, ...], tuple[str, ...]]:
    """Whom a verdict names, and for what."""
    return verdict.kind, verdict.ranks, verdict.hosts


async def test_stopped_rank_is_named_and_its_neighbours_are_not(lab):
    """A rank under SIGSTOP cannot answer; the kernel tells of it, and the others only wait."""
    await lab.hang("none")
    os.kill(lab.pid(GUILTY), signal.SIGSTOP)
    try:
        verdict = await lab.verdict()
        look = await lab.look()
    finally:
        os.kill(lab.pid(GUILTY), signal.SIGCONT)
    assert blamed(verdict) == (HangKind.RANK_STOPPED, (GUILTY,), ("b",))
    assert (look.ranks[GUILTY].state, look.ranks[GUILTY].silence) == (
        State.STOPPED,
        "it is stopped",
    )
    before = lab.plane.newest_step(lab.generation)
    await lab.step(before + 2)  # the run goes on as if nothing had been


async def test_spinning_rank_is_named(lab):
    """A rank that computes for ever in its own code, in the middle of a step."""
    await lab.hang("spin")
    verdict = await lab.verdict()
    assert blamed(verdict) == (HangKind.RANK_SPINNING, (GUILTY,), ("b",))
    assert "hanging.py:spin" in verdict.reason
    guilty = (await lab.whole_look()).ranks[GUILTY]
    assert guilty.phase is Phase.COMPUTING
    assert guilty.frames[-1].rpartition(":")[0].endswith("tests/integration/agent/hanging.py:spin")


async def test_rank_asleep_in_its_dataset_is_named(lab):
    """A dataset that waits in Python."""
    await lab.hang("sleeping_loader")
    verdict = await lab.verdict()
    assert blamed(verdict) == (HangKind.LOADER_BLOCKED, (GUILTY,), ("b",))
    assert (await lab.whole_look()).ranks[GUILTY].phase is Phase.LOADING


async def test_rank_that_reads_what_never_comes_is_named(lab, tmp_path):
    """A dataset that waits in the kernel, for a file that nobody writes."""
    os.mkfifo(tmp_path / "fifo")
    await lab.hang("reading_loader", fifo=str(tmp_path / "fifo"))
    verdict = await lab.verdict()
    assert blamed(verdict) == (HangKind.LOADER_BLOCKED, (GUILTY,), ("b",))


async def test_rank_that_leaves_a_collective_out_is_named(lab):
    """It waits like all others, but at another place than most."""
    await lab.hang("skip")
    verdict = await lab.verdict()
    assert blamed(verdict) == (HangKind.HANG, (GUILTY,), ("b",))


async def test_ranks_that_all_wait_alike_are_not_blamed(lab):
    """A message that never comes, on every rank: the run hangs, and nobody is to evict."""
    await lab.hang("all_wait")
    assert blamed(await lab.verdict()) == (HangKind.HANG, (), ())


async def test_rank_that_takes_long_between_two_steps_is_given_time(lab):
    """One rank evaluates and all others wait for it: that is no hang yet."""
    await lab.hang("evaluate")
    looks: list[Look] = []

    async def asleep() -> bool:
        looks[:] = [await lab.whole_look()]
        return looks[0].ranks[GUILTY].frames[-1].rpartition(":")[0].endswith(":evaluate")

    await until(asleep, limit_s=LIMIT_S)
    looks += [await lab.whole_look() for _ in range(WORKING_LOOKS - 1)]
    assert looks[-1].grouping.outliers == (GUILTY,)
    assert {look.ranks[GUILTY].phase for look in looks} == {Phase.BETWEEN}
    assert isinstance(judged(looks), Unsure)


async def test_ranks_at_work_answer_and_go_on(lab):
    """Being looked at, again and again, ends no rank and changes no run."""
    await lab.hang("none")
    answers: Counter[int] = Counter()  # not all in one look, on a busy machine

    async def all_have() -> bool:
        look = await lab.look()
        answers.update(rank for rank, one in look.ranks.items() if one.answered)
        return all(answers[rank] >= 5 for rank in range(LAYOUT.world_size))

    await until(all_have, limit_s=LIMIT_S, what="five answers of every rank")
    await lab.step(lab.plane.newest_step(lab.generation) + 2)
    assert not [one for one in lab.plane.reports if one.generation == lab.generation and one.signal]


async def test_script_without_the_sdk_shows_its_stacks(lab):
    """It runs in the same warm process, so it answers the same question."""
    await lab.start(entry="tests/integration/agent/hanging.py")

    async def asleep() -> Look | None:
        look = await lab.look()
        inside = [
            any("hanging.py:script" in frame for frame in one.frames) for one in look.ranks.values()
        ]
        return look if inside == [True] * 4 else None

    look = await until(asleep, limit_s=LIMIT_S, what="all ranks in the script")
    assert {one.phase for one in look.ranks.values()} == {Phase.STARTING}


async def test_ranks_that_die_under_the_look_are_told_of(lab):
    """All ranks are killed while they are asked: the answer comes, and says so."""
    await lab.hang("none")
    command = TellStacks(job_id=JOB, generation=lab.generation)
    asking = [
        request(
            lab.plane.bus,
            host_subject(host.host_id, "cmd.stacks"),
            command,
            TellStacksReply,
            timeout_s=LIMIT_S,
        )
        for host in lab.hosts
    ]
    for rank in range(4):
        os.kill(lab.pid(rank), signal.SIGKILL)
    for asked in asking:
        reply = await asked
        assert reply.outcome.accepted
        assert len(reply.ranks) == RANKS_EACH

    async def gone() -> bool:
        return {one.state for one in (await lab.look()).ranks.values()} == {State.GONE}

    await until(gone)


async def test_another_generation_is_refused(lab):
    """Who asks for ranks that are not there is told so."""
    command = TellStacks(job_id=JOB, generation=lab.generation + 1)
    subject = host_subject("a", "cmd.stacks")
    reply = await request(lab.plane.bus, subject, command, TellStacksReply, timeout_s=LIMIT_S)
    assert (reply.outcome.accepted, reply.outcome.why) == (False, "not_running")
