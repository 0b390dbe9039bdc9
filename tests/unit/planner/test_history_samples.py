"""One real run, told by the services' documents and by its events."""

import json
from pathlib import Path

import pytest

from everstep.planner.history import checked
from everstep.planner.history_documents import read_document
from everstep.planner.history_events import read_events
from everstep.planner.replay import replay
from everstep.planner.replay_policy import Policy

SAMPLES = Path(__file__).with_name("samples")


def documents():
    """What `everstep jobs export` wrote."""
    text = (SAMPLES / "real.history.json").read_text()
    return checked(read_document(json.loads(text), source="real"))


def events(*, of_the_job=False):
    """The export of everything, or of the job alone."""
    lines = (SAMPLES / "real.events.jsonl").read_text().splitlines()
    if of_the_job:
        lines = [line for line in lines if '"job_id": "real"' in line]
    return checked(read_events("\n".join(lines), source="real"))


@pytest.mark.parametrize("of_the_job", [False, True])
def test_both_records_of_a_run_tell_the_same_failures(of_the_job):
    """Instants and hosts to the millisecond; what is worked out from steps nearly."""
    one, other = documents(), events(of_the_job=of_the_job)
    assert [f.kind for f in one.failures] == [
        "rank_killed", "host_lost", "rank_killed", "host_lost", "rank_killed", "host_lost",
    ]  # fmt: skip
    for mine, theirs in zip(one.failures, other.failures, strict=True):
        assert (mine.kind, mine.at_ms) == (theirs.kind, theirs.at_ms)
        assert mine.detection_ms == theirs.detection_ms
        assert mine.replacements == theirs.replacements
        assert [host.host_id for host in mine.lost] == [host.host_id for host in theirs.lost]
        assert mine.waiting_ms == pytest.approx(theirs.waiting_ms, abs=50)
        assert mine.restart_ms == pytest.approx(theirs.restart_ms, abs=300)
        assert mine.lost_work_ms == pytest.approx(theirs.lost_work_ms, abs=2 * one.step_ms)
    assert (one.hosts, one.spares) == (other.hosts, other.spares)
    assert one.step_ms == pytest.approx(other.step_ms, rel=0.05)


@pytest.mark.parametrize("record", [documents(), events(), events(of_the_job=True)])
def test_replay_of_a_real_run_as_it_was_is_near_what_was_measured(record):
    """Within a fifth of a point of goodput, and two seconds of every cause but the steps."""
    replayed = replay(record)
    assert replayed.goodput == pytest.approx(record.goodput, abs=2e-3)
    for cause, ms in record.measured.items():
        assert replayed.causes[cause] == pytest.approx(ms, abs=2_000), cause


@pytest.mark.parametrize("record", [documents(), events(), events(of_the_job=True)])
def test_second_spare_would_have_saved_the_wait_of_a_real_run(record):
    """The second lost host found none, and waited until the first was back."""
    (waited,) = [failure.waiting_ms for failure in record.failures if failure.waiting_ms]
    before, after = replay(record), replay(record, Policy(spares=2))
    assert after.causes["waiting_for_hosts"] == 0
    assert after.useful_ms - before.useful_ms == pytest.approx(waited, rel=0.15)
