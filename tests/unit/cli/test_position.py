import pytest

from everstep.cli.position import (
    ASKED_MAX,
    current_step,
    is_present,
    newest_point,
    with_current_step,
    with_current_steps,
)
from everstep.core.errors import NotFoundError, Unavailable


def restart(generation, restore_step, *, ran=True):
    """Return a generation as the controller tells it."""
    return {
        "generation": generation,
        "restore_step": restore_step,
        "running_at_ms": 1 if ran else None,
    }


def job_of(*restarts, phase="running", step=1, steps=1_000, job_id="j"):
    """Return a job as the controller tells it."""
    return {
        "job_id": job_id, "phase": phase, "step": step, "steps": steps,
        "recoveries": list(restarts),
    }  # fmt: skip


class FakeMonitor:
    """Keeps the newest generation's row of each step, as the real one answers."""

    def __init__(self, *stretches, away=False, unknown=()):
        self.rows = {}
        for generation, first, last in stretches:
            for step in range(first, last + 1):
                self.rows[step] = {"step": step, "generation": generation}
        self.away = away
        self.unknown = unknown
        self.questions = 0
        self.jobs_by_id = {}

    def metrics(self, job_id, *, after_step, limit):
        self.questions += 1
        if self.away:
            raise Unavailable("the monitor does not answer")
        if job_id in self.unknown:
            raise NotFoundError(f"the monitor knows no job {job_id!r}")
        found = [self.rows[step] for step in sorted(self.rows) if step > after_step]
        return found[:limit]

    def job(self, job_id):
        return self.jobs_by_id[job_id]


LAUNCH = restart(1, -1)


@pytest.mark.parametrize(
    ("restarts", "stretches", "step"),
    [
        ([LAUNCH], [(1, 1, 700)], 700),
        ([LAUNCH], [(1, 1, 1_000)], 1_000),
        ([LAUNCH], [], 1),
        # a recovery loses the newest step, which is then done again
        ([LAUNCH, restart(2, 699)], [(1, 1, 700)], 699),
        ([LAUNCH, restart(2, 699)], [(1, 1, 700), (2, 700, 720)], 720),
        # somebody goes back: what was done after step 40 is no longer part of the run
        ([LAUNCH, restart(2, 40)], [(1, 1, 700), (2, 41, 45)], 45),
        ([LAUNCH, restart(2, 40), restart(3, 20)], [(1, 1, 700), (2, 41, 45), (3, 21, 22)], 22),
        ([LAUNCH, restart(2, 40, ran=False)], [(1, 1, 700)], 40),
        # a generation that has no plan yet, or never gets one, changes nothing
        ([LAUNCH, restart(2, None, ran=False)], [(1, 1, 700)], 700),
        # measurements were lost on the way
        ([LAUNCH], [(1, 1, 300), (1, 400, 450)], 450),
        ([LAUNCH, restart(2, 40, ran=False)], [], 40),
    ],
)
def test_current_step_is_the_newest_of_the_present_history(restarts, stretches, step):
    """Whatever a restart went back over does not count, however much of it there is."""
    assert current_step(FakeMonitor(*stretches), job_of(*restarts)) == step


def test_long_curve_is_not_read_to_find_its_end():
    """Halving: some twenty questions for a million steps."""
    monitor = FakeMonitor((1, 1, 3_000))
    point = newest_point(monitor, job_of(LAUNCH, steps=1_000_000))
    assert point == {"step": 3_000, "generation": 1}
    assert monitor.questions <= 21


def test_job_that_has_started_no_rank_is_not_asked_for():
    """Nothing can be there."""
    monitor = FakeMonitor()
    assert current_step(monitor, job_of(step=0)) == 0
    assert monitor.questions == 0


def test_step_of_a_finished_run_is_the_controllers():
    """It has heard the last step; the monitor may still be writing."""
    assert current_step(FakeMonitor((1, 1, 9)), job_of(LAUNCH, phase="succeeded", step=10)) == 10


def test_point_of_an_older_generation_counts_up_to_each_later_restart():
    """As the registry counts checkpoints."""
    job = job_of(LAUNCH, restart(2, 40), restart(3, 60))
    points = [(1, 40), (1, 41), (2, 60), (2, 61), (3, 99)]
    assert [is_present({"generation": g, "step": s}, job) for g, s in points] == [
        True, False, True, False, True,
    ]  # fmt: skip


def test_monitor_that_is_away_leaves_the_controllers_step():
    """No error, and in a listing one question only."""
    monitor = FakeMonitor(away=True)
    job = job_of(LAUNCH, step=7)
    assert with_current_step(monitor, job) == job
    monitor.questions = 0
    jobs = [job_of(LAUNCH, step=n, job_id=f"j{n}") for n in range(5)]
    monitor.jobs_by_id = {one["job_id"]: one for one in jobs}
    assert with_current_steps(monitor, jobs) == jobs
    assert monitor.questions == 1


def test_listing_asks_for_a_screen_of_jobs_and_those_that_run_first():
    """A hundred failed jobs must not slow down the look at the one that runs."""
    old = [job_of(LAUNCH, phase="failed", step=1, job_id=f"old{n}") for n in range(100)]
    jobs = [*old, job_of(LAUNCH, step=1, job_id="live")]
    monitor = FakeMonitor((1, 1, 700))
    monitor.jobs_by_id = {one["job_id"]: one for one in jobs}
    steps = [one["step"] for one in with_current_steps(monitor, jobs)]
    assert steps[-1] == 700
    assert steps[:100] == [700] * (ASKED_MAX - 1) + [1] * (101 - ASKED_MAX)


def test_job_that_the_monitor_has_not_heard_of_does_not_end_the_asking():
    """A job that was launched a moment ago; the others' steps are told."""
    jobs = [job_of(LAUNCH, step=1, job_id=name) for name in ("new", "live")]
    monitor = FakeMonitor((1, 1, 700), unknown=("new",))
    monitor.jobs_by_id = {one["job_id"]: one for one in jobs}
    assert [one["step"] for one in with_current_steps(monitor, jobs)] == [1, 700]
