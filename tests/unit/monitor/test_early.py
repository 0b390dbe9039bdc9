"""What ranks tell before the controller's word of their generation has come."""

from __future__ import annotations

from dataclasses import replace

from tests.unit.monitor.test_decider import HOSTS, WATCH, exit_of, marked, up
from tests.unit.monitor.test_watcher import HOSTS as THREE
from tests.unit.monitor.test_watcher import echo, killed, stage

from everstep.core.decision import Accepted
from everstep.monitor.codec import AGGREGATE
from everstep.monitor.commands import MarkJob, ObserveExit, ObserveRefusal
from everstep.monitor.early import EARLY_MAX, Early
from everstep.monitor.echoes import JOBS_MAX, EarlyEchoes, echo_of
from everstep.monitor.events import ExitClass, Mark, RankEnded, RunFinished, SourceRefused
from everstep.monitor.state import Watch

__all__ = ("stage",)  # a fixture

REFUSAL = {
    "job_id": "j",
    "generation": 2,
    "rank": 0,
    "step": 5,
    "kind": "peer_memory",
    "host_id": "h1",
    "detail": "checksum",
    "at_ms": 9,
}
NEXT = (
    marked(2, Mark.BEGUN, cause="recovery"),
    marked(2, Mark.PLACED, hosts=HOSTS),
)


def finished(rank: int, generation: int) -> RankEnded:
    """A rank has returned."""
    return RankEnded(**exit_of(rank, generation, ExitClass.FINISHED))


def test_end_of_a_generation_that_has_not_begun_is_kept_once():
    """It is news for nobody before the controller's word; one of an older generation never is."""
    early = exit_of(0, 2, ExitClass.KILLED)
    given = WATCH.given(*up(1))
    given.when(ObserveExit(**early)).then(RankEnded(**early))
    kept = given.given(RankEnded(**early))
    kept.when(ObserveExit(**early)).then()
    assert not kept.state.ended
    assert kept.state.deaths == ()
    kept.when(ObserveExit(**exit_of(1, 1, ExitClass.KILLED))).then(
        RankEnded(**exit_of(1, 1, ExitClass.KILLED))
    )
    begun = kept.given(*NEXT)
    begun.when(ObserveExit(**exit_of(1, 1, ExitClass.KILLED))).then()
    begun.when(ObserveExit(**early)).then()


def test_end_told_early_counts_once_its_generation_has_begun():
    """As if it had been told then: deaths and errors of user code are counted, too."""
    ends = (
        RankEnded(**exit_of(0, 2, ExitClass.KILLED)),
        RankEnded(**exit_of(1, 2, ExitClass.USER_ERROR)),
    )
    early = WATCH.given(*up(1), *ends, *NEXT).state
    assert early == WATCH.given(*up(1), *NEXT, *ends).state
    assert set(early.ended) == {0, 1}


def test_run_that_was_through_before_it_had_begun_is_finished():
    """Seed 42090: its ranks looked as if they had vanished, and it was started again."""
    given = WATCH.given(*up(1), finished(0, 2), finished(1, 2), NEXT[0])
    word = MarkJob(job_id="j", generation=2, mark=Mark.PLACED, hosts=HOSTS)
    given.when(word).then(NEXT[1], RunFinished(job_id="j", generation=2, step=10, at_ms=101))


def test_job_that_nobody_has_told_of_keeps_what_its_ranks_tell():
    """The word of its launch is late."""
    end = exit_of(0, 1, ExitClass.FINISHED)
    WATCH.when(ObserveExit(**end)).then(RankEnded(**end))
    assert set(WATCH.given(RankEnded(**end), *up(1)).state.ended) == {0}


def test_newest_generation_is_the_one_that_is_kept():
    """What an older one tells after it, or has told before, is over; and is not counted later."""
    given = WATCH.given(*up(1), finished(0, 2))
    given.when(ObserveExit(**exit_of(1, 3, ExitClass.FINISHED))).then(finished(1, 3))
    given = given.given(finished(1, 3))
    given.when(ObserveExit(**exit_of(1, 2, ExitClass.FINISHED))).then()
    assert not given.given(*NEXT).state.ended
    assert set(given.given(*NEXT, *up(3)).state.ended) == {1}
    assert not given.given(*up(4)).state.ended


def test_refused_source_told_early_is_told_on_and_once():
    """The registry needs it for its next plan, whatever the monitor has heard by then."""
    given = WATCH.given(*up(1))
    given.when(ObserveRefusal(**REFUSAL)).then(SourceRefused(**REFUSAL))
    given = given.given(SourceRefused(**REFUSAL))
    given.when(ObserveRefusal(**REFUSAL)).then()
    given.given(*NEXT).when(ObserveRefusal(**REFUSAL)).then()
    given.given(*up(3)).when(ObserveRefusal(**REFUSAL)).then()


def test_what_is_told_early_is_bounded():
    """A rank number is whatever a host says."""
    early = Early(generation=2, told=dict.fromkeys(range(EARLY_MAX), finished(0, 2)))
    full = Watch(generation=1, early=early)
    one_more = ObserveExit(**exit_of(EARLY_MAX, 2, ExitClass.FINISHED))
    assert AGGREGATE.decide(one_more, full) == Accepted()


async def test_collective_errors_told_early_count_once_their_generation_has_begun(stage):
    """A host died as soon as the ranks were up; the errors of the others tell it at once."""
    for rank in range(4):
        await stage.watcher.echoed(echo(rank, generation=2))
    stage.dead.add("h2")
    for mark, fields in ((Mark.BEGUN, {"cause": "recovery"}), (Mark.PLACED, {"hosts": THREE})):
        await stage.watcher.mark(MarkJob(job_id="j", generation=2, mark=mark, **fields))
    await stage.tick(200)
    (incident,) = await stage.incidents()
    assert (incident.kind, incident.generation, incident.hosts) == ("host_lost", 2, ("h2",))


async def test_collective_errors_of_an_older_generation_are_not_kept(stage):
    """What was told early of a generation that never came up is over with it."""
    await stage.watcher.echoed(echo(0, generation=2))
    await stage.watcher.mark(MarkJob(job_id="j", generation=3, mark=Mark.BEGUN, cause="recovery"))
    await stage.watcher.mark(MarkJob(job_id="j", generation=3, mark=Mark.PLACED, hosts=THREE))
    await stage.watcher.echoed(echo(1, generation=2))
    await stage.tick(3_000)
    assert await stage.incidents() == []


async def test_end_told_early_waits_for_what_belongs_to_it(stage):
    """An error that another rank's death has led to is not the root because it was told first."""
    error = replace(killed(2, generation=2), exit_class=ExitClass.USER_ERROR, signal=0)
    await stage.watcher.exited(error)
    for mark, fields in ((Mark.BEGUN, {"cause": "recovery"}), (Mark.PLACED, {"hosts": THREE})):
        await stage.watcher.mark(MarkJob(job_id="j", generation=2, mark=mark, **fields))
    await stage.tick(100)
    await stage.watcher.exited(killed(3, generation=2))
    await stage.tick(200)
    (incident,) = await stage.incidents()
    assert (incident.kind, incident.ranks) == ("rank_killed", (3,))


def test_early_echoes_are_kept_of_a_few_jobs():
    """The job heard of first gives way."""
    echoes = EarlyEchoes()
    for number in range(JOBS_MAX + 1):
        echoes.keep(replace(echo(0, generation=2), job_id=f"j{number}"))
    assert echoes.take("j0", 2) == ()
    assert echoes.take("j1", 1) == ()
    assert echoes.take("j1", 2) == (echo_of(echo(0)),)
    assert echoes.take("j1", 2) == ()
