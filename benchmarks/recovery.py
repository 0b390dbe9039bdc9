"""Loses a host and measures the time until training has made a new step: ours, the floor, peers.

All contestants run in turn on this machine, with the same model, layout, corpus and probe, 8 ranks
on gloo with one thread each, saving after every step. ``README.md`` says what each is and what was
killed. Run: ``make bench NAME=recovery`` or ``python -m benchmarks.recovery [--rounds N]``.
"""

from __future__ import annotations

import argparse
import random
import shutil
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any, Final

from benchmarks.contestants import launched, ours
from benchmarks.contestants.faults import Sample
from benchmarks.contestants.floor import Floor
from benchmarks.contestants.peers import DLROVER, NVRX, NVRX_NODE, TORCHRUN, TORCHRUN_NODE, Peer
from benchmarks.support import figures, peer_venv
from benchmarks.support.processes import TimedOutError, end_in_order, say
from benchmarks.support.quiet import wait_until_quiet
from benchmarks.workload.corpus import make_corpus
from benchmarks.workload.training import DEMO

ROUNDS: Final = 5
FAULTS_A_ROUND: Final = 2  # 10 repeats of ours and of the floor
# Peers take a minute a round, so each sits out some: 6, 3, 4, 3 and 4 repeats in 5 rounds.
PEER_ROUNDS: Final = {
    TORCHRUN: (0, 2, 4),
    TORCHRUN_NODE: (1, 3, 4),
    NVRX: (1, 3),
    NVRX_NODE: (0, 2, 4),
    DLROVER: (1, 3),
}
SEED: Final = 20_260_101  # of the faults' moments


@dataclass(slots=True)
class Results:
    """What has been measured so far; a contestant with an error has no more turns."""

    samples: dict[str, list[Sample]] = field(default_factory=dict)
    floor: list[dict[str, Any]] = field(default_factory=list)
    errors: dict[str, str] = field(default_factory=dict)
    busy_before: list[float] = field(default_factory=list)  # share of the cores, a turn

    def add(self, name: str, measure: Callable[[], list[Sample]]) -> None:
        """Measure unless it has failed before; tell of the figures or of the failure."""
        if name in self.errors:
            return
        try:
            found = measure()
        except TimedOutError as error:
            self.errors[name] = str(error)
            say(f"{name}: {error}")
            return
        self.samples.setdefault(name, []).extend(found)
        times = ", ".join(f"{one.recovery.new_step_s:.2f}" for one in found)
        say(f"{name}: {times} s")


def main() -> None:
    """Run all rounds and print the figures."""
    parser = argparse.ArgumentParser(prog="benchmarks.recovery", description=__doc__)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--only", nargs="*", help="contestants, by their names in the figures")
    parser.add_argument("--patience", type=float, default=0, help="to wait for quiet, a turn [s]")
    options = parser.parse_args()
    end_in_order()
    rng = random.Random(SEED)
    before = figures.machine()
    results = Results()
    wanted = set(options.only or ("ours", "floor", *(peer.name for peer in PEER_ROUNDS)))
    if wanted & {peer.name for peer in PEER_ROUNDS}:
        results.errors.update(_failed_installs())
    directory = Path(tempfile.mkdtemp(prefix="everstep-bench-"))
    try:
        _run(options, wanted, directory, rng, results)
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    whole = options.only is None and options.rounds >= ROUNDS
    figures.save("recovery", _figures(results, before), keep=whole)


def _failed_installs() -> dict[str, str]:
    """Make the peers' environment; returns why contestants cannot take part."""
    failed = peer_venv.make()
    return {
        peer.name: f"not installed: {why}"
        for peer in PEER_ROUNDS
        for package, why in failed.items()
        if peer.name.startswith(package)
    }


def _run(
    options: argparse.Namespace,
    wanted: set[str],
    directory: Path,
    rng: random.Random,
    results: Results,
) -> None:
    """Let every contestant have its turn in every round, in an order drawn anew for each."""
    corpus = make_corpus(directory)
    with ExitStack() as opened:
        turns: dict[str, Callable[[], None]] = {
            peer.name: partial(_turn_of_peer, peer, directory / peer.name, corpus, rng, results)
            for peer in PEER_ROUNDS
        }
        if "floor" in wanted:
            floor = opened.enter_context(Floor(directory / "floor", corpus))
            turns["floor"] = partial(_turn_of_floor, floor, results)
        if "ours" in wanted:
            stack = opened.enter_context(ours.Stack(directory / "stack", corpus))
            measure = partial(stack.measure, directory / "ours", FAULTS_A_ROUND, rng)
            turns["ours"] = partial(results.add, "ours", measure)
        for number in range(options.rounds):
            resting = {
                peer.name for peer, some in PEER_ROUNDS.items() if number % ROUNDS not in some
            }
            names = sorted((wanted & set(turns)) - resting)
            rng.shuffle(names)
            say(f"round {number + 1} of {options.rounds}: {', '.join(names)}")
            for name in names:
                results.busy_before.append(wait_until_quiet(options.patience))
                turns[name]()


def _turn_of_floor(floor: Floor, results: Results) -> None:
    for _ in range(FAULTS_A_ROUND):
        found = floor.measure()
        say(f"floor: {found.new_step_s:.2f} s")
        results.floor.append({"new_step_s": found.new_step_s, "stages_s": found.stages_s})


def _turn_of_peer(
    peer: Peer, directory: Path, corpus: Path, rng: random.Random, results: Results
) -> None:
    results.add(peer.name, partial(launched.measure, peer, directory, corpus, rng))


def _figures(results: Results, before: dict[str, Any]) -> dict[str, Any]:
    names = ("ours", *(peer.name for peer in PEER_ROUNDS))
    times = {
        name: figures.summary([one.recovery.new_step_s for one in results.samples.get(name, [])])
        for name in names
    }
    times["floor"] = figures.summary([one["new_step_s"] for one in results.floor])
    mine = results.samples.get("ours", [])
    detection = figures.summary([one.extra["control_plane_s"]["detected"] for one in mine])
    after_detection = figures.summary(
        [one.recovery.new_step_s - one.extra["control_plane_s"]["detected"] for one in mine]
    )
    return {
        **{f"{name}_s": times[name] for name in ("ours", "floor", *names[1:])},
        "ours_over_floor": figures.ratio(times["ours"], times["floor"]),
        "ours_without_detection_over_floor": figures.ratio(after_detection, times["floor"]),
        **{f"{name}_over_ours": figures.ratio(times[name], times["ours"]) for name in names[1:]},
        "detection_s": detection,
        "steps_lost": {
            name: figures.summary([one.recovery.steps_lost for one in samples])
            for name, samples in results.samples.items()
        },
        "step_time_before_fault_s": {
            name: figures.summary([one.step_time_s for one in samples if one.step_time_s])
            for name, samples in results.samples.items()
        },
        "stages_s": _stages(results),
        "errors": results.errors,
        "killed": {"ours": ours.KILLED, **{peer.name: peer.killed for peer in PEER_ROUNDS}},
        "model": {
            "layout": f"pp{DEMO.pp} x dp{DEMO.dp_replicate * DEMO.dp_shard} x tp{DEMO.tp}",
            "ranks": DEMO.world_size,
            "backend": "gloo",
            "threads_a_rank": 1,
            "dim": DEMO.model.dim,
            "layers": DEMO.model.layers,
            "saved_every_steps": launched.SAVE_EVERY,
        },
        "versions": _versions(results),
        "machine": before,
        "others_busy_share_before_turns": figures.summary(results.busy_before, 2),
        "samples": {
            "floor": results.floor,
            **{name: [one.to_json() for one in some] for name, some in results.samples.items()},
        },
    }


def _stages(results: Results) -> dict[str, dict[str, float]]:
    """Return the median time from the fault at which each moment was reached, by contestant."""
    rows: dict[str, list[dict[str, float]]] = {"floor": [one["stages_s"] for one in results.floor]}
    for name, samples in results.samples.items():
        rows[name] = [
            {
                **one.extra.get("control_plane_s", {}),
                **one.recovery.stages_s,
                "first_step": one.recovery.first_step_s,
                "new_step": one.recovery.new_step_s,
            }
            for one in samples
        ]
    return {
        name: {key: round(median(row[key] for row in some), 3) for key in some[0]}
        for name, some in rows.items()
        if some
    }


def _versions(results: Results) -> dict[str, Any]:
    found: dict[str, Any] = {"everstep": figures.versions(("everstep", "torch", "numpy"))}
    if any(peer.name in results.samples for peer in PEER_ROUNDS):
        names = ("torch", "numpy", "nvidia-resiliency-ext", "dlrover")
        found["peers"] = peer_venv.versions(names)
    return found


if __name__ == "__main__":
    main()
