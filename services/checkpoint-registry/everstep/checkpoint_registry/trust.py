"""Says what a state is worth: clean, suspect, or verified; suspect ones are never restored.

A suspicion is about a stretch of history: everything that was made from its first step on, in
memory or stored, until the stretch ends or was left behind. A loss that jumps or a sum that does
not add up shows only later than what caused it, so a suspicion begins before its incident
(``NUMERICAL``).

A word is about one step: a person's, or a check's. ``clean`` holds against what was suspected
before it, ``verified`` also against what is suspected later, because it was shown and not
believed; ``suspect`` holds until another word. The word is about the state and not about the
object: every copy of it is meant, also one that a later generation loaded and holds on.

Rejected: a flag on the restart that wants a suspect step. The next failure, a minute later, would
find the same step suspect and go back behind it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from everstep.checkpoint_registry.lineage import Lineage

# Incidents that say something about the numbers, and how many steps before the newest completed
# one the state may already be bad, where the incident itself does not say.
#
# non_finite: 0. Every step's gradient norm is looked at before its update is made, so the newest
# state is the first one that can have led to it.
# loss_spike: 3. It takes 3 steps in a row (PEERS, section 4, "Spikes"), and the loss of a step is
# that of the state before it.
# silent_corruption: 400. At most 0.25 % of the steps are replayed (PEERS, section 4, "Corruption"):
# one in 400 is looked at, so what is older was looked at before. Chosen, not measured.
NUMERICAL: Final = {"non_finite": 0, "loss_spike": 3, "silent_corruption": 400}
BY_HAND: Final = "by_hand"  # the kind of a suspicion without an incident
OPEN: Final = -1  # the last step of a stretch that has not ended


class Trust(StrEnum):
    """What a state is worth."""

    CLEAN = "clean"  # nobody has said anything against it
    SUSPECT = "suspect"
    VERIFIED = "verified"  # shown to be sound


class Ending(StrEnum):
    """What became of a suspicion."""

    RECOVERED = "recovered"  # the job went on from before it, or a person has dealt with it
    CLOSED = "closed"  # the job ended with it: open until a later generation goes on
    FALSE_ALARM = "false_alarm"  # nothing was bad


@dataclass(frozen=True, slots=True, kw_only=True)
class Suspicion:
    """A stretch that is suspect; ``number`` counts the job's suspicions, from 0."""

    suspicion_id: str
    kind: str
    generation: int
    from_step: int
    to_step: int
    why: str
    by: str
    at_ms: int
    number: int
    ending: str = ""

    def covers(self, *, generation: int, step: int) -> bool:
        """Say whether it is about what a generation did at a step."""
        if generation > self.generation or step < self.from_step:
            return False
        return self.to_step == OPEN or step <= self.to_step


@dataclass(frozen=True, slots=True, kw_only=True)
class Word:
    """What somebody has said of one step; ``heard`` suspicions were known then."""

    step: int
    generation: int
    trust: Trust
    why: str
    by: str
    at_ms: int
    heard: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Beliefs:
    """All that was said about a job's states."""

    suspicions: tuple[Suspicion, ...] = ()
    words: tuple[Word, ...] = ()
    raised: int = 0  # suspicions so far


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """What a state is worth, and in words who says so; "" when nobody does."""

    trust: Trust
    why: str = ""


_CLEAN: Final = Judgement(trust=Trust.CLEAN)


def judge(beliefs: Beliefs, lineage: Lineage, *, generation: int, step: int) -> Judgement:
    """Say what the state that a generation made or held at a step is worth."""
    if not beliefs.suspicions and not beliefs.words:
        return _CLEAN
    word = _word(beliefs.words, lineage, generation=generation, step=step)
    if word is not None and word.trust is not Trust.CLEAN:
        return Judgement(trust=word.trust, why=_said(word))
    heard = word.heard if word is not None else 0
    for suspicion in reversed(beliefs.suspicions):
        if suspicion.number >= heard and suspicion.covers(generation=generation, step=step):
            return Judgement(trust=Trust.SUSPECT, why=described(suspicion))
    return Judgement(trust=Trust.CLEAN, why=_said(word)) if word is not None else _CLEAN


def unresolved(beliefs: Beliefs, lineage: Lineage) -> tuple[Suspicion, ...]:
    """Return the suspicions that somebody may still want to go back behind."""
    newest = lineage.restarts[-1].generation if lineage.restarts else 0
    return tuple(
        one
        for one in beliefs.suspicions
        if not one.ending or (one.ending == Ending.CLOSED and newest <= one.generation)
    )


def since(first: int, step: int, words: Sequence[Word], lineage: Lineage) -> int:
    """Return the first step that an incident at ``step``, with cause from ``first``, makes suspect.

    A step that was verified is not: what is wrong has come after it.
    """
    sound = (
        word.step
        for word in words
        if word.trust is Trust.VERIFIED
        and word.step <= step
        and lineage.holds(generation=word.generation, step=word.step)
    )
    return max(first, max(sound, default=-1) + 1)


def reach(lineage: Lineage, *, generation: int, from_step: int, to_step: int) -> int:
    """Return the newest generation that went on from a state of the stretch.

    What came of a suspect state is suspect: a restart that was planned before anybody knew.
    """
    for restart in lineage.restarts:
        if restart.generation <= generation:
            continue
        if restart.step < from_step or (to_step != OPEN and restart.step > to_step):
            break
        generation = restart.generation
    return generation


def relevant(beliefs: Beliefs, lineage: Lineage) -> tuple[Suspicion, ...]:
    """Leave out what is dealt with and whose states were all left behind: it says nothing now.

    Ceilings only ever sink, so it never will again.
    """
    wanted = unresolved(beliefs, lineage)
    return tuple(
        one
        for one in beliefs.suspicions
        if one in wanted or lineage.ceiling(one.generation) >= one.from_step
    )


def described(suspicion: Suspicion) -> str:
    """Say in words what is suspected."""
    end = "" if suspicion.to_step == OPEN else f" to {suspicion.to_step}"
    what = f"{suspicion.kind} from step {suspicion.from_step}{end}"
    return what + (f": {suspicion.why}" if suspicion.why else "")


def _said(word: Word) -> str:
    return f"{word.by} said {word.trust}" + (f": {word.why}" if word.why else "")


def _word(words: Sequence[Word], lineage: Lineage, *, generation: int, step: int) -> Word | None:
    """Return the newest word on a state: given on it, or on the same one of another generation."""
    present = lineage.holds(generation=generation, step=step)
    for word in reversed(words):
        if word.step != step:
            continue
        if word.generation == generation:
            return word
        if present and lineage.holds(generation=word.generation, step=step):
            return word
    return None
