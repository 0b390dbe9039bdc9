from __future__ import annotations

from dataclasses import replace

import pytest
from tests.unit.host_inventory.fleet import FLEET_SPEC, after, fleet_of, join, joined, place

from everstep.host_inventory.commands import (
    CordonHost,
    CountErrors,
    JoinHosts,
    LeaveHost,
    UncordonHost,
)
from everstep.host_inventory.decider import HEARD_RECENTLY_MS, LATE_MS_MAX
from everstep.host_inventory.events import (
    HostCordoned,
    HostErrorsCounted,
    HostLeft,
    HostUncordoned,
)
from everstep.host_inventory.state import REPORTS_REMEMBERED_MAX, ErrorCount, HostState

CORDON = CordonHost(host_id="h1", reason="probe", incident_id="i1", at_ms=20)
CORDONED = HostCordoned(
    host_id="h1",
    reason="probe",
    incident_id="i1",
    at_ms=20,
    fault="unsound",
    relapses=1,
    held_ms=600_000,
)
ONE = FLEET_SPEC.given(joined(join("h1")))
SERVING = after(ONE, place())


def test_join_of_a_new_host_makes_a_spare():
    """A host that has joined is free for work."""
    FLEET_SPEC.when(join("h1")).then(joined(join("h1")))
    assert fleet_of(ONE).hosts["h1"].state is HostState.SPARE


def test_join_repeated_later_decides_nothing():
    """The same agent telling the same facts again is already so, at any time."""
    ONE.when(join("h1", at_ms=99)).then()


def test_rejoin_of_a_new_agent_keeps_what_the_host_is():
    """A restarted agent gets its host back as it was: cordoned, and in its job."""
    again = join("h1", epoch="e2", at_ms=30)
    given = after(SERVING, CORDON, again)
    host = fleet_of(given).hosts["h1"]
    assert (host.agent_epoch, host.state, host.job_id) == ("e2", HostState.CORDONED, "job")


@pytest.mark.parametrize(
    ("command", "why"),
    [
        (join("h.1"), "bad_host_id"),
        (join(""), "bad_host_id"),
        (join("h" * 65), "bad_host_id"),
        (join("h1", chips=0), "bad_chips"),
        (join("h1", chips=-1), "bad_chips"),
    ],
)
def test_join_with_bad_facts_is_refused(command, why):
    """Ids go into subjects and paths, and a host without chips carries nothing."""
    FLEET_SPEC.when(command).then_rejected(why)


def test_join_from_elsewhere_while_the_old_agent_was_heard_is_refused():
    """Two machines under one id: the one that works keeps it."""
    other = join("h1", address="10.0.0.9", epoch="e2", at_ms=9_000, heard_ms=8_999)
    SERVING.when(other).then_rejected("host_id_in_use")


def test_join_from_elsewhere_after_silence_is_a_move():
    """A host whose old agent has been silent for long enough has moved."""
    at_ms = 9_000 + HEARD_RECENTLY_MS + 1
    moved = join("h1", address="10.0.0.9", epoch="e2", at_ms=at_ms, heard_ms=9_000)
    SERVING.when(moved).then(joined(moved))


def test_join_from_elsewhere_of_a_free_host_is_a_move():
    """Nothing can be confused while the host serves no job."""
    moved = join("h1", address="10.0.0.9", epoch="e2", at_ms=2, heard_ms=2)
    ONE.when(moved).then(joined(moved))


def test_join_older_than_the_newest_is_refused():
    """A delayed message of the previous agent must not bring its facts back."""
    given = after(ONE, join("h1", epoch="e2", at_ms=30))
    given.when(join("h1", epoch="e1", at_ms=29)).then_rejected("stale_join")


def test_join_by_a_clock_that_was_set_back_is_a_new_one():
    """Wherever it comes from: such a host would be out for as long as its clock was wrong."""
    begun_ms = 1_000_000
    joined_ms = begun_ms + LATE_MS_MAX
    given = after(SERVING, join("h1", epoch="e2", at_ms=joined_ms))
    given.when(join("h1", epoch="e3", at_ms=begun_ms)).then_rejected("stale_join")
    for address in ("h1.net", "10.0.0.9"):
        back = join("h1", address=address, epoch="e3", at_ms=begun_ms - 1)
        given.when(back).then(joined(back))


def test_joins_that_arrive_together_are_decided_one_after_the_other():
    """Whoever is refused is left out, and refused when it asks again."""
    bad = join("h2", chips=0)
    together = JoinHosts(joins=(join("h1"), bad, join("h1", at_ms=9), join("h3")))
    FLEET_SPEC.when(together).then(joined(join("h1")), joined(join("h3")))
    given = after(FLEET_SPEC, together)
    given.when(together).then()
    given.when(bad).then_rejected("bad_chips")


def test_cordon_takes_a_host_out_once():
    """The second cordon decides nothing, whatever its reason."""
    ONE.when(CORDON).then(CORDONED)
    given = ONE.given(CORDONED)
    assert fleet_of(given).hosts["h1"].state is HostState.CORDONED
    given.when(CORDON).then()
    given.when(CordonHost(host_id="h1", reason="else", incident_id="i2", at_ms=21)).then()


def test_incident_redelivered_after_uncordon_does_not_cordon_again():
    """One incident cordons a host once: a person's uncordon stands against a late duplicate."""
    given = after(ONE.given(CORDONED), UncordonHost(host_id="h1", at_ms=30))
    given.when(CORDON).then()
    late = CordonHost(host_id="h1", reason="probe", incident_id="", at_ms=29)
    given.when(late).then()
    new = CordonHost(host_id="h1", reason="probe", incident_id="i2", at_ms=31)
    again = replace(CORDONED, incident_id="i2", at_ms=31, relapses=2, held_ms=1_200_000)
    given.when(new).then(again)


def test_uncordon_frees_the_host_once():
    """An uncordoned host is what it was before."""
    uncordon = UncordonHost(host_id="h1", at_ms=30)
    given = ONE.given(CORDONED)
    given.when(uncordon).then(HostUncordoned(host_id="h1", at_ms=30))
    given.given(HostUncordoned(host_id="h1", at_ms=30)).when(uncordon).then()
    assert fleet_of(after(given, uncordon)).hosts["h1"].state is HostState.SPARE


@pytest.mark.parametrize(
    "command",
    [
        CORDON,
        UncordonHost(host_id="h1", at_ms=1),
        CountErrors(host_id="h1", kind="ecc", count=1, at_ms=1),
    ],
)
def test_command_to_an_unknown_host_is_refused(command):
    """A typo in an id is told, not swallowed."""
    FLEET_SPEC.when(command).then_rejected("unknown_host")


def test_host_that_serves_a_job_cannot_leave():
    """Leaving is refused while ranks run there."""
    SERVING.when(LeaveHost(host_id="h1", at_ms=20)).then_rejected("host_in_use")


def test_host_that_left_is_gone_and_comes_back_cordoned():
    """Leaving and joining again is no way around a cordon."""
    leave = LeaveHost(host_id="h1", at_ms=30)
    given = ONE.given(CORDONED)
    given.when(leave).then(HostLeft(host_id="h1", at_ms=30))
    gone = after(given, leave)
    assert fleet_of(gone).hosts["h1"].state is HostState.LEFT
    gone.when(leave).then()
    back = after(gone, join("h1", epoch="e2", at_ms=40))
    assert fleet_of(back).hosts["h1"].state is HostState.CORDONED


def test_host_that_left_on_purpose_is_not_held_out_for_its_silence():
    """The monitor may miss it all the same, after a heartbeat that came late."""
    left = after(ONE, LeaveHost(host_id="h1", at_ms=15))
    lost = replace(CORDON, reason="host_lost")
    left.when(lost).then()
    back = after(left, lost, join("h1", epoch="e2", at_ms=40))
    assert fleet_of(back).hosts["h1"].state is HostState.SPARE
    (held,) = ONE.when(lost).decision.events
    assert (held.host_id, held.fault) == ("h1", "lost")


@pytest.mark.parametrize(
    "command",
    [
        replace(CORDON, reason="host_faulty"),
        replace(CORDON, reason="lost in the racks", incident_id=""),
    ],
)
def test_host_that_left_is_held_out_for_a_fault_or_by_a_person(command):
    """Its absence mends nothing."""
    left = after(ONE, LeaveHost(host_id="h1", at_ms=15))
    back = after(left, command, join("h1", epoch="e2", at_ms=40))
    assert fleet_of(back).hosts["h1"].state is HostState.CORDONED


def test_unknown_host_has_left_already():
    """Leaving before a join was ever seen is already so."""
    FLEET_SPEC.when(LeaveHost(host_id="h1", at_ms=1)).then()


def test_errors_add_up_by_kind_and_repeated_reports_count_once():
    """A report is known by its time."""
    first = CountErrors(host_id="h1", kind="ecc", count=2, at_ms=10)
    ONE.when(first).then(HostErrorsCounted(host_id="h1", kind="ecc", count=2, at_ms=10))
    given = after(ONE, first)
    given.when(first).then()
    more = (
        CountErrors(host_id="h1", kind="ecc", count=3, at_ms=11),
        CountErrors(host_id="h1", kind="a", count=1, at_ms=5),
    )
    assert fleet_of(after(given, *more)).hosts["h1"].errors == (
        ErrorCount(kind="a", count=1, reports_ms=(5,)),
        ErrorCount(kind="ecc", count=5, reports_ms=(10, 11)),
    )


def test_errors_count_of_a_host_whose_clock_was_set_back():
    """They were not heard until its clock had caught up, for an hour perhaps."""
    hour_ms = 3_600_000
    before = CountErrors(host_id="h1", kind="ecc", count=2, at_ms=10 + hour_ms)
    given = after(ONE, before)
    back = CountErrors(host_id="h1", kind="ecc", count=1, at_ms=20)
    given.when(back).then(HostErrorsCounted(host_id="h1", kind="ecc", count=1, at_ms=20))
    given = after(given, back)
    for repeated in (before, back):
        given.when(repeated).then()


def test_errors_reported_out_of_order_all_count_once():
    """A report that was late may be overtaken by others, and may come twice."""
    reports = [
        CountErrors(host_id="h1", kind="ecc", count=1, at_ms=at_ms)
        for at_ms in range(REPORTS_REMEMBERED_MAX)
    ]
    given = after(ONE, *reversed(reports))
    for repeated in reports:
        given.when(repeated).then()
    [counted] = fleet_of(given).hosts["h1"].errors
    assert counted.count == len(reports)
    one_more = CountErrors(host_id="h1", kind="ecc", count=1, at_ms=len(reports))
    [counted] = fleet_of(after(given, one_more)).hosts["h1"].errors
    assert len(counted.reports_ms) == REPORTS_REMEMBERED_MAX


def test_errors_without_a_count_are_refused():
    """No errors are no report."""
    ONE.when(CountErrors(host_id="h1", kind="ecc", count=0, at_ms=1)).then_rejected("bad_count")
