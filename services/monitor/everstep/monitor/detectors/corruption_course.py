"""Follows what ranks show of each step's state, and which step was the last sound one.

A step is looked at when all ranks have told of it, or when somebody is ``LATE_STEPS`` further than
anybody was when it was first heard of. While ranks do not agree they take no snapshots, and tell
the same fingerprints again with every step, so a message that was lost costs a step's time and no
more.

Sound is the newest step at which all who must hold the same did; everything after it is suspect.
Ranks know it from their own sum and tell it, so a monitor that has just begun knows it, too. What
was never seen equal in this job is not what must be equal (a program may keep other things than we
think in its parameters): that is said once, and nobody is blamed.

A tie between ranks is kept until its step has been made again (``remade.py``).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Protocol

from everstep.core.circles import circle_numbers
from everstep.core.placement import Layout
from everstep.monitor.detectors.corruption import Blame, Difference, Values, blame, differences
from everstep.monitor.detectors.remade import Broken, Ties
from everstep.monitor.ties import Claims, Key, Tie, claims_of

# Messages of one step come within a fraction of a second; chosen for an agent that starts anew.
LATE_STEPS: Final = 4
UNKNOWN: Final = -1


class Shown(Protocol):
    """One fingerprint; as on the wire."""

    over: int
    value: int


class RankShown(Protocol):
    """What a rank tells with a step; as on the wire."""

    rank: int
    step: int
    compared_step: int
    verified_step: int

    @property
    def fingerprints(self) -> Iterable[Shown]:
        """Of the snapshot of ``compared_step``."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """Ranks do not hold the same at ``step``; the newest sound state is that of ``sound_step``.

    ``holders`` are all ranks in circles that do not agree: their checksums tell which tensors.
    ``tie`` is what each had, if nobody is named.
    """

    step: int
    sound_step: int
    blame: Blame
    holders: tuple[int, ...]
    tie: Tie | None = None

    @property
    def suspect_from_step(self) -> int:
        """The first step whose state may be wrong."""
        return self.sound_step + 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Equal:
    """All ranks hold the same at ``step``, after they did not."""

    step: int


@dataclass(frozen=True, slots=True, kw_only=True)
class NeverEqual:
    """What is held over these dimensions was never equal."""

    step: int
    over: tuple[int, ...]


Said = Found | Equal | NeverEqual | Broken


@dataclass(slots=True, kw_only=True)
class _Step:
    """What has been told of a step; with all equal, nothing but ``firsts`` is ever looked at."""

    since: int  # the newest step when it was first told of
    ranks: dict[int, tuple[tuple[int, int], ...]] = field(default_factory=dict)
    firsts: dict[tuple[int, int], int] = field(default_factory=dict)  # over, circle -> value
    odd: bool = False

    @property
    def values(self) -> dict[int, Values]:
        """Return it as ``differences`` wants it."""
        return {rank: {(over, ""): one for over, one in ones} for rank, ones in self.ranks.items()}

    def claims(self, keys: Collection[Key], layout: Layout) -> Claims:
        """Return what ranks hold of some circles, each named by its dimensions and number."""
        found: dict[Key, dict[int, int]] = {key: {} for key in keys}
        for rank, values in self.ranks.items() if keys else ():
            for over, value in values:
                circle = _circle(over, circle_numbers(layout, over)[rank])
                if circle in found:
                    found[circle][rank] = value
        return found


class CorruptionCourse:
    """One job's. Mutable: lost with the process, and found again from what ranks tell."""

    def __init__(self) -> None:
        self.generation = 0
        self.sound_step = UNKNOWN
        self._layout = Layout()
        self._hosts: Sequence[str] = ()
        self._planned = self._restored = 0
        self._told: dict[int, _Step] = {}
        self._step = 0  # the newest that was looked at
        self._newest = 0  # that anybody has told of
        self._equal: set[int] = set()  # over what it was
        self._strange: set[int] = set()  # over what it never was, as was said already
        self._odd = False
        self._proved = False  # all of it was equal at once
        self._ties = Ties()

    def remember(self, tie: Tie) -> None:
        """Take a tie that an earlier process has found."""
        self._ties.keep(tie)

    def begin(self, generation: int, layout: Layout, hosts: Sequence[str]) -> None:
        """Take up a generation; ``hosts`` are by rank, none for one that is not compared."""
        if generation != self.generation:
            self.generation = generation
            self._told.clear()
            self._step = self._newest = 0
            self._odd = False
        self._layout, self._hosts = layout, hosts

    def resumed(self, generation: int, step: int, *, proved: bool = False) -> None:
        """Go on from a step, 0 for the beginning; what was sound after it is another history.

        ``proved``: earlier generations had nothing that was never equal.
        """
        if generation > self._planned:
            self._planned, self._step, self._newest = generation, step, step
            self._restored, self._proved = step, self._proved or proved
            self.sound_step = min(self.sound_step, step)

    def told(
        self, generation: int, ranks: Iterable[RankShown], refuted: Collection[int] = ()
    ) -> list[Said]:
        """Take one host's message."""
        if generation != self.generation or not self._hosts:
            return []
        for rank in ranks:
            self._newest = max(self._newest, rank.step)
            if rank.verified_step > 0:
                self._proved = True
                self.sound_step = max(self.sound_step, rank.verified_step)
            if rank.compared_step > self._step and rank.rank < len(self._hosts):
                self._take(rank)
        said: list[Said] = []
        while self._told:
            step = min(self._told)
            whole = len(self._told[step].ranks) == len(self._hosts)
            if not whole and self._newest - self._told[step].since < LATE_STEPS:
                break
            self._step = step
            said += self._look(step, self._told.pop(step), refuted, whole=whole)
        return said

    def _take(self, rank: RankShown) -> None:
        """Compare a rank's fingerprints with the first ones of its circles, as they come."""
        values = tuple((one.over, one.value) for one in rank.fingerprints)
        if not values:
            return
        told = self._told.get(rank.compared_step)
        if told is None:
            told = self._told[rank.compared_step] = _Step(since=self._newest)
        told.ranks[rank.rank] = values
        for over, value in values:
            circle = (over, circle_numbers(self._layout, over)[rank.rank])
            told.odd |= told.firsts.setdefault(circle, value) != value

    def _look(
        self,
        step: int,
        told: _Step,
        refuted: Collection[int],
        *,
        whole: bool,
    ) -> list[Said]:
        found = differences(told.values, self._layout) if told.odd else ()
        kinds = {over for over, _ in told.firsts}
        odd = {one.item[0] for one in found}
        if whole:
            self._equal |= kinds - odd
            self._proved = self._proved or not odd
        # That all was equal once proves it of each kind.
        known = kinds if self._proved else self._equal
        real = [one for one in found if one.item[0] in known]
        broken = self._remade(step, told)
        if real:
            self._odd = True
            by = blame(real, self._hosts, {*refuted, *(broken.ranks if broken else ())})
            if broken is not None and by.certain and set(by.ranks) <= set(broken.ranks):
                by = replace(by, reason=broken.reason)
            tie = None if by.certain else self._tie(step, told, real, by)
            if tie is not None:
                self._ties.keep(tie)
            return [
                Found(
                    step=step,
                    sound_step=self._sound_before(step),
                    blame=by,
                    holders=tuple(sorted({rank for one in real for rank in one.holders})),
                    tie=tie,
                )
            ]
        said: list[Said] = [broken] if broken is not None else []
        if whole:
            self.sound_step = max(self.sound_step, step)
            if self._odd:
                said.append(Equal(step=step))
                self._odd = False
        strange = odd - self._strange
        self._strange |= strange
        return [*said, NeverEqual(step=step, over=tuple(sorted(strange)))] if strange else said

    def _remade(self, step: int, told: _Step) -> Broken | None:
        """Say who was wrong when this step was made before, if it was and if that shows now."""
        again = told.claims(self._ties.keys(step), self._layout)
        return self._ties.settle(step, again, self._layout, self._hosts)

    def _tie(self, step: int, told: _Step, real: Sequence[Difference], by: Blame) -> Tie:
        keys = {
            _circle(one.item[0], circle_numbers(self._layout, one.item[0])[one.holders[0]])
            for one in real
        }
        return Tie(
            step=step,
            layout=self._layout,
            suspects=by.ranks,
            claims=claims_of(told.claims(keys, self._layout), self._hosts),
        )

    def _sound_before(self, step: int) -> int:
        """Return the newest sound step; where none is known, what was restored is suspect too."""
        if self.sound_step == UNKNOWN:
            return max(0, self._restored - 1)
        return min(self.sound_step, step - 1)


def _circle(over: int, number: int) -> Key:
    return f"over {over}", number
