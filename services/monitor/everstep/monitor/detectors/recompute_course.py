"""Gathers what ranks tell of work that was done again, until there is something to conclude.

Hosts tell of a step in messages of their own, which may be late, told twice or lost. So a step is
looked at when all ranks have told what they found in it, or when the run has gone on for
``LATE_STEPS`` more. After a difference the ranks pair otherwise in the steps right after: what the
first step did not settle, those together do, or it stays open: then the step that is made again
tells, if it is shadowed again (``remade.py``).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from everstep.core.placement import Layout
from everstep.monitor.detectors.recompute import Finding, Pair, Why, contradicted, judge
from everstep.monitor.detectors.remade import Broken, Ties
from everstep.monitor.ties import Claims, Key, Tie, claims_of
from everstep.wire.v1.agents_pb2 import RankStep, Rerun

# Hosts tell of a step within a fraction of a second of one another, and what they tell of a later
# one has been told after it.
LATE_STEPS: Final = 2
# As ``everstep.train.shadow`` has it: so many steps are shadowed right after one that differed.
AGAIN_STEPS: Final = 2
UNKNOWN: Final = -1


class RecomputeCourse:
    """One generation of one job.

    Args:
        generation: whose steps count.
        layout: of the job.
        ever_alike: in an earlier generation everything has come out alike.
        clean_step: the newest step at which it did; UNKNOWN: nothing is known from before, and the
            state before the first step that is told of has to be believed.
        hosts: by rank; none if they are not known.
        ties: of earlier generations.
    """

    def __init__(
        self,
        generation: int,
        layout: Layout,
        *,
        ever_alike: bool = False,
        clean_step: int = UNKNOWN,
        hosts: Sequence[str] = (),
        ties: Ties | None = None,
    ) -> None:
        self.generation = generation
        self.ever_alike = ever_alike
        self.clean_step = clean_step
        self.ties = ties if ties is not None else Ties()
        self._layout = layout
        self._hosts = tuple(hosts)
        self._reruns: dict[int, dict[int, Rerun]] = {}  # step -> rank -> what it found
        self._wrong: dict[int, dict[int, tuple[str, ...]]] = {}  # step -> rank -> modules
        self._taken = 0  # the newest step that was looked at
        self._newest = 0
        self._open: list[Pair] = []  # since the first difference
        self._claims: dict[int, Claims] = {}  # step -> what was not alike since then
        self._open_until = 0
        self.refuted: frozenset[int] = frozenset()  # named in this generation

    def told(self, generation: int, steps: Iterable[RankStep]) -> list[Finding | Broken]:
        """Take one host's message; returns what can be concluded now, in the order of steps."""
        if generation != self.generation:
            return []
        for step in steps:
            if self.clean_step == UNKNOWN:
                self.clean_step = step.step - 1
            self._newest = max(self._newest, step.step)
            if step.step > self._taken and step.HasField("checked"):
                if step.checked.HasField("rerun"):
                    self._reruns.setdefault(step.step, {})[step.rank] = step.checked.rerun
                if step.checked.recomputed_wrong:
                    modules = tuple(step.checked.recomputed_wrong)
                    self._wrong.setdefault(step.step, {})[step.rank] = modules
        found: list[Finding | Broken] = []
        for number in sorted(self._reruns.keys() | self._wrong.keys()):
            if not self._is_whole(number):
                break
            self._taken = number
            found += self._look(number)
        if self._open and self._newest >= self._open_until + LATE_STEPS:
            found += self._conclude(final=True)
        for one in found:
            if isinstance(one, Finding) and one.why in {Why.NAMED, Why.ITSELF}:
                self.refuted |= frozenset(one.ranks)
        return found

    def _is_whole(self, step: int) -> bool:
        if self._newest >= step + LATE_STEPS:
            return True
        # Who recomputes without a difference does not say so: whoever has one is waited for.
        return step not in self._wrong and len(self._reruns[step]) == self._layout.world_size

    def _look(self, step: int) -> list[Finding | Broken]:
        found: list[Finding | Broken] = []
        wrong = contradicted(self._wrong.pop(step, {}).items(), step, self._layout)
        if wrong is not None:
            found.append(wrong)
        reruns = self._reruns.pop(step, {})
        pairs = _pairs(step, reruns)
        if not pairs:
            return found
        broken = self.ties.settle(step, _works(reruns), self._layout, self._hosts)
        if broken is not None and not broken.agreed:
            self._open.clear()
            return [*found, _named(broken)]
        if broken is not None:
            found.append(broken)
        odd = [pair for pair in pairs if not pair.alike]
        if odd:
            self._claims[step] = _works(reruns, odd)
        if not self._open:
            if all(pair.alike for pair in pairs):
                self.ever_alike, self.clean_step = True, step
                return found
            self._open_until = step + AGAIN_STEPS
        self._open += pairs
        return found + self._conclude(final=step >= self._open_until)

    def _conclude(self, *, final: bool) -> list[Finding | Broken]:
        finding = judge(self._open, self._layout, final=final, ever_alike=self.ever_alike)
        if finding is None:
            return []
        self._open.clear()
        claims, self._claims = self._claims, {}
        if finding.why is not Why.PAIR or not self._hosts:
            return [finding]
        ties = tuple(
            Tie(
                step=step,
                layout=self._layout,
                suspects=finding.ranks,
                claims=claims_of(claimed, self._hosts),
                work=True,
            )
            for step, claimed in claims.items()
        )
        for tie in ties:
            self.ties.keep(tie)
        return [replace(finding, ties=ties)]


def _pairs(step: int, reruns: dict[int, Rerun]) -> list[Pair]:
    """Return what both sides have been heard of."""
    return [
        Pair(
            step=step,
            runner=rank,
            owner=one.of,
            forward=one.other.forward == reruns[one.of].own.forward,
            gradient=one.other.gradient == reruns[one.of].own.gradient,
        )
        for rank, one in sorted(reruns.items())
        if one.of in reruns
    ]


def _works(reruns: Mapping[int, Rerun], odd: Sequence[Pair] | None = None) -> Claims:
    """Return what each rank's work came to, in its own hands and in another's.

    Args:
        reruns: by rank, what it has told of.
        odd: only what these pairs did not come to alike.
    """
    found: dict[Key, dict[int, int]] = {}
    for rank, one in reruns.items():
        for owner, work in ((rank, one.own), (one.of, one.other)):
            found.setdefault(("forward", owner), {})[rank] = work.forward
            found.setdefault(("gradient", owner), {})[rank] = work.gradient
    if odd is None:
        return found
    owners = {pair.owner for pair in odd}
    return {
        key: claims
        for key, claims in found.items()
        if key[1] in owners and len(set(claims.values())) > 1
    }


def _named(broken: Broken) -> Finding:
    """Return who was wrong once more, and otherwise than before."""
    return Finding(
        why=Why.NAMED,
        ranks=broken.ranks,
        first_step=broken.step,
        last_step=broken.step,
        reason=broken.reason,
        lasting=True,
    )
