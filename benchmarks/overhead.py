"""What Everstep costs a training step: the same loop bare and under the stack, in turns.

Bare is the SDK's bare mode: the same user code, the step's collective, but no agent, no snapshots,
no reports; the stack's processes are stopped meanwhile. Under Everstep every step is snapshotted,
checksummed, replicated to a peer host (on one machine: by the same cores) and reported. A third
run in each turn is bare beside the idle stack: it tells what the job itself costs from what the
services cost that would run elsewhere.

Two processors that compute have no time to spare, so on this machine all that runs beside the ranks
takes its time from them. Beside an accelerator the processors wait for most of a step: the model
``waiting`` computes little and sleeps for a second in each step, as a rank does whose device is
busy. ``roomy`` does the same with two ranks, a processor each: hosts of accelerators have more.
Run: ``make bench NAME=overhead``.
"""

from __future__ import annotations

import argparse
import json
import shutil
import tempfile
import time
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import pairwise
from math import prod
from pathlib import Path
from statistics import fmean
from typing import Any, Final

from benchmarks.contestants.fork_servers import ForkServers
from benchmarks.contestants.ours import Stack
from benchmarks.support import figures
from benchmarks.support.processes import end_in_order, say, wait_for
from benchmarks.support.quiet import wait_until_quiet
from benchmarks.workload import bare_rank, everstep_entry, probe
from benchmarks.workload.corpus import make_corpus
from benchmarks.workload.job import job_spec
from benchmarks.workload.training import DEMO, Sizes

from everstep.models.llama import LlamaConfig

# A step of more than a second on two cores, so that a per cent is more than a timer's grain.
LARGE: Final = Sizes(
    model=LlamaConfig(dim=256, heads=8, kv_heads=4, ffn_dim=768, sequence_tokens=256)
)
# As much state, and hardly any work for the processors: they wait, as beside an accelerator.
WAITING: Final = Sizes(
    model=LlamaConfig(dim=256, heads=8, kv_heads=4, ffn_dim=768, sequence_tokens=16),
    global_batch=4,
    micro_batch=1,
)
# A processor a rank: hosts of accelerators have more, and nothing else has to run there.
ROOMY: Final = Sizes(
    model=LlamaConfig(dim=256, heads=8, kv_heads=4, ffn_dim=768, sequence_tokens=16),
    pp=1,
    dp_shard=2,
    tp=1,
    global_batch=2,
    micro_batch=1,
)
SIZES: Final = {"large": LARGE, "demo": DEMO, "waiting": WAITING, "roomy": ROOMY}
# A second a step; steps of large runs are longer.
DEVICE_S: Final = {"waiting": 1.0, "roomy": 1.0}
KINDS: Final = ("bare", "idle_beside", "everstep")
TURNS: Final = 5
STEPS: Final = 16
WARM_STEPS: Final = 4  # left out: caches, the first snapshots' page faults
RUN_S: Final = 300.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Lap:
    """One run's steps after the warm-up.

    Args:
        step_ms: time between commits, in order.
        parts_ms: mean of each part over steps and ranks.
        cpu_ms: a step, of processes beside the ranks, by kind.
        record: everything the ranks noted.
    """

    step_ms: list[float]
    parts_ms: dict[str, float]
    cpu_ms: dict[str, float]
    record: probe.Record


def main() -> None:
    """Let the three take turns, and print the ratios."""
    parser = argparse.ArgumentParser(prog="benchmarks.overhead", description=__doc__)
    parser.add_argument("--turns", type=int, default=TURNS)
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--patience", type=float, default=0, help="to wait for quiet, a turn [s]")
    options = parser.parse_args()
    end_in_order()
    before = figures.machine()
    directory = Path(tempfile.mkdtemp(prefix="everstep-bench-"))
    results = {}
    try:
        corpus = make_corpus(directory)
        with ExitStack() as opened:
            run = "benchmarks.workload.bare_rank:run"
            servers = opened.enter_context(ForkServers(directory / "bare", run))
            stack = opened.enter_context(Stack(directory / "stack", corpus))
            place = Place(servers=servers, stack=stack, directory=directory, corpus=corpus)
            for name, sizes in SIZES.items():
                results[name] = _compare(sizes, _take_turns(name, sizes, options, place))
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    large, demo, waiting, roomy = (results[name] for name in SIZES)
    figures.save(
        "overhead",
        {
            "overhead_ratio": large["overhead_ratio"]["median"],
            "overhead_ratio_spread": large["overhead_ratio"],
            "overhead_ratio_beside_an_idle_stack": large["overhead_ratio_beside_an_idle_stack"],
            "overhead_ratio_demo_model": demo["overhead_ratio"]["median"],
            "overhead_ratio_beside_a_device": waiting["overhead_ratio"]["median"],
            "overhead_ratio_beside_a_device_spread": waiting["overhead_ratio"],
            "overhead_ratio_with_a_processor_a_rank": roomy["overhead_ratio"]["median"],
            "overhead_ratio_with_a_processor_a_rank_spread": roomy["overhead_ratio"],
            **results,
            "steps_measured": options.steps - WARM_STEPS - 1,
            "versions": figures.versions(("everstep", "torch", "numpy")),
            "machine": before,
        },
        keep=options.turns >= TURNS and options.steps >= STEPS,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where runs are made."""

    servers: ForkServers
    stack: Stack
    directory: Path
    corpus: Path


def _take_turns(
    name: str, sizes: Sizes, options: argparse.Namespace, place: Place
) -> dict[str, list[Lap]]:
    """Run each kind once a turn; who begins moves on, so that a drift of the machine evens out."""
    laps: dict[str, list[Lap]] = {kind: [] for kind in KINDS}
    for turn in range(options.turns):
        busy = wait_until_quiet(options.patience)
        for number in range(len(KINDS)):
            kind = KINDS[(turn + number) % len(KINDS)]
            notes = place.directory / f"{name}-{kind}-{turn}"
            notes.mkdir()
            spec = job_spec(sizes, notes, place.corpus, steps=options.steps)
            spec["env"][everstep_entry.DEVICE_VARIABLE] = str(DEVICE_S.get(name, 0.0))
            match kind:
                case "bare":
                    with place.stack.frozen():
                        lap = _run_bare(place.servers, spec)
                case "idle_beside":
                    lap = _run_bare(place.servers, spec)
                case _:
                    lap = _run_under(place.stack, spec)
            laps[kind].append(lap)
        times = ", ".join(f"{kind} {fmean(laps[kind][-1].step_ms):.0f} ms" for kind in KINDS)
        say(f"{name} {turn + 1} of {options.turns}: {times} a step ({busy:.0%} busy before)")
    return laps


def _run_bare(servers: ForkServers, spec: dict[str, Any]) -> Lap:
    notes = Path(spec["env"][probe.DIRECTORY_VARIABLE])
    environment = {
        **spec["env"],
        bare_rank.SPEC_VARIABLE: json.dumps(spec),
        everstep_entry.PARTS_VARIABLE: "1",
    }
    servers.fork(environment, _ranks(spec))
    codes = servers.wait_for_ends(RUN_S)
    assert not any(codes), f"bare ranks ended with {codes}: see {notes.parent / 'bare'}"
    return _lap(notes, spec, {})


def _run_under(stack: Stack, spec: dict[str, Any]) -> Lap:
    notes = Path(spec["env"][probe.DIRECTORY_VARIABLE])
    job_id = stack.submit(spec)
    at_begin = _cpu_at(stack, spec, WARM_STEPS)
    at_end = _cpu_at(stack, spec, spec["steps"] - 1)
    stack.wait_for_success(job_id, RUN_S)
    steps = spec["steps"] - 1 - WARM_STEPS
    cpu = {kind: (at_end[kind] - used) / steps * 1e3 for kind, used in at_begin.items()}
    return _lap(notes, spec, cpu)


def _ranks(spec: dict[str, Any]) -> int:
    return prod(spec["layout"].values())


def _cpu_at(stack: Stack, spec: dict[str, Any], step: int) -> dict[str, float]:
    """Return the processor time used beside the ranks when ``step`` is committed."""
    notes = Path(spec["env"][probe.DIRECTORY_VARIABLE])

    def committed() -> bool | None:
        record = probe.read(notes, _ranks(spec))
        return probe.committed(record, until=time.time()) >= step or None

    wait_for(committed, RUN_S, f"step {step}")
    return stack.cpu_s()


def _lap(notes: Path, spec: dict[str, Any], cpu_ms: dict[str, float]) -> Lap:
    """Read a run's steps; the first are warm-up, and the last one also says good-bye."""
    steps: int = spec["steps"]
    record = probe.read(notes, _ranks(spec))
    ends = probe.commits(record, since=0.0, until=time.time())
    assert len(ends) == steps, f"{len(ends)} steps instead of {steps} in {notes}"
    kept = ends[WARM_STEPS - 1 : -1]
    moments = [
        one
        for moments in record.values()
        for one in moments
        if one.event == probe.STEP and WARM_STEPS < one.step < steps
    ]
    parts = {key: fmean(one.parts_ms[key] for one in moments) for key in moments[0].parts_ms}
    return Lap(
        step_ms=[(after - at) * 1e3 for at, after in pairwise(kept)],
        parts_ms=parts,
        cpu_ms=cpu_ms,
        record=record,
    )


def _compare(sizes: Sizes, laps: dict[str, list[Lap]]) -> dict[str, Any]:
    bare, beside, under = (laps[kind] for kind in KINDS)
    notes = [one for lap in bare for moments in lap.record.values() for one in moments]
    parts = [one.parts_ms for one in notes if one.event == everstep_entry.PARTS]
    state_bytes = [one.step for one in notes if one.event == everstep_entry.BYTES]
    return {
        "overhead_ratio": figures.summary(_ratios(under, bare), 4),
        "overhead_ratio_beside_an_idle_stack": figures.summary(_ratios(under, beside), 4),
        "idle_stack_ratio": figures.summary(_ratios(beside, bare), 4),
        "step_ms": {
            kind: figures.summary([fmean(lap.step_ms) for lap in laps[kind]], 1) for kind in KINDS
        },
        "inside_the_step_ms": {
            kind: _mean_of([lap.parts_ms for lap in laps[kind]]) for kind in KINDS
        },
        "plain_copy_of_the_state_ms": figures.summary([one["copy"] for one in parts]),
        "plain_checksum_of_the_state_ms": figures.summary([one["checksum"] for one in parts]),
        **_processor_time(bare, under, sizes.world_size),
        "state_bytes_a_rank": {"min": min(state_bytes), "max": max(state_bytes)},
        "model": {
            "dim": sizes.model.dim,
            "layers": sizes.model.layers,
            "sequence_tokens": sizes.model.sequence_tokens,
            "global_batch": sizes.global_batch,
        },
    }


def _ratios(over: list[Lap], under: list[Lap]) -> list[float]:
    """Return each turn's ratio of mean step times."""
    return [fmean(one.step_ms) / fmean(two.step_ms) for one, two in zip(over, under, strict=True)]


def _processor_time(bare: list[Lap], under: list[Lap], ranks: int) -> dict[str, Any]:
    """Return what a step takes of the processors: less touched by other work than wall time is."""
    before = fmean(lap.parts_ms["cpu"] for lap in bare) * ranks
    after = fmean(lap.parts_ms["cpu"] for lap in under) * ranks
    beside = _mean_of([lap.cpu_ms for lap in under])
    return {
        "cpu_ratio_of_the_ranks": round(after / before, 4),
        "cpu_ratio_with_all_beside": round((after + sum(beside.values())) / before, 4),
        "cpu_of_the_ranks_ms_a_step": {"bare": round(before, 1), "everstep": round(after, 1)},
        "cpu_beside_the_ranks_ms_a_step": beside,
    }


def _mean_of(rows: list[dict[str, float]]) -> dict[str, float]:
    return {key: round(fmean(row[key] for row in rows), 3) for key in rows[0]}


if __name__ == "__main__":
    main()
