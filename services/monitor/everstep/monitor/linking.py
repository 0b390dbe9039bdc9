"""Remembers what the hosts of one job have said of their links, and what a hang's verdict becomes.

Looks outlive a generation: a link that flaps breaks one, is sound when the next begins, and breaks
that one too.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from everstep.monitor.commands import SettleNote
from everstep.monitor.detectors.links import (
    LOOKS_MAX,
    LinkLook,
    LinkView,
    Standing,
    partitioned,
    standing_of,
    undecided,
)
from everstep.monitor.detectors.verdict import Verdict
from everstep.monitor.policy import Limits
from everstep.monitor.state import Watch

LIMITS = Limits()


@dataclass(slots=True)
class Linking:
    """Of one job. Mutable: a monitor that starts anew asks anew."""

    view: LinkView = field(default_factory=LinkView)
    _looks: list[LinkLook] = field(default_factory=list)
    _noted: bool = False

    def may_ask(self, now_ms: int) -> bool:
        """Say whether to ask the hosts now; then ``looked`` is to be called."""
        if self.view.asking or now_ms - self.view.asked_ms < LIMITS.links_again_ms:
            return False
        self.view = replace(self.view, asking=True, asked_ms=now_ms)
        return True

    def looked(self, look: LinkLook | None, now_ms: int) -> None:
        """Take what hosts say; None if they could not be asked."""
        standing = Standing()
        if look is not None:
            self._looks = [*self._looks, look][-LOOKS_MAX:]
            standing = standing_of(now_ms, self._looks)
        self._noted = self._noted or standing.tie
        self.view = replace(self.view, asking=False, standing=standing)

    def stepped(self, job_id: str, now_ms: int) -> SettleNote | None:
        """Note a step: whatever was noted of the links is over."""
        if not self._noted:
            return None
        self._noted = False
        kind = "partition_undecided"
        return SettleNote(job_id=job_id, kind=kind, lost_ms=0, lost_steps=0, at_ms=now_ms)

    def instead(
        self, hang: Verdict | None, watch: Watch, *, all_wait: bool, stepped_ms: int, now_ms: int
    ) -> Verdict | None:
        """Return the verdict about a run that makes no step, given what is known of its links.

        Args:
            hang: what the stacks say; None for nothing yet.
            watch: of the job.
            all_wait: no rank stands out: then a host that is cut from the others is the cause.
            stepped_ms: when the last step was.
            now_ms: on the same clock.
        """
        view = self.view
        if not all_wait or view.asking or view.asked_ms < stepped_ms or (hang and hang.hosts):
            return hang
        standing = view.standing
        if standing.cut:
            ranks = {host.host_id: host.ranks for host in watch.hosts}
            seen = f"no step for {now_ms - stepped_ms} ms, all ranks wait"
            return partitioned(standing, ranks, failed_at_ms=stepped_ms, seen=seen)
        if now_ms - stepped_ms > LIMITS.links_tie_ms_max:
            return hang
        if standing.tie:
            return undecided(standing, failed_at_ms=stepped_ms)
        return None if standing.look_again else hang
