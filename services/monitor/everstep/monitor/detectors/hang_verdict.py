"""Names the rank that a run which makes no step waits for, or says why nobody can be named.

The neighbours of a rank that hangs wait for it in collectives: they are many and look alike. So who
waits is innocent, and who does not is looked at closely: one that is stopped is the cause for
certain; one that stands still or runs in a circle in the middle of a step is it very likely; one
that works, or is between two steps, may only be slow and is given time. Nobody is blamed on one
look: it must be the same ranks in each of several looks, two seconds apart.

When all wait alike, a message or a device is lost and no stack tells where: the run is started
again where it is, and nobody is evicted. When most do not wait, the run is at work, or is held.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from everstep.core.spec import LayoutSpec
from everstep.monitor.detectors.hang import HangLimits, Pace, Patience, given_up, patience_for
from everstep.monitor.detectors.hang_conduct import (
    SPINNING_LOOKS,
    STANDING_LOOKS,
    WORKING_LOOKS,
    Conduct,
    conduct_of,
)
from everstep.monitor.detectors.hang_stacks import (
    Grouping,
    Phase,
    RankLook,
    Role,
    State,
    group_stacks,
    role_of,
    smallest_group,
)
from everstep.monitor.detectors.hang_text import described, ranges

# Phases that the rest of a step takes part in; the others may take as long as they like.
_IN_A_STEP: Final = frozenset({Phase.LOADING, Phase.COMPUTING, Phase.AGREEING})


class HangKind(StrEnum):
    """What a hang is called."""

    RANK_STOPPED = "rank_stopped"
    RANK_SPINNING = "rank_spinning"
    LOADER_BLOCKED = "loader_blocked"
    HANG = "hang"


class Confidence(StrEnum):
    """How sure it is that these are the ranks; ``NOBODY`` when none are named."""

    CERTAIN = "certain"
    LIKELY = "likely"
    POSSIBLE = "possible"
    NOBODY = "nobody"


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """All ranks at one moment of the monitor's clock; hosts that did not answer are left out.

    Grouped once, when it is taken: it is judged again with each later one.
    """

    at_ms: int
    ranks: Mapping[int, RankLook]
    grouping: Grouping

    @classmethod
    def of(cls, at_ms: int, ranks: Iterable[RankLook], layout: LayoutSpec) -> Look:
        """Return the look that shows these ranks."""
        by_rank = {one.rank: one for one in ranks}
        return cls(
            at_ms=at_ms, ranks=by_rank, grouping=group_stacks(tuple(by_rank.values()), layout)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class HangVerdict:
    """The run hangs. No ranks and hosts: start it again where it is, there is nobody to evict.

    Args:
        kind: what it is.
        ranks: whom the others wait for.
        hosts: where they are.
        group: the smallest parallel group that holds them, for who evicts more than the ranks.
        confidence: how sure that is.
        reason: one line with the numbers that were compared.
        detail: the stacks, grouped.
    """

    kind: HangKind
    ranks: tuple[int, ...]
    hosts: tuple[str, ...]
    group: tuple[int, ...]
    confidence: Confidence
    reason: str
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Unsure:
    """Nothing to conclude yet, and why: look again later."""

    why: str


def judge_hang(
    now_ms: int,
    looks: Sequence[Look],
    pace: Pace,
    layout: LayoutSpec,
    limits: HangLimits,
    *,
    collective_timeout_ms: int,
    over: bool = False,
) -> HangVerdict | Unsure:
    """Weigh the looks that were taken since the last step.

    Args:
        now_ms: on the clock of ``pace`` and ``looks``.
        looks: oldest first, ``look_again_ms`` apart; the newest ``WORKING_LOOKS`` are enough.
        pace: of the run.
        layout: of the job.
        limits: thresholds.
        collective_timeout_ms: of the job's recovery.
        over: whether collectives have failed at ``now_ms``, and the looks are from before.
    """
    patience = patience_for(pace, limits, collective_timeout_ms=collective_timeout_ms)
    if over:
        patience = given_up(patience, limits, collective_timeout_ms=collective_timeout_ms)
    silent_ms = now_ms - pace.stepped_ms
    looks = looks[-WORKING_LOOKS:]
    if not looks:
        return Unsure(why="nobody has been looked at yet")
    refusal = _no_hang(looks)
    if refusal:
        return Unsure(why=refusal)
    case = _Case(looks, layout, silent_ms, pace.usual_ms)
    stopped = case.stopped()
    if stopped:
        return case.blame(HangKind.RANK_STOPPED, stopped, patience.stopped, Confidence.CERTAIN)
    if case.now.unseen:
        return Unsure(why=f"nobody has told of ranks {ranges(case.now.unseen)}")
    if not case.now.outliers:
        return case.all_wait(patience)
    world = layout.world_size
    if 2 * len(case.now.outliers) > world and (world > 1 or case.saves(0)):
        if silent_ms >= patience.hopeless and case.all_stand():
            return case.nobody(patience.hopeless)
        return Unsure(
            why=f"{len(case.now.outliers)} of {world} ranks do not wait for others: nobody "
            "stands out"
        )
    return case.name_outliers(patience)


def _no_hang(looks: Sequence[Look]) -> str:
    """Return why this is something else than a hang, or ""."""
    first, last = looks[0].ranks, looks[-1].ranks.values()
    for one in last:
        if one.rank in first and one.step > first[one.rank].step:
            return f"rank {one.rank} has completed step {one.step} meanwhile"
    gone = [one.rank for one in last if one.state is State.GONE]
    if gone:
        return f"ranks {ranges(gone)} have ended or are not forked yet: their exits tell more"
    if last and all(one.state is State.STOPPED for one in last):
        return f"all {len(last)} ranks that were seen are stopped: somebody holds the run"
    return ""


class _Case:
    """What the looks say together.

    Args:
        looks: at least one.
        layout: of the job.
        silent_ms: since the last step.
        usual_ms: of a step.
    """

    def __init__(
        self, looks: Sequence[Look], layout: LayoutSpec, silent_ms: int, usual_ms: int
    ) -> None:
        self._looks = [look.ranks for look in looks]
        self._groupings = [look.grouping for look in looks]
        self._layout = layout
        self._silent_ms = silent_ms
        self._usual_ms = usual_ms

    @property
    def now(self) -> Grouping:
        """What the newest look shows."""
        return self._groupings[-1]

    def stopped(self) -> list[int]:
        """Return ranks that were stopped at the last looks."""
        recent = self._looks[-STANDING_LOOKS:]
        return [
            rank
            for rank in recent[-1]
            if len(recent) == STANDING_LOOKS
            and all(rank in look and look[rank].state is State.STOPPED for look in recent)
        ]

    def saves(self, rank: int) -> bool:
        """Say whether a rank was writing its state, or waited to, at the newest look."""
        return self._role(rank) is Role.SAVES

    def name_outliers(self, patience: Patience) -> HangVerdict | Unsure:
        """Blame the outliers for which the time has come."""
        stands_out = [rank for rank in self.now.outliers if self._stood_out(rank, STANDING_LOOKS)]
        if not stands_out:
            return Unsure(why=f"ranks {ranges(self.now.outliers)} stand out at one look only")
        sure = [rank for rank in stands_out if self._is_sure(rank)]
        if sure and self.now.majority:
            return self._blame_together(sure, patience.sure)
        long = [rank for rank in stands_out if self._stood_out(rank, WORKING_LOOKS)]
        if long and self._silent_ms >= patience.unsure:
            return self._blame_together(long, patience.unsure, unsure=True)
        first = stands_out[0]
        return Unsure(
            why=f"rank {first} {self._conduct(first)} ({self._role(first)}, "
            f"{self._phase(first)}) for {self._silent_ms} ms of {patience.unsure} that it may take"
        )

    def all_wait(self, patience: Patience) -> HangVerdict | Unsure:
        """Nobody stands out: start again where it is when it lasts.

        Where not all are in collectives, a line that most are at may be work, or meant to wait.
        """
        in_a_step = all(one.phase in _IN_A_STEP for one in self._looks[-1].values())
        in_collectives = all(group.place.role is Role.WAITS for group in self.now.groups)
        together = patience.together
        limits = [together, max(together, patience.unsure), patience.hopeless]
        limit_ms = limits[(not in_a_step) + (not in_collectives)]
        if self._silent_ms >= limit_ms and self.all_stand():
            return self.nobody(limit_ms)
        return Unsure(
            why=f"all {len(self._looks[-1])} ranks wait, none stands out, for {self._silent_ms} ms "
            f"of {limit_ms} that it may take"
        )

    def all_stand(self) -> bool:
        """Say whether every rank showed the same stack at each of the last looks."""
        recent = self._looks[-SPINNING_LOOKS:]
        return len(recent) == SPINNING_LOOKS and all(
            look.keys() == recent[-1].keys()
            and all(
                one.answered and one.frames == recent[-1][rank].frames for rank, one in look.items()
            )
            for look in recent
        )

    def nobody(self, limit_ms: int) -> HangVerdict:
        """Return the verdict that names nobody."""
        places = "; ".join(
            f"{len(group.ranks)} {group.place.role} at {group.place.where}"
            for group in self.now.groups[:3]
        )
        return HangVerdict(
            kind=HangKind.HANG,
            ranks=(),
            hosts=(),
            group=(),
            confidence=Confidence.NOBODY,
            reason=f"{self._no_step(limit_ms)}; no rank stands out: {places}",
            detail=described(self.now),
        )

    def blame(
        self, kind: HangKind, ranks: Sequence[int], limit_ms: int, confidence: Confidence
    ) -> HangVerdict | Unsure:
        """Return the verdict against these ranks once ``limit_ms`` are over."""
        ranks = sorted(ranks)
        seen = self._looks[-1]
        hosts = tuple(sorted({seen[rank].host_id for rank in ranks}))
        what = self._what(kind, ranks)
        if self._silent_ms < limit_ms:
            return Unsure(why=f"{what}, for {self._silent_ms} ms of {limit_ms} that it may take")
        return HangVerdict(
            kind=kind,
            ranks=tuple(ranks),
            hosts=hosts,
            group=smallest_group(ranks, self._layout),
            confidence=confidence,
            reason=f"{self._no_step(limit_ms)}; {what} on {', '.join(hosts)}; "
            f"{self._others(ranks)}",
            detail=described(self.now),
        )

    def _blame_together(
        self, ranks: list[int], limit_ms: int, *, unsure: bool = False
    ) -> HangVerdict | Unsure:
        kinds = {self._kind(rank) for rank in ranks}
        hosts = {self._looks[-1][rank].host_id for rank in ranks}
        elsewhere = any(self._role(rank) is Role.WAITS for rank in ranks)
        confidence = Confidence.LIKELY
        if unsure or elsewhere or len(hosts) > 1:
            confidence = Confidence.POSSIBLE
        kind = kinds.pop() if len(kinds) == 1 else HangKind.HANG
        return self.blame(kind, ranks, limit_ms, confidence)

    def _stood_out(self, rank: int, count: int) -> bool:
        recent = self._groupings[-count:]
        return len(recent) == count and all(rank in one.outliers for one in recent)

    def _is_sure(self, rank: int) -> bool:
        conduct, role, phase = self._conduct(rank), self._role(rank), self._phase(rank)
        if conduct is Conduct.WORKS or role in {Role.SAVES, Role.COMPILES, Role.UNSEEN}:
            return False
        return role is Role.LOADS or phase in _IN_A_STEP

    def _conduct(self, rank: int) -> Conduct:
        return conduct_of([look[rank] for look in self._looks if rank in look])

    def _kind(self, rank: int) -> HangKind:
        if self._conduct(rank) is Conduct.SPINS:
            return HangKind.RANK_SPINNING
        return HangKind.LOADER_BLOCKED if self._role(rank) is Role.LOADS else HangKind.HANG

    def _role(self, rank: int) -> Role:
        return role_of(self._looks[-1][rank])

    def _phase(self, rank: int) -> Phase:
        return self._looks[-1][rank].phase

    def _no_step(self, limit_ms: int) -> str:
        return (
            f"no step for {self._silent_ms} ms (usually one in {self._usual_ms} ms, "
            f"patience {limit_ms} ms)"
        )

    def _what(self, kind: HangKind, ranks: Sequence[int]) -> str:
        name = f"rank {ranks[0]}" if len(ranks) == 1 else f"ranks {ranges(ranks)}"
        if kind is HangKind.RANK_STOPPED:
            return f"{name} {Role.STOPPED}"
        first = ranks[0]
        group = next(one for one in self.now.groups if first in one.ranks)
        seen = self._looks[-1][first]
        return (
            f"{name} {group.place.role} at {group.place.where} and {self._conduct(first)} "
            f"({seen.cpu_ms} ms of processor time in {seen.look_ms} ms)"
        )

    def _others(self, ranks: Sequence[int]) -> str:
        majority = self.now.majority
        if majority is None:
            return "no other rank waits in a collective"
        rest = len(self._looks[-1]) - len(ranks)
        return f"{len(majority.ranks)} of {rest} others at {majority.place.where}"
