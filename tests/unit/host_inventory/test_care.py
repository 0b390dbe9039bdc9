"""How long hosts that failed stay out, and how they come back."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.unit.host_inventory.fleet import FLEET_SPEC, after, fleet_of, join, joined, place, placed

from everstep.core.decision import Accepted
from everstep.core.probes import PAIR, Depth, ProbeReport, ProbeResult, Verdict
from everstep.core.time import HOUR_MS, MINUTE_MS
from everstep.host_inventory.care import CARE, MAINTENANCE_MS_MAX, Fault, fault_of, hold_ms
from everstep.host_inventory.commands import (
    CordonHost,
    LeaveHost,
    MaintainHost,
    RecordProbes,
    ReleaseJob,
    ReturnHost,
    UncordonHost,
)
from everstep.host_inventory.events import (
    HostCordoned,
    HostProbed,
    HostReturning,
    HostUncordoned,
    MaintenanceEnded,
    MaintenancePlanned,
)
from everstep.host_inventory.state import HostState

NEW = FLEET_SPEC.given(joined(join("h1", probes=True)))
HOLD_MS = 10 * MINUTE_MS


def report(
    name: str = "", *, depth: Depth = Depth.QUICK, where: str = "", number: int = 1
) -> ProbeReport:
    """Return a report in which the probe of this name failed; "" for none."""
    results = (
        ProbeResult(name="memory", verdict=Verdict.PASSED),
        ProbeResult(name=PAIR, where=where or "h9", verdict=Verdict.PASSED),
    )
    if name:
        wrong = ProbeResult(name=name, where=where, verdict=Verdict.FAILED, detail="wrong")
        results = (*(one for one in results if one.name != name), wrong)
    return ProbeReport(
        examination_id=f"x{number}", depth=depth, at_ms=5, duration_ms=1, probes=results
    )


def record(told: ProbeReport, *, at_ms: int = 20, epoch: str = "e1") -> RecordProbes:
    """Record what h1 said."""
    return RecordProbes(host_id="h1", agent_epoch=epoch, report=told, at_ms=at_ms)


def state(given) -> HostState:
    """Return the state of h1."""
    return fleet_of(given).hosts["h1"].state


WARM = after(NEW, record(report()))
LOST = CordonHost(host_id="h1", reason="host_lost", incident_id="i1", at_ms=1_000)
OUT = after(WARM, LOST)
BACK_MS = 1_000 + HOLD_MS
REJOINED = after(OUT, join("h1", probes=True, epoch="e2", at_ms=2_000))


def test_host_that_joins_is_probed_before_it_is_a_spare():
    """It gets no work until its probes have passed, and they are recorded once."""
    assert state(NEW) is HostState.PROBING
    passed = HostProbed(host_id="h1", passed=True, report=report(), at_ms=20)
    NEW.when(record(report())).then(passed)
    assert state(WARM) is HostState.SPARE
    WARM.when(record(report())).then()
    WARM.when(record(report(number=2))).then()


def test_probing_host_is_not_placed():
    """The job waits for its probes."""
    assert NEW.when(place()).decision.events == ()
    assert placed(WARM, place()).placement.host_ids == ("h1",)


def test_host_of_an_agent_that_cannot_probe_is_a_spare_at_once():
    """Agents from before that, and streams that were stored before it."""
    assert state(FLEET_SPEC.given(joined(join("h1")))) is HostState.SPARE


def test_new_agent_on_an_idle_host_is_probed_again():
    """The machine may have been away; where a job holds it, its ranks prove more."""
    again = join("h1", probes=True, epoch="e2", at_ms=30)
    assert state(after(WARM, again)) is HostState.PROBING
    serving = after(WARM, place(), again)
    assert state(serving) is HostState.ACTIVE
    gone = after(WARM, LeaveHost(host_id="h1", at_ms=25))
    assert state(after(gone, again)) is HostState.PROBING


def test_old_seat_on_a_host_that_is_probed_is_not_taken_yet():
    """A job that begins again goes back to its seats, but for those that have to pass first."""
    over = after(WARM, place(), ReleaseJob(job_id="job", generation=1, at_ms=25))
    again = after(over, join("h1", probes=True, epoch="e2", at_ms=30))
    assert again.when(place(generation=2)).decision.events == ()
    back = after(again, record(report(number=2), epoch="e2"))
    assert placed(back, place(generation=2)).placement.host_ids == ("h1",)


def test_word_of_an_earlier_agent_counts_no_more():
    """The probes ran before the machine was started anew."""
    NEW.when(record(report(), epoch="e0")).then()


def test_failed_probe_cordons_with_what_was_wrong():
    """A spare, or a host that has just joined; not one that is out already."""
    told = report("product_float32", where="core 3")
    probed = HostProbed(host_id="h1", passed=False, report=told, at_ms=20)
    cordon = HostCordoned(
        host_id="h1",
        reason="probe failed: product_float32 on core 3: wrong",
        incident_id="",
        at_ms=20,
        fault="probe",
        relapses=1,
        held_ms=HOLD_MS,
    )
    NEW.when(record(told)).then(probed, cordon)
    WARM.when(record(replace(told, examination_id="x2"))).then(
        replace(probed, report=replace(told, examination_id="x2")), cordon
    )
    OUT.when(record(told)).then()


def test_link_that_fails_is_held_against_nobody_until_a_second_partner_agrees():
    """It may be the partner's; a host in doubt is asked again before it is a spare."""
    first = report(PAIR, where="h2")
    doubted = after(NEW, record(first))
    assert state(doubted) is HostState.PROBING
    assert fleet_of(doubted).hosts["h1"].doubts == ("h2",)
    second = doubted.when(record(report(PAIR, where="h3", number=2))).decision.events[-1]
    assert second.reason == "probe failed: pair on h3: wrong"
    cleared = after(doubted, record(report(number=3)))
    assert (state(cleared), fleet_of(cleared).hosts["h1"].doubts) == (HostState.SPARE, ())


def test_doubt_is_not_cleared_without_a_partner():
    """Nothing was found out about the link."""
    doubted = after(NEW, record(report(PAIR, where="h2")))
    alone = replace(report(number=2), probes=report().probes[:1])
    doubted.when(record(alone)).then()


@pytest.mark.parametrize("out", [CordonHost, LeaveHost])
def test_doubt_falls_with_the_partner_that_is_out_by_now(out):
    """Else the last host of a small fleet would wait for ever for somebody to be tried with."""
    fleet = FLEET_SPEC.given(joined(join("h1", probes=True)), joined(join("h2")))
    doubted = after(fleet, record(report(PAIR, where="h2")))
    alone = replace(report(number=2), probes=report().probes[:1])
    doubted.when(record(alone)).then()
    gone = {"host_id": "h2", "at_ms": 15}
    why = {"reason": "host_lost", "incident_id": "i1"} if out is CordonHost else {}
    cleared = after(doubted, out(**gone, **why), record(alone))
    assert (state(cleared), fleet_of(cleared).hosts["h1"].doubts) == (HostState.SPARE, ())


@pytest.mark.parametrize(
    ("relapses", "minutes"), [(1, 10), (2, 20), (3, 40), (8, 1_280), (9, 1_440), (32, 1_440)]
)
def test_hold_out_doubles_up_to_a_day(relapses, minutes):
    """Base times 2 to the relapses before."""
    assert hold_ms(relapses, CARE) == minutes * MINUTE_MS


def test_relapse_holds_out_longer_and_sound_days_are_forgiven():
    """One relapse a day in service; none while it is out."""
    back = after(OUT, UncordonHost(host_id="h1", at_ms=5_000, now=True))
    soon = replace(LOST, incident_id="i2", at_ms=6_000)
    again = back.when(soon).decision.events[0]
    assert (again.relapses, again.held_ms) == (2, 2 * HOLD_MS)
    late = replace(LOST, incident_id="i2", at_ms=5_000 + 24 * HOUR_MS)
    assert back.when(late).decision.events[0].relapses == 1
    twice = after(back, soon, UncordonHost(host_id="h1", at_ms=7_000, now=True))
    third = replace(LOST, incident_id="i3", at_ms=7_000 + 25 * HOUR_MS)
    assert twice.when(third).decision.events[0].relapses == 2


def test_lost_host_comes_back_by_itself_through_a_burn_in():
    """When its hold-out is over and its agent is a new one; then it has to pass the long probes."""
    returning = HostReturning(
        host_id="h1",
        depth=Depth.BURN_IN,
        why="held out for 600 s after: host_lost",
        at_ms=BACK_MS,
    )
    REJOINED.when(ReturnHost(host_id="h1", at_ms=BACK_MS)).then(returning)
    REJOINED.when(ReturnHost(host_id="h1", at_ms=BACK_MS - 1)).then()
    OUT.when(ReturnHost(host_id="h1", at_ms=BACK_MS)).then()  # the agent is the old one
    # Cut off for a while, perhaps: it is heard again, now.
    OUT.when(ReturnHost(host_id="h1", at_ms=BACK_MS, heard_ms=BACK_MS - 5_000)).then(returning)
    OUT.when(ReturnHost(host_id="h1", at_ms=BACK_MS, heard_ms=BACK_MS - 5_001)).then()
    OUT.when(ReturnHost(host_id="h1", at_ms=BACK_MS - 1, heard_ms=BACK_MS - 1)).then()
    burning = REJOINED.given(returning)
    assert state(burning) is HostState.PROBING
    burning.when(ReturnHost(host_id="h1", at_ms=BACK_MS + 1)).then()
    burning.when(record(report(number=2), epoch="e2")).then()  # quick probes are not enough
    told = report(depth=Depth.BURN_IN, number=3)
    burning.when(record(told, at_ms=BACK_MS + 9, epoch="e2")).then(
        HostProbed(host_id="h1", passed=True, report=told, at_ms=BACK_MS + 9),
        HostUncordoned(host_id="h1", at_ms=BACK_MS + 9),
    )


def test_burn_in_that_fails_holds_out_longer():
    """The next relapse, and no way back but a person's: it computes wrongly."""
    burning = after(REJOINED, ReturnHost(host_id="h1", at_ms=BACK_MS))
    told = report("memory", depth=Depth.BURN_IN, number=2)
    cordon = burning.when(record(told, at_ms=BACK_MS + 9, epoch="e2")).decision.events[-1]
    assert (cordon.fault, cordon.relapses, cordon.returns) == ("probe", 2, False)
    assert state(burning.given(cordon)) is HostState.CORDONED


@pytest.mark.parametrize(
    ("reason", "fault", "returns"),
    [
        ("host_lost", Fault.LOST, True),
        ("silent corruption", Fault.CORRUPT, False),
        ("straggler", Fault.SLOW, False),
        ("something else", Fault.UNSOUND, False),
    ],
)
def test_only_lost_hosts_come_back_by_themselves(reason, fault, returns):
    """Who may have computed wrongly waits for a person; probes cannot prove it sound."""
    cordon = WARM.when(replace(LOST, reason=reason)).decision.events[0]
    assert (cordon.fault, cordon.returns) == (fault, returns)


def test_cordon_of_a_person_is_no_fault():
    """No relapse, no hold-out, and the quick probes are enough."""
    assert fault_of("host_lost", "", "") is Fault.NONE
    out = after(WARM, CordonHost(host_id="h1", reason="fan", incident_id="", at_ms=1_000))
    back = UncordonHost(host_id="h1", at_ms=2_000)
    out.when(back).then(HostReturning(host_id="h1", depth=Depth.QUICK, why="by hand", at_ms=2_000))
    assert state(after(out, back, record(report(number=2)))) is HostState.SPARE


def test_person_ends_a_hold_out_but_not_the_burn_in_unless_told():
    """A person has looked; ``now`` spares the probes as well."""
    back = UncordonHost(host_id="h1", at_ms=2_000)
    burning = HostReturning(host_id="h1", depth=Depth.BURN_IN, why="by hand", at_ms=2_000)
    OUT.when(back).then(burning)
    OUT.given(burning).when(back).then()
    now = HostUncordoned(host_id="h1", at_ms=2_000)
    OUT.when(replace(back, now=True)).then(now)
    OUT.given(burning).when(replace(back, now=True)).then(now)
    NEW.when(replace(back, now=True)).then(now)
    WARM.when(replace(back, now=True)).then()


def test_host_that_still_serves_is_uncordoned_without_probes():
    """Ranks run there: nothing can be probed, and they prove more."""
    serving = after(WARM, place(), replace(LOST, incident_id="", reason="fan"))
    now = HostUncordoned(host_id="h1", at_ms=2_000)
    serving.when(UncordonHost(host_id="h1", at_ms=2_000)).then(now)


def test_person_who_cordons_a_returning_host_keeps_it_out():
    """And what was wrong with it is not forgotten."""
    burning = after(OUT, UncordonHost(host_id="h1", at_ms=2_000))
    hand = CordonHost(host_id="h1", reason="not yet", incident_id="", at_ms=3_000)
    cordon = burning.when(hand).decision.events[0]
    assert (cordon.reason, cordon.fault, cordon.relapses) == ("not yet", "lost", 1)
    assert state(burning.given(cordon)) is HostState.CORDONED


MAINTAIN = MaintainHost(host_id="h1", reason="firmware", until_ms=0, at_ms=1_000)
WANTED = "maintenance: firmware"


def test_maintenance_of_an_idle_host_begins_at_once():
    """Cordoned, no fault of its own; back by the quick probes."""
    cordon = HostCordoned(
        host_id="h1", reason=WANTED, incident_id="", at_ms=1_000, maintenance=True
    )
    WARM.when(MAINTAIN).then(cordon)
    out = WARM.given(cordon)
    out.when(MAINTAIN).then()
    back = out.when(UncordonHost(host_id="h1", at_ms=2_000)).decision.events[0]
    assert back.depth is Depth.QUICK


def test_maintenance_of_a_serving_host_waits_until_its_job_is_off():
    """A wish that stands until the job moves or ends, and may be taken back."""
    serving = after(WARM, place())
    planned = MaintenancePlanned(host_id="h1", reason=WANTED, until_ms=0, at_ms=1_000)
    serving.when(MAINTAIN).then(planned)
    wished = serving.given(planned)
    wished.when(MAINTAIN).then()
    assert state(wished) is HostState.ACTIVE
    wished.when(UncordonHost(host_id="h1", at_ms=2)).then(MaintenanceEnded(host_id="h1", at_ms=2))
    ended = after(wished, ReleaseJob(job_id="job", generation=1, at_ms=3_000))
    assert fleet_of(ended).hosts["h1"].cordon.maintenance
    assert state(ended) is HostState.CORDONED


def test_drained_host_is_cordoned_for_the_maintenance_and_not_for_the_drain():
    """The reason of the person, no relapse, and it comes back when they said."""
    spare = joined(join("h2"))
    wish = replace(MAINTAIN, until_ms=90_000)
    given = after(WARM.given(spare), place(), wish)
    move = replace(
        place(generation=2, reason="", incident_id=""),
        unsound_hosts=("h1",),
        unsound_reason="drained",
        at_ms=4_000,
    )
    cordon = given.when(move).decision.events[0]
    assert (cordon.reason, cordon.fault, cordon.relapses) == (WANTED, "", 0)
    assert (cordon.held_ms, cordon.returns, cordon.maintenance) == (86_000, True, True)
    out = after(given, move)
    out.when(ReturnHost(host_id="h1", at_ms=89_999)).then()
    assert out.when(ReturnHost(host_id="h1", at_ms=90_000)).decision.events[0].depth is Depth.QUICK


def test_maintenance_that_would_be_over_or_never_end_is_refused():
    """The numbers are in the refusal; of an unknown host, the way to the names that there are."""
    WARM.when(replace(MAINTAIN, until_ms=999)).then_rejected("bad_until")
    last_ms = MAINTAIN.at_ms + MAINTENANCE_MS_MAX
    assert isinstance(WARM.when(replace(MAINTAIN, until_ms=last_ms)).decision, Accepted)
    WARM.when(replace(MAINTAIN, until_ms=last_ms + 1)).then_rejected("bad_until")
    unknown = FLEET_SPEC.when(MAINTAIN)
    unknown.then_rejected("unknown_host")
    assert unknown.decision.detail == "no host 'h1' has ever joined; `everstep hosts` lists them"
