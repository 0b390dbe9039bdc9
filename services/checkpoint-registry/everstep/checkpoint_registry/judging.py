"""Decides on suspicions, on words about steps, on pins, and on what retention gives up.

All in the job's history, also what is about one checkpoint: a pin, a plan, a suspicion and a
removal that meet are one before the other there, and the later one knows of the earlier one.
"""

from __future__ import annotations

from typing import Final, assert_never

from everstep.checkpoint_registry.commands import (
    DecideTrust,
    EndSuspicion,
    JudgingCommand,
    NoteCheck,
    NoteIncident,
    NoteIncidentEnd,
    PinCheckpoint,
    SuspectSteps,
    ThinOut,
    UnpinCheckpoint,
)
from everstep.checkpoint_registry.events import (
    CheckpointChecked,
    CheckpointPinned,
    CheckpointsSuspected,
    CheckpointUnpinned,
    HistoryEvent,
    RemovalsDecided,
    SuspicionEnded,
    TrustDecided,
)
from everstep.checkpoint_registry.retention import removals
from everstep.checkpoint_registry.state import History, Phase
from everstep.checkpoint_registry.trust import (
    BY_HAND,
    NUMERICAL,
    OPEN,
    Ending,
    Suspicion,
    Trust,
    reach,
    since,
)
from everstep.core.decision import Accepted, Rejected
from everstep.core.ids import is_valid_id

# Each is an order about one job, and all are read with every plan. Chosen: more than anybody
# will give by hand; a program that goes on and on is told.
PINS_MAX: Final = 1_000
WORDS_MAX: Final = 1_000
SUSPICIONS_MAX: Final = 1_000  # by hand; those of incidents are bounded by the restart budget
MONITOR: Final = "monitor"

_Decision = Accepted[HistoryEvent] | Rejected


def decide_judging(command: JudgingCommand, history: History) -> _Decision:
    """Decide on a job's history as it is."""
    match command:
        case NoteIncident():
            return _incident(command, history)
        case NoteIncidentEnd():
            return _incident_end(command, history)
        case SuspectSteps():
            return _suspect(command, history)
        case EndSuspicion():
            return _end(command, history)
        case DecideTrust():
            return _trust(command, history)
        case NoteCheck():
            return _check(command, history)
        case PinCheckpoint():
            return _pin(command, history)
        case UnpinCheckpoint():
            return _unpin(command, history)
        case ThinOut():
            gone = removals(command.known, history)
            decided = RemovalsDecided(job_id=command.job_id, removals=gone, at_ms=command.at_ms)
            return Accepted((decided,)) if gone else Accepted()
        case _:
            assert_never(command)


def _incident(command: NoteIncident, history: History) -> _Decision:
    if command.kind not in NUMERICAL or _suspicion(history, command.incident_id) is not None:
        return Accepted()
    first = command.from_step or max(command.step - NUMERICAL[command.kind], 0)
    from_step = since(first, command.step, history.beliefs.words, history.lineage)
    suspected = CheckpointsSuspected(
        job_id=command.job_id,
        suspicion_id=command.incident_id,
        kind=command.kind,
        generation=reach(
            history.lineage, generation=command.generation, from_step=from_step, to_step=OPEN
        ),
        from_step=from_step,
        to_step=OPEN,
        why=command.why,
        by=MONITOR,
        at_ms=command.at_ms,
    )
    return Accepted((suspected,))


def _incident_end(command: NoteIncidentEnd, history: History) -> _Decision:
    suspicion = _suspicion(history, command.incident_id)
    if suspicion is None or suspicion.ending:
        return Accepted()
    ended = SuspicionEnded(
        job_id=command.job_id,
        suspicion_id=command.incident_id,
        outcome=Ending.RECOVERED if command.recovered else Ending.CLOSED,
        why=command.why,
        by=MONITOR,
        at_ms=command.at_ms,
    )
    return Accepted((ended,))


def _suspect(command: SuspectSteps, history: History) -> _Decision:
    if not is_valid_id(command.job_id):
        return _bad_job_id(command.job_id)
    generation = command.generation or history.newest_generation
    if not generation:
        return Rejected(
            "no_such_job",
            f"job {command.job_id} has begun no generation that the registry knows of: there is "
            "nothing to suspect",
        )
    ends_before = command.to_step != OPEN and command.to_step < command.from_step
    if command.from_step < 0 or ends_before or generation < 0:
        return Rejected(
            "bad_span",
            f"job {command.job_id}: steps {command.from_step} to {command.to_step} of generation "
            f"{generation}: expected a first step from 0 and a last one that is not before it "
            f"({OPEN}: whatever comes)",
        )
    suspicion_id = command.suspicion_id or f"{BY_HAND}-{generation}-{command.from_step}" + (
        f"-{command.to_step}" if command.to_step != OPEN else ""
    )
    known = _suspicion(history, suspicion_id)
    if known is not None and known.ending not in (Ending.RECOVERED, Ending.FALSE_ALARM):
        return Accepted()
    if len(history.beliefs.suspicions) >= SUSPICIONS_MAX:
        return _too_many(command.job_id, "suspicions", SUSPICIONS_MAX, "end some")
    suspected = CheckpointsSuspected(
        job_id=command.job_id,
        suspicion_id=suspicion_id,
        kind=BY_HAND,
        generation=reach(
            history.lineage,
            generation=generation,
            from_step=command.from_step,
            to_step=command.to_step,
        ),
        from_step=command.from_step,
        to_step=command.to_step,
        why=command.why,
        by=command.by,
        at_ms=command.at_ms,
    )
    return Accepted((suspected,))


def _end(command: EndSuspicion, history: History) -> _Decision:
    suspicion = _suspicion(history, command.suspicion_id)
    if suspicion is None:
        there = ", ".join(one.suspicion_id for one in history.beliefs.suspicions) or "none"
        return Rejected(
            "no_such_suspicion",
            f"job {command.job_id} has no suspicion {command.suspicion_id}; there are: {there}",
        )
    if suspicion.ending == Ending.RECOVERED and not command.false_alarm:
        return Accepted()
    ended = SuspicionEnded(
        job_id=command.job_id,
        suspicion_id=command.suspicion_id,
        outcome=Ending.FALSE_ALARM if command.false_alarm else Ending.RECOVERED,
        why=command.why,
        by=command.by,
        at_ms=command.at_ms,
    )
    return Accepted((ended,))


def _trust(command: DecideTrust, history: History) -> _Decision:
    if command.trust not in list(Trust):
        return Rejected("bad_trust", f"{command.trust!r}: expected one of {', '.join(Trust)}")
    refused = _why_not_there(command, history)
    if refused is not None:
        return refused
    which = (command.step, command.generation)
    word = next((w for w in history.beliefs.words if (w.step, w.generation) == which), None)
    judged = history.judge(generation=command.generation, step=command.step)
    said = word is not None and word.trust == command.trust
    nothing_to_clear = word is None and command.trust == Trust.CLEAN
    if judged.trust == command.trust and (said or nothing_to_clear):
        return Accepted()
    if word is None and len(history.beliefs.words) >= WORDS_MAX:
        return _too_many(command.job_id, "steps that somebody spoke of", WORDS_MAX, "say no more")
    decided = TrustDecided(
        job_id=command.job_id,
        step=command.step,
        generation=command.generation,
        trust=command.trust,
        why=command.why,
        by=command.by,
        at_ms=command.at_ms,
    )
    return Accepted((decided,))


def _check(command: NoteCheck, history: History) -> _Decision:
    refused = _why_not_there(command, history)
    if refused is not None:
        return refused
    strange = [rank for rank in command.bad_ranks if not 0 <= rank < command.world_size]
    if strange:
        return Rejected(
            "bad_rank",
            f"job {command.job_id} step {command.step}: rank {strange[0]} of "
            f"{command.world_size} ranks",
        )
    known = history.check_of(generation=command.generation, step=command.step)
    before = set(known.bad_ranks) if known is not None else set()
    bad = set(command.bad_ranks)
    late = known is not None and known.at_ms >= command.at_ms
    if bad <= before and (late or not command.whole):
        return Accepted()  # said before, or looked at again since
    if not command.whole:
        bad |= before
    checked = CheckpointChecked(
        job_id=command.job_id,
        step=command.step,
        generation=command.generation,
        bad_ranks=tuple(sorted(bad)),
        whole=command.whole,
        why=command.why,
        by=command.by,
        at_ms=command.at_ms,
    )
    return Accepted((checked,))


def _pin(command: PinCheckpoint, history: History) -> _Decision:
    refused = _why_not_there(command, history)
    if refused is not None:
        return refused
    which = (command.step, command.generation)
    note = next((p.note for p in history.pins if (p.step, p.generation) == which), None)
    if note is not None and command.note in ("", note):
        return Accepted()  # to say it again without a note takes none away
    if which not in history.pinned_ids and len(history.pins) >= PINS_MAX:
        return _too_many(command.job_id, "pinned checkpoints", PINS_MAX, "unpin some")
    pinned = CheckpointPinned(
        job_id=command.job_id,
        step=command.step,
        generation=command.generation,
        note=command.note,
        by=command.by,
        at_ms=command.at_ms,
    )
    return Accepted((pinned,))


def _unpin(command: UnpinCheckpoint, history: History) -> _Decision:
    if (command.step, command.generation) not in history.pinned_ids:
        return Accepted()
    unpinned = CheckpointUnpinned(
        job_id=command.job_id,
        step=command.step,
        generation=command.generation,
        by=command.by,
        at_ms=command.at_ms,
    )
    return Accepted((unpinned,))


def _why_not_there(
    command: PinCheckpoint | DecideTrust | NoteCheck, history: History
) -> Rejected | None:
    """Say why nothing can be said of a checkpoint: it is not there, or not whole."""
    what = f"job {command.job_id} step {command.step} generation {command.generation}"
    removed = {(one.step, one.generation): one.why for one in history.removed}
    why = removed.get((command.step, command.generation))
    if why is not None or command.phase in (Phase.DELETED, Phase.PURGED):
        return Rejected(
            "deleted", f"{what} was deleted ({why or 'dropped'}): nothing of it is left"
        )
    if not command.phase:
        return Rejected(
            "no_such_checkpoint",
            f"{what}: there is no such checkpoint; `everstep checkpoints --job {command.job_id}` "
            "lists those that there are",
        )
    if command.phase != Phase.COMPLETE:
        return Rejected(
            "not_complete", f"{what} is {command.phase}: only a complete one is a checkpoint"
        )
    return None


def _suspicion(history: History, suspicion_id: str) -> Suspicion | None:
    found = (s for s in history.beliefs.suspicions if s.suspicion_id == suspicion_id)
    return next(found, None)


def _bad_job_id(job_id: str) -> Rejected:
    return Rejected("bad_job_id", f"{job_id!r} is no id: letters, digits, _ and -")


def _too_many(job_id: str, what: str, limit: int, do: str) -> Rejected:
    return Rejected("too_many", f"job {job_id} has {limit} {what}, which is the most: {do}")
