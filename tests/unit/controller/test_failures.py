"""What a job's events say of its failures."""

from __future__ import annotations

from functools import reduce

from tests.unit.controller.facts import JOB, begun

from everstep.controller.events import Event, HostsShort, JobRunning, RestoreDecided
from everstep.controller.failures import FailureRecord, record_after

HOUR = 3_600_000


def running(generation: int, at_ms: int) -> JobRunning:
    """The first step of a generation."""
    return JobRunning(job_id=JOB, generation=generation, step=5, at_ms=at_ms)


def planned(generation: int, *, step: int = 4, stored: int = 0) -> RestoreDecided:
    """Where a generation goes on from."""
    return RestoreDecided(job_id=JOB, generation=generation, step=step, object_store=stored)


def record_of(*events: Event) -> FailureRecord:
    """Fold."""
    return reduce(record_after, events, FailureRecord())


def test_recovery_of_a_run_that_trained_is_one_failure():
    """Time counts while it trains, up to now; what it went on from is known with its first step."""
    record = record_of(
        begun(1, "launch", 0),
        planned(1, step=-1),
        running(1, 1_000),
        begun(2, "recovery", HOUR + 1_000),
        planned(2),
        running(2, HOUR + 9_000),
    )
    assert record.failures_count == 1
    assert (record.memory_restores_count, record.object_restores_count) == (1, 0)
    assert record.restart_ms == 8_000
    assert record.ran_ms(HOUR + 10_000) == HOUR + 1_000
    assert record.ran_ms(HOUR) == HOUR  # an older clock


def test_failures_while_a_recovery_comes_up_belong_to_it():
    """A plan that did not work is not what the run went on from; the last one is."""
    record = record_of(
        begun(1, "launch"),
        running(1, 0),
        begun(2, "recovery", 10),
        planned(2),
        begun(3, "recovery", 20),
        HostsShort(job_id=JOB, generation=3, missing=1, at_ms=30),
        planned(3, step=2, stored=1),
        running(3, 100),
    )
    assert record.failures_count == 1
    assert (record.memory_restores_count, record.object_restores_count) == (0, 1)
    assert record.restart_ms == 90


def test_recovery_that_finds_nothing_to_go_on_from_has_lost_its_memory():
    """A fresh start after a failure: no checkpoint was complete yet."""
    record = record_of(
        begun(1, "launch"),
        running(1, 0),
        begun(2, "recovery", 9),
        planned(2, step=-1),
        running(2, 9),
    )
    assert record.object_restores_count == 1


def test_what_people_ask_for_is_no_failure():
    """Restarts, pauses and resumes say nothing of machines, wherever they go on from."""
    record = record_of(
        begun(1, "launch"),
        running(1, 0),
        begun(2, "restart", 10),
        planned(2, stored=4),
        running(2, 20),
        begun(3, "pause", 30),
        begun(4, "resume", 40),
        planned(4),
        running(4, 50),
    )
    assert (record.failures_count, record.restores_count) == (0, 0)
    assert record.ran_ms(60) == 30


def test_restart_by_a_person_during_a_recovery_ends_it():
    """Where it goes on from is a wish then, and shows nothing."""
    record = record_of(
        begun(1, "launch"),
        running(1, 0),
        begun(2, "recovery", 10),
        begun(3, "restart", 20),
        planned(3, stored=1),
        running(3, 30),
    )
    assert (record.failures_count, record.restores_count) == (1, 0)
