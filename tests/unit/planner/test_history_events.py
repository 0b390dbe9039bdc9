import json

import pytest

from everstep.core.errors import InvalidInput
from everstep.planner.history import Arrival, Failure, IdleLoss, LostHost, checked
from everstep.planner.history_events import read_events

SPEC = {
    "layout": {"dp_shard": 2},
    "checkpoint": {"memory_every_steps": 2, "object_every_steps": 20},
}


def at(at_s):
    """A time as messages spell it."""
    return str(round(1_000_000 + at_s * 1_000))


class Told:
    """Events as `everstep events --json` prints them, in seconds from the submission at 1,000 s."""

    def __init__(self, *, hosts=()):
        self.lines = []
        for host in hosts:
            self.add(-10, "host_joined", host_id=host, job_id=None)
        self.add(0, "job_submitted", spec_json=json.dumps(SPEC))

    def add(self, at_s, name, /, job_id="j", **payload):
        named = {} if job_id is None else {"job_id": job_id}
        told = {**named, **payload, "at_ms": at(at_s)}
        event = {"type": f"{name}.v1", "recorded_at_ms": at(at_s), name: told}
        self.lines.append(json.dumps(event))
        return self

    def begins(self, at_s, generation, cause, *, lost=(), replaced=(), seats=("a", "b"), step=-1):
        """Begin a generation, place it and plan it a second later."""
        number = {"generation": str(generation)}
        self.add(at_s, "generation_begun", cause=cause, lost_hosts=list(lost), **number)
        return self.placed(at_s + 1, generation, replaced=replaced, seats=seats, step=step)

    def placed(self, at_s, generation, *, replaced=(), seats=("a", "b"), step=-1):
        number = {"generation": str(generation)}
        placement = {"hosts": [{"host_id": host} for host in seats]}
        placed = {"placement": placement, "replacements": list(replaced)}
        self.add(at_s, "placement_decided", **placed, **number)
        return self.add(at_s, "restore_decided", step=str(step), **number)

    def steps(self, at_s, generation, step):
        """Have done a generation's first step."""
        return self.add(at_s, "generation_progressed", generation=str(generation), step=str(step))

    def breaks(self, failed_s, generation, step, *, hosts=(), detected_s=None, job_id="j"):
        kind = "host_lost" if hosts else "rank_killed"
        detected_s = failed_s + 2 if detected_s is None else detected_s
        return self.add(
            detected_s, "incident_opened", job_id=job_id, kind=kind, generation=str(generation),
            step=str(step), hosts=list(hosts), failed_at_ms=at(failed_s),
            detected_at_ms=at(detected_s),
        )  # fmt: skip

    def read(self, **fields):
        return read_events("\n".join(self.lines) + "\n\n", source="events.jsonl", **fields)


def once(**fields):
    """A run of steps of 1 s that loses host b at 50.5 s, after 40 steps, and goes on with s."""
    told = Told(**fields).begins(0, 1, "launch").steps(11, 1, 1)
    told.breaks(50.5, 1, 40, hosts=["b"])
    return told.begins(
        52.5, 2, "recovery", lost=["b"], replaced=["s"], seats=("a", "s"), step=38
    ).steps(61.5, 2, 39)


def test_lost_host_is_one_failure_with_all_that_it_cost():
    """Training began one step before the first was done, and 2.5 s of it are lost."""
    record = once(hosts="abst").add(120.5, "job_stopped").read()
    assert (record.wall_ms, record.startup_ms, record.launch_waiting_ms) == (120_500, 10_000, 0)
    assert (record.step_ms, record.interval_ms, record.stall_ms) == (1_000, 2_000, 0)
    assert (record.hosts, record.spares, record.replicas) == (("a", "b"), ("s", "t"), 2)
    assert record.stored_every_ms == 20_000
    assert record.failures == (
        Failure(
            at_ms=50_500, kind="host_lost", lost=(LostHost(host_id="b", out_ms=None),),
            replacements=("s",), detection_ms=2_000, restart_ms=8_000, lost_work_ms=2_500,
        ),
    )  # fmt: skip
    told = {cause: ms for cause, ms in record.measured.items() if ms}
    assert told == {
        "startup": 10_000, "useful": 98_000, "lost_work": 2_500, "detection": 2_000,
        "restart": 8_000,
    }  # fmt: skip
    assert checked(record) is record


def test_stall_that_a_person_knows_is_no_part_of_a_step():
    """Every second step has one of 0.2 s."""
    record = once(hosts="abs").add(120.5, "job_stopped").read(stall_ms=200)
    assert (record.step_ms, record.interval_ms, record.stall_ms) == (900, 1_800, 200)
    assert record.measured["checkpoint_stall"] > 0


@pytest.mark.parametrize(
    ("after", "out_s"),
    [
        ([(70, "host_joined"), (80, "host_uncordoned")], 29.5),  # cordoned hosts have to be cleared
        ([(70, "host_uncordoned"), (80, "host_joined")], 29.5),  # cleared before it was there
        ([(70, "host_joined")], None),  # it is there, and still cordoned
    ],
)
def test_host_is_back_when_it_is_there_and_may_work(after, out_s):
    """The later of the two."""
    told = once(hosts="abs").add(53, "host_cordoned", host_id="b")
    for at_s, name in after:
        told.add(at_s, name, host_id="b", job_id=None)
    (lost,) = told.add(120, "job_stopped").read().failures[0].lost
    assert lost.out_ms == (None if out_s is None else out_s * 1_000)


def test_host_that_is_back_before_anybody_missed_it_was_away_so_long():
    """A later cordon and its end are another story."""
    told = once(hosts="abs").add(60, "host_joined", host_id="b", job_id=None)
    told.add(90, "host_cordoned", host_id="b").add(95, "host_uncordoned", host_id="b", job_id=None)
    assert told.add(120, "job_stopped").read().failures[0].lost[0].out_ms == 9_500


def test_wait_for_hosts_is_apart_from_the_restart():
    """Short at 53 s, placed at 70 s."""
    told = Told(hosts="ab").begins(0, 1, "launch").steps(11, 1, 1)
    told.breaks(50.5, 1, 40, hosts=["b"])
    told.add(52.5, "generation_begun", generation="2", cause="recovery", lost_hosts=["b"])
    told.add(53, "hosts_short", generation="2", missing=1)
    told.add(69, "host_joined", host_id="n", job_id=None)
    told.placed(70, 2, replaced=["n"], seats=("a", "n"), step=38).steps(78.5, 2, 39)
    record = told.add(120, "job_stopped").read()
    assert (record.failures[0].waiting_ms, record.failures[0].restart_ms) == (17_000, 8_000)
    assert record.arrivals == (Arrival(at_ms=69_000, host_id="n"),)
    assert record.spares == ()


def test_restart_that_was_broken_off_counts_as_the_usual_one():
    """The third generation comes before the second has trained; the fourth took 8 s."""
    told = Told(hosts="ab").begins(0, 1, "launch").steps(11, 1, 1).breaks(50.5, 1, 40)
    told.begins(52.5, 2, "recovery", step=40).breaks(55.5, 2, 40)
    told.begins(57.5, 3, "recovery", step=40).steps(66.5, 3, 41).breaks(90, 3, 64)
    told.begins(92, 4, "recovery", step=64).steps(101, 4, 65)
    record = told.add(120, "job_stopped").read()
    assert [one.at_ms for one in record.failures] == [50_500, 55_500, 90_000]
    assert [one.restart_ms for one in record.failures] == [8_000, 8_000, 8_000]
    assert [one.lost_work_ms for one in record.failures] == [500, 0, 500]
    assert record.measured["restart"] == 3_000 + 8_000 + 8_000
    assert record.measured["detection"] == 6_000


def test_restart_from_an_older_step_loses_work_of_earlier_generations_too():
    """From step 64 back to 30: 24 s of the second stretch, ten of the first, and what was begun."""
    told = Told(hosts="ab").begins(0, 1, "launch").steps(11, 1, 1).breaks(50.5, 1, 40)
    told.begins(52.5, 2, "recovery", step=40).steps(61.5, 2, 41)
    told.begins(85, 3, "restart", step=30).steps(94, 3, 31)
    record = told.add(120, "job_stopped").read()
    assert record.failures[1] == Failure(
        at_ms=85_000, kind="restart", restart_ms=8_000, lost_work_ms=24_500 + 10_000
    )
    assert record.failures[1].planned


def test_pause_is_one_stop_with_the_rest_that_a_person_wanted():
    """Two seconds to end the ranks, thirty of rest, eight to come up."""
    told = Told(hosts="ab").begins(0, 1, "launch").steps(11, 1, 1).breaks(30.5, 1, 20)
    told.begins(32.5, 2, "recovery", step=20).steps(41.5, 2, 21)
    told.add(50.5, "generation_begun", generation="3", cause="pause", lost_hosts=[])
    told.add(52.5, "job_paused", generation="3")
    told.begins(82.5, 4, "resume", step=30).steps(91.5, 4, 31)
    record = told.add(120, "job_stopped").read()
    assert record.failures[1] == Failure(
        at_ms=50_500, kind="pause", restart_ms=10_000, paused_ms=30_000
    )


def test_stop_is_the_end_and_no_failure():
    """What comes after its wish is part of the end."""
    told = once(hosts="abs")
    told.add(100, "generation_begun", generation="3", cause="stop", lost_hosts=[])
    assert len(told.add(101, "job_stopped", generation="3").read().failures) == 1


def test_host_that_a_placement_leaves_out_is_lost_to_the_run():
    """It was unsound, or a person has cordoned it."""
    told = Told(hosts="abs").begins(0, 1, "launch").steps(11, 1, 1).breaks(50.5, 1, 40)
    told.begins(52.5, 2, "recovery", replaced=["s"], seats=("a", "s"), step=40).steps(61.5, 2, 41)
    (lost,) = told.add(120, "job_stopped").read().failures[0].lost
    assert lost.host_id == "b"


def test_spare_that_breaks_is_no_failure_of_the_run():
    """It is one spare less."""
    told = once(hosts="abst").breaks(70, 0, 0, hosts=["t"], job_id="")
    record = told.add(90, "host_joined", host_id="t", job_id=None).add(120, "job_stopped").read()
    assert len(record.failures) == 1
    lost = LostHost(host_id="t", out_ms=20_000)
    assert record.idle_losses == (IdleLoss(at_ms=70_000, host=lost),)


def test_what_happens_after_the_end_of_the_job_is_no_part_of_its_record():
    """A host that joins a day later makes nobody train that day, and brings nobody back in time."""
    day_s = 86_400
    ended = once(hosts="abst").add(120.5, "job_stopped")
    before = ended.read()
    ended.add(day_s, "host_joined", host_id="b", job_id=None)
    ended.add(day_s, "host_joined", host_id="new", job_id=None)
    assert ended.breaks(day_s, 0, 0, hosts=["t"], job_id="").read() == before


def test_record_of_a_job_that_was_begun_again_goes_on_after_its_first_end():
    """The last end counts, and without one the newest event."""
    told = once(hosts="abs").add(80, "job_failed", generation="2", step="57")
    told.begins(90, 3, "restart", step=57, seats=("a", "s")).steps(99, 3, 58)
    told.add(110, "host_joined", host_id="new", job_id=None)
    assert told.read().wall_ms == 110_000
    told.add(120, "job_stopped").add(130, "host_joined", host_id="new", job_id=None)
    assert told.read().wall_ms == 120_000


def test_idle_host_that_broke_before_the_submission_is_no_loss_of_the_run():
    """It is one spare less from the begin, and no time that makes no sense."""
    told = once(hosts="abst").add(120, "job_stopped")
    told.lines[:0] = Told().breaks(-7_200, 0, 0, hosts=["gone"], job_id="").lines[1:]
    told.lines[5:5] = Told().breaks(-1, 0, 0, hosts=["t"], detected_s=1, job_id="").lines[1:]
    record = told.read()
    assert (record.spares, record.idle_losses) == (("s",), ())


@pytest.mark.parametrize(
    ("before", "stands_by"),
    [
        (["host_left"], False),
        (["host_left", "host_joined"], True),
        (["host_cordoned"], False),
        (["host_cordoned", "host_joined"], False),  # another agent ends no cordon
        (["host_cordoned", "host_uncordoned"], True),
    ],
)
def test_spare_is_who_is_there_at_the_submission_and_may_work(before, stands_by):
    """What another job did to it counts, too."""
    told = once(hosts="abst").add(120, "job_stopped")
    came = Told()
    for number, name in enumerate(before):
        came.add(number - 9, name, host_id="t", job_id="k" if name == "host_cordoned" else None)
    told.lines[4:4] = came.lines[1:]
    assert told.read().spares == (("s", "t") if stands_by else ("s",))


@pytest.mark.parametrize(
    ("out", "back"), [("host_left", "host_joined"), ("host_cordoned", "host_uncordoned")]
)
def test_host_that_was_out_at_the_submission_arrives_when_it_may_work(out, back):
    """However long it had been known."""
    told = once(hosts="abst")
    told.lines[4:4] = Told().add(-5, out, host_id="t", job_id=None).lines[1:]
    record = told.add(70, back, host_id="t", job_id=None).add(120, "job_stopped").read()
    assert record.spares == ("s",)
    assert record.arrivals == (Arrival(at_ms=70_000, host_id="t"),)


def test_events_of_one_job_tell_of_the_hosts_that_served_it():
    """A replacement without a wait stood by; one that was lost before is back by then."""
    told = once()
    told.breaks(80.5, 2, 57, hosts=["s"])
    told.begins(82.5, 3, "recovery", lost=["s"], replaced=["b"], step=57).steps(91.5, 3, 58)
    record = told.add(120, "job_stopped").read()
    assert record.spares == ("s",)
    assert record.failures[0].lost[0].out_ms == 33_000
    assert any("events of one job tell only of hosts" in note for note in record.notes)


def test_upload_takes_from_the_step_until_the_checkpoint_is_complete():
    """Step 20 was done at 30 s."""
    told = once(hosts="abs").add(37, "checkpoint_completed", generation="1", step="20")
    assert told.add(120, "job_stopped").read().stored_after_ms == 7_000


def test_events_of_a_run_that_goes_on_end_with_the_last_one():
    """Nothing after it is known."""
    assert once(hosts="abs").add(99, "checkpoint_requested").read().wall_ms == 99_000


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("hello", "line 1 is no event"),
        ('{"a": 1}\n', "line 1 is no event"),
        ("[]", "line 1 is no event"),
        ("", "does not begin with a job's submission"),
        ("\n".join(once().lines[1:]), "does not begin with a job's submission"),
        (
            "\n".join(once().add(1, "job_submitted", job_id="k", spec_json="{}").lines),
            "tells of 2 jobs",
        ),
        ("\n".join(Told().lines), "has never been placed"),
        (
            "\n".join(Told().add(1, "host_joined").lines),
            r"in event 2 \(host_joined\) 'host_id' is missing",
        ),
        (
            "\n".join(once(hosts="abst").add(1, "host_joined", host_id=0).lines),
            r"event \d+ \(host_joined\) a value is cut off or of another kind",
        ),
        (
            '{"type": "generation_begun.v1", "recorded_at_ms": 1, "generation_begun": 1}\n',
            "line 1 is no event",
        ),
        ("\n".join(Told().begins(0, 1, "launch").lines), "not come to its second step"),
    ],
)
def test_export_that_tells_too_little_gets_one_sentence(text, sentence):
    """What is wrong, and what to do."""
    with pytest.raises(InvalidInput, match=sentence):
        read_events(text, source="events.jsonl")


def test_export_of_several_jobs_is_read_for_the_one_that_is_named():
    """The other one's events are not its own."""
    told = once(hosts="abs").add(1, "job_submitted", job_id="k", spec_json="{}")
    assert told.add(120, "job_stopped").read(job_id="j").wall_ms == 120_000


def test_record_from_which_nothing_can_be_learnt_is_refused():
    """No failure, or hardly a step."""
    calm = Told(hosts="ab").begins(0, 1, "launch").steps(11, 1, 1)
    calm.add(50, "job_succeeded", generation="1", step="40")
    with pytest.raises(InvalidInput, match="has no failures and no slow spells"):
        checked(calm.read())
