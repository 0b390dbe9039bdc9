import io

import pytest
from rich.console import Console

from everstep.cli.follow import Follower, Seen
from everstep.cli.live import LineView, goodput_line, incident_line, panel, phase_line, shortage
from everstep.core.errors import NotFoundError, RefusedError, Unavailable


def job_in(phase, *, step=0, generation=1, detail=""):
    """Return a job as the controller tells it."""
    return {
        "job_id": "j", "name": "j", "phase": phase, "generation": generation, "step": step,
        "steps": 10, "detail": detail, "placement": {"hosts": [{"host_id": "h1", "ranks": [0, 1]}]},
    }  # fmt: skip


def point(step, *, generation=1):
    """Return a step as the monitor tells it: two a second, a thousand tokens each."""
    return {
        "step": step, "generation": generation, "loss": 5.0 - step / 10, "grad_norm": 1.0,
        "tokens": 1_000, "step_time_ms": 500, "completed_at_ms": 1_000 + 500 * step,
    }  # fmt: skip


INCIDENT = {
    "incident_id": "i1", "kind": "host_lost", "step": 4, "hosts": ["h2"], "ranks": [2, 3],
    "recovered_at_ms": None, "action": "REPLACE", "lost_ms": 0, "lost_steps": 0,
}  # fmt: skip
GOODPUT = {"wall_ms": 10_000, "causes": {"useful": 9_000, "restart": 800, "detection": 200}}


class FakeServices:
    """Plays a script: each look takes the next round of (job or error, points)."""

    def __init__(self, *rounds, incidents=()):
        self.rounds = list(rounds)
        self.now = None
        self.listed = list(incidents)
        self.asked_after = []

    def job(self, job_id):
        self.now = self.rounds.pop(0) if len(self.rounds) > 1 else self.rounds[0]
        if isinstance(self.now[0], Exception):
            raise self.now[0]
        return self.now[0]

    def metrics(self, job_id, *, after_step, limit):
        self.asked_after.append(after_step)
        if isinstance(self.now[1], Exception):
            raise self.now[1]
        return [p for p in self.now[1] if p["step"] > after_step][:limit]

    def incidents(self, job_id):
        return self.listed

    def goodput(self, job_id):
        return GOODPUT


def lines_of(services, *, silence_s_max=60.0):
    """Follow to the end; return the job and what was printed."""
    out = io.StringIO()
    console = Console(file=out, width=200, soft_wrap=True, highlight=False)
    with LineView(console) as view:
        job = Follower(services, "j", poll_s=0, silence_s_max=silence_s_max).follow(view)
    return job, out.getvalue().splitlines()


def test_run_that_succeeds_is_told_line_by_line():
    """Phases, newest steps and the end, each once."""
    services = FakeServices(
        (job_in("launching"), NotFoundError("not yet")),
        (job_in("running"), [point(1), point(2)]),
        (job_in("running"), [point(1), point(2)]),
        (job_in("succeeded", step=3), [point(2), point(3)]),
    )
    job, lines = lines_of(services)
    assert job["phase"] == "succeeded"
    assert lines == [
        "j is launching (generation 1)",
        "step 2/10  loss 4.8000  2,000 tokens/s  goodput 90.0 %",
        "j is running (generation 1)",
        "step 3/10  loss 4.7000  2,000 tokens/s  goodput 90.0 %",
        "j is succeeded (generation 1)",
    ]


def test_last_step_that_comes_after_the_end_is_waited_for():
    """A short job ends before the monitor has written its metrics."""
    services = FakeServices(
        (job_in("succeeded", step=2), NotFoundError("not yet")),
        (job_in("succeeded", step=2), [point(1)]),
        (job_in("succeeded", step=2), [point(1), point(2)]),
    )
    _, lines = lines_of(services)
    assert lines[-1].startswith("step 2/10")


def test_incident_is_told_when_it_opens_and_when_it_is_over():
    """Two lines an incident, however often it is seen."""
    services = FakeServices((job_in("running"), []), incidents=[dict(INCIDENT)])
    out = io.StringIO()
    view = LineView(Console(file=out, width=200, soft_wrap=True, highlight=False))
    follower = Follower(services, "j")
    view.show(follower.look())
    view.show(follower.look())
    services.listed = [{**INCIDENT, "recovered_at_ms": 9, "lost_ms": 2_500, "lost_steps": 1}]
    view.show(follower.look())
    told = [line for line in out.getvalue().splitlines() if line.startswith("incident")]
    assert told == [
        "incident host_lost at step 4 (hosts h2 ranks 2-3): recovering",
        "incident host_lost at step 4 (hosts h2 ranks 2-3): recovered, 2.5 s and 1 step lost",
    ]


def test_controller_that_is_away_for_a_while_is_told_and_waited_for():
    """Training goes on without the control plane, and so does whoever watches it."""
    services = FakeServices(
        (job_in("running"), [point(1)]),
        (Unavailable("the controller does not answer"), [point(1), point(2)]),
        (job_in("succeeded", step=2), [point(2)]),
    )
    job, lines = lines_of(services)
    assert job["phase"] == "succeeded"
    assert "the controller does not answer; training goes on without it" in lines
    assert "all services answer again" in lines


def test_controller_that_never_answered_is_an_error():
    """Nothing is known of the job, so there is nothing to wait for."""
    services = FakeServices((Unavailable("down"), []))
    with pytest.raises(Unavailable, match="down"):
        Follower(services, "j").look()


def test_silence_that_lasts_too_long_ends_the_watch():
    """Nobody waits forever for a control plane that is gone."""
    services = FakeServices((job_in("running"), []), (Unavailable("gone"), []))
    with pytest.raises(Unavailable, match="gone; training goes on without it"):
        lines_of(services, silence_s_max=0.01)


def test_only_newer_steps_are_asked_for():
    """A long run is not transferred again at every look."""
    services = FakeServices((job_in("running"), [point(1), point(2)]))
    follower = Follower(services, "j")
    follower.look()
    follower.look()
    assert services.asked_after == [-1, 2]


def went_back(to_step, *, generation=2, first=1):
    """Return a controller's list of restarts: a launch, then back to a step."""
    launch = {"generation": first, "restore_step": -1, "running_at_ms": 1}
    back = {"generation": generation, "restore_step": to_step, "running_at_ms": None}
    return [launch, back]


def test_watch_that_begins_after_a_restart_shows_no_abandoned_step():
    """The curve still has steps 5 to 9 of the first generation; the run is at 5 of the second."""
    curve = [*map(point, range(1, 5)), point(5, generation=2), *map(point, range(6, 10))]
    job = {**job_in("succeeded", step=5, generation=2), "recoveries": went_back(4)}
    _, lines = lines_of(FakeServices((job, curve)))
    assert [line.partition("  ")[0] for line in lines if line.startswith("step")] == ["step 5/10"]


def test_restart_during_the_watch_is_followed_back_to_its_step():
    """Steps that are done again are new ones, and the abandoned ones are never told again."""
    before = [point(step) for step in range(1, 10)]
    running, back = job_in("running"), {**job_in("recovering"), "recoveries": went_back(4)}
    ended = {**back, "phase": "succeeded", "step": 6}
    after = [*before[:4], *(point(step, generation=2) for step in (5, 6)), *before[6:]]
    services = FakeServices((running, before), (back, before), (ended, after))
    _, lines = lines_of(services)
    assert [line.partition("  ")[0] for line in lines if line.startswith("step")] == [
        "step 9/10", "step 6/10",
    ]  # fmt: skip


def test_watch_of_a_long_run_begins_where_it_is():
    """The curve of weeks is not read: the newest twenty steps are enough for the speed."""
    steps = 100_000
    job = {**job_in("running"), "steps": steps, "recoveries": went_back(60_000)}
    curve = [
        *map(point, range(1, 60_001)),
        *(point(s, generation=2) for s in range(60_001, 70_001)),
    ]
    services = FakeServices((job, curve))
    seen = Follower(services, "j").look()
    assert [p["step"] for p in seen.fresh] == list(range(69_981, 70_001))
    assert len(services.asked_after) < 20


@pytest.mark.parametrize(
    ("told", "loss", "norm"),
    [
        ({"loss": None, "grad_norm": None}, "not finite", "not finite"),
        ({"grad_norm": None}, "2.5000", "not finite"),
        ({"loss": None, "health": "ok"}, "-", "1.000"),
    ],
)
def test_step_without_a_finite_loss_or_norm_is_told_in_words(told, loss, norm):
    """The monitor tells null for both; a job may give no loss, and every one has a norm."""
    usual = {"loss": 2.5, "health": "skipped_non_finite"}
    services = FakeServices((job_in("succeeded", step=1), [{**point(1), **usual, **told}]))
    _, lines = lines_of(services)
    assert lines[0] == f"step 1/10  loss {loss}  0 tokens/s  goodput 90.0 %"
    out = io.StringIO()
    Console(file=out, width=120).print(panel(Follower(services, "j").look()))
    assert f"{loss}   gradient norm {norm}" in out.getvalue()


def test_service_that_fails_for_a_while_is_told_and_waited_for():
    """An answer of 500 ends no watch: training goes on without the services."""
    failed = RefusedError("error", "the database is away")
    services = FakeServices(
        (job_in("running"), [point(1)]),
        (job_in("running"), failed),
        (failed, [point(1)]),
        (job_in("succeeded", step=2), [point(2)]),
    )
    job, lines = lines_of(services)
    assert job["phase"] == "succeeded"
    assert lines.count("the database is away; training goes on without it") == 1
    assert "all services answer again" in lines


def test_refusal_of_the_first_look_is_an_error():
    """Nothing is known of the job yet."""
    services = FakeServices((RefusedError("error", "no"), []))
    with pytest.raises(RefusedError, match="no"):
        Follower(services, "j").look()


def test_throughput_counts_only_the_newest_generation():
    """The gap of a recovery is not a slow step."""
    seen = Seen(job=job_in("running"))
    seen.recent.extend([point(1), point(2), point(20, generation=2), point(22, generation=2)])
    assert seen.tokens_per_s == 1_000
    assert Seen(job=job_in("running")).tokens_per_s == 0.0


def test_failure_with_a_traceback_is_told_by_its_last_line():
    """The whole traceback is printed once, at the end, by `run`."""
    detail = "Traceback (most recent call last):\n  File x\nValueError: no such layer\n"
    _, lines = lines_of(FakeServices((job_in("failed", detail=detail), [])))
    assert lines == ["j is failed (generation 1): ValueError: no such layer"]


def test_job_that_waits_for_hosts_says_how_many_and_what_to_do():
    """In the lines and in the panel; a job that has its hosts says nothing."""
    job = {**job_in("waiting_for_hosts", generation=2), "hosts_short": 2}
    told = "2 more hosts needed: add, start or uncordon some"
    assert phase_line(job) == f"j is waiting_for_hosts (generation 2): {told}"
    out = io.StringIO()
    Console(file=out, width=120).print(panel(Seen(job=job)))
    assert told in out.getvalue()
    assert shortage({**job, "hosts_short": 1}).startswith("1 more host needed")
    assert shortage({**job, "phase": "running"}) == ""


def test_panel_shows_all_that_a_person_asks_for():
    """Step, loss, speed, goodput, hosts, incidents and trouble are on one screen."""
    seen = Seen(job=job_in("recovering", detail="waits for a host"))
    seen.recent.extend([point(1), point(2)])
    seen.incidents, seen.goodput, seen.trouble = [INCIDENT], GOODPUT, "the monitor is away"
    out = io.StringIO()
    Console(file=out, width=120).print(panel(seen))
    for part in (
        "2/10", "4.8000", "2,000 tokens/s", "90.0 %", "h1:0-1", "recovering", "host_lost",
        "waits for a host", "the monitor is away",
    ):  # fmt: skip
        assert part in out.getvalue()


def test_goodput_names_the_largest_other_causes():
    """Where the rest of the time went, largest first."""
    assert goodput_line(GOODPUT) == "90.0 %   (restart 800 ms, detection 200 ms)"


def test_incident_that_ends_the_job_is_not_told_as_recovering():
    """What will not be tried again must not look as if it were."""
    line = incident_line({**INCIDENT, "action": "FAIL"})
    assert "the job stops" in line
    assert "recovering" not in line
