"""What observations change in a job's watch."""

from __future__ import annotations

from dataclasses import replace

from tests.spec import spec

from everstep.monitor.codec import AGGREGATE
from everstep.monitor.commands import (
    CloseHostIncident,
    MarkJob,
    ObserveExit,
    ObserveProgress,
    ObserveRefusal,
    ObserveStray,
    OpenIncident,
)
from everstep.monitor.events import (
    Action,
    ExitClass,
    GenerationProgressed,
    IncidentClosed,
    IncidentOpened,
    IncidentRecovered,
    JobMarked,
    Mark,
    RankEnded,
    RunFinished,
    SourceRefused,
    StrayFound,
    WatchedHost,
)

WATCH = spec(AGGREGATE)
HOSTS = (WatchedHost(host_id="h0", ranks=(0,)), WatchedHost(host_id="h1", ranks=(1,)))


def marked(generation: int, mark: Mark, **fields: object) -> JobMarked:
    """A mark of job j."""
    return JobMarked(job_id="j", generation=generation, mark=mark, **fields)


def up(generation: int) -> tuple[JobMarked, ...]:
    """A generation that was begun and placed."""
    return (
        marked(generation, Mark.BEGUN, cause="launch"),
        marked(generation, Mark.PLACED, hosts=HOSTS),
    )


def exit_of(rank: int, generation: int, exit_class: ExitClass) -> dict[str, object]:
    """Fields of a rank's end."""
    return {
        "job_id": "j",
        "generation": generation,
        "rank": rank,
        "host_id": f"h{rank}",
        "exit_class": exit_class,
        "step": 10,
        "at_ms": 100 + rank,
    }


OPEN = {
    "incident_id": "i1",
    "job_id": "j",
    "generation": 1,
    "kind": "host_lost",
    "hosts": ("h1",),
    "step": 8,
    "action": Action.REPLACE,
    "failed_at_ms": 50,
    "detected_at_ms": 60,
}


def test_exit_is_recorded_once_and_echoes_are_not():
    """A repeated report changes nothing; a collective error is an echo."""
    killed = exit_of(0, 1, ExitClass.KILLED)
    given = WATCH.given(*up(1))
    given.when(ObserveExit(**killed)).then(RankEnded(**killed))
    given.given(RankEnded(**killed)).when(ObserveExit(**killed)).then()
    given.when(ObserveExit(**exit_of(1, 1, ExitClass.COLLECTIVE))).then()


def test_exit_of_an_older_generation_changes_nothing():
    """Late reports speak of fenced ranks."""
    given = WATCH.given(*up(1), *up(2))
    given.when(ObserveExit(**exit_of(0, 1, ExitClass.KILLED))).then()


def test_run_whose_ends_come_before_its_placement_is_finished():
    """Seed 42090: the controller's word was late, and the job was never over."""
    ends = [exit_of(r, 1, ExitClass.FINISHED) for r in (0, 1)]
    begun, placed = up(1)
    given = WATCH.given(begun)
    for end in ends:
        given.when(ObserveExit(**end)).then(RankEnded(**end))
        given = given.given(RankEnded(**end))
    word = MarkJob(job_id="j", generation=1, mark=Mark.PLACED, hosts=HOSTS)
    given.when(word).then(placed, RunFinished(job_id="j", generation=1, step=10, at_ms=101))
    given = WATCH.given(begun, RankEnded(**ends[0]))
    given.when(word).then(placed)


def test_run_is_finished_when_the_last_rank_is():
    """Not before: a rank may still fail in its last save."""
    first, second = (exit_of(r, 1, ExitClass.FINISHED) for r in (0, 1))
    given = WATCH.given(*up(1))
    given.when(ObserveExit(**first)).then(RankEnded(**first))
    given.given(RankEnded(**first)).when(ObserveExit(**second)).then(
        RankEnded(**second), RunFinished(job_id="j", generation=1, step=10, at_ms=101)
    )


def stray(generation: int) -> ObserveStray:
    """A host names ranks of a generation."""
    return ObserveStray(job_id="j", generation=generation, host_id="h0", at_ms=7)


def test_ranks_of_what_is_over_are_stray():
    """Of an older generation, or of a job that has ended; not those of the current one."""
    found = StrayFound(job_id="j", generation=2, host_id="h0", stray_generation=1, at_ms=7)
    given = WATCH.given(*up(1), *up(2))
    given.when(stray(1)).then(found)
    given.when(stray(2)).then()
    ended = given.given(marked(2, Mark.ENDED, cause="succeeded"))
    ended.when(stray(2)).then(replace(found, stray_generation=2))


def test_ranks_of_a_run_that_is_paused_or_stopped_end_by_themselves():
    """They agree on a last step first; and of a job that nobody knows, nothing can be said."""
    for cause in ("pause", "stop"):
        given = WATCH.given(*up(1), marked(2, Mark.BEGUN, cause=cause))
        given.when(stray(1)).then()
        found = StrayFound(job_id="j", generation=2, host_id="h0", stray_generation=1, at_ms=7)
        given.given(marked(2, Mark.PAUSED)).when(stray(1)).then(found)
    WATCH.given().when(stray(1)).then()


def test_run_that_finishes_ends_its_incident():
    """A host lost after the last step: the recovery has no step left to make, and returns."""
    first, second = (exit_of(r, 2, ExitClass.FINISHED) for r in (0, 1))
    given = WATCH.given(
        *up(1), IncidentOpened(**OPEN), *up(2), marked(2, Mark.PLANNED, step=8), RankEnded(**first)
    )
    given.when(ObserveExit(**second)).then(
        RankEnded(**second),
        RunFinished(job_id="j", generation=2, step=10, at_ms=101),
        IncidentRecovered(
            incident_id="i1", job_id="j", recovered_at_ms=101, lost_ms=51, lost_steps=0
        ),
    )


def test_finished_run_has_no_incident_any_more():
    """Its ranks have all returned: what befalls their hosts is not the run's."""
    ends = [RankEnded(**exit_of(r, 1, ExitClass.FINISHED)) for r in (0, 1)]
    done = RunFinished(job_id="j", generation=1, step=10, at_ms=101)
    WATCH.given(*up(1), *ends, done).when(OpenIncident(**OPEN)).then()


def test_incident_of_a_job_that_is_stopped_is_closed():
    """Nobody waits for its recovery; a job that succeeded all the same has recovered."""
    given = WATCH.given(*up(1), IncidentOpened(**OPEN))
    stopped = {"generation": 2, "mark": Mark.ENDED, "at_ms": 90}
    given.when(MarkJob(job_id="j", cause="stopped", **stopped)).then(
        IncidentClosed(incident_id="i1", job_id="j", why="the job was stopped", closed_at_ms=90),
        marked(2, Mark.ENDED, cause="stopped", at_ms=90),
    )
    given.when(MarkJob(job_id="j", cause="succeeded", **stopped)).then(
        IncidentRecovered(
            incident_id="i1", job_id="j", recovered_at_ms=90, lost_ms=40, lost_steps=0
        ),
        marked(2, Mark.ENDED, cause="succeeded", at_ms=90),
    )


def test_ranks_that_return_at_different_steps_are_named():
    """The run is through, but its ranks did not do the same."""
    first, second = (exit_of(r, 1, ExitClass.FINISHED) for r in (0, 1))
    second["step"] = 11
    given = WATCH.given(*up(1), RankEnded(**first))
    given.when(ObserveExit(**second)).then(
        RankEnded(**second),
        RunFinished(
            job_id="j",
            generation=1,
            step=11,
            at_ms=101,
            detail="ranks returned at different steps: rank 0 at step 10, rank 1 at step 11",
        ),
    )


def test_run_that_finishes_while_it_is_being_paused_is_finished():
    """One rank ended before the pause was heard of, the other after; a stopped one is no end."""
    first, second = (exit_of(r, 1, ExitClass.FINISHED) for r in (0, 1))
    pausing = WATCH.given(
        *up(1), RankEnded(**first), marked(2, Mark.BEGUN, cause="pause"), marked(2, Mark.PAUSED)
    )
    pausing.when(ObserveExit(**first)).then()
    pausing.when(ObserveExit(**exit_of(1, 1, ExitClass.STOPPED))).then()
    done = RunFinished(job_id="j", generation=1, step=10, at_ms=101)
    pausing.when(ObserveExit(**second)).then(RankEnded(**second), done)
    pausing.given(RankEnded(**second), done).when(ObserveExit(**second)).then()


def test_end_in_a_generation_that_was_recovered_from_is_no_finish():
    """Only a pause lets the ranks end by themselves."""
    finished = exit_of(0, 1, ExitClass.FINISHED)
    for cause in ("recovery", "resume", "stop"):
        given = WATCH.given(*up(1), marked(2, Mark.BEGUN, cause=cause))
        given.when(ObserveExit(**finished)).then()


def test_first_step_of_a_script_is_told_after_its_ranks_were_seen():
    """Once: by it the controller knows that the script takes the SDK."""
    seen = GenerationProgressed(job_id="j", generation=1, step=0, at_ms=5)
    first = ObserveProgress(job_id="j", generation=1, step=1, at_ms=9)
    stepped = GenerationProgressed(job_id="j", generation=1, step=1, at_ms=9)
    given = WATCH.given(*up(1), seen)
    given.when(ObserveProgress(job_id="j", generation=1, step=0, at_ms=6)).then()
    given.when(first).then(stepped)
    given.given(stepped).when(first).then()


def test_one_incident_a_generation():
    """A second verdict in the same generation is an echo of the first."""
    given = WATCH.given(*up(1))
    given.when(OpenIncident(**OPEN)).then(IncidentOpened(**OPEN))
    given.given(IncidentOpened(**OPEN)).when(
        OpenIncident(**{**OPEN, "incident_id": "i2", "kind": "rank_killed"})
    ).then()


def test_verdict_on_an_older_generation_is_dropped():
    """A checkpoint or failure from before the restart must not strike the new ranks."""
    WATCH.given(*up(1), *up(2)).when(OpenIncident(**OPEN)).then()


def test_host_that_has_left_is_lost_no_more_and_stays_broken_if_it_was():
    """Nobody waits for it to speak; its device is as it was when it comes back."""
    lost = {**OPEN, "job_id": "", "generation": 0, "kind": "host_lost", "hosts": ("h1",)}
    left = CloseHostIncident(host_id="h1", at_ms=90, left=True)
    over = IncidentClosed(
        incident_id="i1", job_id="", why="the host has left the fleet", closed_at_ms=90
    )
    given = WATCH.given(IncidentOpened(**lost))
    given.when(left).then(over)
    given.given(over).when(left).then()
    WATCH.given(IncidentOpened(**{**lost, "kind": "host_faulty"})).when(left).then()
    WATCH.when(left).then()


def recovered(incident_id: str, at_ms: int, lost_steps: int) -> IncidentRecovered:
    """An incident of job j that failed at 50 ms has ended."""
    return IncidentRecovered(
        incident_id=incident_id,
        job_id="j",
        recovered_at_ms=at_ms,
        lost_ms=at_ms - 50,
        lost_steps=lost_steps,
    )


def progress(generation: int, step: int) -> tuple[ObserveProgress, GenerationProgressed]:
    """Every host has reported a generation's first step: the command and its event."""
    fields = {"job_id": "j", "generation": generation, "step": step, "at_ms": 950}
    return ObserveProgress(**fields), GenerationProgressed(**fields)


def test_first_step_of_the_next_generation_ends_the_incident():
    """Lost steps are those beyond the plan, whatever step is told of first."""
    given = WATCH.given(*up(1), IncidentOpened(**OPEN), *up(2), marked(2, Mark.PLANNED, step=7))
    command, progressed = progress(2, 9)
    given.when(command).then(progressed, recovered("i1", 950, 1))
    given.given(progressed, recovered("i1", 950, 1)).when(command).then()


def test_first_step_that_is_told_late_ends_no_incident_of_its_generation():
    """What befell the generation came after it."""
    given = WATCH.given(*up(1), IncidentOpened(**OPEN))
    command, progressed = progress(1, 1)
    given.when(command).then(progressed)


def test_watch_that_is_over_takes_nothing_until_its_job_is_restarted():
    """After the job's end nothing can go wrong with it; a person may begin it again."""
    given = WATCH.given(*up(1), marked(1, Mark.ENDED, cause="failed"))
    given.when(OpenIncident(**OPEN)).then()
    given.when(MarkJob(job_id="j", generation=1, mark=Mark.BEGUN)).then()
    given.when(MarkJob(job_id="j", generation=2, mark=Mark.RUNNING)).then()
    again = marked(3, Mark.BEGUN, cause="restart")
    given.when(MarkJob(job_id="j", generation=3, mark=Mark.BEGUN, cause="restart")).then(again)
    (opened,) = given.given(again).when(OpenIncident(**{**OPEN, "generation": 3})).decision.events
    assert opened.generation == 3


def test_idle_host_has_one_open_incident_until_it_returns():
    """Hosts outside jobs have a stream of their own."""
    opened = {**OPEN, "job_id": "", "generation": 0}
    given = WATCH.given(IncidentOpened(**opened))
    given.when(OpenIncident(**opened)).then()
    given.when(CloseHostIncident(host_id="h1", at_ms=80)).then(
        IncidentRecovered(incident_id="i1", job_id="", recovered_at_ms=80, lost_ms=30, lost_steps=0)
    )


def test_refused_source_is_recorded_once():
    """A copy that could not be used is a fact; the same report again is already so."""
    fields = {
        "job_id": "j",
        "generation": 1,
        "rank": 3,
        "step": 7,
        "kind": "own_memory",
        "host_id": "h1",
        "detail": "checksum expected a, got b",
        "at_ms": 5,
    }
    given = WATCH.given(*up(1))
    given.when(ObserveRefusal(**fields)).then(SourceRefused(**fields))
    given.given(SourceRefused(**fields)).when(ObserveRefusal(**fields)).then()


def test_ranks_of_a_host_that_die_together_are_one_death_of_the_host():
    """One fault that ends all eight ranks of a host must not make the host a suspect at once."""

    def killed(rank: int, generation: int, host_id: str) -> RankEnded:
        fields = {**exit_of(rank, generation, ExitClass.KILLED), "host_id": host_id}
        return RankEnded(signal=9, error="", detail="", **fields)

    first = [*up(1), killed(0, 1, "h0"), killed(1, 1, "h0")]
    assert WATCH.given(*first).state.deaths == (("h0", 100),)
    again = [*first, *up(2), killed(1, 2, "h0"), killed(0, 2, "h0"), killed(2, 2, "h1")]
    deaths = WATCH.given(*again).state.deaths
    assert [host for host, _ in deaths] == ["h0", "h0", "h1"]
