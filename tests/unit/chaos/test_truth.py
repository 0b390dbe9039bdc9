"""Which incident belongs to which fault, and what counts as right."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from everstep.chaos.kinds import KINDS
from everstep.chaos.truth import EARLY_MS_MAX, Done, match

AT = 1_000_000


def done(kind, *, number=0, at_ms=AT, rank=-1, hosts=(), **details):
    """A fault that struck."""
    right = KINDS[kind].right
    return Done(
        number=number, kind=kind, right=right, at_ms=at_ms, rank=rank, hosts=hosts, details=details
    )


def incident(kind, *, at_ms=AT + 100, ranks=(), hosts=(), name="i", action="RESTART"):
    """What the monitor tells."""
    return {
        "incident_id": f"{name}-{at_ms}",
        "kind": kind,
        "ranks": list(ranks),
        "hosts": list(hosts),
        "detected_at_ms": at_ms,
        "action": action,
    }


KILL = done("kill_rank", rank=3, hosts=("h2",))
KILLED = incident("rank_killed", ranks=[3], hosts=["h2"])
LOSE = done("kill_host", number=1, at_ms=AT + 10_000, hosts=("h1",))
LOST = incident("host_lost", at_ms=AT + 10_100, ranks=[0, 1], hosts=["h1"])


def test_right_answer_is_right():
    """Kind, rank and host."""
    (found,) = match([KILL], [KILLED]).faults
    assert (found.incident, found.right, found.why, found.echoes) == (KILLED, True, "", ())


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (incident("host_lost", ranks=[3], hosts=["h2"]), "host_lost instead of rank_killed"),
        (
            incident("rank_killed", ranks=[3, 4], hosts=["h2"]),
            "ranks [3, 4] are named",
        ),
        (incident("rank_killed", ranks=[], hosts=["h2"]), "ranks [] are named instead of 3"),
        (incident("rank_killed", ranks=[3], hosts=["h1"]), "hosts ['h1'] are named instead of h2"),
    ],
)
def test_wrong_answer_is_wrong_and_why_is_said(answer, why):
    """It still belongs to the fault: nothing else explains it."""
    matching = match([KILL], [answer])
    (found,) = matching.faults
    assert (found.incident, found.right) == (answer, False)
    assert found.why.startswith(why)
    assert matching.false_alarms == ()


def test_fault_without_an_answer_is_wrong():
    """Not found is not right."""
    (found,) = match([KILL], []).faults
    assert (found.right, found.why) == (False, "no incident; expected rank_killed")


def test_host_that_is_lost_may_take_any_ranks_along():
    """The host is what must be named."""
    assert match([LOSE], [LOST]).faults[0].right
    both = incident("host_lost", at_ms=AT + 10_100, hosts=["h1", "h2"])
    assert match([LOSE], [both]).faults[0].why.startswith("hosts ['h1', 'h2'] are named")


def test_tie_names_the_culprit_among_others_and_then_alone():
    """Two that differ do not tell who of them was wrong; the step that is made again does."""
    flip = done("flip_gradient_once", rank=3, hosts=("h2",))
    tie = {"ranks": [1, 3], "hosts": ["h1", "h2"]}
    first = incident("silent_corruption", **tie)
    later = {"at_ms": AT + 9_000, "ranks": [3], "hosts": ["h2"], "action": "DRAIN"}
    assert match([flip], [first, incident("silent_corruption", **later)]).faults[0].right
    assert match([flip], [first]).faults[0].why == "nothing told later who of those it was"
    wrong = incident("silent_corruption", **{**later, "hosts": ["h1"]})
    assert "hosts ['h1'] were taken out too" in match([flip], [first, wrong]).faults[0].why
    without = incident("silent_corruption", ranks=[1, 2], hosts=["h1", "h2"])
    assert match([flip], [without]).faults[0].why.endswith("and 3 is not among them")
    taken = incident("silent_corruption", **tie, action="REPLACE")
    assert match([flip], [taken]).faults[0].why.startswith("REPLACE, although nothing tells")


def test_job_that_is_to_blame_names_no_host():
    """A spike is nobody's."""
    spike = done("loss_spike")
    assert match([spike], [incident("loss_spike")]).faults[0].right
    assert not match([spike], [incident("loss_spike", hosts=["h1"])]).faults[0].right


def test_fault_that_must_come_to_nothing_is_right_without_an_incident():
    """And wrong with one."""
    agent = done("kill_agent", hosts=("h1",))
    assert match([agent], []).faults[0].right
    found = match([agent], [LOST]).faults[0]
    assert (found.right, found.why) == (False, "nothing should happen, but host_lost was found")


@given(st.permutations([KILL, LOSE]), st.permutations([KILLED, LOST]))
@settings(deadline=None)
def test_each_incident_goes_to_the_fault_that_it_answers(faults, incidents):
    """In whatever order they are told."""
    found = match(faults, incidents)
    assert [one.incident for one in found.faults] == [KILLED, LOST]
    assert all(one.right for one in found.faults)


def test_incident_between_two_faults_belongs_to_the_first_even_if_late():
    """The second fault comes before the first is found; each has its own."""
    late = incident("rank_killed", at_ms=AT + 10_050, ranks=[3], hosts=["h2"])
    found = match([KILL, LOSE], [late, LOST])
    assert [one.incident for one in found.faults] == [late, LOST]


def test_second_incident_of_a_fault_is_its_echo():
    """It is told, and not held against it; whoever reads decides."""
    again = incident("rank_killed", at_ms=AT + 5_000, ranks=[3], hosts=["h2"])
    (found,) = match([KILL], [KILLED, again]).faults
    assert (found.incident, found.echoes, found.right) == (KILLED, (again,), True)


def test_echo_that_takes_an_innocent_host_out_is_wrong():
    """However right the first answer was; what was met may be taken out."""
    for host, right in (("h2", True), ("h4", False)):
        echo = incident("host_lost", at_ms=AT + 5_000, hosts=[host], action="REPLACE")
        (found,) = match([KILL], [KILLED, echo]).faults
        assert found.right is right
        assert ("hosts ['h4'] were taken out too" in found.why) is not right


def test_incident_before_any_fault_is_a_false_alarm():
    """But for the moment that clocks and notes may be apart."""
    early = incident("host_lost", at_ms=AT - EARLY_MS_MAX - 1, hosts=["h1"])
    matching = match([KILL], [early, KILLED])
    assert matching.false_alarms == (early,)
    assert matching.faults[0].right
    just = incident("rank_killed", at_ms=AT - EARLY_MS_MAX, ranks=[3], hosts=["h2"])
    assert match([KILL], [just]).faults[0].incident == just


def test_incidents_without_any_fault_are_false_alarms():
    """The undisturbed run."""
    assert match([], [LOST]).false_alarms == (LOST,)


def test_damaged_snapshot_must_have_been_refused():
    """By whoever reads it first, the owner."""
    damage = done("damage_snapshot", rank=3, hosts=("h2",))
    refused = {"rank": 3, "kind": "own_memory", "uri": ""}
    assert match([damage], [KILLED], [refused]).faults[0].right
    for other in ({**refused, "rank": 2}, {**refused, "kind": "peer_memory"}):
        found = match([damage], [KILLED], [other]).faults[0]
        assert (found.right, found.why) == (False, "the damaged copy was not refused")


def test_damaged_object_must_have_been_refused_itself():
    """Another object's refusal is another matter."""
    damage = done("damage_object", rank=3, hosts=("h1", "h2"), uri="a/b")
    lost = incident("host_lost", hosts=["h2", "h1"])
    refused = {"rank": 3, "kind": "object_store", "uri": "a/b"}
    assert match([damage], [lost], [refused]).faults[0].right
    assert not match([damage], [lost], [{**refused, "uri": "a/c"}]).faults[0].right


STRAGGLER = incident("straggler", at_ms=AT + 50, ranks=[6], hosts=["h4"], action="DRAIN")


def test_straggler_among_hosts_that_nothing_was_done_to_is_a_false_alarm():
    """Before the fault is answered or behind that: the fault is right, the run is not."""
    later = {**STRAGGLER, "detected_at_ms": AT + 30_000}
    matching = match([KILL], [STRAGGLER, KILLED, later])
    (found,) = matching.faults
    assert (found.incident, found.right, found.echoes) == (KILLED, True, ())
    assert matching.false_alarms == (STRAGGLER, later)


def test_straggler_on_the_host_that_was_met_is_an_echo():
    """Whoever reads decides; the same where a fault meets all hosts."""
    same = {**STRAGGLER, "hosts": ["h2"], "detected_at_ms": AT + 30_000}
    matching = match([KILL], [KILLED, same])
    assert (matching.faults[0].echoes, matching.false_alarms) == ((same,), ())
    frozen = done("freeze_service")
    (found,) = match([frozen], [STRAGGLER]).faults
    assert (found.why, found.echoes) == (
        "nothing should happen, but straggler was found", (STRAGGLER,),
    )  # fmt: skip


def test_straggler_of_the_wrong_host_is_the_wrong_answer_to_a_slow_one():
    """That was to be found, and this is what was found."""
    slow = done("slow", rank=3, hosts=("h2",))
    matching = match([slow], [STRAGGLER])
    assert matching.false_alarms == ()
    assert matching.faults[0].why.startswith("ranks [6] are named instead of 3")


def test_host_that_is_accused_when_all_was_put_right_is_a_false_alarm():
    """Within the recovery it is an echo, which the fault answers for."""
    healed = {**KILLED, "recovered_at_ms": AT + 4_000}
    other = incident("host_lost", at_ms=AT + 5_000, hosts=["h4"], action="REPLACE")
    matching = match([KILL], [healed, other])
    assert (matching.faults[0].right, matching.false_alarms) == (True, (other,))
    during = {**other, "detected_at_ms": AT + 3_000}
    matching = match([KILL], [healed, during])
    assert "hosts ['h4'] were taken out too" in matching.faults[0].why
    assert matching.false_alarms == ()


def test_echo_belongs_to_the_fault_of_its_host():
    """Not to another one that struck since."""
    again = incident("rank_killed", at_ms=AT + 12_000, ranks=[3], hosts=["h2"])
    found = match([KILL, LOSE], [KILLED, LOST, again]).faults
    assert [one.echoes for one in found] == [(again,), ()]
