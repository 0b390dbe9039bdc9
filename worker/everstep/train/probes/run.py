"""Runs a host's probes in a process of their own and writes down what they said.

Forked from the fork server, where torch is imported already; ended by it when ranks come. At the
lowest priority: on one machine with several hosts, the others' ranks go first.

``python -m everstep.train.probes.run REQUEST`` does the same by hand and prints the report.
"""

from __future__ import annotations

import itertools
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final

import msgspec

from everstep.core.probes import Depth, Figure, PartnerHost, ProbeReport, ProbeResult, Verdict
from everstep.core.system import Clock, SystemClock
from everstep.memory.room import free_bytes
from everstep.train.probes import memory, products
from everstep.train.probes.links import check_link

# Quick: a spare is to be warm again within two seconds, on 2 cores that five hosts of one machine
# share. All of it takes 0.08 s of processor time (benchmarks/probes.py).
QUICK_REPEATS: Final = 5
QUICK_MEMORY_BYTES: Final = 16 << 20
QUICK_ECHOES: Final = 4
# Burn-in: products and memory take turns until the time is up.
ROUND_S: Final = 2.0
WINDOW_BYTES: Final = 128 << 20  # of memory in one turn: a fraction of a second
BURN_IN_BYTES_MAX: Final = 4 << 30
BURN_IN_ECHOES: Final = 64
# Of what is free now, a 20th: other hosts of the same machine and the kernel's cache want some too.
MEMORY_SHARE: Final = 0.05
NICE: Final = 19


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """What to run, where to write the report, and where links lead."""

    examination_id: str
    depth: Depth
    burn_in_s: int
    answer_path: str
    loopback: PartnerHost | None = None
    partner: PartnerHost | None = None
    shared: bool = False  # other hosts are on this machine: no accelerators, and one window


def run(request: Request, clock: Clock) -> ProbeReport:
    """Run the probes of a request, the cheap ones first."""
    began_ms, at_ms = clock.monotonic_ms(), clock.now_ms()
    quick = request.depth is Depth.QUICK
    one = products.known()
    probes = [products.check_integers(one, clock)]
    echoes = QUICK_ECHOES if quick else BURN_IN_ECHOES
    if request.loopback is not None:
        probes.append(check_link(request.loopback, echoes, clock, name="loopback"))
    if request.partner is not None:
        probes.append(check_link(request.partner, echoes, clock))
    if quick:
        probes += _compute(one, lambda repeats: repeats >= QUICK_REPEATS, request, clock)
        words = max(_share_bytes(QUICK_MEMORY_BYTES) // memory.WORD_BYTES, 1)
        probes.append(memory.check(memory.take(words), clock))
    else:
        probes = _merged(probes, _burn_in(one, request, clock, began_ms))
    return ProbeReport(
        examination_id=request.examination_id,
        depth=request.depth,
        at_ms=at_ms,
        duration_ms=round(clock.monotonic_ms() - began_ms),
        probes=tuple(probes),
    )


def _burn_in(
    one: products.Known, request: Request, clock: Clock, began_ms: float
) -> list[ProbeResult]:
    """Compute and write memory by turns; what fails once ends it.

    Each turn takes another window of memory until all of its share is taken, and then goes through
    them again: a turn takes about as long on a large host as on a small one.
    """
    found: list[ProbeResult] = []
    windows: list[memory.Memory] = []
    end_ms = began_ms + request.burn_in_s * 1e3
    count = 1 if request.shared else max(_share_bytes(BURN_IN_BYTES_MAX) // WINDOW_BYTES, 1)
    for turn in itertools.count():
        turn_ms = min(clock.monotonic_ms() + ROUND_S * 1e3, end_ms)

        def over(_: int, until_ms: float = turn_ms) -> bool:
            return clock.monotonic_ms() >= until_ms

        probes = _compute(one, over, request, clock)
        if len(windows) < count:
            windows.append(memory.take(WINDOW_BYTES // memory.WORD_BYTES))
        window = windows[turn % len(windows)]
        probes.append(memory.check(window, clock, seed=turn))
        found = _merged(found, probes)
        failed = any(probe.verdict is Verdict.FAILED for probe in found)
        if failed or clock.monotonic_ms() >= end_ms:
            break
    return found


def _compute(
    one: products.Known, until: Callable[[int], bool], request: Request, clock: Clock
) -> list[ProbeResult]:
    found = products.on_cores(one, until, clock)
    if not request.shared:
        found += products.on_devices(one, until, clock)
    return found


def _share_bytes(bytes_max: int) -> int:
    """Return how much of the free memory may be taken; as if it were much where nothing tells."""
    free = free_bytes()
    return min(round(free * MEMORY_SHARE), bytes_max) if free else bytes_max


def _merged(before: list[ProbeResult], more: list[ProbeResult]) -> list[ProbeResult]:
    """Add up the turns of each probe: its time and repeats; a failure stands."""
    found = {(one.name, one.where): one for one in before}
    for one in more:
        known = found.get((one.name, one.where))
        if known is None or known.verdict is Verdict.FAILED:
            found.setdefault((one.name, one.where), one)
            continue
        sums = {f.name: f.value for f in known.figures}
        figures = tuple(
            Figure(name=f.name, value=f.value + sums.get(f.name, 0.0)) for f in one.figures
        )
        found[one.name, one.where] = ProbeResult(
            name=one.name,
            verdict=one.verdict,
            where=one.where,
            detail=one.detail,
            duration_ms=known.duration_ms + one.duration_ms,
            figures=figures,
        )
    return list(found.values())


def run_and_answer(text: bytes) -> int:
    """Run a request of JSON and write the report where it says, all at once; returns 0."""
    request = msgspec.json.decode(text, type=Request)
    os.nice(NICE)
    report = run(request, SystemClock())
    path = Path(request.answer_path)
    new = path.with_name(f"{path.name}.new")
    new.write_bytes(msgspec.json.encode(report))
    new.replace(path)
    return 0


if __name__ == "__main__":
    report = run(msgspec.json.decode(sys.argv[1], type=Request), SystemClock())
    sys.stdout.write(msgspec.json.format(msgspec.json.encode(report)).decode() + "\n")
