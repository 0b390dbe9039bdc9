"""All that looks at one job's steps: its numbers, its bits, how long they take, whether one comes.

What is found is kept until it is stored, in the order in which it was found.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from everstep.monitor.commands import SettleNote
from everstep.monitor.corrupting import Corrupting
from everstep.monitor.detectors.corruption_course import Found
from everstep.monitor.detectors.local_norms import Suspicion
from everstep.monitor.detectors.spike import Settled, Sound
from everstep.monitor.detectors.straggler import Crew, Finding, Judgement, Limits, stage_roles
from everstep.monitor.detectors.straggler_course import StragglerCourse
from everstep.monitor.detectors.verdict import Verdict
from everstep.monitor.events import NEVER_EQUAL, Action
from everstep.monitor.hanging import Hanging
from everstep.monitor.linking import Linking
from everstep.monitor.numerics import Numerics, settle, verdict_of
from everstep.monitor.rechecking import Rechecking
from everstep.monitor.state import Watch
from everstep.wire.v1.agents_pb2 import StepMetrics

log = logging.getLogger(__name__)

STRAGGLER: Final = "straggler"
LASTING: Final = frozenset({NEVER_EQUAL, STRAGGLER})  # notes that no step ends, but a recovery


@dataclass(slots=True)
class Detecting:
    """Of one job. Mutable: lost with the process, but for its window of losses, ties and pairs."""

    numerics: Numerics = field(default_factory=Numerics)
    hanging: Hanging = field(default_factory=Hanging)
    linking: Linking = field(default_factory=Linking)
    rechecking: Rechecking = field(default_factory=Rechecking)
    corrupting: Corrupting = field(default_factory=Corrupting)
    unsaid: deque[Verdict | SettleNote] = field(default_factory=deque)
    _stragglers: StragglerCourse | None = None
    _doubts: tuple[str, ...] = ()
    _generation: int = 0

    def begin(self, watch: Watch, now_ms: int) -> None:
        """Take up the watch's generation; what was found in an older one is over."""
        if watch.generation != self._generation:
            self._generation = watch.generation
            self._stragglers = None
            self.unsaid.clear()
        self.numerics.begin(watch)
        self.hanging.begin(watch, now_ms)
        self.rechecking.begin(watch)
        self.corrupting.begin(watch)
        if self._stragglers is None and watch.placed and watch.slow_hosts != "off":
            crew = crew_of(watch)
            if crew is not None:
                self._stragglers = StragglerCourse(watch.generation, crew, Limits())

    def remember(self, window: Sequence[Sound], generation: int, watch: Watch, now_ms: int) -> None:
        """Take the steps up to a generation's last, and the ties, that an earlier process kept.

        What else it noted, and would have ended, nobody follows any more: what holds is noted anew.
        """
        self.numerics.remember(window, generation)
        self.rechecking.remember(watch.ties, watch.pairs)
        self.corrupting.remember(watch.ties)
        noted = {ref.kind for ref in watch.open_incidents if ref.action is Action.NOTE}
        self.unsaid += [
            SettleNote(job_id=watch.job_id, kind=kind, lost_ms=0, lost_steps=0, at_ms=now_ms)
            for kind in sorted(noted - LASTING)
        ]

    def stepped(self, job_id: str, step: int, now_ms: int, took_ms: int) -> None:
        """Note a step that somebody has completed, and how long it took by their word."""
        self.hanging.stepped(step, now_ms, took_ms)
        settled = self.linking.stepped(job_id, now_ms)
        if settled is not None:
            self.unsaid.append(settled)

    def told(self, metrics: StepMetrics, watch: Watch, now_ms: int) -> None:
        """Take one host's message of its ranks' steps."""
        for said in self.numerics.told(metrics):
            if isinstance(said, Settled):
                self.unsaid.append(settle(metrics.job_id, said, now_ms))
            else:
                self.unsaid.append(verdict_of(said, watch))
        self.unsaid += self.rechecking.told(metrics, watch, now_ms)
        self.corrupting.refuted = set(self.rechecking.refuted)
        self.unsaid += self.corrupting.told(metrics, watch, now_ms)
        if self._stragglers is not None:
            for judgement in self._stragglers.told(metrics.generation, metrics.ranks):
                self._take(watch, judgement, now_ms)

    def questions(self) -> list[Found | Suspicion]:
        """Return what is to be asked about now."""
        return [*self.corrupting.take(), *self.rechecking.take()]

    def _take(self, watch: Watch, judgement: Judgement, now_ms: int) -> None:
        action = Action.DRAIN if watch.slow_hosts == "drain" else Action.NOTE
        self.unsaid += [slow_host(one, action, now_ms) for one in judgement.findings]
        doubts = tuple(f"{doubt.role} {doubt.why}" for doubt in judgement.doubts)
        if doubts != self._doubts:
            self._doubts = doubts
            for doubt in judgement.doubts:
                log.info("job %s: nobody is called slow: %s", watch.job_id, doubt.reason)


def crew_of(watch: Watch) -> Crew | None:
    """Return who does the same work, and where; None for a job of unknown layout."""
    hosts = {rank: host.host_id for host in watch.hosts for rank in host.ranks}
    if len(hosts) != watch.layout.world_size:
        return None
    return Crew(stage_roles(watch.layout), [hosts[rank] for rank in range(len(hosts))])


def slow_host(finding: Finding, action: Action, now_ms: int) -> Verdict:
    """Return a finding as a verdict."""
    return Verdict(
        kind=STRAGGLER,
        action=action,
        ranks=finding.ranks,
        hosts=(finding.host_id,),
        reason=finding.reason,
        failed_at_ms=now_ms,
        step=finding.last_step,
    )
