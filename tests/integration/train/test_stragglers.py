"""Ranks of live runs report own times, and the monitor's detector says who is slow."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from everstep.core.placement import Layout
from everstep.monitor.detectors.straggler import Crew, Judgement, Limits, stage_roles
from everstep.monitor.detectors.straggler_course import StragglerCourse
from everstep.train.faults import How, as_environment, at

pytestmark = pytest.mark.torch

LAYOUT = {"pp": 2, "dp_replicate": 1, "dp_shard": 2, "tp": 2}
SIZES = {"dim": 64, "layers": 4, "ffn_dim": 192}
ONSET = 8  # in the middle of a part
LIMITS = Limits(part_ms_min=0.0)  # by steps alone: how long they take says what else runs here
WITHIN = LIMITS.part_steps * (LIMITS.windows[-1].parts + 1)  # the longer window, and a part
UNDISTURBED = 91  # steps of eleven windows: the first step of a run counts for nothing
WAIT_S = 280.0  # for a run of a hundred steps on a machine that others use too
EATER = """
import time
while True:
    until = time.monotonic() + 1.5
    while time.monotonic() < until:
        sum(range(1_000))
    time.sleep(1.0)
"""


@dataclass(frozen=True)
class Told:
    """What a rank tells of a step."""

    rank: int
    step: int
    own_ms: float
    first: bool
    step_time_ms: float = 0.0


@pytest.fixture
def core_eater() -> Iterator[None]:
    """A process beside the ranks that takes a whole core, on and off."""
    eater = subprocess.Popen([sys.executable, "-c", EATER])
    yield
    eater.kill()
    eater.wait()


class Watched:
    """A world whose ranks' own times are judged as they come, as a monitor does."""

    def __init__(self, world) -> None:
        self.world = world
        self.judged: list[Judgement] = []
        self._seen = [0] * 8
        crew = Crew(stage_roles(Layout(**LAYOUT)), [f"h{rank // 2}" for rank in range(8)])
        self._course = StragglerCourse(0, crew, LIMITS)

    @property
    def named(self) -> set[int]:
        """Everybody who was named in any window."""
        return {rank for one in self.judged for found in one.findings for rank in found.ranks}

    def until(self, condition) -> None:
        """Serve the ranks until the condition holds, or all have ended well."""

        def over() -> bool:
            self._look()
            return condition() or self._ended()

        self.world.until(over, timeout_s=WAIT_S)

    def _look(self) -> None:
        for rank in self.world.ranks:
            new = rank.steps[self._seen[rank.rank] :]
            self._seen[rank.rank] += len(new)
            told = [
                Told(rank=rank.rank, step=one["step"], own_ms=one["own_ms"], first=one["first"])
                for one in new
            ]
            assert all(one.own_ms > 0 for one in told)
            self.judged += self._course.told(0, told)

    def _ended(self) -> bool:
        ended = all(rank.status is not None for rank in self.world.ranks)
        if ended:
            assert [rank.exit_code for rank in self.world.ranks] == [0] * 8, self.world.logs()
        return ended


def test_slow_ranks_are_named_within_a_part_after_their_window(make_world, make_spec):
    """Peers wait for them within forward and backward; the slow one of each stage is named."""
    slow = {3: (8, How.COMPUTE), 6: (15, How.SLEEP)}
    faults = [at(rank=rank, step=ONSET).slow(percent=p, how=how) for rank, (p, how) in slow.items()]
    world = make_world("slow", make_spec(LAYOUT, steps=ONSET + WITHIN, args=SIZES))
    world.start(env=as_environment(*faults))
    watched = Watched(world)
    watched.until(lambda: watched.named >= slow.keys())
    assert watched.named == slow.keys()
    for rank, (percent, _) in slow.items():
        named = [one for one in watched.judged if any(rank in f.ranks for f in one.findings)]
        assert named[0].ratios[rank] > 1 + percent / 200


def test_undisturbed_ranks_beside_a_busy_process_are_nobody(make_world, make_spec, core_eater):
    """A core that somebody else takes on and off slows whoever is on it just now."""
    world = make_world("noisy", make_spec(LAYOUT, steps=UNDISTURBED, args=SIZES))
    world.start()
    watched = Watched(world)
    watched.until(lambda: False)
    assert len(watched.judged) > 10
    assert watched.named == set()
