"""Writes patterns into a share of the free memory and reads them back.

Address: every word holds a number that follows from its place, so a line that is written to another
one's place is found; then its complement, so that every bit was 0 and 1; then a single one that
walks through the bits. What it can find: stuck and coupled bits, wrong addresses, in the pages that
the kernel happened to give. What it cannot: bits that flip once in a while, pages that others hold.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np

from everstep.core.probes import Figure, ProbeResult, Verdict
from everstep.core.system import Clock

BLOCK_WORDS: Final = 512 << 10  # 4 MiB: patterns are made block by block, not as large as the whole
WORD_BYTES: Final = 8
_GOLDEN: Final = np.uint64(0x9E3779B97F4A7C15)

Memory = Any  # a one-dimensional uint64 array of numpy's
Pattern = Callable[[int, int], Memory]


def patterns(seed: int) -> list[tuple[str, Pattern]]:
    """Return the patterns by name; each makes the words of places ``start`` to ``stop``."""

    def address(start: int, stop: int) -> Memory:
        return (np.arange(start, stop, dtype=np.uint64) + np.uint64(seed)) * _GOLDEN

    def complement(start: int, stop: int) -> Memory:
        return ~address(start, stop)

    def walking(start: int, stop: int) -> Memory:
        return np.uint64(1) << ((np.arange(start, stop, dtype=np.uint64) + np.uint64(seed)) % 64)

    return [("address", address), ("complement", complement), ("walking one", walking)]


def take(words: int) -> Memory:
    """Take so many words of memory from the kernel."""
    return np.empty(words, dtype=np.uint64)


def check(memory: Memory, clock: Clock, *, seed: int = 1) -> ProbeResult:
    """Write and read each pattern once; ``seed`` makes those of another round other ones."""
    began_ms, wrong = clock.monotonic_ms(), ""
    for name, pattern in patterns(seed):
        _write(memory, pattern)
        wrong = wrong or _first_difference(memory, pattern, name)
    return ProbeResult(
        name="memory",
        verdict=Verdict.FAILED if wrong else Verdict.PASSED,
        detail=wrong,
        duration_ms=round(clock.monotonic_ms() - began_ms),
        figures=(
            Figure(name="tested_bytes", value=float(len(memory) * WORD_BYTES)),
            Figure(name="rounds", value=1.0),
        ),
    )


def _write(memory: Memory, pattern: Pattern) -> None:
    for start in range(0, len(memory), BLOCK_WORDS):
        stop = min(start + BLOCK_WORDS, len(memory))
        memory[start:stop] = pattern(start, stop)


def _first_difference(memory: Memory, pattern: Pattern, name: str) -> str:
    for start in range(0, len(memory), BLOCK_WORDS):
        stop = min(start + BLOCK_WORDS, len(memory))
        expected = pattern(start, stop)
        wrong = np.flatnonzero(memory[start:stop] != expected)
        if len(wrong):
            at = int(wrong[0])
            return (
                f"pattern {name}: {len(wrong)} words wrong in one block; word {start + at} is "
                f"{int(memory[start + at]):#018x}, expected {int(expected[at]):#018x}"
            )
    return ""
