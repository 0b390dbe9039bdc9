"""What the monitor knows of one job for certain: the fold of its watch stream.

Volatile evidence (echoes, heartbeats, probe answers) is not here: ``watcher.py`` holds it and loses
it with the process; what matters of it comes again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import Final, assert_never

from everstep.core.placement import Layout
from everstep.core.time import HOUR_MS
from everstep.monitor.audits import Audits
from everstep.monitor.doubts import Doubt, doubts_after
from everstep.monitor.early import Early, Source, source_of
from everstep.monitor.events import (
    NEVER_EQUAL,
    NO_CORRUPTION_RULES,
    NO_LAYOUT,
    NO_RULES,
    SILENT_CORRUPTION,
    Action,
    AuditOf,
    CorruptionRules,
    Event,
    ExitClass,
    GenerationProgressed,
    IncidentClosed,
    IncidentOpened,
    IncidentRecovered,
    JobMarked,
    Mark,
    NumericsRules,
    RankEnded,
    RunFinished,
    SourceRefused,
    StepAudited,
    StrayFound,
    TieFound,
    WatchedHost,
)
from everstep.monitor.repeats import HANGS_MAX, OF_THE_CODE, Hang
from everstep.monitor.ties import Pair, Tie, with_pair, with_tie

USER_ERRORS_MAX: Final = 16  # only repeats matter, and they come one after the other
ROLLBACKS_MAX: Final = 64  # only those within repeat_steps matter, and the second one holds the run
DEATHS_MAX: Final = 64  # of the last hour; more means that the restart budget is spent anyway


# Nothing is done about the one; the other waits for spares. Each stands beside what may come.
BESIDE: Final = frozenset({Action.NOTE, Action.DRAIN})
# Causes of generations that begin although nothing is broken, after a last common step.
MOVES: Final = frozenset({"drain", "grow"})


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenIncidentRef:
    """An incident that has not ended."""

    incident_id: str
    generation: int
    step: int
    failed_at_ms: int
    kind: str = ""
    action: Action = Action.RESTART
    hosts: tuple[str, ...] = ()
    lost_steps: int | None = None  # None: no later generation has a plan yet
    own_step: bool = False  # its generation was heard to make ``step``

    @property
    def ends_its_generation(self) -> bool:
        """Whether a generation begins for its sake; the run goes on with the others meanwhile."""
        return self.action not in BESIDE


@dataclass(frozen=True, slots=True, kw_only=True)
class Watch:
    """A job under watch.

    ``ended`` and ``refused`` are about the current generation, ``early`` is about one that has not
    begun by the controller's word; ``leaving`` are the ends of the one that is being paused,
    ``leaving_generation``. ``stepped`` says that the run has told of a step at least once: scripts
    without the SDK never do. ``judged_generation`` is the newest generation with an incident: there
    is at most one each. ``finished_generation`` is the newest one whose ranks have all returned:
    what befalls its hosts concerns the run no more. ``user_errors`` are (generation, step, error),
    ``deaths`` (host, at_ms) of rank deaths within the last hour, ``rollbacks`` the first suspect
    step of each time that the run went back for its numbers, ``doubts`` who may have held wrong
    bits each time that nobody could be named, ``ties`` what they had, ``pairs`` who of them
    differed in work that was done twice, ``hangs`` which ranks hung in what they run.
    ``full_layout`` is the one that was asked for, ``audit`` what makes the job an audit, and
    ``audits`` what those of it have come to.
    ``never_equal``: some of what is usually held alike was not from the beginning, so that a
    generation's first state proves nothing.
    """

    job_id: str = ""
    generation: int = 0
    begun_at_ms: int = 0
    cause: str = ""
    hosts: tuple[WatchedHost, ...] = ()
    placed: bool = False
    progressed: bool = False
    progressed_ms: int = 0  # when it had first
    restore_step: int | None = None
    over: bool = False
    paused: bool = False  # all ranks that answered have ended
    script: bool = False
    stepped: bool = False
    ended: Mapping[int, RankEnded] = field(default_factory=dict)
    leaving: Mapping[int, RankEnded] = field(default_factory=dict)
    leaving_generation: int = 0
    leaving_count: int = 0  # its ranks; the next placement may have more
    refused: frozenset[Source] = frozenset()
    early: Early = field(default_factory=Early)
    open_incidents: tuple[OpenIncidentRef, ...] = ()
    judged_generation: int = 0
    finished_generation: int = 0
    user_errors: tuple[tuple[int, int, str], ...] = ()
    numerics: NumericsRules = NO_RULES
    layout: Layout = NO_LAYOUT
    full_layout: Layout = NO_LAYOUT
    submitted_at_ms: int = 0
    collective_timeout_ms: int = 0
    slow_hosts: str = "off"
    steps: int = 0
    corruption: CorruptionRules = NO_CORRUPTION_RULES
    audit: AuditOf | None = None
    audits: Audits = field(default_factory=Audits)
    doubts: tuple[Doubt, ...] = ()
    ties: tuple[Tie, ...] = ()
    pairs: tuple[Pair, ...] = ()
    hangs: tuple[Hang, ...] = ()
    rollbacks: tuple[int, ...] = ()
    deaths: tuple[tuple[str, int], ...] = ()
    never_equal: bool = False

    @property
    def world_size(self) -> int:
        """Ranks of the current placement."""
        return sum([len(host.ranks) for host in self.hosts])


def evolve(watch: Watch, event: Event) -> Watch:
    """Apply a fact; never refuses one."""
    match event:
        case JobMarked():
            return _marked(watch, event)
        case RankEnded() | SourceRefused() if event.generation > watch.generation:
            return replace(watch, early=watch.early.having(event))
        case RankEnded():
            return _ended(watch, event)
        case IncidentOpened():
            ref = OpenIncidentRef(
                incident_id=event.incident_id,
                generation=event.generation,
                step=event.step,
                failed_at_ms=event.failed_at_ms,
                kind=event.kind,
                action=event.action,
                hosts=event.hosts,
                own_step=_is_own(watch, event),
            )
            return _opened(replace(watch, open_incidents=(*watch.open_incidents, ref)), event)
        case TieFound():
            return _tied(watch, event)
        case StepAudited():
            return replace(watch, audits=watch.audits.after(event))
        case IncidentRecovered() | IncidentClosed():
            left = tuple(r for r in watch.open_incidents if r.incident_id != event.incident_id)
            return replace(watch, open_incidents=left)
        case GenerationProgressed():
            return replace(
                watch,
                progressed=True,
                progressed_ms=watch.progressed_ms or event.at_ms,
                stepped=watch.stepped or event.step > 0,
            )
        case SourceRefused():
            return replace(watch, refused=watch.refused | {source_of(event)})
        case StrayFound():
            return watch
        case RunFinished():
            return replace(watch, finished_generation=event.generation)
        case _:
            assert_never(event)


def _tied(watch: Watch, event: TieFound) -> Watch:
    watch = replace(watch, ties=with_tie(watch.ties, event.tie))
    if not event.tie.work:
        return watch
    suspects = frozenset(event.tie.suspects)
    hosts = tuple(host.host_id for host in watch.hosts if suspects & set(host.ranks))
    return replace(watch, pairs=with_pair(watch.pairs, (event.generation, hosts)))


def _opened(watch: Watch, event: IncidentOpened) -> Watch:
    if event.kind in OF_THE_CODE:
        hang = Hang(kind=event.kind, step=event.step, ranks=event.ranks, hosts=event.hosts)
        watch = replace(watch, hangs=(*watch.hangs, hang)[-HANGS_MAX:])
    if event.kind == SILENT_CORRUPTION:
        doubt = Doubt(hosts=event.hosts, at_ms=event.detected_at_ms)
        doubts = doubts_after(watch.doubts, event.action, doubt)
        watch = replace(watch, doubts=doubts)
        if event.action in {Action.REPLACE, Action.DRAIN}:
            known = set(event.hosts)
            ties = tuple(tie for tie in watch.ties if known.isdisjoint(tie.suspected_hosts))
            watch = replace(watch, ties=ties)
    if event.kind == NEVER_EQUAL:
        watch = replace(watch, never_equal=True)
    if event.action in BESIDE:
        return watch
    judged = replace(watch, judged_generation=max(watch.judged_generation, event.generation))
    if event.action is not Action.ROLL_BACK:
        return judged
    rollbacks = (*watch.rollbacks, event.suspect_from_step)[-ROLLBACKS_MAX:]
    return replace(judged, rollbacks=rollbacks)


def _marked(watch: Watch, event: JobMarked) -> Watch:
    if watch.job_id != event.job_id:
        watch = replace(watch, job_id=event.job_id)
    match event.mark:
        case Mark.BEGUN:
            pausing = event.cause in {"pause", *MOVES} and watch.placed
            begun = replace(
                watch,
                over=False,  # a job that had failed is restarted by a person
                generation=event.generation,
                begun_at_ms=event.at_ms,
                cause=event.cause,
                placed=False,
                progressed=False,
                progressed_ms=0,
                restore_step=None,
                paused=False,
                ended={},
                leaving=watch.ended if pausing else {},
                leaving_generation=watch.generation if pausing else 0,
                leaving_count=watch.world_size if pausing else 0,
                refused=frozenset(),
                early=watch.early.after(event.generation),
            )
            return reduce(evolve, watch.early.of(event.generation), begun)
        case Mark.PLACED:
            placed = replace(watch, hosts=event.hosts, placed=True)
            told = event.layout.world_size == placed.world_size  # older events do not tell it
            return replace(placed, layout=event.layout) if told else placed
        case Mark.PLANNED:
            step = max(event.step, 0)
            watch = replace(watch, audits=watch.audits.planned(event.generation, step))
            return planned(watch, event.generation, step)
        case Mark.SUBMITTED:
            return replace(
                watch,
                script=event.cause == "script",
                numerics=event.numerics,
                layout=event.layout,
                full_layout=event.layout,
                submitted_at_ms=event.at_ms,
                collective_timeout_ms=event.collective_timeout_ms,
                slow_hosts=event.slow_hosts,
                steps=event.steps,
                corruption=event.corruption,
                audit=event.audit,
            )
        case Mark.ENDED:
            return replace(watch, over=True)
        case Mark.PAUSED:
            return replace(watch, paused=True)
        case _:
            return watch


def planned(watch: Watch, generation: int, step: int) -> Watch:
    """What had been reached beyond a plan is lost: to the oldest incident since the plan before.

    A planned move loses nothing, but where the host that is left dies in the middle of it. What
    other incidents took for made beyond the plan is lost already, and not by them: one that waits
    for a spare, or one of this very generation that was opened before its plan was known, and
    before it was heard to make a step.
    """
    since = charged(watch, generation)
    lost = max((max(0, ref.step - step) for ref in since), default=0)

    def after(ref: OpenIncidentRef) -> OpenIncidentRef:
        if ref in since:
            return replace(ref, lost_steps=lost if ref is since[0] else 0)
        told_again = watch.restore_step is not None
        own = ref.own_step and ref.generation == generation
        return ref if told_again or own else replace(ref, step=min(ref.step, step))

    refs = tuple(after(ref) for ref in watch.open_incidents)
    return replace(watch, restore_step=step, open_incidents=refs)


def _is_own(watch: Watch, event: IncidentOpened) -> bool:
    """Whether an incident's step was made by its generation, though its plan is not told yet.

    Else it is how far the generation before had come, which was no less when it was left.
    """
    if event.own_step is not None:
        return event.own_step
    left_at = max((ref.step for ref in charged(watch, event.generation)), default=0)
    return watch.progressed or event.step < left_at


def charged(watch: Watch, generation: int) -> list[OpenIncidentRef]:
    """Return the incidents that the plan of a generation says the lost steps of, oldest first."""
    before = [
        ref
        for ref in watch.open_incidents
        if ref.lost_steps is None and ref.generation < generation
    ]
    since = [ref for ref in before if ref.ends_its_generation]
    if not since and watch.cause in MOVES:
        since = [ref for ref in before if ref.action is Action.DRAIN]
    return since


def _ended(watch: Watch, event: RankEnded) -> Watch:
    if event.generation != watch.generation:
        return replace(watch, leaving={**watch.leaving, event.rank: event})
    before, watch = watch, replace(watch, ended={**watch.ended, event.rank: event})
    if event.exit_class is ExitClass.USER_ERROR:
        known = (*watch.user_errors, (event.generation, event.step, event.error))
        return replace(watch, user_errors=known[-USER_ERRORS_MAX:])
    if event.exit_class is ExitClass.KILLED and not _died_there(before, event.host_id):
        recent = tuple(d for d in watch.deaths if d[1] > event.at_ms - HOUR_MS)
        return replace(watch, deaths=(*recent, (event.host_id, event.at_ms))[-DEATHS_MAX:])
    return watch


def _died_there(watch: Watch, host_id: str) -> bool:
    """Whether a rank was killed there in this generation: ranks that die together die once."""
    return any(
        end.host_id == host_id and end.exit_class is ExitClass.KILLED
        for end in watch.ended.values()
    )
