"""Turns what is found about state that is not equal everywhere into verdicts.

Which tensors differ is asked of the hosts first: their snapshots of the step still lie there,
because ranks keep them until somebody has decided. Whoever does not answer in time leaves the
fingerprints to speak alone.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from everstep.monitor.commands import SettleNote
from everstep.monitor.detectors.corruption import (
    Blame,
    Values,
    blame,
    described,
    differences,
    tensors_of,
)
from everstep.monitor.detectors.corruption_course import CorruptionCourse, Found, NeverEqual
from everstep.monitor.detectors.remade import Broken
from everstep.monitor.detectors.verdict import Verdict
from everstep.monitor.events import NEVER_EQUAL, SILENT_CORRUPTION, Action
from everstep.monitor.state import Watch
from everstep.monitor.ties import Tie
from everstep.wire.v1.agents_pb2 import StepMetrics

log = logging.getLogger(__name__)

OVER_WORDS: Final = {1: "dp_replicate", 2: "dp_shard", 4: "tp"}

# Of these ranks' snapshots of a step: by rank, what they hold alike with others.
AskChecksums = Callable[[Watch, int, Iterable[int]], Awaitable[Mapping[int, Values]]]


async def no_checksums(_: Watch, __: int, ___: Iterable[int]) -> Mapping[int, Values]:
    """Nobody can be asked."""
    return {}


@dataclass(slots=True)
class Corrupting:
    """Of one job. Mutable: lost with the process."""

    course: CorruptionCourse = field(default_factory=CorruptionCourse)
    refuted: set[int] = field(default_factory=set)  # ranks whose work came out otherwise elsewhere
    _unasked: list[Found] = field(default_factory=list)
    _off: bool = True

    def begin(self, watch: Watch) -> None:
        """Take up the watch's generation."""
        self._off = watch.corruption.on_corruption == "off"
        if watch.generation != self.course.generation:
            self._unasked.clear()
        self.course.begin(watch.generation, watch.layout, () if self._off else hosts_of(watch))
        if watch.restore_step is not None:
            step = max(watch.restore_step, 0)
            proved = step > 0 and not watch.never_equal
            self.course.resumed(watch.generation, step, proved=proved)

    def remember(self, ties: Iterable[Tie]) -> None:
        """Take what an earlier process has found."""
        for tie in ties:
            if not tie.work:
                self.course.remember(tie)

    def told(self, metrics: StepMetrics, watch: Watch, now_ms: int) -> list[Verdict | SettleNote]:
        """Take one host's message."""
        said: list[Verdict | SettleNote] = []
        for one in self.course.told(metrics.generation, metrics.ranks, self.refuted):
            match one:
                case Found():
                    self._unasked.append(one)
                case NeverEqual():
                    said.append(_never_equal(one, now_ms))
                case Broken():
                    said += found_later(one, watch, now_ms)
                case _:
                    said.append(
                        SettleNote(
                            job_id=watch.job_id,
                            kind=SILENT_CORRUPTION,
                            lost_ms=0,
                            lost_steps=0,
                            at_ms=now_ms,
                        )
                    )
        return said

    def take(self) -> list[Found]:
        """Return what nobody has asked about yet."""
        found, self._unasked = self._unasked, []
        return found

    def verdict(
        self, found: Found, told: Mapping[int, Values], watch: Watch, now_ms: int
    ) -> Verdict:
        """Conclude, with what hosts have told of the tensors."""
        seen = differences(told, watch.layout)
        whole = bool(seen) and told.keys() >= set(found.holders)
        # Tensor by tensor a tie may be broken that was none of all together.
        by = blame(seen, hosts_of(watch), self.refuted) if whole else found.blame
        blamed = by if by.certain or not found.blame.certain else found.blame
        return verdict_of(found, blamed, tensors_of(seen), watch, now_ms)


def hosts_of(watch: Watch) -> tuple[str, ...]:
    """Return the host of each rank; none for a job of unknown layout."""
    hosts = {rank: host.host_id for host in watch.hosts for rank in host.ranks}
    if not watch.placed or len(hosts) != watch.layout.world_size:
        return ()
    return tuple(hosts[rank] for rank in range(len(hosts)))


def verdict_of(
    found: Found, by: Blame, tensors: tuple[str, ...], watch: Watch, now_ms: int
) -> Verdict:
    """Return a finding as a verdict: to replace whoever is wrong, or just to go back."""
    noted = watch.corruption.on_corruption == "note"
    what = described(tensors) if tensors else "what they must hold alike"
    sound = f"step {found.sound_step} is the newest that was equal everywhere"
    if not found.sound_step:
        sound = "no state but the first is known to be sound"
    open_end = "" if by.certain else "inconclusive, so nobody is replaced: "
    action = Action.REPLACE if by.certain else Action.RESTART
    return Verdict(
        kind=SILENT_CORRUPTION,
        action=Action.NOTE if noted else action,
        ranks=by.ranks,
        hosts=by.hosts,
        reason=f"{open_end}at step {found.step} ranks differ in {what}: {by.reason}; {sound}",
        failed_at_ms=now_ms,
        detail="\n".join(tensors),
        step=found.step,
        suspect_from_step=0 if noted else found.suspect_from_step,
        ties=() if by.certain or found.tie is None else (found.tie,),
    )


def found_later(broken: Broken, watch: Watch, now_ms: int) -> list[Verdict]:
    """Move the job off a host that was wrong at a step which has been made again since.

    Nothing that is held now is suspect, so the run goes on until a spare can take the seat.
    """
    if broken.host not in {host.host_id for host in watch.hosts}:
        return []  # gone already
    noted = watch.corruption.on_corruption == "note"
    verdict = Verdict(
        kind=SILENT_CORRUPTION,
        action=Action.NOTE if noted else Action.DRAIN,
        ranks=broken.ranks,
        hosts=(broken.host,),
        reason=broken.reason,
        failed_at_ms=now_ms,
        step=broken.step,
    )
    return [verdict]


def _never_equal(one: NeverEqual, now_ms: int) -> Verdict:
    kinds = (
        " and ".join(word for number, word in OVER_WORDS.items() if over & number)
        for over in one.over
    )
    return Verdict(
        kind=NEVER_EQUAL,
        action=Action.NOTE,
        ranks=(),
        hosts=(),
        reason=f"ranks along {', '.join(kinds)} hold other bits from the beginning (seen at step "
        f"{one.step}) in what is usually equal: it is not compared",
        failed_at_ms=now_ms,
        step=one.step,
    )
