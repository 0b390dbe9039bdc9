"""What is done about a host that an audit names.

A host of the job was wrong at a step that everything since rests on, so the job goes back before
it, onto another host; one that has ended does so if a person begins it again. A host that did the
audit has made nothing that anybody holds: it is cordoned by an incident of its own, as a spare that
breaks is, wherever it may serve by now.
"""

from __future__ import annotations

from dataclasses import dataclass

from everstep.monitor.audits import Audits
from everstep.monitor.corrupting import found_later
from everstep.monitor.detectors.audit import Conclusion, Share
from everstep.monitor.detectors.recompute_course import UNKNOWN, RecomputeCourse
from everstep.monitor.detectors.remade import Broken
from everstep.monitor.detectors.verdict import Verdict
from everstep.monitor.events import SILENT_CORRUPTION, Action, CorruptionRules, Finding
from everstep.monitor.state import Watch

RESTING = frozenset({"pause", "stop"})  # causes of generations in which no ranks run


@dataclass(frozen=True, slots=True, kw_only=True)
class Sentence:
    """What follows: an incident of the job, and, if ``condemned``, one of the host alone."""

    verdict: Verdict | None
    condemned: bool


def heeds(rules: CorruptionRules) -> bool:
    """Whether anything could be concluded for a job."""
    return rules.on_corruption != "off" and not rules.bits_vary


def sound_step(audits: Audits, share: Share, course: RecomputeCourse | None, host: str) -> int:
    """Return the newest step that is known not to be wrong by the host's doing.

    An audit of what it has made that came out alike tells, whatever its seat was then; or one of
    the same replica, of a host that none has met; and so does a shadow step. Where none has, the
    state before the first step that this process was told of has to be believed.

    Args:
        audits: of the job.
        share: of the step that was wrong: nothing after its checkpoint is sound.
        course: of its shadow steps; None: there is none.
        host: that was wrong.
    """
    alike = audits.sound.get(host, audits.alike.get(share.replica))
    known = [] if alike is None else [alike]
    if course is not None and course.clean_step != UNKNOWN and (course.ever_alike or not known):
        known.append(course.clean_step)
    return min(max(known, default=share.step), share.step)


def sentence(
    conclusion: Conclusion,
    audited: Watch,
    *,
    sound: int,
    step: int,
    undone: bool,
    now_ms: int,
) -> Sentence | None:
    """Say what is done about who was named.

    Args:
        conclusion: that names somebody.
        audited: the job.
        sound: its newest sound step.
        step: its newest completed one.
        undone: it has gone back before the wrong step since.
        now_ms: the time.

    Returns:
        None: not yet. The job's generation ends already, and its next one could go on from what is
        wrong: it is told when that has begun.
    """
    seat = next((host for host in audited.hosts if host.host_id == conclusion.host), None)
    if audited.corruption.on_corruption == "note":
        noted = Verdict(
            kind=SILENT_CORRUPTION,
            action=Action.NOTE,
            ranks=conclusion.wrong,
            hosts=(conclusion.host,),
            reason=conclusion.why,
            failed_at_ms=now_ms,
            step=step,
        )
        return Sentence(verdict=None if audited.over else noted, condemned=False)
    if conclusion.finding is Finding.SPARE_NAMED:
        return Sentence(verdict=None, condemned=True)
    rests = audited.over or audited.cause in RESTING
    serves = seat is not None and not rests
    if undone:
        broken = Broken(
            step=step,
            ranks=conclusion.wrong,
            host=conclusion.host,
            agreed=True,
            reason=conclusion.why,
        )
        moved = found_later(broken, audited, now_ms) if serves else []
        return Sentence(verdict=moved[0] if moved else None, condemned=not moved)
    ends = audited.restore_step is None or audited.judged_generation >= audited.generation
    if ends and not rests:
        return None
    gone_back = Verdict(
        kind=SILENT_CORRUPTION,
        action=Action.REPLACE if serves else Action.RESTART,
        ranks=conclusion.wrong if serves else (),
        hosts=(conclusion.host,) if serves else (),
        reason=conclusion.why,
        failed_at_ms=now_ms,
        step=step,
        suspect_from_step=sound + 1,
    )
    return Sentence(verdict=gone_back, condemned=not serves)
