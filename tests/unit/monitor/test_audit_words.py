"""Words of an audit that are lost, late or early, and monitors that begin in the middle of one."""

from __future__ import annotations

import pytest
from tests.unit.monitor.audit_stage import ALONE, EVERY, AuditStage, message, work
from tests.unit.monitor.test_auditing import ONCE, TWICE, due, go_back, named, stage

from everstep.monitor.auditing import QUESTIONS_MAX
from everstep.monitor.events import Action, Finding, IncidentOpened
from everstep.wire.v1.agents_pb2 import Work

__all__ = ("stage",)  # a fixture


async def test_monitor_that_begins_between_two_audits_concludes_from_what_is_stored(
    stage: AuditStage,
):
    """Who did the first one, what it came to and where the job ran are in the first finding."""
    await due(stage, 200, wrong={3: 7})
    await stage.audit(ONCE, ends=False)
    other = AuditStage(stage.store)
    other.at_ms, other.asked = stage.at_ms, stage.asked
    for job_id in ("j", "j-audit-200-1-1"):
        await other.watcher.adopt(job_id, 1, 201)
    await other.end("j-audit-200-1-1")
    await go_back(other, 2, 201, ("h3", "h1", "h2", "h0"))
    await other.complete(210)
    assert (other.asked[-1].step, other.asked[-1].number) == (200, 2)
    await other.audit(TWICE)
    (incident,) = await other.incidents()
    assert named(incident) == ("j", Action.REPLACE, ("h3",))


@pytest.mark.parametrize(("restored", "finding"), [(100, Finding.NAMED), (203, Finding.OPEN)])
async def test_monitor_that_has_just_begun_knows_where_a_job_made_what_it_made_since(
    restored: int, finding: Finding
):
    """Of an older generation nobody remembers it, and nobody is named."""
    stage = AuditStage()
    await stage.launch()
    await due(stage, 100)
    await stage.audit(ONCE)
    await go_back(stage, 2, restored)
    wrong = [work(rank, 201, 7 * (rank == 3)) for rank in range(4)]
    for rank, own in enumerate(wrong):
        stage.auditing.told(message("j", 2, f"h{rank}", rank, 201, own))
    await stage.complete(200, generation=2, count=EVERY)
    other = AuditStage(stage.store)
    other.at_ms, other.asked = stage.at_ms, stage.asked
    await other.watcher.adopt("j", 2, 201)
    await other.audit(ONCE)
    await other.audit(TWICE)
    assert (await other.found())[-1].finding is finding


async def test_monitor_that_begins_in_the_first_audit_asks_for_the_second(stage: AuditStage):
    """It need not wait for a checkpoint."""
    await due(stage, 200, wrong={3: 7})
    audit_id = await stage.begin_audit(ONCE)
    other = AuditStage(stage.store)
    other.at_ms = stage.at_ms
    for job_id in ("j", audit_id):
        await other.watcher.adopt(job_id, 1, 201)
    for place, rank in enumerate((1, 3)):
        await other.tell(audit_id, 1, ONCE[place], place, 201, work(rank, 201))
    await other.auditing.look()
    assert [(one.step, one.replica, one.number) for one in other.asked] == [(200, 1, 2)]


async def test_finding_that_meets_another_incident_of_its_generation_is_told_again(
    stage: AuditStage,
):
    """It was opened between a look at the job and the word of it."""
    await due(stage, 200, wrong={3: 7})
    await stage.audit(ONCE)
    opened = IncidentOpened(incident_id="i", job_id="j", generation=1, kind="rank_killed")
    stage.store.intrude = ("watch-j", opened)
    await stage.audit(TWICE)
    assert [one.kind for one in await stage.incidents()] == ["rank_killed"]
    assert len(await stage.found()) == 2
    await go_back(stage, 2, 201)
    await stage.auditing.look()
    assert named((await stage.incidents())[-1]) == ("j", Action.REPLACE, ("h3",))


async def test_words_that_come_twice_late_or_before_the_audit_is_known_count_once(
    stage: AuditStage,
):
    """Messages of hosts and events of the controller overtake one another."""
    await due(stage, 200)
    audit_id = "j-audit-200-1-1"
    for _ in range(2):
        await stage.tell(audit_id, 1, "a0", 0, 201, work(1, 201))
    assert await stage.begin_audit(ONCE) == audit_id
    await stage.end(audit_id)
    await stage.tell(audit_id, 1, "a1", 1, 201, work(3, 201))
    await stage.auditing.look()
    await stage.auditing.look()
    assert [one.finding for one in await stage.found()] == [Finding.ALIKE] * 2


async def test_word_that_was_lost_is_asked_for_when_the_audit_has_ended(stage: AuditStage):
    """A host remembers the steps of jobs that are over."""
    await due(stage, 200)
    audit_id = await stage.begin_audit(ONCE)
    await stage.tell(audit_id, 1, "a0", 0, 201, work(1, 201))
    stage.remembered = [message(audit_id, 1, "a1", 1, 201, work(3, 201))]
    await stage.auditing.look()
    assert len(await stage.found()) == 1
    await stage.end(audit_id)
    assert [one.finding for one in await stage.found()] == [Finding.ALIKE] * 2


async def test_audit_that_ends_without_a_word_is_none(stage: AuditStage):
    """The same share is as good at the next one."""
    await due(stage, 200)
    audit_id = await stage.begin_audit(ONCE)
    await stage.end(audit_id, looks=QUESTIONS_MAX)
    assert len(await stage.found()) == 1
    await due(stage, 220)
    assert [(one.step, one.replica, one.number) for one in stage.asked[1:]] == [
        (200, 1, 1),
        (220, 1, 1),
    ]


async def test_generation_of_an_audit_is_compared_as_a_whole(stage: AuditStage):
    """What one rank told before its audit was begun again elsewhere is another run's."""
    await due(stage, 200)
    audit_id = await stage.begin_audit(ONCE)
    await stage.tell(audit_id, 1, "a0", 0, 201, Work(forward=1, gradient=1))
    await stage.run(audit_id, TWICE, ALONE, generation=2, restore_step=200)
    for place, rank in enumerate((1, 3)):
        await stage.tell(audit_id, 2, TWICE[place], place, 201, work(rank, 201))
    await stage.auditing.look()
    found = (await stage.found())[-1]
    assert (found.finding, found.hosts) == (Finding.ALIKE, TWICE)
