"""Every millisecond under exactly one cause."""

from __future__ import annotations

from dataclasses import replace

import pytest

from everstep.monitor.ledger import Generation, Step, account


def step(generation: int, number: int, completed_at_ms: int, **parts: int) -> Step:
    """A step that took 100 ms unless told otherwise."""
    return Step(
        generation=generation,
        step=number,
        completed_at_ms=completed_at_ms,
        **({"step_time_ms": 100} | parts),
    )


def nonzero(ledger) -> dict[str, int]:
    """The causes that took time."""
    return {cause.value: ms for cause, ms in ledger.causes.items() if ms}


def test_ledger_of_a_recovered_run_names_each_piece():
    """Start-up, useful steps, the redone step, detection, restart and the final save."""
    ledger = account(
        submitted_at_ms=0,
        end_ms=2_100,
        ended=True,
        generations=[
            Generation(
                generation=1,
                cause="launch",
                begun_at_ms=0,
                restore_step=-1,
                failed_at_ms=850,
                detected_at_ms=900,
            ),
            Generation(generation=2, cause="recovery", begun_at_ms=910, restore_step=2),
        ],
        steps=[
            step(1, 1, 600),
            step(1, 2, 700, stall_ms=10, data_wait_ms=20),
            step(1, 3, 800),
            step(2, 3, 1_900, step_time_ms=200),
            step(2, 4, 2_000),
        ],
    )
    assert nonzero(ledger) == {
        "startup": 500,
        "useful": 100 + 70 + 100 + 100,
        "data_wait": 20,
        "checkpoint_stall": 10 + 100,
        "lost_work": 100 + 50,
        "detection": 50,
        "restart": 10 + 790 + 100,
    }


FAILED = Generation(
    generation=1,
    cause="launch",
    begun_at_ms=0,
    placed_at_ms=50,
    restore_step=-1,
    failed_at_ms=600,
    detected_at_ms=900,
)


@pytest.mark.parametrize(
    ("steps", "bring_up"),
    [
        ([step(1, 1, 200), step(1, 2, 300)], {"startup": 100, "useful": 200, "lost_work": 300}),
        ([], {"startup": 600}),
    ],
)
def test_ledger_of_a_job_that_fails_for_good_names_what_that_took(steps, bring_up):
    """What was found ended it; it reads the same when it is begun again later."""
    known = bring_up | {"detection": 300, "restart": 100}
    facts = {"submitted_at_ms": 0, "steps": steps}
    at_end = account(**facts, end_ms=1_000, generations=[FAILED], ended=True)
    assert nonzero(at_end) == known
    assert nonzero(account(**facts, end_ms=1_000, generations=[FAILED])) == known
    again = Generation(generation=2, cause="restart", begun_at_ms=1_500, restore_step=2)
    generations = [replace(FAILED, paused_at_ms=1_000), again]
    later = account(**facts, end_ms=1_500, generations=generations)
    assert nonzero(later) == known | {"paused": 500}


def test_ledger_of_a_run_that_finishes_in_spite_of_what_was_found_ends_with_its_save():
    """Its last step is later than the word of the failure."""
    ledger = account(
        submitted_at_ms=0,
        end_ms=1_000,
        generations=[replace(FAILED, failed_at_ms=250, detected_at_ms=280)],
        steps=[step(1, 1, 200), step(1, 2, 300)],
        ended=True,
    )
    assert nonzero(ledger) == {"startup": 100, "useful": 200, "checkpoint_stall": 700}


RUNS = Generation(generation=1, cause="launch", begun_at_ms=0, placed_at_ms=50, running_at_ms=100)


@pytest.mark.parametrize(
    ("generations", "ended", "causes"),
    [
        ([RUNS], False, {"useful": 900}),
        ([RUNS], True, {"useful": 900}),
        ([replace(RUNS, ranks=6)], False, {"useful": 675, "degraded": 225}),
        (
            [replace(RUNS, failed_at_ms=600, detected_at_ms=700)],
            True,
            {"useful": 500, "detection": 100, "restart": 300},
        ),
        (
            [
                replace(RUNS, failed_at_ms=600, detected_at_ms=650),
                Generation(generation=2, cause="recovery", begun_at_ms=700, running_at_ms=800),
            ],
            False,
            {"useful": 500 + 200, "detection": 50, "restart": 50 + 100},
        ),
        (
            [
                RUNS,
                Generation(generation=2, cause="pause", begun_at_ms=600, paused_at_ms=650),
                Generation(generation=3, cause="resume", begun_at_ms=800),
            ],
            False,
            {"useful": 500, "restart": 50 + 200, "paused": 150},
        ),
        ([replace(RUNS, paused_at_ms=400)], False, {"useful": 300, "paused": 600}),
    ],
    ids=["runs", "ended", "fewer ranks", "failed", "recovered", "paused", "held"],
)
def test_ledger_of_a_script_without_the_sdk_is_useful_while_its_ranks_work(
    generations, ended, causes
):
    """It tells of no steps: nothing else says where its training begins and ends."""
    ledger = account(
        submitted_at_ms=0,
        end_ms=1_000,
        generations=generations,
        steps=[],
        ended=ended,
        full_ranks=8,
    )
    assert nonzero(ledger) == {"startup": 100} | causes


def test_ledger_of_a_job_that_tells_of_steps_counts_only_these():
    """A generation that broke before its first step was told has made nothing useful."""
    recovers = Generation(generation=2, cause="recovery", begun_at_ms=300, running_at_ms=400)
    ledger = account(
        submitted_at_ms=0,
        end_ms=1_000,
        generations=[replace(RUNS, restore_step=-1), recovers],
        steps=[step(1, 1, 200), step(1, 2, 300)],
    )
    assert nonzero(ledger) == {"startup": 100, "useful": 200, "restart": 700}


def test_ledger_of_a_wait_for_hosts_separates_it_from_the_restart():
    """From the shortage to the placement nobody could have done better."""
    ledger = account(
        submitted_at_ms=0,
        end_ms=1_000,
        generations=[
            Generation(generation=1, cause="launch", begun_at_ms=0, restore_step=-1),
            Generation(
                generation=2,
                cause="recovery",
                begun_at_ms=200,
                short_at_ms=250,
                placed_at_ms=650,
                restore_step=1,
            ),
        ],
        steps=[step(1, 1, 200), step(2, 2, 900)],
    )
    assert nonzero(ledger) == {
        "startup": 100,
        "useful": 100 + 100 + 100,
        "restart": 50 + 150,
        "waiting_for_hosts": 400,
    }


def test_ledger_of_a_job_that_is_stopped_while_it_waits_keeps_the_wait():
    """It found no hosts to the last: nothing of that was a restart."""
    ledger = account(
        submitted_at_ms=0,
        end_ms=1_000,
        ended=True,
        generations=[
            Generation(generation=1, cause="launch", begun_at_ms=0, short_at_ms=100),
            Generation(generation=2, cause="stop", begun_at_ms=990),
        ],
        steps=[],
    )
    assert nonzero(ledger) == {"startup": 100, "waiting_for_hosts": 890, "restart": 10}


def test_ledger_of_a_wait_that_ended_the_job_rests_until_it_is_begun_again():
    """It waits until its end; what follows is a person's."""
    ledger = account(
        submitted_at_ms=0,
        end_ms=1_000,
        generations=[
            Generation(
                generation=1, cause="launch", begun_at_ms=0, short_at_ms=100, paused_at_ms=600
            ),
            Generation(generation=2, cause="restart", begun_at_ms=990),
        ],
        steps=[],
    )
    assert nonzero(ledger) == {
        "startup": 100,
        "waiting_for_hosts": 500,
        "paused": 390,
        "restart": 10,
    }


def test_ledger_lays_no_late_detection_over_the_next_generation():
    """Seed 40013: a monitor that was told of both generations late took useful time away."""
    ledger = account(
        submitted_at_ms=0,
        end_ms=1_000,
        generations=[
            Generation(
                generation=1,
                cause="launch",
                begun_at_ms=0,
                restore_step=-1,
                failed_at_ms=750,
                detected_at_ms=800,
            ),
            Generation(generation=2, cause="recovery", begun_at_ms=450, restore_step=2),
        ],
        steps=[step(1, 1, 200), step(1, 2, 300), step(2, 3, 600), step(2, 4, 700)],
    )
    assert nonzero(ledger) == {
        "startup": 100,
        "useful": 200 + 200 + 300,
        "lost_work": 150,
        "restart": 50,
    }


def test_ledger_lays_no_step_of_a_stray_over_its_successor():
    """An older generation that nobody could end steps on: the newer one's time is its own."""
    ledger = account(
        submitted_at_ms=0,
        end_ms=1_000,
        generations=[
            Generation(generation=1, cause="launch", begun_at_ms=0, restore_step=-1),
            Generation(generation=2, cause="recovery", begun_at_ms=450, restore_step=2),
        ],
        steps=[
            *(step(1, number, 100 + 100 * number) for number in range(1, 8)),
            *(step(2, number, 500 + 100 * (number - 2)) for number in range(3, 8)),
        ],
    )
    assert nonzero(ledger) == {
        "startup": 100,
        "useful": 200 + 500,
        "lost_work": 150,
        "restart": 50,
    }


def test_ledger_of_a_pause_is_paused():
    """The time between pause and resume is a person's."""
    ledger = account(
        submitted_at_ms=0,
        end_ms=1_000,
        generations=[
            Generation(generation=1, cause="launch", begun_at_ms=0, restore_step=-1),
            Generation(generation=2, cause="pause", begun_at_ms=300, paused_at_ms=350),
            Generation(generation=3, cause="resume", begun_at_ms=800, restore_step=1),
        ],
        steps=[step(1, 1, 300), step(3, 2, 1_000)],
    )
    assert nonzero(ledger) == {
        "startup": 200,
        "useful": 200,
        "restart": 50 + 100,
        "paused": 450,
    }


def test_ledger_of_steps_made_twice_names_what_that_took():
    """Making another replica's gradient is no progress; a step that is lost is lost whole."""
    ledger = account(
        submitted_at_ms=0,
        end_ms=1_000,
        generations=[
            Generation(generation=1, cause="launch", begun_at_ms=0, restore_step=-1),
            Generation(generation=2, cause="recovery", begun_at_ms=700, restore_step=2),
        ],
        steps=[
            step(1, 1, 200),
            step(1, 2, 400, step_time_ms=200, shadow_ms=90, data_wait_ms=20, stall_ms=10),
            step(1, 3, 600, step_time_ms=200, shadow_ms=90),
            step(2, 3, 1_000, step_time_ms=200),
        ],
        ended=True,
    )
    assert nonzero(ledger) == {
        "startup": 100,
        "useful": 100 + 80 + 200,
        "data_wait": 20,
        "verification": 90,
        "checkpoint_stall": 10,
        "lost_work": 200,
        "restart": 100 + 100,
    }


def test_ledger_at_fewer_replicas_counts_what_is_missing():
    """Six of eight ranks do three quarters of the work, also in a step that is on its way."""
    generations = [
        Generation(generation=1, cause="launch", begun_at_ms=0, restore_step=-1, ranks=8),
        Generation(generation=2, cause="recovery", begun_at_ms=200, restore_step=1, ranks=6),
        Generation(generation=3, cause="grow", begun_at_ms=600, restore_step=3, ranks=8),
    ]
    steps = [
        step(1, 1, 200),
        step(2, 2, 400),
        step(2, 3, 510, stall_ms=10, data_wait_ms=20, shadow_ms=39),
        step(3, 4, 700),
    ]
    facts = {"submitted_at_ms": 0, "steps": steps, "full_ranks": 8}
    known = {"startup": 100, "data_wait": 20, "verification": 39, "checkpoint_stall": 10}
    assert nonzero(account(**facts, generations=generations, end_ms=700)) == known | {
        "useful": 100 + 75 + 31 + 100,
        "degraded": 25 + 10,
        "restart": 100 + 90,
    }
    assert nonzero(account(**facts, generations=generations[:2], end_ms=600)) == known | {
        "useful": 100 + 75 + 31 + 68,
        "degraded": 25 + 10 + 22,
        "restart": 100,
    }


def test_ledger_of_an_older_monitor_knows_of_no_missing_ranks():
    """What placements had was not told then."""
    generations = [Generation(generation=1, cause="launch", begun_at_ms=0, restore_step=-1)]
    for full_ranks, ranks in ((8, 0), (0, 8), (8, 9)):
        ledger = account(
            submitted_at_ms=0,
            end_ms=200,
            generations=[replace(generations[0], ranks=ranks)],
            steps=[step(1, 1, 200)],
            full_ranks=full_ranks,
        )
        assert nonzero(ledger) == {"startup": 100, "useful": 100}
