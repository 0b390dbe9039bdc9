"""Watches one job for steps that do not come: when to look at its ranks, and what that shows.

Only a run that tells of its steps can be late with one. After the last step there is none to come,
and a rank may take its time to leave.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Final

from everstep.core.spec import LayoutSpec
from everstep.monitor.detectors.hang import HangLimits, Pace, is_stuck
from everstep.monitor.detectors.hang_conduct import STANDING_LOOKS, WORKING_LOOKS
from everstep.monitor.detectors.hang_stacks import Role
from everstep.monitor.detectors.hang_verdict import (
    Confidence,
    HangKind,
    HangVerdict,
    Look,
    judge_hang,
)
from everstep.monitor.detectors.verdict import COLLECTIVE_ERROR, Verdict
from everstep.monitor.events import Action
from everstep.monitor.state import Watch

LIMITS: Final = HangLimits()


@dataclass(slots=True)
class Hanging:
    """Of one job. Mutable: a monitor that starts anew begins to wait anew."""

    _pace: Pace = field(default_factory=lambda: Pace(stepped_ms=0))
    _step: int = 0
    _generation: int = 0
    _planned: bool = False
    _looks: list[Look] = field(default_factory=list)
    _looking: bool = False
    _looked_ms: int = 0

    @property
    def since_ms(self) -> int:
        """When the last step was, or when there could have been one first."""
        return self._pace.stepped_ms

    @property
    def all_wait(self) -> bool:
        """Whether every rank waited for others at the newest looks, and none stood out."""
        recent = [look.grouping for look in self._looks[-STANDING_LOOKS:]]
        return len(recent) == STANDING_LOOKS and all(
            not (seen.outliers or seen.unseen)
            and all(group.place.role is Role.WAITS for group in seen.groups)
            for seen in recent
        )

    def begin(self, watch: Watch, now_ms: int) -> None:
        """Take up the watch's generation: ranks could be at work from its plan on."""
        if watch.generation != self._generation:
            self._generation, self._planned = watch.generation, False
            self._looks.clear()
            self._pace = self._pace.begun(now_ms)
        planned = watch.placed and watch.restore_step is not None
        if planned and not self._planned:
            self._planned, self._step = True, max(watch.restore_step or 0, 0)
            self._pace = self._pace.begun(now_ms)

    def stepped(self, step: int, now_ms: int, took_ms: int = 0) -> None:
        """Note a step that somebody has completed, and how long it took by their word."""
        if step > self._step:
            self._step = step
            self._looks.clear()
            self._pace = self._pace.stepped(now_ms, took_ms)

    def excused(self, now_ms: int) -> None:
        """The monitor could not see until now."""
        self._looks.clear()
        self._pace = self._pace.excused(now_ms)

    def is_due(self, watch: Watch, now_ms: int) -> bool:
        """Say whether to look at the ranks now; then ``looked`` is to be called.

        A script that has told of no step may never do so. An audit's has: that is what it is of.
        """
        tells = watch.stepped or not watch.script or watch.audit is not None
        over = watch.over or self._generation in (
            watch.judged_generation,
            watch.finished_generation,
        )
        if not (self._planned and tells) or over or self._step >= watch.steps:
            return False
        if self._looking or now_ms - self._looked_ms < LIMITS.look_again_ms:
            return False
        timeout_ms = watch.collective_timeout_ms
        if is_stuck(now_ms, self._pace, LIMITS, collective_timeout_ms=timeout_ms) is None:
            return False
        self._looking, self._looked_ms = True, now_ms
        return True

    def looked(self, look: Look | None, watch: Watch, now_ms: int) -> Verdict | None:
        """Take what all ranks do; None if nobody could be asked. Returns what follows from it."""
        self._looking = False
        if look is None or watch.generation != self._generation:
            return None
        if look.at_ms < self._pace.stepped_ms:
            return None  # a step has come meanwhile
        self._looks = [*self._looks, look][-WORKING_LOOKS:]
        return self._judge(now_ms, self._looks, watch)

    def instead(self, verdict: Verdict, watch: Watch, failed_ms: int) -> Verdict:
        """Return the verdict on whom the ranks waited for until their collectives failed.

        In a first step, and in a long one, nobody may have been named by then, as each could still
        have been in order. Collectives that failed before their timeout have failed by something
        else: the looks say nothing of it.
        """
        waited_ms, timeout_ms = failed_ms - self.since_ms, watch.collective_timeout_ms
        by_timeout = timeout_ms > 0 and waited_ms >= timeout_ms - LIMITS.timeout_margin_ms
        if verdict.kind != COLLECTIVE_ERROR or not by_timeout:
            return verdict
        looks = [look for look in self._looks if 0 <= failed_ms - look.at_ms <= LIMITS.judge_ms]
        late = self._judge(failed_ms, looks, watch, over=True)
        if late is None or not late.ranks:
            return verdict
        return replace(late, reason=f"{late.reason}; then {verdict.reason}")

    def _judge(
        self, now_ms: int, looks: Sequence[Look], watch: Watch, *, over: bool = False
    ) -> Verdict | None:
        found = judge_hang(
            now_ms,
            looks,
            self._pace,
            LayoutSpec(**asdict(watch.layout)),
            LIMITS,
            collective_timeout_ms=watch.collective_timeout_ms,
            over=over,
        )
        return _verdict(found, self._pace, self._step) if isinstance(found, HangVerdict) else None


def _verdict(found: HangVerdict, pace: Pace, step: int) -> Verdict:
    """Return it with what is to be done.

    A process that was stopped, spins or waits for its data is not its host's fault: a new one takes
    its place. One that stands still in the middle of its work may be, so its host gives way if
    there is another.
    """
    sick = found.kind is HangKind.HANG and found.confidence is Confidence.LIKELY
    return Verdict(
        kind=found.kind,
        action=Action.REPLACE_IF_SPARE if sick else Action.RESTART,
        ranks=found.ranks,
        hosts=found.hosts,
        reason=found.reason,
        detail=found.detail,
        failed_at_ms=pace.stepped_ms,
        step=step,
    )
