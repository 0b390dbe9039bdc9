"""Says what the errors that a host counts mean: what is broken, what gets worse, what to know.

Each kind has a severity and a confidence of its own. A fatal one means that the device is broken:
whoever computes on it should not. If the run fails or hangs at the same time, its host is the root
and is replaced; while the run goes on, it moves off at the next snapshot and loses nothing. A
rising one is repaired each time it happens (corrected bits, repeated packets, a clock that was held
down): it matters by its rate, and only when it lasts. The rest is told and nothing more.

What XIDs mean is NVIDIA's word (docs.nvidia.com/deploy/xid-errors), as are the rows (nvml-api,
nvmlDeviceGetRemappedRows: a pending remapping does not affect future work, a failed one does). XIDs
that programs cause (13, 31, 43, 45) are no one's fault here. Limits of rates are chosen: no fleet's
counters were at hand.

Rejected: one score from all counters (nobody can check it at 3 a.m.); draining on a first burst (a
cable that was touched, a fan that was cleaned).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Final

from everstep.core.counters import XID_PREFIX, ErrorKind
from everstep.core.record import Record
from everstep.monitor.detectors.hang_verdict import Confidence
from everstep.monitor.detectors.verdict import Verdict
from everstep.monitor.events import Action

WINDOW_MS: Final = 600_000
LASTING_WINDOWS: Final = 3  # half an hour above the limit, in each third of it
# A fatal error explains what fails within this time of it: ranks may live for a while on a broken
# device, until they touch what is broken.
FRESH_MS: Final = 600_000
NAMED_MAX: Final = 4


class Severity(StrEnum):
    """What a kind of error asks for."""

    FATAL = "fatal"
    RISING = "rising"
    REMARK = "remark"


class Rule(Record, frozen=True, kw_only=True):
    """What a kind means; ``limit`` is how much of it in a window is too much."""

    severity: Severity
    confidence: Confidence
    means: str
    limit: int = 1


def _fatal(means: str, confidence: Confidence = Confidence.CERTAIN) -> Rule:
    return Rule(severity=Severity.FATAL, confidence=confidence, means=means)


def _rising(means: str, limit: int) -> Rule:
    return Rule(severity=Severity.RISING, confidence=Confidence.LIKELY, means=means, limit=limit)


def _remark(means: str, limit: int = 1) -> Rule:
    return Rule(severity=Severity.REMARK, confidence=Confidence.POSSIBLE, means=means, limit=limit)


_XIDS: Final = {
    46: _fatal("the GPU stopped processing", Confidence.LIKELY),
    48: _fatal("a double bit error in GPU memory"),
    62: _fatal("the GPU's own controller halted", Confidence.LIKELY),
    64: _fatal("a row of GPU memory could not be remapped"),
    74: _fatal("an NVLink failed", Confidence.LIKELY),
    79: _fatal("the GPU has fallen off the bus"),
    92: _rising("many single bit errors in GPU memory", 2),
    94: _fatal("an uncorrected error in GPU memory, contained", Confidence.LIKELY),
    95: _fatal("an uncorrected error in GPU memory, not contained"),
    119: _fatal("the GPU's system processor does not answer", Confidence.LIKELY),
    120: _fatal("the GPU's system processor failed", Confidence.LIKELY),
    140: _fatal("an error in GPU memory that could not be recovered"),
}
RULES: Final[Mapping[str, Rule]] = {
    ErrorKind.MEMORY_UNCORRECTED: _fatal("an uncorrected error in memory"),
    ErrorKind.GPU_UNCORRECTED: _fatal("an uncorrected error in GPU memory"),
    ErrorKind.GPU_ROW_REMAP_FAILED: _fatal("a row of GPU memory could not be remapped"),
    ErrorKind.GPU_LOST: _fatal("the driver has lost the GPU"),
    ErrorKind.DISK_READ_ONLY: _fatal("the agent's disk is read-only", Confidence.LIKELY),
    # Six a minute are no cosmic rays: a row or a lane is failing.
    ErrorKind.MEMORY_CORRECTED: _rising("corrected errors in memory", 60),
    ErrorKind.GPU_CORRECTED: _rising("corrected errors in GPU memory", 60),
    # A packet a second is sent again: far above the 1e-12 bit errors that links are built for.
    ErrorKind.NIC_ERRORS: _rising("packets with errors", 600),
    ErrorKind.FABRIC_ERRORS: _rising("errors on the fabric's port", 600),
    ErrorKind.NVLINK_ERRORS: _rising("replays and recoveries on NVLink", 600),
    # Links heal; two within minutes do not heal by themselves (PEERS section 4).
    ErrorKind.LINK_FLAPS: _rising("the network link went down", 2),
    ErrorKind.FABRIC_FLAPS: _rising("the fabric's link went down", 2),
    ErrorKind.DISK_ERRORS: _rising("requests that the disk failed", 10),
    # A tenth of the time: then the slow rank is slow for a reason.
    ErrorKind.GPU_THERMAL_MS: _rising("ms with the clock held down by heat", 60_000),
    ErrorKind.GPU_POWER_BRAKE_MS: _rising(
        "ms with the clock held down by the power supply", 60_000
    ),
    ErrorKind.GPU_ROW_REMAP_PENDING: _remark("a row of GPU memory waits for a reset"),
    ErrorKind.DISK_FULL: _remark("a directory of the agent is full"),
    ErrorKind.NIC_DROPS: _remark("packets dropped", 60_000),
    **{f"{XID_PREFIX}{number}": rule for number, rule in _XIDS.items()},
}


class Growth(Record, frozen=True, kw_only=True):
    """How a count has grown: (when, by how much), oldest first, of the last windows."""

    kind: str
    part: str
    steps: tuple[tuple[int, int], ...]


class HostFault(Record, frozen=True, kw_only=True):
    """What a count of a host means; ``count`` is of ``window_ms``, ``lasting`` of all windows."""

    host_id: str
    kind: str
    part: str
    severity: Severity
    confidence: Confidence
    count: int
    limit: int
    window_ms: int
    at_ms: int
    lasting: bool
    means: str

    @property
    def text(self) -> str:
        """Say it in a few words, with the numbers."""
        where = f" on {self.part}" if self.part else ""
        said = f"{self.means}{where} ({self.kind}: {self.count} in {self.window_ms // 60_000} min"
        if self.severity is Severity.FATAL:
            return f"{said}, {self.confidence})"
        for_long = f", for {LASTING_WINDOWS} times as long" if self.lasting else ""
        return f"{said}, limit {self.limit}{for_long})"


def faults_of(now_ms: int, host_id: str, growths: Sequence[Growth]) -> tuple[HostFault, ...]:
    """Return what a host's counts mean now, the worst first; what has no rule means nothing."""
    found = []
    for growth in growths:
        rule = RULES.get(growth.kind)
        if rule is None:
            continue
        window_ms = FRESH_MS if rule.severity is Severity.FATAL else WINDOW_MS
        counts = [
            _within(now_ms - i * window_ms, window_ms, growth) for i in range(LASTING_WINDOWS)
        ]
        if counts[0] < rule.limit:
            continue
        found.append(
            HostFault(
                host_id=host_id,
                kind=growth.kind,
                part=growth.part,
                severity=rule.severity,
                confidence=rule.confidence,
                count=counts[0],
                limit=rule.limit,
                window_ms=window_ms,
                at_ms=max(at_ms for at_ms, _ in growth.steps),
                lasting=all(count >= rule.limit for count in counts),
                means=rule.means,
            )
        )
    return tuple(sorted(found, key=_worst_first))


def fatal(faults: Sequence[HostFault]) -> tuple[HostFault, ...]:
    """Return those that mean that something is broken."""
    return tuple(fault for fault in faults if fault.severity is Severity.FATAL)


def verdict_of(faults: Sequence[HostFault], ranks: tuple[int, ...]) -> Verdict | None:
    """Return what to do about one host of a run that goes on; None for nothing.

    Args:
        faults: of the host, the worst first.
        ranks: of the run on it.
    """
    if not faults:
        return None
    worst = faults[0]
    kinds = {Severity.FATAL: "host_faulty", Severity.RISING: "errors_rising"}
    moves = worst.severity is Severity.FATAL or any(
        fault.severity is Severity.RISING and fault.lasting for fault in faults
    )
    return Verdict(
        kind=kinds.get(worst.severity, "host_remark"),
        action=Action.DRAIN if moves else Action.NOTE,
        ranks=ranks,
        hosts=(worst.host_id,),
        reason=f"{worst.host_id}: {_listed(faults)}",
        failed_at_ms=worst.at_ms,
    )


def blamed(faults: Sequence[HostFault], ranks: Mapping[str, tuple[int, ...]], seen: str) -> Verdict:
    """Return the verdict against broken hosts of a run that has failed, or hangs.

    What most hosts of a job tell of at once is likelier the site's or the driver's: then they give
    way only if there are others.

    Args:
        faults: fatal ones, of at least one host.
        ranks: of each host of the run.
        seen: what has failed.
    """
    hosts = tuple(sorted({fault.host_id for fault in faults}))
    most = len(ranks) > 2 and 2 * len(hosts) > len(ranks)
    texts = (
        f"{host}: {_listed([fault for fault in faults if fault.host_id == host])}"
        for host in hosts[:NAMED_MAX]
    )
    return Verdict(
        kind="host_faulty",
        action=Action.REPLACE_IF_SPARE if most else Action.REPLACE,
        ranks=tuple(sorted(rank for host in hosts for rank in ranks.get(host, ()))),
        hosts=hosts,
        reason=f"{'; '.join(texts)}; {seen}",
        failed_at_ms=min(fault.at_ms for fault in faults),
    )


def _within(end_ms: int, window_ms: int, growth: Growth) -> int:
    return sum(by for at_ms, by in growth.steps if end_ms - window_ms < at_ms <= end_ms)


def _worst_first(fault: HostFault) -> tuple[int, int, str, str]:
    severities, confidences = list(Severity), list(Confidence)
    return (
        severities.index(fault.severity),
        confidences.index(fault.confidence),
        fault.kind,
        fault.part,
    )


def _listed(faults: Sequence[HostFault]) -> str:
    more = len(faults) - NAMED_MAX
    said = ", ".join(fault.text for fault in faults[:NAMED_MAX])
    return f"{said}{f' and {more} more' if more > 0 else ''}"
