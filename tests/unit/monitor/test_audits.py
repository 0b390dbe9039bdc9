"""What audits leave in a job's watch, and what a verdict takes from it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.spec import spec
from tests.unit.monitor.test_decider import OPEN, marked, up

from everstep.core.placement import Layout
from everstep.core.spec import parse_spec_json
from everstep.monitor.audit_verdicts import heeds, sentence, sound_step
from everstep.monitor.audits import HOSTS_MAX, PLANS_MAX, TOLD_MAX, Audits
from everstep.monitor.codec import AGGREGATE
from everstep.monitor.commands import NoteAudit, OpenIncident
from everstep.monitor.detectors.audit import OPEN_MAX, Conclusion, Share
from everstep.monitor.detectors.recompute_course import RecomputeCourse
from everstep.monitor.events import (
    NO_CORRUPTION_RULES,
    NO_RULES,
    Action,
    AuditOf,
    CorruptionRules,
    Finding,
    IncidentClosed,
    IncidentOpened,
    Mark,
    StepAudited,
)
from everstep.monitor.inputs import controller_mark
from everstep.wire.v1.envelope_pb2 import EventEnvelope
from everstep.wire.v1.jobs_pb2 import JobSubmitted

WATCH = spec(AGGREGATE)
ALIKE = StepAudited(
    job_id="j",
    step=100,
    replica=1,
    number=1,
    audit_job_id="a1",
    hosts=("s0",),
    ranks=(),
    finding=Finding.ALIKE,
    why="alike",
    at_ms=50,
)
DIFFERS = replace(ALIKE, ranks=(1,), finding=Finding.DIFFERS, works=("1:1",), seats=("s0",))
SECOND = replace(ALIKE, number=2, audit_job_id="a2", ranks=(1,), finding=Finding.OPEN)
CORRUPT = {**OPEN, "kind": "silent_corruption", "action": Action.REPLACE, "suspect_from_step": 90}


def after(*events: StepAudited, audits: Audits | None = None) -> Audits:
    """The fold of findings."""
    audits = audits or Audits()
    for event in events:
        audits = audits.after(event)
    return audits


def test_finding_is_stored_once_however_often_it_is_told():
    """Several monitors hear the same ranks; another one of the same share is another finding."""
    given = WATCH.given(*up(1))
    given.when(NoteAudit(found=ALIKE)).then(ALIKE)
    known = given.given(ALIKE)
    known.when(NoteAudit(found=replace(ALIKE, at_ms=60, why="x"))).then()
    second = replace(ALIKE, number=2)
    known.when(NoteAudit(found=second)).then(second)
    WATCH.when(NoteAudit(found=ALIKE)).then()


def test_finding_of_a_job_that_has_ended_is_stored():
    """An incident is over with it, at once: a restart goes back behind it."""
    over = WATCH.given(*up(1), marked(1, Mark.ENDED, cause="stopped"))
    over.when(NoteAudit(found=ALIKE)).then(ALIKE)
    closed = IncidentClosed(
        incident_id="i1",
        job_id="j",
        why="the job had ended",
        closed_at_ms=CORRUPT["detected_at_ms"],
    )
    command = NoteAudit(found=SECOND, incident=OpenIncident(**CORRUPT))
    over.when(command).then(SECOND, IncidentOpened(**CORRUPT), closed)
    over.given(SECOND).when(command).then()


def test_incident_is_stored_with_the_finding_or_neither_of_them():
    """Beside an incident that ends the generation it would be dropped: it has to be told again."""
    given = WATCH.given(*up(1))
    command = NoteAudit(found=SECOND, incident=OpenIncident(**CORRUPT))
    given.when(command).then(SECOND, IncidentOpened(**CORRUPT))
    judged = given.given(IncidentOpened(**OPEN))
    judged.when(command).then_rejected("judged")
    judged.given(*up(2)).when(command).then_rejected("judged")
    noted = OpenIncident(**{**CORRUPT, "action": Action.NOTE})
    again = given.given(IncidentOpened(**{**CORRUPT, "incident_id": "i0", "action": Action.NOTE}))
    again.when(NoteAudit(found=SECOND, incident=noted)).then(SECOND)


def test_shares_are_counted_and_what_was_alike_is_kept_by_replica():
    """A second audit of a share is none of the next one."""
    audits = after(ALIKE, replace(ALIKE, replica=0, step=120), replace(DIFFERS, step=140))
    assert audits.shares == 3
    audits = after(replace(SECOND, step=140), replace(ALIKE, step=160), audits=audits)
    assert (audits.shares, dict(audits.alike)) == (4, {1: 160, 0: 120})
    assert after(replace(ALIKE, step=90), audits=audits).alike[1] == 160


def test_difference_waits_for_another_audit_of_its_share():
    """And for no other."""
    audits = after(DIFFERS)
    assert audits.differing == audits.second_of(100, 1) == DIFFERS
    assert audits.second_of(100, 0) is audits.second_of(90, 1) is None
    assert not audits.ever_alike
    assert after(SECOND, audits=audits).differing is None


def test_difference_outlives_what_another_share_comes_to():
    """Of two monitors each has asked for an audit: the wrong host would never have been named."""
    others = (
        replace(ALIKE, replica=0),
        replace(ALIKE, step=120),
        replace(DIFFERS, replica=0, audit_job_id="a3"),
        replace(SECOND, step=120, number=1),
    )
    for other in others:
        assert after(DIFFERS, other).differing == DIFFERS
    assert after(DIFFERS, *others, SECOND).differing is None


def test_second_audit_that_agrees_with_the_job_is_alike():
    """Whoever did the first one; the program repeats its bits."""
    audits = after(DIFFERS, replace(SECOND, ranks=(), finding=Finding.SPARE_NAMED))
    assert (audits.ever_alike, audits.opens, dict(audits.alike)) == (True, 0, {1: 100})


def test_audits_are_given_up_after_so_many_open_ends_in_a_row_and_none_that_was_alike():
    """One alike at any time tells that the program can repeat its bits."""
    audits = Audits()
    for number in range(OPEN_MAX):
        assert not audits.given_up
        step = {"step": 100 + number}
        audits = after(replace(DIFFERS, **step), replace(SECOND, **step), audits=audits)
    assert audits.given_up
    assert not after(ALIKE, audits=audits).given_up
    assert not after(ALIKE, *[DIFFERS, SECOND] * OPEN_MAX).given_up
    assert not after(DIFFERS, SECOND, ALIKE, *[DIFFERS, SECOND] * OPEN_MAX).given_up


def test_going_back_takes_what_was_alike_or_differed_after_it():
    """It is made again; what came before it stays so."""
    audits = after(ALIKE, replace(ALIKE, replica=0, step=120), replace(DIFFERS, step=140))
    back = audits.planned(3, 110)
    assert (dict(back.alike), back.differing) == ({1: 100, 0: 110}, None)
    assert audits.planned(3, 140).differing is None
    assert audits.planned(3, 141).differing is not None
    assert back.went_back(110, 2)
    assert not back.went_back(109, 2)
    assert not back.went_back(110, 3)


def test_plans_reach_the_audits_by_the_controllers_word():
    """A start from the beginning is one from step 0."""
    fresh = marked(1, Mark.PLANNED, step=-1, at_ms=70)
    assert WATCH.given(*up(1), ALIKE, fresh).state.audits.plans == ((1, 0),)
    assert dict(WATCH.given(*up(1), ALIKE, fresh).state.audits.alike) == {1: 0}


def test_what_is_kept_of_audits_is_bounded():
    """A run of months has thousands."""
    audits = after(*[replace(ALIKE, number=number) for number in range(TOLD_MAX + 1)])
    assert len(audits.told) == TOLD_MAX
    assert ("a1", 0) not in audits.told
    for number in range(PLANS_MAX + 1):
        audits = audits.planned(number, 1_000)
    assert len(audits.plans) == PLANS_MAX
    crews = [tuple(f"h{number}-{seat}" for seat in range(HOSTS_MAX // 2)) for number in range(3)]
    audits = after(*[replace(ALIKE, step=n, owners=crew) for n, crew in enumerate(crews)])
    assert audits.sound.keys() == {*crews[1], *crews[2]}


SHARE = Share(layout=Layout(dp_replicate=2), step=100, replica=1)


def course(clean_step: int, *, ever_alike: bool) -> RecomputeCourse:
    """What shadow steps have shown."""
    return RecomputeCourse(1, SHARE.layout, ever_alike=ever_alike, clean_step=clean_step)


@pytest.mark.parametrize(
    ("alike", "shadows", "sound"),
    [
        ({1: 60, 0: 80}, None, 60),  # another replica's says nothing
        ({1: 60}, course(70, ever_alike=True), 70),
        ({1: 60}, course(50, ever_alike=True), 60),
        ({1: 60}, course(70, ever_alike=False), 60),  # believed only, and there is better
        ({}, course(70, ever_alike=False), 70),
        ({}, course(-1, ever_alike=False), 100),
        ({}, None, 100),
        ({1: 120}, course(130, ever_alike=True), 100),  # it was wrong after that step
    ],
)
def test_newest_sound_step_is_what_an_audit_or_a_shadow_step_has_shown(alike, shadows, sound):
    """Else what was there when this process began has to be believed."""
    assert sound_step(Audits(alike=alike), SHARE, shadows, "h1") == sound


def test_host_that_has_served_another_replica_is_known_by_what_it_made_there():
    """Its seat's audit was of who sat there before it, and it may have been wrong since its own."""
    other = replace(ALIKE, step=60, replica=0, owners=("h1", "", "h0"))
    audits = after(other, replace(ALIKE, step=90, owners=("h2", "h3")))
    assert sound_step(audits, SHARE, None, "h1") == 60
    assert sound_step(audits, SHARE, None, "h2") == 90
    assert sound_step(audits, SHARE, None, "h9") == 90  # none has met it: what is known of its seat
    assert sound_step(audits, SHARE, None, "") == 90
    again = after(replace(other, step=80, number=2), other, audits=audits)
    assert sound_step(again, SHARE, None, "h1") == 80, "told again, an older one is not the newest"
    assert sound_step(again.planned(3, 70), SHARE, None, "h1") == 70
    differs = replace(DIFFERS, step=95, owners=("h1",))
    assert sound_step(after(differs, audits=again), SHARE, None, "h1") == 80


NAMED = Conclusion(finding=Finding.NAMED, ranks=(1,), why="w", host="h1", wrong=(1,))


def test_host_of_a_generation_that_ends_anyway_is_dealt_with_in_the_next_one():
    """An incident beside the one that ends it would be dropped, and what is wrong gone on from."""
    planned = marked(1, Mark.PLANNED, step=0)
    runs = WATCH.given(marked(0, Mark.SUBMITTED), *up(1), planned)
    judged = runs.given(IncidentOpened(**{**OPEN, "kind": "rank_killed"}))
    facts = {"sound": 60, "step": 110, "undone": False, "now_ms": 5}
    assert sentence(NAMED, judged.state, **facts) is None
    then = sentence(NAMED, runs.state, **facts)
    assert then is not None
    assert then.verdict is not None
    assert (then.verdict.action, then.verdict.hosts) == (Action.REPLACE, ("h1",))


@pytest.mark.parametrize("cause", ["pause", "stop"])
def test_host_of_a_job_at_rest_is_cordoned_and_what_it_made_is_suspect(cause: str):
    """No ranks run that could leave it."""
    resting = marked(2, Mark.BEGUN, cause=cause)
    watch = WATCH.given(marked(0, Mark.SUBMITTED), *up(1), resting).state
    then = sentence(NAMED, watch, sound=60, step=110, undone=False, now_ms=5)
    assert then is not None
    assert then.condemned
    assert then.verdict is not None
    assert (then.verdict.action, then.verdict.hosts) == (Action.RESTART, ())
    assert then.verdict.suspect_from_step == 61
    undone = sentence(NAMED, watch, sound=60, step=110, undone=True, now_ms=5)
    assert undone is not None
    assert (undone.verdict, undone.condemned) == (None, True)


def test_nothing_is_noted_of_a_job_that_has_ended():
    """Nor is anybody cordoned, where findings are only noted."""
    rules = CorruptionRules(on_corruption="note")
    ended = marked(1, Mark.ENDED, cause="stopped")
    watch = WATCH.given(marked(0, Mark.SUBMITTED, corruption=rules), *up(1), ended).state
    then = sentence(NAMED, watch, sound=60, step=110, undone=False, now_ms=5)
    assert then is not None
    assert (then.verdict, then.condemned) == (None, False)


def test_jobs_whose_bits_vary_or_that_look_at_nothing_are_not_heeded():
    """Nothing can be concluded from a difference."""
    assert heeds(CorruptionRules(on_corruption="note"))
    assert not heeds(CorruptionRules(on_corruption="off"))
    assert not heeds(CorruptionRules(on_corruption="replace", bits_vary=True))


WORK = "0" * 15 + "1:" + "0" * 15 + "2"
PLAIN = """{"name": "n", "entry": "m:f", "steps": 1000, "layout": {"dp_replicate": 2, "tp": 2},
 "data": {"global_batch": 8, "micro_batch": 1, "sequence_tokens": 8},
 "corruption": {"audit_every_checkpoints": 3}, "numerics": {"on_spike": "roll_back"}%s}"""
AUDIT = f""", "audit": {{"job_id": "j", "step": 100, "replica": 1, "number": 2,
 "generation": 3, "works": ["{WORK}", "{WORK}"]}}"""


def submitted(audit: str):
    """The mark of a job's submission."""
    document = PLAIN % audit
    assert parse_spec_json(document)
    event = JobSubmitted(job_id="x", spec_json=document, at_ms=7)
    mark = controller_mark(EventEnvelope(job_submitted=event))
    assert mark is not None
    return mark


def test_job_that_asks_for_audits_is_marked_so():
    """How often, by its spec."""
    mark = submitted("")
    assert (mark.corruption.audit_every_checkpoints, mark.audit) == (3, None)
    assert (mark.layout, mark.steps) == (Layout(dp_replicate=2, tp=2), 1_000)
    assert (mark.numerics.on_spike, mark.slow_hosts) == ("roll_back", "drain")


def test_audit_is_marked_as_one_and_judged_for_nothing_but_whether_it_is_made():
    """One step shows neither a spike nor a straggler, and its bits are the other job's matter."""
    mark = submitted(AUDIT)
    assert mark.audit == AuditOf(
        job_id="j",
        step=100,
        replica=1,
        number=2,
        works=(WORK, WORK),
        layout=Layout(dp_replicate=2, tp=2),
        generation=3,
    )
    assert (mark.layout, mark.steps) == (Layout(tp=2), 101)
    assert (mark.numerics, mark.corruption) == (NO_RULES, NO_CORRUPTION_RULES)
    assert mark.slow_hosts == "off"
    state = WATCH.when(mark).decision.events
    watch = WATCH.given(*state).state
    assert (watch.audit, watch.full_layout, watch.submitted_at_ms) == (mark.audit, Layout(tp=2), 7)
