"""Says which ranks are slow, by their own time: a step's time less what was waited for others.

All ranks of a synchronous run take equally long for a step, because the others wait for the slow
one. Their own times differ, and ranks of one role (a pipeline stage) have the same work. So every
step each rank is divided by the median of the others of its role: what slows everybody down at once
divides out, and stages are never compared (the last stage of a recorded production run has 1.6
times the others' work, and is sound).

One step says nothing (a checkpoint, a page fault, a neighbour on the machine), so it takes a window
of steps: its middle must be over the limit, most of its parts above even, and the excess more than
their scatter explains. A small excess takes a longer window than a large one. Windows move on part
by part, so a rank is named at most one part after it has been slow for a whole window.

Nobody is named where it cannot be known who is off: among too few peers, when half of a role is
slow, or when the slow ones are only the end of a role that is uneven anyway. Only 1.7 % of slow
jobs are slow through a single worker (Lin et al., OSDI 2025): to be wrong here costs a sound host.
Half of a role is named if it is one host's and was like the other half before: ranks become slower
by themselves, not faster.

Rejected: step times (equal by nature), a limit in milliseconds (nobody knows it beforehand), a
rank's own past (blind to what was slow from the start), standard deviations (one straggler raises
them), and a learnt model.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from enum import StrEnum
from statistics import fmean, median
from typing import Final

from everstep.core.placement import Layout
from everstep.core.record import Record

UNKNOWN: Final = math.nan  # of a rank that has not told


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """How many parts are judged together, and from which ratio on they name a rank."""

    parts: int
    ratio_min: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """When a rank counts as slow.

    The figures are of 8 ranks on 2 cores that 10 to 20 others wanted, and of such runs with one
    rank's times made longer (docs/decisions.md).
    """

    # DESIGN section 11: a slow rank is to be named 5 steps after the window at the latest.
    part_steps: int = 5
    # And so long: of 40 steps of 50 ms a busy machine's neighbours do not change, and five sound
    # hosts were named within 5 minutes.
    part_ms_min: float = 2_500.0
    # 40, 80 and 160 steps. 40 scatter by 1 to 2 % there, and a rank may have the slower of two
    # cores for as long; seen was 6.6 % of excess. What is sound evens out, so the longest window
    # may be asked for what is looked for, 5 %, less what it may be off.
    windows: tuple[Window, ...] = (
        Window(parts=8, ratio_min=1.10),
        Window(parts=16, ratio_min=1.06),
        Window(parts=32, ratio_min=1.035),
    )
    # Of the scatter of a window's parts, over the root of their number: what chance alone gives
    # three windows in a million, because every part judges three of each rank. With 3, two sound
    # ranks were named in 2,300 steps beside some twenty processes; of slow-downs by 5, 8 and 15 %
    # laid on half of these, 36, 40, 40 of 40 were found in 240 steps; with 4.5 31, 39, 40.
    errors_min: float = 4.5
    # A part scatters by 3 to 6 % there: it can be asked for little.
    part_ratio_min: float = 1.01
    # Of the parts, to be above that: who is slow half of the time is not.
    slow_share_min: float = 0.625
    # Of a rank's role. Of two nobody can tell the slow one; of three, a disturbed one decides.
    peers_min: int = 3
    # The slow ones must be this many times as far off as the slowest of the others: in a role
    # whose times scatter there is always a slowest rank.
    gap_min: float = 2.0


class Crew:
    """Who does the same work, and where.

    Args:
        roles: of each rank, by rank: what ranks with the same work share.
        hosts: of each rank, by rank.
    """

    def __init__(self, roles: Sequence[str], hosts: Sequence[str]) -> None:
        assert len(roles) == len(hosts), f"{len(roles)} roles of {len(hosts)} ranks"
        self.roles = tuple(roles)
        self.hosts = tuple(hosts)
        members: dict[str, list[int]] = {}
        for rank, role in enumerate(roles):
            members.setdefault(role, []).append(rank)
        self.groups = tuple((role, tuple(members[role])) for role in sorted(members))


def stage_roles(layout: Layout) -> tuple[str, ...]:
    """Return each rank's pipeline stage as its role; ranks count along ``pp`` last."""
    size = layout.world_size // layout.pp
    return tuple(f"stage {rank // size}" for rank in range(layout.world_size))


class Why(StrEnum):
    """Why ranks that look slow are not named."""

    TOO_FEW_PEERS = "too_few_peers"
    NO_MAJORITY = "no_majority"  # half of the role or more
    UNEVEN = "uneven"  # the others scatter as much


class Finding(Record, frozen=True, kw_only=True):
    """One host's slow ranks; ``whole`` says that they are all it has.

    ``ratio`` is of the slowest of them, ``next_ratio`` of the slowest that is not named.
    """

    host_id: str
    ranks: tuple[int, ...]
    whole: bool
    ratio: float
    next_ratio: float
    first_step: int
    last_step: int
    reason: str


class Doubt(Record, frozen=True, kw_only=True):
    """Ranks of one role that look slow, and why nobody is named."""

    why: Why
    role: str
    ranks: tuple[int, ...]
    ratio: float
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """Some steps in a row: ``ratios`` is each rank's median over them, by rank."""

    first_step: int
    last_step: int
    ratios: Sequence[float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """What the windows say; ``ratios`` is each rank's middle of the longest one, by rank."""

    first_step: int
    last_step: int
    findings: tuple[Finding, ...] = ()
    doubts: tuple[Doubt, ...] = ()
    ratios: tuple[float, ...] = ()


def relative(own_ms: Sequence[float], crew: Crew) -> list[float]:
    """Return each rank's own time of one step over the median of the others of its role.

    Args:
        own_ms: by rank; 0 or ``UNKNOWN`` of one that has not told.
        crew: who is compared with whom.
    """
    ratios = [UNKNOWN] * len(own_ms)
    for _, members in crew.groups:
        told = sorted(own_ms[rank] for rank in members if own_ms[rank] > 0)
        others = len(told) - 1
        if others < 1:
            continue
        # Without one of them, what stood behind it moves up: two places around the middle do.
        low, high = (others - 1) // 2, others // 2
        below, between, above = told[low], told[low + 1], told[high + 1]
        for rank in members:
            mine = own_ms[rank]
            if mine > 0:
                one = below if mine > below else between
                two = told[high] if mine > told[high] else above
                ratios[rank] = 2 * mine / (one + two)
    return ratios


def middle(steps: Sequence[Sequence[float]]) -> list[float]:
    """Return each rank's median over a part's steps; ``UNKNOWN`` where half of them are."""
    return [_of_known(values, median) for values in zip(*steps, strict=True)]


def centre(parts: Sequence[Sequence[float]]) -> list[float]:
    """Return the mean of the middle half of each rank's parts; ``UNKNOWN`` as for ``middle``.

    It scatters less than the median and, unlike the mean, is not moved by an odd part or two.
    """
    return [_of_known(values, _midmean) for values in zip(*parts, strict=True)]


def _of_known(values: Sequence[float], of: Callable[[Sequence[float]], float]) -> float:
    if not math.isnan(sum(values)):  # one look for all: this runs for each of 16,384 ranks
        return of(values)
    known = [value for value in values if not math.isnan(value)]
    return of(known) if 2 * len(known) > len(values) else UNKNOWN


def _midmean(values: Sequence[float]) -> float:
    aside = len(values) // 4
    inner = sorted(values)[aside : len(values) - aside]
    return sum(inner) / len(inner)


def judge(
    parts: Sequence[Part],
    crew: Crew,
    limits: Limits,
    once_even: Collection[int] = frozenset(),
) -> Judgement:
    """Judge the windows that end with the newest part.

    Args:
        parts: oldest first; of a window that is longer, there is nothing to be judged by.
        crew: who is compared with whom.
        limits: when a rank counts as slow.
        once_even: ranks that an earlier window has seen to be like their peers.

    Returns:
        One finding for each host with slow ranks, by host, and what is doubtful, by role: of the
        longest window that has something to say about it.
    """
    findings: dict[str, Finding] = {}
    doubts: dict[str, Doubt] = {}
    ratios: tuple[float, ...] = ()
    for window in sorted(limits.windows, key=lambda one: -one.parts):
        if len(parts) < window.parts:
            continue
        judged = _judge_window(parts[-window.parts :], crew, limits, window.ratio_min, once_even)
        ratios = ratios or judged.ratios
        findings = {one.host_id: one for one in judged.findings} | findings
        doubts = {one.role: one for one in judged.doubts} | doubts
    return Judgement(
        first_step=parts[0].first_step,
        last_step=parts[-1].last_step,
        findings=tuple(findings[host] for host in sorted(findings)),
        doubts=tuple(doubts[role] for role in sorted(doubts)),
        ratios=ratios,
    )


def _judge_window(
    window: Sequence[Part],
    crew: Crew,
    limits: Limits,
    ratio_min: float,
    once_even: Collection[int],
) -> Judgement:
    parts = [part.ratios for part in window]
    ratios = centre(parts)
    named: dict[int, float] = {}  # rank -> the slowest of its role that is not
    doubts = []
    for role, members in crew.groups:
        told = [rank for rank in members if ratios[rank] > 0]
        over = [rank for rank in told if ratios[rank] >= ratio_min]
        slow = _persistent(over, told, parts, ratios, limits) if over else []
        if not slow:
            continue
        apart = _standing_apart(told, slow, ratios, limits)
        halved = once_even if len({crew.hosts[rank] for rank in slow}) == 1 else ()
        why = _doubtful(told, slow, apart, limits, halved)
        if why is not None:
            doubts.append(_doubt(why, role, slow, told, ratios))
        else:
            next_ratio = max(ratios[rank] for rank in told if rank not in apart)
            named |= dict.fromkeys(apart, next_ratio)
    first_step, last_step = window[0].first_step, window[-1].last_step
    return Judgement(
        first_step=first_step,
        last_step=last_step,
        findings=_findings(named, crew, ratios, first_step, last_step),
        doubts=tuple(doubts),
        ratios=tuple(ratios),
    )


def _persistent(
    over: Sequence[int],
    told: Sequence[int],
    parts: Sequence[Sequence[float]],
    ratios: Sequence[float],
    limits: Limits,
) -> list[int]:
    """Return who of ``over`` is slow in most parts, by more than the parts scatter.

    A role's ranks scatter alike, so the usual scatter counts where a rank's own is smaller.
    """
    usual = median(_scatter(parts, rank) for rank in told)
    slow_parts_min = limits.slow_share_min * len(parts)
    found = []
    for rank in over:
        error = max(usual, _scatter(parts, rank)) / math.sqrt(len(parts))
        slow_parts = sum(part[rank] >= limits.part_ratio_min for part in parts)
        if slow_parts >= slow_parts_min and ratios[rank] - 1 >= limits.errors_min * error:
            found.append(rank)
    return found


def _scatter(parts: Sequence[Sequence[float]], rank: int) -> float:
    known = [part[rank] for part in parts if not math.isnan(part[rank])]
    if len(known) < 2:
        return 0.0
    mean = fmean(known)  # statistics.stdev is exact, and fifty times as slow
    return math.sqrt(sum((one - mean) ** 2 for one in known) / (len(known) - 1))


def _standing_apart(
    told: Sequence[int], slow: Sequence[int], ratios: Sequence[float], limits: Limits
) -> list[int]:
    """Return as many of the slow ranks as are far enough from all others of their role."""
    ordered = sorted(told, key=lambda rank: (-ratios[rank], rank))
    for count in range(len(slow), 0, -1):
        apart, rest = ordered[:count], ordered[count:]
        if not rest or not set(apart) <= set(slow):
            continue
        nearest = ratios[apart[-1]] - 1
        if nearest >= limits.gap_min * (ratios[rest[0]] - 1):
            return sorted(apart)
    return []


def _doubtful(
    told: Sequence[int],
    slow: Sequence[int],
    apart: Sequence[int],
    limits: Limits,
    once_even: Collection[int],
) -> Why | None:
    if len(told) - 1 < limits.peers_min:
        return Why.TOO_FEW_PEERS
    if 2 * len(slow) >= len(told) and not all(rank in once_even for rank in told):
        return Why.NO_MAJORITY
    return None if apart else Why.UNEVEN


def _doubt(
    why: Why, role: str, slow: Sequence[int], told: Sequence[int], ratios: Sequence[float]
) -> Doubt:
    slowest = max(slow, key=lambda rank: (ratios[rank], -rank))
    rest = [ratios[rank] for rank in told if rank not in slow]
    because = {
        Why.TOO_FEW_PEERS: f"by {len(told) - 1} of them nobody can tell who is off",
        Why.NO_MAJORITY: f"{len(slow)} of {len(told)} ranks look slow: half of a role or more",
        Why.UNEVEN: f"the others scatter too, up to {max(rest, default=1.0):.3f}",
    }
    return Doubt(
        why=why,
        role=role,
        ranks=tuple(slow),
        ratio=ratios[slowest],
        reason=f"rank {slowest} takes {ratios[slowest]:.3f} times as long as the others of "
        f"{role}, but {because[why]}",
    )


def _findings(
    named: dict[int, float],
    crew: Crew,
    ratios: Sequence[float],
    first_step: int,
    last_step: int,
) -> tuple[Finding, ...]:
    by_host: dict[str, list[int]] = {}
    for rank in sorted(named):
        by_host.setdefault(crew.hosts[rank], []).append(rank)
    found = []
    for host_id in sorted(by_host):
        ranks = by_host[host_id]
        slowest = max(ranks, key=lambda rank: (ratios[rank], -rank))
        all_ranks = crew.hosts.count(host_id)
        whole = len(ranks) == all_ranks
        who = f"all {all_ranks} ranks" if whole and all_ranks > 1 else _listed(ranks)
        found.append(
            Finding(
                host_id=host_id,
                ranks=tuple(ranks),
                whole=whole,
                ratio=ratios[slowest],
                next_ratio=max(named[rank] for rank in ranks),
                first_step=first_step,
                last_step=last_step,
                reason=f"{who} of {host_id} slow over steps {first_step} to {last_step}: rank "
                f"{slowest} takes {ratios[slowest]:.3f} times as long as the others of "
                f"{crew.roles[slowest]}, the next one of them {named[slowest]:.3f} times",
            )
        )
    return tuple(found)


def _listed(ranks: Sequence[int]) -> str:
    return f"rank{'s' if len(ranks) > 1 else ''} {', '.join(str(rank) for rank in ranks)}"
