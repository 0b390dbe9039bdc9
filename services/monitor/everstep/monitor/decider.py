"""Decides what an observation or a verdict changes in a job's watch.

At most one incident a generation that ends it: whatever else fails in it is an echo, or is found by
the recovery itself. What is only noted, or waits for spares, stands beside it. Observations of an
older generation than the current one change nothing, but for ranks that finish while their job is
being paused or moved: a run that is through is through. What ranks of a newer one tell is kept
until it has begun by the controller's word (``early.py``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import assert_never

from everstep.core.decision import Accepted, Rejected
from everstep.monitor.commands import (
    CloseHostIncident,
    Command,
    MarkJob,
    NoteAudit,
    ObserveExit,
    ObserveProgress,
    ObserveRefusal,
    ObserveStray,
    OpenIncident,
    SettleNote,
)
from everstep.monitor.detectors.rank_ends import uneven
from everstep.monitor.doubts import Doubt, named
from everstep.monitor.early import Told, source_of
from everstep.monitor.ending import closed, got_over, not_missed, recovered, without_unplanned
from everstep.monitor.events import (
    SILENT_CORRUPTION,
    Action,
    Event,
    ExitClass,
    GenerationProgressed,
    IncidentClosed,
    IncidentOpened,
    IncidentRecovered,
    JobMarked,
    Mark,
    RankEnded,
    RunFinished,
    SourceRefused,
    StrayFound,
    TieFound,
)
from everstep.monitor.repeats import Hang, action_for
from everstep.monitor.state import BESIDE, MOVES, Watch, evolve
from everstep.monitor.ties import CLAIMS_STORED_MAX

Decision = Accepted[Event] | Rejected
NOTHING: Accepted[Event] = Accepted()


def decide(command: Command, watch: Watch) -> Decision:
    """Answer ``command``; observations are never refused: they matter, or not."""
    match command:
        case MarkJob():
            return _mark(command, watch)
        case ObserveExit():
            return _exit(command, watch)
        case ObserveRefusal():
            return _refusal(command, watch)
        case ObserveProgress():
            return _progress(command, watch)
        case ObserveStray():
            return _stray(command, watch)
        case OpenIncident():
            return _open(command, watch)
        case SettleNote():
            return _settle(command, watch)
        case NoteAudit():
            return _audited(command, watch)
        case CloseHostIncident():
            end = not_missed if command.left else recovered
            return Accepted(tuple(end(watch, command.at_ms)))
        case _:
            assert_never(command)


def _mark(command: MarkJob, watch: Watch) -> Decision:
    newer = command.mark is Mark.BEGUN and command.generation > watch.generation
    if command.generation < watch.generation or (watch.over and not newer):
        return NOTHING
    if command.mark is Mark.BEGUN and not newer:
        return NOTHING
    marked = JobMarked(
        job_id=command.job_id,
        generation=command.generation,
        mark=command.mark,
        cause=command.cause,
        hosts=command.hosts,
        step=command.step,
        at_ms=command.at_ms,
        numerics=command.numerics,
        layout=command.layout,
        collective_timeout_ms=command.collective_timeout_ms,
        slow_hosts=command.slow_hosts,
        steps=command.steps,
        corruption=command.corruption,
        audit=command.audit,
    )
    if command.mark is Mark.ENDED:
        return Accepted((*closed(watch, command), marked))
    if command.mark is Mark.PLANNED and (watch.progressed or _is_through(watch)):
        after = evolve(watch, marked)
        return Accepted((marked, *got_over(after, watch.progressed_ms or command.at_ms)))
    if command.mark is not Mark.PLACED or watch.placed or not watch.ended:
        return Accepted((marked,))
    # Hosts may have told of all ends before the controller's word of its ranks has come.
    after = evolve(watch, marked)
    return Accepted((marked, *_over(watch, after.ended, after.world_size)))


def _exit(command: ObserveExit, watch: Watch) -> Decision:
    if command.exit_class is ExitClass.COLLECTIVE:
        return NOTHING
    ended = RankEnded(
        job_id=command.job_id,
        generation=command.generation,
        rank=command.rank,
        host_id=command.host_id,
        exit_class=command.exit_class,
        signal=command.signal,
        error=command.error,
        detail=command.detail,
        step=command.step,
        at_ms=command.at_ms,
    )
    if command.generation > watch.generation:
        return _early(ended, watch)
    if not _concerns(command, watch):
        return NOTHING
    after = evolve(watch, ended)
    leaving = command.generation == watch.leaving_generation
    ends = after.leaving if leaving else after.ended
    if not (watch.placed or leaving):
        return Accepted((ended,))
    ranks = watch.leaving_count if leaving else watch.world_size
    return Accepted((ended, *_over(watch, ends, ranks)))


def _over(watch: Watch, ends: Mapping[int, RankEnded], ranks: int) -> list[Event]:
    """End the run if that many ranks of one generation have finished."""
    finished = [e for e in ends.values() if e.exit_class is ExitClass.FINISHED]
    if not finished or len(finished) < ranks:
        return []
    done = RunFinished(
        job_id=watch.job_id,
        generation=finished[0].generation,
        step=max(e.step for e in finished),
        at_ms=max(e.at_ms for e in finished),
        detail=uneven(finished),
    )
    # After the last step there is no next one to recover with: returning is as good. Not where it
    # was found too late for these ranks: another generation makes steps for it.
    before = tuple(
        ref
        for ref in watch.open_incidents
        if ref.generation < done.generation or not ref.ends_its_generation
    )
    watch = without_unplanned(replace(watch, open_incidents=before))
    return [done, *recovered(watch, done.at_ms)]


def _is_through(watch: Watch) -> bool:
    return watch.finished_generation == watch.generation


def _concerns(command: ObserveExit, watch: Watch) -> bool:
    """Whether an end is news: of the current generation, or of one that finishes as it pauses."""
    if watch.over:
        return False
    if command.generation == watch.generation:
        return command.rank not in watch.ended
    leaving = command.generation == watch.leaving_generation
    finished = command.exit_class is ExitClass.FINISHED
    return leaving and finished and command.rank not in watch.leaving


def _refusal(command: ObserveRefusal, watch: Watch) -> Decision:
    refused = SourceRefused(
        job_id=command.job_id,
        generation=command.generation,
        rank=command.rank,
        step=command.step,
        kind=command.kind,
        host_id=command.host_id,
        uri=command.uri,
        detail=command.detail,
        at_ms=command.at_ms,
    )
    if command.generation > watch.generation:
        return _early(refused, watch)
    if _stale(command.generation, watch) or source_of(refused) in watch.refused:
        return NOTHING
    return Accepted((refused,))


def _early(told: Told, watch: Watch) -> Decision:
    return Accepted((told,)) if watch.early.is_news(told) else NOTHING


def _progress(command: ObserveProgress, watch: Watch) -> Decision:
    known = watch.progressed and (watch.stepped or command.step == 0)
    if _stale(command.generation, watch) or known:
        return NOTHING
    progressed = GenerationProgressed(
        job_id=command.job_id,
        generation=command.generation,
        step=command.step,
        at_ms=command.at_ms,
    )
    return Accepted((progressed, *got_over(watch, command.at_ms)))


def _stray(command: ObserveStray, watch: Watch) -> Decision:
    """Ranks of what is over are to be ended; a pause, a stop or a move ends its own.

    What runs on when the job is paused, nobody has ended: its hosts were taken for lost.
    """
    ending = watch.cause in {"pause", "stop"} and not watch.paused
    ending |= watch.cause in MOVES and watch.restore_step is None
    old = command.generation < watch.generation and not ending
    if not watch.job_id or not (watch.over or old):
        return NOTHING
    found = StrayFound(
        job_id=command.job_id,
        generation=watch.generation,
        host_id=command.host_id,
        stray_generation=command.generation,
        at_ms=command.at_ms,
    )
    return Accepted((found,))


def _open(command: OpenIncident, watch: Watch) -> Decision:
    if command.job_id:
        if _stale(command.generation, watch):
            return NOTHING
        if _needless(command, watch):
            return NOTHING
    elif watch.open_incidents:
        return NOTHING
    command = _hung_again(_met_again(_held(command, watch), watch), watch)
    return Accepted((*_ties(command), _opened(command)))


def _opened(command: OpenIncident) -> IncidentOpened:
    return IncidentOpened(
        incident_id=command.incident_id,
        job_id=command.job_id,
        generation=command.generation,
        kind=command.kind,
        ranks=command.ranks,
        hosts=command.hosts,
        step=command.step,
        own_step=command.own_step,
        action=command.action,
        reason=command.reason,
        detail=command.detail,
        failed_at_ms=command.failed_at_ms,
        detected_at_ms=command.detected_at_ms,
        suspect_from_step=command.suspect_from_step,
        skipped=command.skipped,
    )


def _ties(command: OpenIncident) -> tuple[TieFound, ...]:
    """Keep what may tell later who was wrong; a tie among too many is none of two."""
    return tuple(
        TieFound(
            job_id=command.job_id,
            generation=command.generation,
            tie=tie,
            at_ms=command.detected_at_ms,
        )
        for tie in command.ties
        if len(tie.claims) <= CLAIMS_STORED_MAX
    )


def _needless(command: OpenIncident, watch: Watch) -> bool:
    """Whether an incident says nothing new of its generation."""
    if command.generation == watch.finished_generation:
        return True
    if command.action not in BESIDE:
        return command.generation == watch.judged_generation
    return any(
        ref.action is command.action
        and ref.kind == command.kind
        and set(command.hosts) <= set(ref.hosts)
        for ref in watch.open_incidents
    )


def _held(command: OpenIncident, watch: Watch) -> OpenIncident:
    """Hold a run that would go back for the same trouble once more: other batches do not help."""
    if command.action is not Action.ROLL_BACK:
        return command
    reach = watch.numerics.repeat_steps
    again = [step for step in watch.rollbacks if command.suspect_from_step - step <= reach]
    if not again:
        return command
    reason = (
        f"{command.reason}. The run went back before step {again[-1]} already, within "
        f"{reach} steps (numerics.repeat_steps): it is held for a person to look"
    )
    return replace(command, action=Action.HOLD, reason=reason)


def _met_again(command: OpenIncident, watch: Watch) -> OpenIncident:
    """Name who was twice among those of which one was wrong, if nobody could be named yet."""
    if command.kind != SILENT_CORRUPTION or command.action is not Action.RESTART:
        return command
    doubt = Doubt(hosts=command.hosts, at_ms=command.detected_at_ms)
    doubts, half_life_ms = watch.doubts, watch.corruption.suspicion_half_life_ms
    host_id = named([*doubts, *command.elsewhere], doubt, half_life_ms)
    if not host_id:
        return command
    where = "" if named(doubts, doubt, half_life_ms) == host_id else " in another job"
    reason = (
        f"{command.reason}. But {host_id} was among the suspects before{where}, and so soon it is "
        "not by chance: it is taken to be the one"
    )
    return replace(command, action=Action.REPLACE, hosts=(host_id,), reason=reason)


def _hung_again(command: OpenIncident, watch: Watch) -> OpenIncident:
    """Move, or give up, ranks that hang where they hung before."""
    hang = Hang(kind=command.kind, step=command.step, ranks=command.ranks, hosts=command.hosts)
    action, why = action_for(hang, command.action, watch.hangs)
    return replace(command, action=action, reason=f"{command.reason}. {why}") if why else command


def _settle(command: SettleNote, watch: Watch) -> Decision:
    refs = [
        ref
        for ref in watch.open_incidents
        if ref.action is Action.NOTE and ref.kind == command.kind
    ]
    return Accepted(
        tuple(
            IncidentRecovered(
                incident_id=ref.incident_id,
                job_id=watch.job_id,
                recovered_at_ms=command.at_ms,
                lost_ms=command.lost_ms,
                lost_steps=command.lost_steps,
            )
            for ref in refs
        )
    )


def _audited(command: NoteAudit, watch: Watch) -> Decision:
    found, incident = command.found, command.incident
    if not watch.job_id or not watch.audits.is_news(found, command.asked_in):
        return NOTHING
    if incident is None:
        return Accepted((found,))
    if watch.over:
        return Accepted((found, _opened(incident), *_too_late(incident)))
    opened = _open(incident, watch)
    events = opened.events if isinstance(opened, Accepted) else ()
    if not events and incident.action not in BESIDE:
        return Rejected("judged", f"generation {watch.generation} of {watch.job_id} ends already")
    return Accepted((found, *events))


def _too_late(incident: OpenIncident) -> tuple[Event, ...]:
    """End at once what is found when a job has ended: a restart goes back behind it."""
    closed_incident = IncidentClosed(
        incident_id=incident.incident_id,
        job_id=incident.job_id,
        why="the job had ended",
        closed_at_ms=incident.detected_at_ms,
    )
    return (closed_incident,)


def _stale(generation: int, watch: Watch) -> bool:
    return watch.over or generation != watch.generation
