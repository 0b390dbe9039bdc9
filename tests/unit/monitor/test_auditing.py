"""A step that spare hosts do again: who is named, and what is done about it."""

from __future__ import annotations

import pytest
from tests.unit.monitor.audit_stage import (
    EVERY,
    JOB_HOSTS,
    LAYOUT,
    RULES,
    AuditStage,
    work,
)

from everstep.core.record import changed
from everstep.monitor.codec import watch_stream
from everstep.monitor.events import (
    Action,
    CorruptionRules,
    Finding,
    IncidentOpened,
    JobMarked,
    Mark,
)

ONCE, TWICE = ("a0", "a1"), ("b0", "b1")  # hosts of the audits


@pytest.fixture
async def stage() -> AuditStage:
    """A job whose first audit came out alike: at step 100, of replica 0."""
    stage = AuditStage()
    await stage.launch()
    await due(stage, 100)
    await stage.audit(ONCE)
    return stage


async def due(stage: AuditStage, step: int, wrong: dict[int, int] | None = None) -> None:
    """The next audit is due at a step; the job's ranks may have been wrong in it."""
    await stage.step(step + 1, wrong=wrong)
    await stage.complete(step, count=EVERY)


async def two_audits(
    stage: AuditStage,
    wrong: dict[int, int] | None = None,
    first: dict[int, int] | None = None,
    second: dict[int, int] | None = None,
    hosts: tuple[tuple[str, str], tuple[str, str]] = (ONCE, TWICE),
) -> None:
    """Step 201 of replica 1, which ranks 1 and 3 make, is done again twice."""
    await due(stage, 200, wrong)
    await stage.audit(hosts[0], wrong=first)
    await stage.audit(hosts[1], wrong=second)


def named(incident: IncidentOpened) -> tuple[str, Action, tuple[str, ...]]:
    """What is done about whom."""
    return incident.job_id, incident.action, incident.hosts


async def test_audit_that_comes_out_alike_is_stored_and_nothing_is_done(stage: AuditStage):
    """With who did it, and nothing that only a second one would need."""
    (found,) = await stage.found()
    assert (found.job_id, found.step, found.replica, found.number) == ("j", 100, 0, 1)
    assert (found.audit_job_id, found.hosts, found.ranks) == ("j-audit-100-0-1", ONCE, ())
    assert (found.finding, found.works, found.seats) == (Finding.ALIKE, (), ())
    assert found.why == "step 101 of replica 0 came out with the same bits on a0, a1"
    assert await stage.incidents() == []
    state = (await stage.state()).audits
    assert (state.ever_alike, state.shares, dict(state.alike)) == (True, 1, {0: 100})
    assert dict(state.sound) == {"h0": 100, "h2": 100}  # who made replica 0's share of it


async def test_host_of_the_job_that_two_others_contradict_is_replaced(stage: AuditStage):
    """The job goes back before anything that it may have bent since the beginning."""
    await stage.step(195)
    await two_audits(stage, wrong={3: 7})
    assert [one.finding for one in await stage.found()][1:] == [Finding.DIFFERS, Finding.NAMED]
    (incident,) = await stage.incidents()
    assert named(incident) == ("j", Action.REPLACE, ("h3",))
    assert (incident.kind, incident.ranks, incident.generation) == ("silent_corruption", (3,), 1)
    assert incident.reason == (
        "step 201 of replica 1 came out with other outputs (from rank 3 on) in two audits, alike "
        "in both, on a1 and on b1: h3 was wrong"
    )
    # Its replica was never audited before, and the monitor was told of step 101 first.
    assert (incident.suspect_from_step, incident.step) == (101, 201)


async def test_what_the_same_replica_had_right_before_is_not_suspect(stage: AuditStage):
    """An audit of another replica says nothing about it."""
    await due(stage, 120)
    await stage.audit(ONCE)  # replica 1
    await due(stage, 140)
    await stage.audit(ONCE)  # replica 0
    await two_audits(stage, wrong={3: 7})
    (incident,) = await stage.incidents()
    assert incident.suspect_from_step == 121


async def test_first_audit_that_was_wrong_itself_costs_its_host_its_place(stage: AuditStage):
    """Nobody else: the job goes on. It is a fault like that of a spare that breaks."""
    await two_audits(stage, first={1: 5})
    assert [one.finding for one in await stage.found()][1:] == [
        Finding.DIFFERS,
        Finding.SPARE_NAMED,
    ]
    (incident,) = await stage.incidents()
    assert named(incident) == ("", Action.REPLACE, ("a1",))
    assert incident.kind == "silent_corruption"
    assert incident.reason.startswith("in an audit of job j: step 201 of replica 1 came out the")
    assert (await stage.state()).audits.alike == {0: 100, 1: 200}


async def test_spare_that_serves_another_job_by_then_leaves_it(stage: AuditStage):
    """It is cordoned all the same; that job moves as soon as another spare is there."""
    await due(stage, 200)
    await stage.audit(ONCE, wrong={1: 5})
    await stage.mark("k", 0, Mark.SUBMITTED, layout=LAYOUT, corruption=RULES)
    await stage.run("k", ("x0", "x1", "a1", "x3"), LAYOUT)
    await stage.mark("p", 0, Mark.SUBMITTED, layout=LAYOUT, corruption=RULES)
    await stage.run("p", ("a1", "y1", "y2", "y3"), LAYOUT)
    await stage.mark("p", 2, Mark.BEGUN, cause="pause")
    await stage.audit(TWICE)
    alone, moved = await stage.incidents()
    assert named(alone) == ("", Action.REPLACE, ("a1",))
    assert (*named(moved), moved.ranks) == ("k", Action.DRAIN, ("a1",), (2,))


async def test_two_audits_on_one_host_name_nobody_and_a_recompute_is_asked_for(stage: AuditStage):
    """One machine against one; the job's own ranks can tell more."""
    await two_audits(stage, wrong={3: 7}, hosts=(ONCE, ("b0", "a1")))
    assert [one.finding for one in await stage.found()][1:] == [Finding.DIFFERS, Finding.OPEN]
    assert await stage.incidents() == []
    assert stage.recomputed == [("j", 3)]


async def test_host_whose_two_audits_differ_from_one_another_is_cordoned(stage: AuditStage):
    """It contradicts itself, whatever the job had."""
    await two_audits(stage, first={1: 5}, second={1: 6}, hosts=(ONCE, ("b0", "a1")))
    (incident,) = await stage.incidents()
    assert named(incident) == ("", Action.REPLACE, ("a1",))


async def test_nobody_is_named_before_an_audit_came_out_alike_and_after_two_no_more_are_made():
    """The program does something else with one replica."""
    stage = AuditStage()
    await stage.launch()
    for step in (100, 200):
        await due(stage, step, wrong={0: 1, 1: 1, 2: 1, 3: 1})
        await stage.audit(ONCE)
        await stage.audit(TWICE)
    found = await stage.found()
    assert [one.finding for one in found] == [Finding.DIFFERS, Finding.OPEN] * 2
    assert found[-1].why.endswith("no more audits of this job are asked for")
    assert await stage.incidents() == []
    await due(stage, 300)
    assert len(stage.asked) == 4
    assert (await stage.state()).audits.given_up


@pytest.mark.parametrize(
    "rules",
    [
        changed(RULES, on_corruption="off"),
        changed(RULES, bits_vary=True),
        changed(RULES, audit_every_checkpoints=0),
    ],
)
async def test_nothing_is_done_again_where_nothing_could_be_concluded(rules: CorruptionRules):
    """Bits that vary differ by themselves."""
    stage = AuditStage()
    await stage.launch(rules)
    await due(stage, 100)
    assert stage.asked == []


@pytest.mark.parametrize(
    ("wrong", "first", "ranks", "host"), [({3: 7}, {}, (3,), "h3"), ({}, {1: 5}, (), "a1")]
)
async def test_findings_are_only_noted_where_the_spec_says_so(wrong, first, ranks, host):
    """Nobody is cordoned, and no state is suspect."""
    stage = AuditStage()
    await stage.launch(changed(RULES, on_corruption="note"))
    await due(stage, 100)
    await stage.audit(ONCE)
    await two_audits(stage, wrong=wrong, first=first)
    (incident,) = await stage.incidents()
    assert (*named(incident), incident.ranks) == ("j", Action.NOTE, (host,), ranks)
    assert incident.suspect_from_step == 0


async def go_back(stage: AuditStage, generation: int, step: int, hosts=JOB_HOSTS) -> None:
    """The job goes on from a step in a new generation."""
    await stage.run("j", hosts, LAYOUT, generation=generation, cause="recovery", restore_step=step)


async def test_step_that_the_job_has_made_anew_since_is_not_judged(stage: AuditStage):
    """What it has now comes from other work, perhaps with other batches."""
    await due(stage, 200, wrong={3: 7})
    await go_back(stage, 2, 200)
    await stage.audit(ONCE)
    assert len(await stage.found()) == 1
    assert not (await stage.state()).audits.differing


async def test_difference_is_forgotten_when_the_job_goes_back_behind_it(stage: AuditStage):
    """The second audit would compare what two histories came to."""
    await due(stage, 200, wrong={3: 7})
    await stage.audit(ONCE)
    assert (await stage.state()).audits.differing is not None
    await go_back(stage, 2, 200)
    await stage.audit(TWICE)
    assert [one.finding for one in await stage.found()] == [Finding.ALIKE, Finding.DIFFERS]
    assert (await stage.state()).audits.differing is None


@pytest.mark.parametrize("wrong", [{}, {3: 7}])
async def test_job_that_goes_back_while_a_finding_is_stored_makes_it_worth_nothing(
    stage: AuditStage, wrong: dict[int, int]
):
    """Kept, a second audit of what was made anew would name who was right, or bad states sound."""
    await due(stage, 200, wrong=wrong)
    audit_id = await stage.begin_audit(ONCE)
    back = JobMarked(job_id="j", generation=2, mark=Mark.PLANNED, step=150, at_ms=stage.at_ms)
    stage.store.intrude = (watch_stream("j"), back)
    for place, rank in enumerate((1, 3)):
        await stage.tell(audit_id, 1, ONCE[place], place, 201, work(rank, 201))
    await stage.auditing.look()
    assert len(await stage.found()) == 1
    audits = (await stage.state()).audits
    assert (audits.differing, dict(audits.alike)) == (None, {0: 100})


async def test_job_that_went_back_no_further_than_the_wrong_step_goes_back_again(stage: AuditStage):
    """What it holds comes from there; who has served it meanwhile is on another seat."""
    await due(stage, 200, wrong={3: 7})
    await go_back(stage, 2, 201, ("h3", "h1", "h2", "h0"))
    await stage.audit(ONCE)
    await stage.audit(TWICE)
    (incident,) = await stage.incidents()
    assert (*named(incident), incident.generation) == ("j", Action.REPLACE, ("h3",), 2)


async def test_wrong_host_that_has_left_is_cordoned_and_its_job_goes_back(
    stage: AuditStage,
):
    """Its numbers are still there; nobody of those that are has to leave."""
    await due(stage, 200, wrong={3: 7})
    await stage.audit(ONCE)
    await go_back(stage, 2, 201, ("h0", "h1", "h2", "h9"))
    await stage.audit(TWICE)
    alone, back = await stage.incidents()
    assert named(alone) == ("", Action.REPLACE, ("h3",))
    assert (*named(back), back.ranks) == ("j", Action.RESTART, (), ())
    assert (back.kind, back.suspect_from_step) == ("silent_corruption", 101)


async def test_wrong_host_of_a_paused_job_is_cordoned_and_its_states_are_suspect(stage: AuditStage):
    """It would go on from them, on that host."""
    await due(stage, 200, wrong={3: 7})
    await stage.audit(ONCE)
    audit_id = await stage.begin_audit(TWICE)
    await stage.mark("j", 2, Mark.BEGUN, cause="pause")
    for place, rank in enumerate((1, 3)):
        await stage.tell(audit_id, 1, TWICE[place], place, 201, work(rank, 201))
    await stage.auditing.look()
    alone, back = await stage.incidents()
    assert named(alone) == ("", Action.REPLACE, ("h3",))
    assert (*named(back), back.generation) == ("j", Action.RESTART, (), 2)


async def test_host_that_is_named_while_its_job_recovers_is_named_when_it_has_begun_again(
    stage: AuditStage,
):
    """Said of the generation that ends anyway it would be dropped, and its states gone on from."""
    await due(stage, 200, wrong={3: 7})
    await stage.audit(ONCE)
    audit_id = await stage.begin_audit(TWICE)
    await stage.mark("j", 2, Mark.BEGUN, cause="recovery")
    for place, rank in enumerate((1, 3)):
        await stage.tell(audit_id, 1, TWICE[place], place, 201, work(rank, 201))
    await stage.auditing.look()
    assert await stage.incidents() == []
    assert len(await stage.found()) == 2
    await go_back(stage, 3, 201)
    await stage.auditing.look()
    (incident,) = await stage.incidents()
    assert (*named(incident), incident.generation) == ("j", Action.REPLACE, ("h3",), 3)


async def test_job_that_goes_back_before_the_wrong_step_meanwhile_only_moves(stage: AuditStage):
    """The host was named before that: nothing that the job holds is suspect any more."""
    await due(stage, 200, wrong={3: 7})
    await stage.audit(ONCE)
    audit_id = await stage.begin_audit(TWICE)
    await stage.mark("j", 2, Mark.BEGUN, cause="recovery")
    for place, rank in enumerate((1, 3)):
        await stage.tell(audit_id, 1, TWICE[place], place, 201, work(rank, 201))
    await stage.auditing.look()
    await go_back(stage, 3, 150)
    await stage.auditing.look()
    (incident,) = await stage.incidents()
    assert (*named(incident), incident.suspect_from_step) == ("j", Action.DRAIN, ("h3",), 0)


async def test_wrong_host_of_a_job_that_has_ended_is_cordoned_and_its_states_are_suspect(
    stage: AuditStage,
):
    """A person may begin it again."""
    await due(stage, 200, wrong={3: 7})
    await stage.audit(ONCE)
    audit_id = await stage.begin_audit(TWICE)
    await stage.mark("j", 1, Mark.ENDED, cause="stopped")
    for place, rank in enumerate((1, 3)):
        await stage.tell(audit_id, 1, TWICE[place], place, 201, work(rank, 201))
    await stage.auditing.look()
    alone, late = await stage.incidents()
    assert named(alone) == ("", Action.REPLACE, ("h3",))
    assert (*named(late), late.suspect_from_step) == ("j", Action.RESTART, (), 201)
    assert late.step == 201
    assert (await stage.found())[-1].finding is Finding.NAMED
    assert (await stage.state()).open_incidents == ()
