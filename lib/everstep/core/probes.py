"""What probes say: tests of a host's own work whose answers are known beforehand.

An examination is one run of a host's probes, of some depth; its report goes from the process that
ran them over the agent to the inventory, which decides what becomes of the host.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Depth(StrEnum):
    """How thorough an examination is."""

    QUICK = "quick"  # a moment: before a host counts as a spare, and of idle spares
    BURN_IN = "burn_in"  # as long as the inventory says: on the way back from a failure


class Verdict(StrEnum):
    """What a probe has found."""

    PASSED = "passed"
    FAILED = "failed"
    NOT_RUN = "not_run"  # nothing is known: no partner, no such device, no time left


PAIR = "pair"  # the probe that two hosts take part in: a failure may be either's, or the network's


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """A measured number; its unit is the end of its name."""

    name: str
    value: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeResult:
    """One probe. ``where`` is a core, a device or a partner; "" for the whole host."""

    name: str
    verdict: Verdict
    where: str = ""
    detail: str = ""
    duration_ms: int = 0
    figures: tuple[Figure, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeReport:
    """All probes of one examination; ``at_ms`` is when it began."""

    examination_id: str
    depth: Depth
    at_ms: int
    duration_ms: int
    probes: tuple[ProbeResult, ...]

    def failed(self, *, pair: bool) -> tuple[ProbeResult, ...]:
        """Return the probes that failed: those with a partner, or those of the host alone."""
        return tuple(
            one
            for one in self.probes
            if one.verdict is Verdict.FAILED and (one.name == PAIR) is pair
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class PartnerHost:
    """An idle host to test the link to, and where its snapshot server listens."""

    host_id: str
    address: str
    port: int


def in_words(probes: tuple[ProbeResult, ...]) -> str:
    """Say which probes failed and how, in one line."""
    return "; ".join(
        f"{one.name}{f' on {one.where}' if one.where else ''}: {one.detail}" for one in probes
    )
