import copy

import pytest

from everstep.core.errors import InvalidInput
from everstep.planner.history import Arrival, Failure, IdleLoss, LostHost
from everstep.planner.history_documents import document_of, read_document
from everstep.planner.history_ledger import observed
from everstep.planner.replay import replay

SUBMITTED_MS = 1_000_000


def at(at_s):
    """A time since the epoch."""
    return SUBMITTED_MS + round(at_s * 1_000)


def generation(number, cause, begun_s, **fields):
    """A generation as the controller tells it, placed after 1 s and running after 9 s."""
    known = {
        "generation": number, "cause": cause, "incident_id": "", "lost_hosts": [],
        "unsound_hosts": [], "replacements": [], "remark": "", "unreachable": [], "from_step": -1,
        "restore_step": -1, "begun_at_ms": at(begun_s), "short_at_ms": None,
        "running_at_ms": at(begun_s + 9), "sources": {},
        "stages_ms": {"fence": 500, "place": 1_000, "plan": 100, "start": 100, "first_step": 7_000},
    }  # fmt: skip
    return known | fields


def steps(number, first, last, done_s, *, took_ms=1_000):
    """The curve of a generation: each second step saves, which takes 20 ms more."""
    points, done_ms = [], at(done_s) - took_ms
    for step in range(first, last + 1):
        stall_ms = 20 * (step % 2 == 0)
        done_ms += took_ms + stall_ms * (step > first)
        times = {"completed_at_ms": done_ms, "step_time_ms": took_ms + stall_ms}
        parts = {"stall_ms": float(stall_ms), "data_wait_ms": 50.0, "loss": 2.0, "redone": False}
        points.append({"generation": number, "step": step, **times, **parts})
    return points


def host(name, *, joined_s=-60, state="spare", job_id=""):
    """A host as the inventory tells it."""
    return {"host_id": name, "joined_at_ms": at(joined_s), "state": state, "job_id": job_id}


def incident(number, failed_s, *, hosts=(), step=0, job_id="j", kind="host_lost"):
    """An incident that ended a generation, noticed after 2 s."""
    return {
        "incident_id": f"i{number}", "job_id": job_id, "generation": number, "kind": kind,
        "hosts": list(hosts), "step": step, "failed_at_ms": at(failed_s),
        "detected_at_ms": at(failed_s + 2),
    }  # fmt: skip


def once(**changed):
    """A job that loses host b at 50.5 s, after 40 steps, and goes on with s from step 38."""
    placement = {"hosts": [{"host_id": "a"}, {"host_id": "s"}]}
    job = {
        "job_id": "j", "phase": "running", "steps": 200,
        "submitted_at_ms": SUBMITTED_MS, "placement": placement,
        "spec": {
            "layout": {"dp_replicate": 2, "dp_shard": 2},
            "checkpoint": {"memory_every_steps": 2, "object_every_steps": 20},
            "env": {"PASSWORD": "secret"},
        },
        "recoveries": [
            generation(1, "launch", 2),
            generation(
                2, "recovery", 52.5, lost_hosts=["b"], replacements=["s"], restore_step=38
            ),
        ],
    }  # fmt: skip
    known = {
        "job": job,
        "incidents": [incident(1, 50.5, hosts=["b"], step=40)],
        "goodput": {
            "wall_ms": 120_500,
            "causes": {
                "useful": 92_620, "data_wait": 4_800, "checkpoint_stall": 960,
                "lost_work": 2_120, "detection": 2_000, "restart": 8_000, "startup": 10_000,
            },
        },
        "points": steps(1, 1, 38, 11) + steps(2, 39, 97, 61.5),
        "hosts": [host("a", job_id="j"), host("b", state="cordoned"), host("s"), host("t")],
        "checkpoints": [
            {"generation": 1, "step": 20, "completed_at_ms": at(37)},
            {"generation": 2, "step": 80, "completed_at_ms": None},
        ],
    }  # fmt: skip
    return document_of(exported_at_ms=at(130), **(known | changed))


def read(document):
    """The history of a document."""
    return read_document(document, source="j.json")


def test_document_tells_the_run_with_its_stalls_and_what_each_failure_cost():
    """Steps take a second beside a stall of 20 ms on every second one."""
    record = read(once())
    assert (record.wall_ms, record.startup_ms) == (120_500, 10_000)
    assert (record.step_ms, record.interval_ms, record.stall_ms) == (1_000, 2_000, 20)
    assert (record.stored_every_ms, record.stored_after_ms) == (20_000, 6_800)
    assert (record.hosts, record.spares, record.replicas) == (("a", "b"), ("s", "t"), 4)
    (failure,) = record.failures
    assert failure == Failure(
        at_ms=50_500, kind="host_lost", lost=(LostHost(host_id="b", out_ms=None),),
        replacements=("s",), detection_ms=2_000, restart_ms=8_000, lost_work_ms=2_120,
    )  # fmt: skip
    assert {cause: ms for cause, ms in record.measured.items() if ms} == once()["goodput"]["causes"]
    assert replay(record).goodput == pytest.approx(record.goodput, abs=1e-3)


def test_document_keeps_times_of_steps_and_no_variables():
    """A job's environment may hold passwords."""
    document = once()
    assert "secret" not in str(document)
    assert document["job"]["spec"]["layout"] == {"dp_replicate": 2, "dp_shard": 2}
    assert document["metrics"]["columns"] == [
        "generation", "step", "completed_at_ms", "step_time_ms", "stall_ms", "data_wait_ms",
    ]  # fmt: skip
    assert document["metrics"]["rows"][1] == [1, 2, at(12.02), 1_020, 20.0, 50.0]


def test_slow_spell_is_taken_out_of_useful_time():
    """Twenty steps of 2 s among steps of 1 s: the monitor has no word for it."""
    slow = [
        *steps(2, 39, 68, 61.5), *steps(2, 69, 88, 92.8, took_ms=2_000), *steps(2, 89, 97, 132),
    ]  # fmt: skip
    document = once(points=steps(1, 1, 38, 11) + slow)
    document["goodput"]["causes"]["useful"] += 20_000
    document["goodput"]["wall_ms"] += 20_000
    record = read(document)
    (spell,) = record.spells
    assert (spell.begin_ms, spell.end_ms) == (90_800, 131_000)
    assert spell.factor == pytest.approx(2, rel=0.02)
    assert record.measured["straggler"] == pytest.approx(20_000, rel=0.03)
    assert sum(record.measured.values()) == record.wall_ms


def test_end_of_a_run_that_succeeded_is_no_training():
    """From the last step, at 120.08 s, until the job has ended."""
    document = once()
    assert read(document).finish_ms == 0
    document["job"]["phase"] = "succeeded"
    assert read(document).finish_ms == 420


@pytest.mark.parametrize(
    ("lost", "out_s"),
    [
        (host("b", state="cordoned", joined_s=70), None),
        (host("b", joined_s=70), 19.5),
        (host("b", joined_s=-60), None),
    ],
)
def test_lost_host_is_back_with_its_newest_start_unless_it_is_cordoned(lost, out_s):
    """Nobody keeps the times of hosts longer."""
    record = read(once(hosts=[host("a"), lost, host("s")]))
    assert record.failures[0].lost[0].out_ms == (None if out_s is None else out_s * 1_000)


def test_host_that_the_job_waited_for_is_back_when_it_took_it():
    """It had started before, and was cordoned until then."""
    document = once(hosts=[host("a"), host("b", joined_s=60, job_id="j")])
    waited = document["job"]["recoveries"][1]
    waited |= {"replacements": ["b"], "short_at_ms": at(53), "running_at_ms": at(79)}
    waited["stages_ms"]["place"] = 18_500
    document["job"]["placement"]["hosts"] = [{"host_id": "a"}, {"host_id": "b"}]
    document["metrics"]["rows"] = document["metrics"]["rows"][:38]
    (failure,) = read(document).failures
    assert failure.lost[0].out_ms == 20_500
    assert failure.waiting_ms == 18_000


def test_hosts_are_told_apart_by_when_they_came_and_whom_they_serve():
    """A new one arrives; one of another job is none of ours; one that broke stood by."""
    document = once(
        hosts=[
            host("a"), host("s"), host("new", joined_s=70), host("theirs", job_id="k"),
            host("t", joined_s=100),
        ],
        incidents=[
            incident(1, 50.5, hosts=["b"], step=40),
            incident(0, 80, hosts=["t"], job_id=""),
            incident(0, -80, hosts=["t"], job_id=""),
        ],
    )  # fmt: skip
    record = read(document)
    assert record.spares == ("s", "t")
    assert record.arrivals == (Arrival(at_ms=70_000, host_id="new"),)
    lost = LostHost(host_id="t", out_ms=20_000)
    assert record.idle_losses == (IdleLoss(at_ms=80_000, host=lost),)


@pytest.mark.parametrize(
    ("changed", "spares"),
    [
        ({"state": "cordoned", "cordoned_at_ms": at(-30)}, ("s",)),
        ({"state": "cordoned", "cordoned_at_ms": at(30)}, ("s", "t")),
        ({"state": "spare", "cordoned_at_ms": None}, ("s", "t")),
    ],
)
def test_host_that_was_cordoned_all_the_time_is_no_spare(changed, spares):
    """One that was cordoned while the job ran stood by until then."""
    known = [host("a"), host("b"), host("s"), {**host("t"), **changed}]
    assert read(once(hosts=known)).spares == spares


def test_unsound_host_that_was_replaced_is_lost_and_one_that_stayed_is_not():
    """There was a spare for it, or there was none."""
    document = once()
    document["job"]["recoveries"][1] |= {"lost_hosts": [], "unsound_hosts": ["b"]}
    assert [one.host_id for one in read(document).failures[0].lost] == ["b"]
    stayed = copy.deepcopy(document)
    stayed["job"]["recoveries"][1]["replacements"] = []
    assert read(stayed).failures[0].lost == ()


def test_causes_of_a_newer_monitor_take_their_share_of_training():
    """What the replay does not know it does not change."""
    document = once()
    document["goodput"]["causes"] |= {"useful": 82_620, "screening": 10_000}
    replayed = replay(read(document))
    share = replayed.causes["screening"] / replayed.causes["useful"]
    assert share == pytest.approx(10 / 82.62, rel=1e-3)


def test_steps_run_twice_as_a_check_take_their_share_of_training():
    """No policy of a replay changes that."""
    document = once()
    document["goodput"]["causes"] |= {"useful": 82_620, "verification": 10_000}
    replayed = replay(read(document))
    share = replayed.causes["verification"] / replayed.causes["useful"]
    assert share == pytest.approx(10 / 82.62, rel=1e-3)


def test_steps_that_are_slow_because_replicas_were_missing_have_no_straggler():
    """The ledger has told of them already."""
    told = {"useful": 80_000, "degraded": 10_000}
    slow = observed(told, slow_ms=12_000, begun_again_ms=0)
    assert {cause: ms for cause, ms in slow.items() if ms} == {
        "useful": 78_000, "degraded": 10_000, "straggler": 2_000,
    }  # fmt: skip
    assert observed(told, slow_ms=9_000, begun_again_ms=0)["useful"] == 80_000


def broken(**changed):
    """A document with something wrong."""
    return {**once(), **changed}


@pytest.mark.parametrize(
    ("document", "sentence"),
    [
        ([], "j.json is no history: expected what `everstep jobs export`"),
        ({"format": "other"}, "j.json is no history"),
        (broken(version=2), "version 2 of the format and this program reads version 1"),
        (broken(version=None), "version None of the format"),
        ({"format": "everstep-history", "version": 1}, "has no job, incidents, goodput, metrics"),
        (broken(job={}), "no whole history, 'job_id' is missing: export it again"),
        (broken(metrics={**once()["metrics"], "rows": [[1, 2, 3]]}), "a value is cut off"),
        (broken(hosts=7), "no whole history"),
        (broken(goodput={"wall_ms": "x", "causes": {}}), "no whole history"),
        (broken(metrics={"columns": ["step"], "rows": []}), "no whole history"),
    ],
)
def test_document_that_cannot_be_used_gets_one_sentence(document, sentence):
    """What is wrong, and what to do."""
    with pytest.raises(InvalidInput, match=sentence):
        read(document)


def test_run_that_has_not_trained_is_too_short():
    """A launch that has come nowhere."""
    document = once(points=[], incidents=[])
    document["job"]["recoveries"] = [generation(1, "launch", 2, running_at_ms=None)]
    with pytest.raises(InvalidInput, match="too short: it has not come to its second step"):
        read(document)
