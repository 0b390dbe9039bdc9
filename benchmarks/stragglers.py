"""Whether slow ranks are found, and nobody else: live runs of 8 ranks, one of them slowed down.

Every run trains the demo's model in its layout (pp 2 x dp 2 x tp 2) on this machine's cores. A rank
drawn by chance takes some per cent longer from a step on, computing or asleep, with or without
another process that takes a whole core on and off. What the ranks report goes through the monitor's
own detector. Then a long undisturbed run beside such a process: every name is a false alarm. Run:
``make bench NAME=stragglers``.
"""

from __future__ import annotations

import argparse
import itertools
import json
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean, median
from typing import Any, Final

from benchmarks.contestants.fork_servers import HOSTS, RANKS_A_HOST, ForkServers
from benchmarks.support import figures
from benchmarks.support.processes import end_in_order, say
from benchmarks.workload import bare_rank, probe
from benchmarks.workload.corpus import make_corpus
from benchmarks.workload.job import job_spec
from benchmarks.workload.training import DEMO

from everstep.core.placement import Layout
from everstep.monitor.detectors.straggler import Crew, Judgement, Limits, stage_roles
from everstep.monitor.detectors.straggler_course import StragglerCourse
from everstep.train.faults import How, as_environment, at

ONSET: Final = 8  # not at the begin of a part
# Onset and windows; a small excess may take more than one window when the machine is busy.
STEPS: Final = {0: 200, 5: 220, 8: 130, 15: 60, 50: 60}
UNDISTURBED_STEPS: Final = 2_000
REPEATS: Final = 3
RUN_S: Final = 3_600.0
# A whole core for some seconds, then none: slower than a step, faster than a window.
EATER: Final = """
import itertools, time
for turn in itertools.count():
    until = time.monotonic() + 2 + turn % 3
    while time.monotonic() < until:
        sum(range(1_000))
    time.sleep(1 + turn % 4)
"""
MANY_RANKS: Final = 16_384


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """What a rank tells of a step."""

    rank: int
    step: int
    own_ms: float
    first: bool = False
    step_time_ms: float = 500.0  # windows are of steps here, as in runs whose steps are longer


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One kind of run; ``percent`` 0 slows nobody down."""

    percent: int
    how: How
    noisy: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What the detector said: the first step at which it named somebody, -1 for never."""

    case: Case
    slow: int
    named: tuple[int, ...]
    named_at: int
    ratio: float
    doubts: int
    step_ms: float


def main() -> None:
    """Run every case some times, then the long undisturbed one, and print what was found."""
    parser = argparse.ArgumentParser(prog="benchmarks.stragglers", description=__doc__)
    parser.add_argument("--repeats", type=int, default=REPEATS)
    parser.add_argument("--undisturbed", type=int, default=UNDISTURBED_STEPS, help="steps")
    parser.add_argument("--percents", type=int, nargs="*", default=tuple(STEPS))
    parser.add_argument("--noise", choices=("quiet", "eater", "both"), default="both")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    end_in_order()
    before = figures.machine()
    chance = random.Random(options.seed)
    directory = Path(tempfile.mkdtemp(prefix="everstep-bench-"))
    cases = [
        case
        for case in _cases()
        if case.percent in options.percents and options.noise in {"both", _noise(case)}
    ]
    outcomes: list[Outcome] = []
    try:
        corpus = make_corpus(directory)
        with ForkServers(directory / "bare", "benchmarks.workload.bare_rank:run") as servers:
            lab = Lab(servers, directory, corpus)
            for _ in range(options.repeats):
                outcomes += [
                    lab.run(case, chance.randrange(DEMO.world_size), STEPS[case.percent])
                    for case in cases
                ]
            alone = Case(percent=0, how=How.COMPUTE, noisy=True)
            long = lab.run(alone, 0, options.undisturbed) if options.undisturbed else None
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    figures.save(
        "stragglers",
        {
            "detection": [_row(case, outcomes) for case in cases],
            "undisturbed_steps": options.undisturbed,
            "undisturbed_false_alarms": len(long.named) if long is not None else None,
            "undisturbed_highest_ratio": round(long.ratio, 4) if long is not None else None,
            "judging_cpu_ms_a_step_at_16384_ranks": _judging_ms(),
            "windows": [asdict(window) for window in Limits().windows],
            "part_steps": Limits().part_steps,
            "seed": options.seed,
            "versions": figures.versions(("everstep", "torch")),
            "machine": before,
        },
        keep=options.repeats >= REPEATS
        and options.undisturbed >= UNDISTURBED_STEPS
        and len(cases) == len(list(_cases())),
    )


def _cases() -> Iterator[Case]:
    for noisy in (False, True):
        yield Case(percent=0, how=How.COMPUTE, noisy=noisy)
        for percent, how in itertools.product(list(STEPS)[1:], How):
            yield Case(percent=percent, how=how, noisy=noisy)


def _noise(case: Case) -> str:
    return "eater" if case.noisy else "quiet"


class Lab:
    """Makes runs, one after the other.

    Args:
        servers: warm.
        directory: for the ranks' notes.
        corpus: token shards.
    """

    def __init__(self, servers: ForkServers, directory: Path, corpus: Path) -> None:
        self._servers = servers
        self._directory = directory
        self._corpus = corpus
        self._runs = itertools.count()

    def run(self, case: Case, slow: int, steps: int) -> Outcome:
        """Make one run, and judge it as the monitor would."""
        notes = self._directory / f"run-{next(self._runs)}"
        notes.mkdir()
        spec = job_spec(DEMO, notes, self._corpus, steps=steps)
        spec["entry"] = "benchmarks.workload.straggler_entry:main"
        del spec["args"]["sequence_tokens"]  # the reference entry takes it from the data
        environment = {**spec["env"], bare_rank.SPEC_VARIABLE: json.dumps(spec)}
        if case.percent:
            fault = at(rank=slow, step=ONSET).slow(percent=case.percent, how=case.how)
            environment |= as_environment(fault)
        begun = time.monotonic()
        with _eater(on=case.noisy):
            self._servers.fork(environment)
            codes = self._servers.wait_for_ends(RUN_S)
        if any(codes):
            log = self._directory / "bare" / f"rank-{slow}.log"
            raise RuntimeError(f"ranks ended with {codes}; rank {slow}: {log.read_text()[-2000:]}")
        step_ms = (time.monotonic() - begun) * 1e3 / steps
        outcome = _outcome(case, slow, probe.read(notes, DEMO.world_size), step_ms)
        say(f"{case}: rank {slow}, named {outcome.named} at step {outcome.named_at}")
        return outcome


@contextmanager
def _eater(*, on: bool) -> Iterator[None]:
    if not on:
        yield
        return
    eater = subprocess.Popen([sys.executable, "-c", EATER])
    try:
        yield
    finally:
        eater.kill()
        eater.wait()


def judged(record: probe.Record) -> list[Judgement]:
    """Let the detector judge what the ranks have told, in the order of steps."""
    layout = Layout(pp=DEMO.pp, dp_replicate=DEMO.dp_replicate, dp_shard=DEMO.dp_shard, tp=DEMO.tp)
    hosts = [f"h{rank // RANKS_A_HOST}" for rank in range(HOSTS * RANKS_A_HOST)]
    course = StragglerCourse(1, Crew(stage_roles(layout), hosts), Limits())
    told = [
        Told(rank=rank, step=one.step, own_ms=one.parts_ms["own"], first=one.step == 1)
        for rank, moments in record.items()
        for one in moments
        if one.event == probe.STEP
    ]
    told.sort(key=lambda one: (one.step, one.rank))
    return [judgement for one in told for judgement in course.told(1, [one])]


def _outcome(case: Case, slow: int, record: probe.Record, step_ms: float) -> Outcome:
    judgements = judged(record)
    first = next((one for one in judgements if one.findings), None)
    named = sorted({rank for one in judgements for found in one.findings for rank in found.ranks})
    of_slow = [one.ratios[slow] if case.percent else max(one.ratios) for one in judgements]
    return Outcome(
        case=case,
        slow=slow,
        named=tuple(named),
        named_at=first.last_step if first is not None else -1,
        ratio=(of_slow[-1] if case.percent else max(of_slow)) if of_slow else 0.0,
        doubts=sum(len(one.doubts) for one in judgements),
        step_ms=step_ms,
    )


def _row(case: Case, outcomes: list[Outcome]) -> dict[str, Any]:
    mine = [one for one in outcomes if one.case == case]
    expected = [(one.slow,) if case.percent else () for one in mine]
    late = [one.named_at - ONSET for one in mine if one.named_at >= 0]
    return {
        "slower_by_percent": case.percent,
        "how": case.how if case.percent else "",
        "core_eater": case.noisy,
        "runs": len(mine),
        "right": sum(one.named == names for one, names in zip(mine, expected, strict=True)),
        "others_named": sum(len(set(one.named) - {one.slow}) for one in mine),
        "steps_from_onset": figures.summary(late, 0),
        "ratio": figures.summary([one.ratio for one in mine], 4),
        "doubts": sum(one.doubts for one in mine),
        "step_ms": round(fmean(one.step_ms for one in mine), 1) if mine else None,
    }


def _judging_ms() -> dict[str, float]:
    """Time the detector at the size of a whole fleet; messages come host by host, 8 ranks each."""
    chance = random.Random(1)
    layout = Layout(pp=16, dp_replicate=2, dp_shard=64, tp=8)
    hosts = [f"h{rank // 8}" for rank in range(MANY_RANKS)]
    course = StragglerCourse(1, Crew(stage_roles(layout), hosts), Limits())
    times = []
    for step in range(2, 182):
        messages = [
            [
                Told(rank=rank, step=step, own_ms=chance.gauss(4_000, 40))
                for rank in range(first, first + 8)
            ]
            for first in range(0, MANY_RANKS, 8)
        ]
        begun = time.process_time()
        for message in messages:
            course.told(1, message)
        times.append((time.process_time() - begun) * 1e3)
    mean = fmean(times[-20:])  # with all windows full
    return {"mean": round(mean, 1), "median": round(median(times), 1), "max": round(max(times), 1)}


if __name__ == "__main__":
    main()
