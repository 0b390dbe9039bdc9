"""What work that was done twice shows of one job's ranks becomes verdicts.

A wrong gradient is summed, so all ranks hold the same wrong state afterwards, and comparing what
they hold says nothing. Suspect are all states since the last time that everything came out alike;
of what was seen once, and not in the steps right after, only those since that step.

A pair alone evicts nobody: the run goes back on the same hosts, and both stay under suspicion
(``doubts.py``) until the step has been made again. Who had come to other bits than come out then
was wrong, and gives its seat to a spare while the run goes on. If that tells nothing, and the same
two differ once more, one of them gives its place to a spare, where the work is then done a third
time: if the other one still differs, it was that one. Without a spare the run is held when it
happens a third time, instead of going back for ever.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from everstep.monitor.commands import SettleNote
from everstep.monitor.corrupting import found_later, hosts_of
from everstep.monitor.detectors.local_norms import NormCourse, Suspicion
from everstep.monitor.detectors.recompute import Finding, Why
from everstep.monitor.detectors.recompute_course import UNKNOWN, RecomputeCourse
from everstep.monitor.detectors.remade import Broken, Ties
from everstep.monitor.detectors.verdict import Verdict
from everstep.monitor.events import SILENT_CORRUPTION, Action
from everstep.monitor.state import Watch
from everstep.monitor.ties import Pair, Tie
from everstep.wire.v1.agents_pb2 import StepMetrics

log = logging.getLogger(__name__)

# An incident beside which the run goes on: it is not known to be anybody's fault.
NOTED: Final = "recompute_differs"
THIRD_PLACE_AT: Final = 2  # the second time that the same hosts differ
HELD_AT: Final = 3
HOSTS_AT_ONCE_MAX: Final = 2  # chosen: hosts go wrong once in 10,000 days


@dataclass(slots=True)
class Rechecking:
    """Of one job. Mutable: lost with the process but for ties and pairs, and found again."""

    course: RecomputeCourse | None = None
    norms: NormCourse | None = None
    _pairs: Counter[tuple[str, ...]] = field(default_factory=Counter)  # that differed, undecided
    _noted: set[str] = field(default_factory=set)  # kinds of notes that are open
    _noted_step: int = 0  # a step at which all is alike again from here on settles them
    _planned: int = 0
    _suspicions: list[Suspicion] = field(default_factory=list)
    _ties: Ties = field(default_factory=Ties)

    def remember(self, ties: Iterable[Tie], pairs: Iterable[Pair]) -> None:
        """Take what an earlier process has found."""
        self._pairs.update(hosts for _, hosts in pairs)
        for tie in ties:
            if tie.work:
                self._ties.keep(tie)

    def begin(self, watch: Watch) -> None:
        """Take up the watch's generation; what was alike stays known, as far as it was kept."""
        course = self.course
        if watch.placed and (course is None or course.generation != watch.generation):
            self.course = RecomputeCourse(
                watch.generation,
                watch.layout,
                ever_alike=course is not None and course.ever_alike,
                clean_step=course.clean_step if course is not None else UNKNOWN,
                hosts=hosts_of(watch),
                ties=self._ties,
            )
            self.norms = NormCourse(watch.generation, watch.layout)
            self._suspicions.clear()
        if watch.restore_step is not None and self._planned < watch.generation:
            self._planned = watch.generation
            if self.course is not None:
                kept = min(self.course.clean_step, max(watch.restore_step, 0))
                self.course.clean_step = kept

    @property
    def refuted(self) -> frozenset[int]:
        """Ranks that were named in this generation."""
        return self.course.refuted if self.course is not None else frozenset()

    def told(self, metrics: StepMetrics, watch: Watch, now_ms: int) -> list[Verdict | SettleNote]:
        """Take one host's message."""
        if self.course is None or self.norms is None or watch.corruption.on_corruption == "off":
            return []
        for suspicion in self.norms.told(metrics.generation, metrics.ranks):
            log.info("job %s: %s", watch.job_id, suspicion.reason)
            self._suspicions.append(suspicion)
        found = self.course.told(metrics.generation, metrics.ranks)
        said: list[Verdict | SettleNote] = []
        for one in found:
            if isinstance(one, Broken):
                said += found_later(one, watch, now_ms)
            else:
                said.append(self._verdict(one, watch, now_ms))
        if self._noted and self.course.clean_step >= self._noted_step:
            kinds, self._noted = sorted(self._noted), set()
            said += [_settle(watch.job_id, kind, now_ms) for kind in kinds]
        return said

    def take(self) -> list[Suspicion]:
        """Return whom nobody has asked for a recompute for yet."""
        found, self._suspicions = self._suspicions, []
        return found

    def _verdict(self, found: Finding, watch: Watch, now_ms: int) -> Verdict:
        assert self.course is not None, "it has found this"
        ranks = frozenset(found.ranks)
        hosts = tuple(host.host_id for host in watch.hosts if ranks & set(host.ranks))
        blameless = self._blameless(found, watch, hosts)
        kind = NOTED if blameless else SILENT_CORRUPTION
        if blameless or watch.corruption.on_corruption == "note":
            self._noted.add(kind)
            self._noted_step = found.last_step + 1
            return Verdict(
                kind=kind,
                action=Action.NOTE,
                ranks=found.ranks,
                hosts=hosts,
                reason=found.reason + blameless,
                failed_at_ms=now_ms,
                step=found.last_step,
            )
        action, why = (Action.REPLACE, "") if len(hosts) == 1 else self._undecided(hosts)
        # The course has not been clean since the difference: what lasts has begun after that step.
        # A generation's first step is not shadowed, and a tie's step is to be: one step more.
        first = max(found.first_step - (action is Action.RESTART), 1)
        return Verdict(
            kind=kind,
            action=action,
            ranks=found.ranks,
            hosts=hosts[:1] if action is Action.REPLACE_IF_SPARE else hosts,
            reason=found.reason + why,
            failed_at_ms=now_ms,
            step=found.last_step,
            ties=() if action is Action.REPLACE else found.ties,
            suspect_from_step=self.course.clean_step + 1 if found.lasting else first,
        )

    def _blameless(self, found: Finding, watch: Watch, hosts: tuple[str, ...]) -> str:
        """Return why nobody is to blame for a difference; "" if somebody is."""
        if watch.corruption.bits_vary:
            return ". The job does not ask for kernels that repeat their bits"
        if found.why is Why.NOBODY:
            return ". Nobody is blamed"
        if found.why is Why.ITSELF and len(hosts) > HOSTS_AT_ONCE_MAX:
            return f". {len(hosts)} hosts at once are not by chance: the program is likelier"
        return ""

    def _undecided(self, hosts: tuple[str, ...]) -> tuple[Action, str]:
        """Return what to do when one of several hosts was wrong."""
        self._pairs[hosts] += 1
        times = self._pairs[hosts]
        if times < THIRD_PLACE_AT:
            return Action.RESTART, ""
        if times >= HELD_AT:
            return Action.HOLD, f". It has happened {times} times, and nothing decides between them"
        why = f"{hosts[0]} gives its place to a spare, which is to do the work a third time"
        return Action.REPLACE_IF_SPARE, f". As before: {why}"


def _settle(job_id: str, kind: str, now_ms: int) -> SettleNote:
    return SettleNote(job_id=job_id, kind=kind, lost_ms=0, lost_steps=0, at_ms=now_ms)
