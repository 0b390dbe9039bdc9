"""When a step is done again by spare hosts: every so many checkpoints, replica after replica."""

from __future__ import annotations

import logging
from dataclasses import replace

import pytest
from tests.unit.monitor.audit_stage import (
    ALONE,
    EVERY,
    JOB_HOSTS,
    LAYOUT,
    RULES,
    AuditStage,
    work,
    works_of,
)

from everstep.monitor import audit_asking
from everstep.monitor.audit_asking import ASK_MS_MAX, NUMBER_MAX
from everstep.monitor.auditing import QUESTIONS_MAX
from everstep.monitor.events import AuditOf, Finding, Mark, WatchedHost

ONCE, TWICE = ("a0", "a1"), ("b0", "b1")


@pytest.fixture
async def stage() -> AuditStage:
    """A job that runs."""
    stage = AuditStage()
    await stage.launch()
    return stage


def asked(stage: AuditStage) -> list[tuple[int, int, int]]:
    """Step, replica and number of what was asked for."""
    return [(one.step, one.replica, one.number) for one in stage.asked]


async def test_every_so_many_checkpoints_the_next_replica_is_done_again(stage: AuditStage):
    """By the newest of them, with what its ranks came to in the step after it."""
    for step in range(10, 70, 10):
        await stage.step(step + 1)
        await stage.complete(step)
        if len(stage.asked) > len(await stage.found()):
            await stage.audit(ONCE)
    assert asked(stage) == [(20, 0, 1), (40, 1, 1), (60, 0, 1)]
    assert list(stage.asked[1].works) == works_of(1, 41)
    assert stage.asked[1].works[0] == f"{4101:016x}:{8201:016x}"
    assert stage.asked[0].job_id == "j"
    assert 0 < stage.asked[0].at_ms <= stage.at_ms
    assert {one.generation for one in stage.asked} == {1}


async def test_step_that_is_not_told_yet_is_waited_for(stage: AuditStage):
    """All of its ranks have to; a later checkpoint whose step is known does as well."""
    await stage.step(21, silent={2})
    await stage.complete(20, count=EVERY)
    assert asked(stage) == []
    await stage.tell("j", 1, "h2", 2, 21, work(2, 21))
    await stage.auditing.look()
    assert asked(stage) == [(20, 0, 1)]


async def test_step_that_is_never_told_is_passed_over(stage: AuditStage):
    """The next checkpoint is as good, and need not be the Nth."""
    await stage.complete(20, count=EVERY)
    await stage.step(31)
    assert asked(stage) == []
    await stage.complete(30)
    assert asked(stage) == [(30, 0, 1)]


async def test_older_checkpoint_that_completes_later_is_not_the_newest(stage: AuditStage):
    """Uploads overtake one another."""
    await stage.step(11)
    await stage.step(21)
    await stage.complete(20)
    await stage.complete(10)
    assert asked(stage) == [(20, 0, 1)]


async def test_step_of_a_job_that_was_smaller_then_is_passed_over(stage: AuditStage):
    """It has all its ranks again, but had not when it made the step."""
    small = ("h0", "h1")
    await stage.run("j", small, ALONE, generation=2, cause="recovery", restore_step=10)
    await stage.step(21)
    await stage.run("j", JOB_HOSTS, LAYOUT, generation=3, cause="grow", restore_step=21)
    await stage.complete(20, generation=2, count=EVERY)
    assert asked(stage) == []


async def test_audit_that_another_process_has_concluded_keeps_the_next_one_up_no_longer(
    stage: AuditStage,
):
    """What its ranks have told is lost with that process, but not what came of it."""
    await stage.step(21)
    await stage.complete(20, count=EVERY)
    audit_id = await stage.audit(ONCE, ends=False)
    other = AuditStage(stage.store)
    other.at_ms = stage.at_ms
    for job_id in ("j", audit_id):
        await other.watcher.adopt(job_id, 1, 21)
    await other.step(41)
    await other.complete(40, count=EVERY)
    assert asked(other) == [(40, 1, 1)]


async def test_checkpoint_of_another_generation_is_not_what_the_ranks_went_on_from(
    stage: AuditStage,
):
    """Its upload ended late, and its step has been made anew."""
    await stage.run("j", JOB_HOSTS, LAYOUT, generation=2, cause="recovery", restore_step=10)
    await stage.step(21)
    await stage.complete(20, generation=1, count=EVERY)
    assert asked(stage) == []
    await stage.complete(20, generation=2)
    assert asked(stage) == [(20, 0, 1)]


async def test_one_audit_of_a_job_at_a_time(stage: AuditStage):
    """The next one is due meanwhile, and asked for when the first has told."""
    for step in (20, 40):
        await stage.step(step + 1)
        await stage.complete(step, count=EVERY)
    await stage.begin_audit(ONCE)
    stage.at_ms += 10 * ASK_MS_MAX
    await stage.auditing.look()
    assert asked(stage) == [(20, 0, 1)]
    for place, rank in enumerate((0, 2)):
        await stage.tell("j-audit-20-0-1", 1, ONCE[place], place, 21, work(rank, 21))
    await stage.auditing.look()
    assert asked(stage) == [(20, 0, 1), (40, 1, 1)]


async def test_audit_that_is_never_heard_of_keeps_the_next_one_up_for_a_while_only(
    stage: AuditStage,
):
    """The controller may have lost it."""
    for step in (20, 40):
        await stage.step(step + 1)
        await stage.complete(step, count=EVERY)
    stage.at_ms += ASK_MS_MAX - 1
    await stage.auditing.look()
    assert asked(stage) == [(20, 0, 1)]
    stage.at_ms += 1
    await stage.auditing.look()
    assert asked(stage) == [(20, 0, 1), (40, 0, 1)]
    await stage.step(61)
    await stage.complete(60, count=EVERY)
    late = await stage.begin_audit(ONCE, stage.asked[0])
    for place, rank in enumerate((0, 2)):
        await stage.tell(late, 1, ONCE[place], place, 21, work(rank, 21))
    await stage.auditing.look()
    assert len(await stage.found()) == 1
    assert len(stage.asked) == 2  # that the first one has told says nothing of the second


async def test_audit_that_is_refused_is_asked_for_at_the_next_nth_checkpoint(stage: AuditStage):
    """There may be spares by then."""
    stage.refuses = "no_spares: none"
    await stage.step(21)
    await stage.complete(20, count=EVERY)
    stage.refuses = ""
    await stage.step(31)
    await stage.complete(30)
    assert asked(stage) == [(20, 0, 1)]
    await stage.step(41)
    await stage.complete(40)
    assert asked(stage) == [(20, 0, 1), (40, 0, 1)]


@pytest.mark.parametrize(
    "state", ["smaller", "recovering", "coming up", "unplanned", "broken", "over", "audit"]
)
async def test_only_a_job_that_runs_with_all_its_ranks_is_audited(state: str):
    """Else there are no spares to be had, or nothing to compare with; audits least of all."""
    stage = AuditStage()
    if state == "audit":
        stage = await _an_audit_of_nobody()
    else:
        await stage.launch()
    await stage.step(21)
    if state == "smaller":
        await stage.run("j", ("h0", "h1"), ALONE, generation=2, cause="recovery", restore_step=21)
    elif state == "recovering":
        await stage.mark("j", 2, Mark.BEGUN, cause="recovery")
    elif state in {"unplanned", "coming up"}:
        hosts = tuple(WatchedHost(host_id=host, ranks=(n,)) for n, host in enumerate(JOB_HOSTS))
        await stage.mark("j", 2, Mark.BEGUN, cause="recovery")
        await stage.mark("j", 2, Mark.PLACED, hosts=hosts, layout=LAYOUT)
        if state == "coming up":
            await stage.mark("j", 2, Mark.PLANNED, step=21)
        for host in JOB_HOSTS if state == "unplanned" else ():
            await stage.watcher.stepped("j", 2, host, 22)
    elif state == "broken":
        stage.watcher.watches["j"] = replace(stage.watcher.watches["j"], judged_generation=1)
    elif state == "over":
        await stage.mark("j", 1, Mark.ENDED, cause="succeeded")
    await stage.complete(20, count=EVERY)
    assert asked(stage) == []
    if state in {"smaller", "recovering", "coming up", "unplanned"}:
        await stage.run("j", JOB_HOSTS, LAYOUT, generation=3, cause="grow", restore_step=21)
        await stage.auditing.look()
        assert asked(stage) == [(20, 0, 1)]


async def _an_audit_of_nobody() -> AuditStage:
    stage = AuditStage()
    of = AuditOf(job_id="k", step=20, replica=0, number=1, works=(), layout=LAYOUT)
    await stage.mark("j", 0, Mark.SUBMITTED, layout=LAYOUT, corruption=RULES, audit=of)
    await stage.run("j", JOB_HOSTS, LAYOUT)
    return stage


async def test_replica_of_too_many_ranks_is_not_audited_and_that_is_said_once(
    stage: AuditStage, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    """What each came to has to fit into a spec."""
    monkeypatch.setattr(audit_asking, "RANKS_MAX", 1)
    with caplog.at_level(logging.WARNING):
        for step in (20, 40):
            await stage.step(step + 1)
            await stage.complete(step, count=EVERY)
    assert asked(stage) == []
    said = [one.message for one in caplog.records]
    assert said == [
        "job j: no step is done again: a replica has 2 ranks, and 1 at most can be told"
    ]


async def differing(stage: AuditStage) -> None:
    """The first audit of step 21 differs, and its ranks live on for a moment."""
    await stage.step(21, wrong={2: 7})
    await stage.complete(20, count=EVERY)
    await stage.audit(ONCE, ends=False)


async def test_second_audit_is_asked_for_at_once_with_what_the_job_had(stage: AuditStage):
    """Not with what the first one came to."""
    await differing(stage)
    assert asked(stage) == [(20, 0, 1), (20, 0, 2)]
    assert stage.asked[1].works == stage.asked[0].works
    assert list(stage.asked[1].works) == works_of(0, 21, {2: 7})


async def test_second_audit_that_tells_nothing_is_tried_again_but_not_for_ever(stage: AuditStage):
    """When the first one's hosts are free, at later checkpoints; then the difference stays open."""
    stage.refuses = "no_spares: none"
    await stage.step(21, wrong={2: 7})
    await stage.complete(20, count=EVERY)
    await stage.audit(ONCE, ends=False)
    assert asked(stage) == [(20, 0, 1), (20, 0, 2)]
    await stage.auditing.look()
    assert len(stage.asked) == 2
    await stage.end("j-audit-20-0-1", looks=2)
    assert asked(stage)[2:] == [(20, 0, 3)]
    await stage.complete(30)
    assert asked(stage)[3:] == [(20, 0, NUMBER_MAX)]
    assert (await stage.found())[-1].finding is Finding.DIFFERS
    await stage.complete(40)
    assert len(stage.asked) == 4
    found = (await stage.found())[-1]
    assert (found.finding, found.number, found.ranks) == (Finding.OPEN, NUMBER_MAX, (2,))
    assert found.why.startswith("step 21 of replica 0 was to be done again once more, and 3 att")
    assert stage.recomputed == [("j", 2)]
    stage.refuses = ""
    await stage.step(51)
    await stage.complete(50, count=EVERY)
    assert asked(stage)[4:] == [(50, 1, 1)]


async def test_second_audit_that_ends_without_a_word_is_tried_again(stage: AuditStage):
    """Its hosts were wanted."""
    await differing(stage)
    second = await stage.begin_audit(TWICE)
    await stage.end(second, looks=QUESTIONS_MAX)
    assert len(stage.asked) == 2
    await stage.end("j-audit-20-0-1")
    assert asked(stage)[2:] == [(20, 0, 3)]
    await stage.audit(TWICE)
    assert [one.finding for one in await stage.found()] == [Finding.DIFFERS, Finding.OPEN]


async def test_no_other_step_is_audited_while_a_difference_waits(stage: AuditStage):
    """It would be taken for settled."""
    stage.refuses = "no_spares: none"
    await differing(stage)
    await stage.step(41)
    await stage.complete(40, count=EVERY)
    assert {one[:2] for one in asked(stage)} == {(20, 0)}
