"""What happens in a run beside failures: changes of the interval, rollbacks, drains, new begins."""

import pytest
from tests.unit.planner.histories import failure, history, lost
from tests.unit.planner.test_history_documents import at as epoch
from tests.unit.planner.test_history_documents import generation, incident, once, read, steps
from tests.unit.planner.test_history_events import Told
from tests.unit.planner.test_replay import causes

from everstep.core.errors import InvalidInput
from everstep.planner.history import Arrival, Cadence, checked
from everstep.planner.replay import settle_ms
from everstep.planner.replay_summary import course_counts


def changed(told, at_s, version, memory, objects):
    """A schedule that is decided, and in force a second later."""
    schedule = {
        "version": str(version), "memory_every_steps": memory, "object_every_steps": objects,
    }  # fmt: skip
    told.add(at_s, "interval_changed", generation="1", schedule=schedule)
    return told.add(at_s + 1, "interval_in_force", generation="1", version=str(version), step="20")


def run(*, hosts="abs"):
    """Steps of 1 s from the tenth second on."""
    return Told(hosts=hosts).begins(0, 1, "launch").steps(11, 1, 1)


def after(told, at_s=120.5):
    """The record, which ends then."""
    return told.add(at_s, "job_stopped", generation="9").read()


def test_change_of_the_interval_is_in_force_when_ranks_were_seen_to_follow():
    """One that was decided and never followed is none."""
    told = changed(run(), 30, 1, 5, 40)
    told.add(
        40, "interval_changed", generation="1",
        schedule={"version": "2", "memory_every_steps": 9, "object_every_steps": 90},
    )  # fmt: skip
    told.breaks(50.5, 1, 40, hosts=["b"])
    told.begins(52.5, 2, "recovery", lost=["b"], replaced=["s"], seats=("a", "s"), step=38)
    record = after(told.steps(61.5, 2, 39))
    assert record.interval_ms == 2_000
    assert record.cadences == (Cadence(at_ms=31_000, interval_ms=5_000, stored_every_ms=40_000),)
    assert (record.cycle_ms(30_999), record.cycle_ms(31_000)) == (2_000, 5_000)


def test_document_tells_changes_of_the_interval_and_one_without_them_says_so():
    """Older exports do not have them. A stall counts for each save, however far apart they are."""
    told = {
        "version": 1, "memory_every_steps": 4, "object_every_steps": 0,
        "in_force_at_ms": epoch(30), "grounds": {"step_us": 5},
    }  # fmt: skip
    never = {**told, "version": 2, "in_force_at_ms": None}
    document = once(intervals=[told, never])
    assert "grounds" not in document["intervals"][0]
    record = read(document)
    assert record.cadences == (Cadence(at_ms=30_000, interval_ms=4_000, stored_every_ms=0),)
    assert record.stall_ms > read(once(intervals=[])).stall_ms == 20
    assert record.untold == ()
    assert read(once()).untold == (
        "changes of the interval (this export does not tell them: the spec's is taken)",
    )


def test_replay_saves_as_often_as_was_in_force():
    """Every second until 27 s, then every 4 s: the failure loses what the rarer save had not."""
    rarer = Cadence(at_ms=27_000, interval_ms=4_000, stored_every_ms=0)
    record = history(failure(38_500, lost("a"), lost_work_ms=3_300), cadences=(rarer,))
    assert causes(record)["lost_work"] == pytest.approx(11.5 - 2 * 4.1)
    assert causes(record, interval_ms=1_000)["lost_work"] == pytest.approx(0.5)
    assert (
        causes(record)["checkpoint_stall"] < causes(history(*record.failures))["checkpoint_stall"]
    )


def test_rollback_loses_what_it_did_under_every_interval():
    """A suspect step decides, and it says nothing of how long a save takes to settle."""
    back = failure(38_500, kind="loss_spike", lost_work_ms=1_600, rollback=True)
    record = history(back)
    for interval_ms in (1_000, 5_000):
        assert causes(record, interval_ms=interval_ms)["lost_work"] == 1.6
    assert settle_ms(record, host=False) == 0


def test_rollback_is_known_by_its_generation_or_its_incident():
    """From events, and from a document."""
    told = run().breaks(50.5, 1, 40)
    told.begins(52.5, 2, "recovery", step=30)
    begun = told.lines[-3]
    assert "generation_begun" in begun
    told.lines[-3] = begun.replace('"cause"', '"before_step": "35", "cause"')
    record = after(told.steps(61.5, 2, 31))
    assert [one.rollback for one in record.failures] == [True]
    assert record.untold == ("batches that rollbacks left out (their steps count as useful)",)
    document = once(incidents=[{**incident(1, 50.5, step=40), "action": "ROLL_BACK"}])
    document["job"]["recoveries"][1]["incident_id"] = "i1"
    assert [one.rollback for one in read(document).failures] == [True]


def test_note_ends_no_generation():
    """Neither does the incident that a drain follows later."""
    told = run()
    for at_s, action in ((20, "NOTE"), (25, "DRAIN")):
        told.add(
            at_s, "incident_opened", kind="host_slow", generation="1", step="9", hosts=["b"],
            failed_at_ms=str(1_000_000 + at_s * 1_000), action=action,
            detected_at_ms=str(1_000_000 + at_s * 1_000),
        )  # fmt: skip
    told.breaks(50.5, 1, 40)
    record = after(told.begins(52.5, 2, "recovery", step=38).steps(61.5, 2, 39))
    assert [(one.at_ms, one.kind) for one in record.failures] == [(50_500, "rank_killed")]
    document = once()
    document["incidents"].append({**incident(1, 30, step=9), "action": "NOTE"})
    assert read(document).failures == read(once()).failures


def drain(**fields):
    """A host is left that still works, for one that stands by."""
    return failure(
        38_500, lost("a", 20_000), kind="drain", detection_ms=0, lost_work_ms=0, **fields
    )


def test_drain_costs_its_restart_and_loses_nothing():
    """As it was, with its spare."""
    found = causes(history(drain()))
    assert (found["restart"], "lost_work" in found, "waiting_for_hosts" in found) == (
        8.0, False, False,
    )  # fmt: skip


def test_drain_without_a_spare_waits_while_the_job_runs_on():
    """It never comes; or it comes when a host is there."""
    assert causes(history(drain()), spares=0) == causes(history())
    assert causes(history(drain(), spares=())) == causes(history())
    come = history(drain(), spares=(), arrivals=(Arrival(at_ms=70_000, host_id="n"),))
    assert causes(come)["restart"] == 8.0


def test_drain_of_a_host_that_does_not_serve_here_stops_nothing():
    """Another one has its seat under this policy."""
    gone = failure(20_000, lost("a"))
    assert causes(history(gone, drain(), spares=("s", "t"))) == causes(
        history(gone, spares=("s", "t"))
    )


def test_job_that_was_stopped_and_begun_again_rested_meanwhile():
    """Half a minute is a person's, and not the restart's."""
    told = run().breaks(20.5, 1, 10).begins(22.5, 2, "recovery", step=9).steps(31.5, 2, 10)
    told.add(60, "generation_begun", cause="stop", lost_hosts=[], generation="3")
    told.add(61, "job_stopped", generation="3")
    told.begins(91, 4, "restart", step=30).steps(100, 4, 31)
    record = after(told, 140)
    first, again = record.failures
    assert (first.kind, again.kind, again.planned) == ("rank_killed", "stop", True)
    assert (again.at_ms, again.paused_ms, again.restart_ms) == (60_000, 30_000, 9_000)
    assert course_counts(record)["begun_again"] == 1
    assert record.measured["paused"] == 30_000
    assert checked(record) is record


def test_job_that_failed_and_was_begun_again_rested_meanwhile():
    """From its end to the person's word."""
    told = run().breaks(50.5, 1, 40)
    told.add(53, "job_failed", generation="1", why="user_error")
    told.begins(83, 2, "restart", step=38).steps(92, 2, 39)
    (again,) = after(told, 140).failures
    assert (again.kind, again.detection_ms, again.paused_ms) == ("restart", 2_000, 30_000)
    assert again.restart_ms == 8_000 + 500


def test_document_of_a_job_that_was_begun_again_moves_the_rest_out_of_restarts():
    """The monitor's ledger lays all of it under restart."""
    document = once(points=steps(1, 1, 38, 11) + steps(3, 39, 60, 98.5))
    stop, again = generation(2, "stop", 50.5), generation(3, "restart", 89.5, restore_step=38)
    document["job"]["recoveries"][1:] = [stop, again]
    document["incidents"] = []
    causes_ms = document["goodput"]["causes"]
    causes_ms["restart"] += 40_000
    causes_ms["useful"] -= 40_000
    record = read(document)
    assert [(one.kind, one.paused_ms) for one in record.failures] == [("stop", 38_500)]
    assert record.measured["paused"] == 38_500
    assert sum(record.measured.values()) == record.wall_ms


def test_paused_job_that_is_stopped_rests_to_its_end():
    """Nobody began it again."""
    told = run().breaks(20.5, 1, 10).begins(22.5, 2, "recovery", step=9).steps(31.5, 2, 10)
    told.add(60, "generation_begun", cause="pause", lost_hosts=[], generation="3")
    told.add(61, "job_paused", generation="3")
    told.add(90, "generation_begun", cause="stop", lost_hosts=[], generation="4")
    record = after(told, 100)
    assert [(one.kind, one.paused_ms) for one in record.failures[1:]] == [("pause", 39_000)]


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda told: told.begins(-9_000, 2, "recovery"), "generation 2 begins 2 hours before gen"),
        (lambda told: told.breaks(50.5, 1, 40, detected_s=-9_000), "failed 2 hours before the job"),
        (lambda told: told.breaks(9_000, 1, 40, detected_s=60).add(
            9_000, "job_stopped", generation="1"), "failed 2 hours before it fails"),
        (lambda told: told.breaks(-9e9, 1, 40), "generation 1 fails 104,167 days before the job"),
        (lambda told: told.add(9e9, "job_stopped", generation="1"), "it ends 104,167 days after"),
        (lambda told: told.breaks(50.5, 1, 2**70), "generation 1 tells of step 1180591620717411"),
    ],
)  # fmt: skip
def test_absurd_times_are_refused_with_the_first_that_makes_no_sense(spoil, said):
    """Whatever would be said of such a record would look like an answer."""
    told = run()
    spoil(told)
    with pytest.raises(InvalidInput, match="make no sense") as refused:
        told.add(120, "host_uncordoned", host_id="b", job_id=None).read()
    assert said in str(refused.value)


@pytest.mark.parametrize("wall", [float("inf"), float("nan"), -5])
def test_length_that_is_no_length_is_refused(wall):
    """JSON as Python writes it has such numbers."""
    document = once()
    document["goodput"]["wall_ms"] = wall
    with pytest.raises(InvalidInput):
        read(document)


def test_ledger_that_does_not_add_up_is_refused():
    """It was no program of ours."""
    document = once()
    document["goodput"]["causes"]["useful"] += 5
    with pytest.raises(InvalidInput, match="its causes sum to 120505 ms of 120500 ms"):
        checked(read(document))
    document["goodput"]["causes"]["useful"] = -5
    with pytest.raises(InvalidInput, match="a share of its time is negative"):
        read(document)
