"""Campaign files: what they say will be done, and what makes no sense is refused."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from everstep.chaos.campaign import FAULTS_MAX, parse_campaign
from everstep.chaos.hand import ACTS
from everstep.chaos.kinds import KINDS, By, Whom
from everstep.core.errors import InvalidInput
from everstep.faults.kinds import as_environment, read_faults

WORLD = 8
NAN, INF = float("nan"), float("inf")
EXAMPLES = sorted((Path(__file__).parents[3] / "examples" / "campaigns").glob("*.yaml"))


def campaign(*faults, **more):
    """A campaign of these faults."""
    return parse_campaign({"version": 1, "faults": list(faults), **more}, world_size=WORLD)


def test_fault_is_what_the_file_says():
    """Whom, when, for how long, and how."""
    (fault,) = campaign(
        {"kind": "isolate_agent", "host": "h2", "after_s": 20, "for_s": 15, "peers": False}
    ).faults
    assert (fault.kind.name, fault.host, fault.after_s, fault.for_s) == (
        "isolate_agent", "h2", 20.0, 15.0,
    )  # fmt: skip
    assert (fault.at_step, fault.rank) == (-1, -1)
    assert fault.options == {"nats": True, "peers": False, "cut": False}
    assert str(fault) == "after 20 s: isolate_agent of host h2 for 15 s, peers False"


def test_defaults_are_the_kinds():
    """A length that is not said, and options."""
    (fault,) = campaign({"kind": "slow_host", "rank": 3, "at_step": 4}).faults
    assert (fault.for_s, fault.options) == (600.0, {"percent": 50.0})
    assert str(fault) == "at step 4: slow_host of the host of rank 3 for 600 s"


@given(st.integers(0, 2**31), st.integers(1, 64))
@settings(deadline=None)
def test_random_choices_follow_from_the_seed_and_stay_within_bounds(seed, world):
    """Twice the same, whatever the kinds are."""
    document = {
        "version": 1,
        "seed": seed,
        "window": [3, 9],
        "faults": [{"kind": "kill", "rank": "random", "at_step": "random"}],
        "random": {"count": 5, "kinds": sorted(KINDS)},
    }
    first = parse_campaign(document, world_size=world)
    assert first == parse_campaign(document, world_size=world)
    assert len(first.faults) == 6
    for fault in first.faults:
        assert 3 <= fault.at_step <= 9
        if fault.kind.whom is Whom.RANK:
            assert 0 <= fault.rank < world


def test_host_that_is_drawn_is_told_as_what_it_becomes():
    """Of as many as the job has, if anybody knows; the hand takes the same one."""
    plan = campaign({"kind": "partition_host", "host": "random", "at_step": 7}, seed=3)
    (fault,) = plan.on_hosts(4).faults
    number = fault.seat % 4 + 1
    assert f"partition_host of host {number} of the job's 4, in the order of their" in str(fault)
    assert "one of the job's hosts (the seed says which" in str(plan.on_hosts(0).faults[0])


def test_fault_that_is_written_out_changes_no_other_choice():
    """Every fault draws alike."""
    one = {"kind": "kill", "rank": "random", "at_step": "random"}
    other = {"kind": "kill", "rank": 2, "at_step": 7}
    assert campaign(one, one).faults[1] == campaign(other, one).faults[1]


@pytest.mark.parametrize("name", sorted(KINDS))
def test_every_kind_can_be_done(name):
    """By the rank, as a value that travels in the environment; or by the hand."""
    kind = KINDS[name]
    assert (kind.by is By.STACK) == (name in ACTS)
    if kind.by is By.RANK:
        entry = {"kind": name, "at_step": 3}
        if kind.whom is Whom.RANK:
            entry["rank"] = 1
        fault = campaign(entry).faults[0].as_fault()
        assert read_faults(as_environment(fault)) == (fault,)
        assert fault.step == 3


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_example_is_a_campaign(path):
    """As somebody finds it who has just fetched the repository."""
    assert parse_campaign(yaml.safe_load(path.read_text()), world_size=WORLD).faults


@pytest.mark.parametrize(
    ("fault", "complaint"),
    [
        ({"kind": "explode", "at_step": 1}, r"faults\[0\]: there is no kind 'explode'; there are"),
        ({"kind": "kill", "at_step": 1}, r"faults\[0\] \(kill\): say which rank"),
        ({"kind": "kill", "rank": 8, "at_step": 1}, r"rank 8 is none of the job's 8 ranks"),
        ({"kind": "kill", "rank": 1}, r"say when it strikes: at_step or after_s"),
        ({"kind": "kill", "rank": 1, "after_s": 3}, r"ranks know steps, not times"),
        ({"kind": "kill", "rank": 1, "at_step": 1, "for_s": 3}, r"it is a moment"),
        (
            {"kind": "kill", "rank": "one", "at_step": 1},
            r"\.rank: expected a whole number of.*or random, got \"one\"",
        ),
        ({"kind": "kill_host", "at_step": 1}, r"say which host"),
        ({"kind": "kill_host", "rank": 1, "host": "h1", "at_step": 1}, r"say which host"),
        ({"kind": "slow", "rank": 1, "at_step": 1, "speed": 3}, r"\(slow\)\.speed: unknown field"),
        (
            {"kind": "slow", "rank": 1, "at_step": 1, "percent": "x"},
            r"\.percent: expected a number",
        ),
        ({"kind": "slow", "rank": 1, "at_step": 1, "percent": True}, r"number above 0.*, got true"),
        ({"kind": "stop_service", "service": "x", "at_step": 1}, r"service 'x' is none of nats, "),
        (
            {"kind": "stop_host", "host": "h1", "at_step": 1, "for_s": -1},
            r"for_s: .* above 0 .*got -1",
        ),
        ({"at_step": 1}, r"faults\[0\]\.kind: expected the name of a kind .*, got nothing"),
        ({"kind": "kill_host", "host": 3, "at_step": 1}, r"host: expected a host's name.*, got 3"),
        ({"kind": "kill", "rank": 1, "at_step": "soon"}, r"at_step: .*or random, got \"soon\""),
        ({"kind": "kill", "rank": 1, "atstep": 3}, r"atstep: unknown field; did you mean at_step"),
        ("kill", r"faults\[0\]: expected a mapping with kind, .*got \"kill\""),
        ({"kind": "slow", "rank": 1, "at_step": 1, "percent": -50}, r"above 0 and at.*, got -50"),
        ({"kind": "s3_errors", "rank": 1, "at_step": 1, "share": 5}, r"share: .*at most 1, got 5"),
        ({"kind": "stop_service", "service": "s3", "after_s": 1, "for_s": NAN}, r"got \.nan"),
        ({"kind": "stop_service", "service": "s3", "after_s": INF}, r"after_s: .*, got \.inf"),
        ({"kind": "flip_parameter", "rank": 1, "at_step": 1, "bit": 77}, r"bit: .* to 63, got 77"),
        ({"kind": "loss_spike", "at_step": 1, "factor": -INF}, r"factor: .*got -\.inf"),
        ({"kind": "loss_spike", "at_step": 1, "rank": 2}, r"rank has no meaning.* meets all ranks"),
        ({"kind": "kill", "rank": 1, "host": "h1", "at_step": 1}, r"host has no meaning .* a rank"),
        (
            {"kind": "isolate_agent", "host": "h1", "at_step": 1, "nats": False, "peers": False},
            r"\(isolate_agent\): nothing is cut: let nats or peers be true$",
        ),
    ],
)
def test_fault_that_makes_no_sense_is_refused_by_its_place(fault, complaint):
    """The message says what would do."""
    with pytest.raises(InvalidInput, match=complaint):
        campaign(fault)


@pytest.mark.parametrize(
    ("document", "complaint"),
    [
        (None, "the campaign: expected a mapping with version"),
        ({"faults": []}, "version: expected a whole number, got nothing"),
        ({"version": 2, "faults": []}, "version: expected 1, got 2"),
        ({"version": 1}, "has no faults"),
        ({"version": 1, "fault": []}, "fault: unknown field; did you mean faults?"),
        (
            {"version": 1, "window": [9, 3], "random": {"count": 1, "kinds": ["kill"]}},
            r"such as .*, got \[9, 3\]",
        ),
        ({"version": 1, "random": {"count": 0, "kinds": ["kill"]}}, "at least 1"),
        ({"version": 1, "random": {"count": 1, "kinds": ["boom"]}}, "no kind 'boom'"),
        ({"version": 1, "random": {"count": FAULTS_MAX + 1, "kinds": ["kill"]}}, "more than"),
    ],
)
def test_campaign_that_makes_no_sense_is_refused(document, complaint):
    """Before anything is done."""
    with pytest.raises(InvalidInput, match=complaint):
        parse_campaign(document, world_size=WORLD)
