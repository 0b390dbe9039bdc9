"""What is said of a campaign, and when all of it is right."""

from __future__ import annotations

from pathlib import Path

import pytest

from everstep.chaos.campaign import parse_campaign
from everstep.chaos.kinds import Equal
from everstep.chaos.outcome import (
    States,
    make_report,
    report_lines,
    skipped_of,
    wanted_equal,
)
from everstep.chaos.perform import without
from everstep.chaos.run import require_outside, with_faults
from everstep.chaos.truth import Done, match
from everstep.core.errors import InvalidInput
from everstep.faults.kinds import MARKS_VARIABLE, at, read_faults

CAMPAIGN = parse_campaign(
    {"version": 1, "name": "one", "faults": [{"kind": "kill_rank", "rank": 3, "at_step": 8}]},
    world_size=8,
)
INCIDENT = {
    "incident_id": "i-1",
    "kind": "rank_killed",
    "ranks": [3],
    "hosts": ["h2"],
    "action": "RESTART",
    "reason": "rank 3 on h2 ended by signal 9",
    "step": 8,
    "lost_steps": 1,
    "detected_at_ms": 1_000_150,
    "recovered_at_ms": 1_003_000,
}
EARLY = {**INCIDENT, "incident_id": "i-0", "detected_at_ms": 900_000}
LEDGER = {"wall_ms": 100, "causes": {"useful": 90, "restart": 10}}
EQUAL = States(equal=True, against="job-r", tensors_compared=7)


def report(*, incidents=(INCIDENT,), struck=True, states=EQUAL, **changes):
    """The report of a rank that was killed."""
    (planned,) = CAMPAIGN.faults
    done = Done(
        number=0,
        kind="kill_rank",
        right=planned.kind.right,
        at_ms=1_000_000,
        rank=3,
        hosts=("h2",),
    )
    told = {
        "job": {"job_id": "job-1", "phase": "succeeded"},
        "missed": {} if struck else {0: "the job ended before"},
        "problems": (),
        "ledger": LEDGER,
        **changes,
    }
    matching = match([done] if struck else [], incidents)
    return make_report(campaign=CAMPAIGN, matching=matching, states=states, **told)


def test_row_holds_what_was_done_against_what_was_said():
    """Times count from the moment of the fault."""
    (row,) = report()["faults"]
    assert row["planned"] == "at step 8: kill_rank of rank 3"
    assert (row["injected_at_ms"], row["to"]) == (1_000_000, {"rank": 3, "hosts": ["h2"]})
    assert (row["detected_ms"], row["recovered_ms"], row["lost_steps"]) == (150, 3_000, 1)
    assert (row["right"], row["state_equal"]) == (True, True)
    assert row["incident"]["reason"] == INCIDENT["reason"]
    (line, state, verdict) = report_lines(report())
    assert line == (
        "right  at step 8: kill_rank of rank 3: rank_killed, RESTART, ranks 3 on h2, found after "
        "150 ms, put right after 3.0 s, 1 steps lost"
    )
    assert state == "end state: equal, bit for bit, to that of job-r (7 tensors)"
    assert verdict == "1 of 1 faults answered rightly: all is right"


def test_all_is_right():
    """Compared or not."""
    assert report()["ok"]
    assert report(states=States())["ok"]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"incidents": ()}, "no incident; expected rank_killed"),
        ({"struck": False, "incidents": ()}, "did not strike: the job ended before"),
        ({"incidents": (EARLY, INCIDENT)}, "false alarm: rank_killed of hosts h2"),
        ({"states": States(equal=False, against="job-r")}, "NOT equal to that of job-r"),
        ({"ledger": {"wall_ms": 101, "causes": {"useful": 100}}}, "100 ms of 101 ms"),
        ({"problems": ("an incident is still open",)}, "an incident is still open"),
        ({"job": {"job_id": "job-1", "phase": "failed"}}, "not all is right"),
    ],
)
def test_whatever_is_wrong_makes_all_of_it_wrong_and_is_said(changes, said):
    """Nobody should have to look for it."""
    found = report(**changes)
    assert not found["ok"]
    assert any(said in line for line in report_lines(found))
    assert report_lines(found)[-1].endswith("not all is right")


def test_run_is_compared_with_what_it_can_be_equal_to():
    """One that skipped batches with a run that never saw them; what has no like, with nothing."""
    kinds = {
        ("kill",): Equal.UNDISTURBED,
        ("kill", "poisoned_batch"): Equal.SKIPPED,
        ("poisoned_batch", "nan_gradient"): Equal.NOTHING,
    }
    for names, wanted in kinds.items():
        faults = [{"kind": name, "rank": 1, "at_step": 3} for name in names]
        assert (
            wanted_equal(parse_campaign({"version": 1, "faults": faults}, world_size=2)) == wanted
        )


def test_batches_that_were_left_out_are_gathered_for_the_run_to_compare_with():
    """Behind those that the spec leaves out itself."""
    incidents = [{"skipped": [[14, 18]]}, {"skipped": None}, {"skipped": [[3, 4]]}]
    assert skipped_of(incidents) == [[3, 4], [14, 18]]
    spec = {"name": "x", "data": {"path": "p", "skipped": [[1, 2]]}}
    assert without(spec, [[3, 4]])["data"] == {"path": "p", "skipped": [[1, 2], [3, 4]]}


def test_ranks_are_told_of_their_part_at_the_launch():
    """And of nothing when the stack does all."""
    spec = {"name": "x", "env": {"A": "1"}}
    assert with_faults(spec, CAMPAIGN, Path("/m")) == spec
    document = {"version": 1, "faults": [{"kind": "nan_gradient", "rank": 1, "at_step": 3}]}
    told = with_faults(spec, parse_campaign(document, world_size=2), Path("/m"))["env"]
    assert read_faults(told) == (at(rank=1, step=3).nan_gradient(),)
    assert (told["A"], told[MARKS_VARIABLE]) == ("1", "/m")


def test_job_that_runs_cannot_be_told_anything():
    """Only what is done from outside meets it."""
    require_outside(CAMPAIGN)
    document = {"version": 1, "faults": [{"kind": "nan_gradient", "rank": 1, "at_step": 3}]}
    with pytest.raises(InvalidInput, match=r"nan_gradient.*--spec instead of --job"):
        require_outside(parse_campaign(document, world_size=2))
