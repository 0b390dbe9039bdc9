from __future__ import annotations

import pytest
from tests.spec import Spec
from tests.unit.host_inventory.fleet import (
    FLEET_SPEC,
    after,
    fleet_of,
    hosts,
    join,
    joined,
    place,
    placed,
    ranks_of,
    replicas_of,
)

from everstep.core.placement import Layout
from everstep.host_inventory.codec import place_job_reply
from everstep.host_inventory.commands import CordonHost, LeaveHost, ReleaseJob
from everstep.host_inventory.events import HostJoined, JobReleased
from everstep.host_inventory.seats import pipelines_across_pods
from everstep.host_inventory.state import HostState
from everstep.service.handler import Handled

DEMO = Layout(pp=2, dp_shard=2, tp=2)
TWO_PODS = FLEET_SPEC.given(*hosts({"a": ["a1", "a2", "a3"], "b": ["b1", "b2"]}))


def reply_to(given: Spec, command):
    """Answer as the shell does."""
    decision = given.when(command).decision
    rejected = decision if hasattr(decision, "why") else None
    events = () if rejected else decision.events
    state = given.given(*events).state
    return place_job_reply(
        command, Handled(state=state, version=1, events=events, rejected=rejected)
    )


def test_launch_keeps_each_pipeline_in_a_pod_and_spreads_them():
    """Ranks 0-1 and 4-5 are pipeline 0, 2-3 and 6-7 pipeline 1; the roomier pod keeps a spare."""
    event = placed(TWO_PODS, place(layout=DEMO))
    assert ranks_of(event.placement) == {
        "a1": (0, 1),
        "b1": (2, 3),
        "a2": (4, 5),
        "b2": (6, 7),
    }
    assert event.replacements == ()
    assert event.placement.hosts[1].address == "b1.net"
    assert event.placement.hosts[1].peer_port == 7000


def test_launch_puts_copies_into_another_pod_stage_and_pipeline():
    """With two pods and two stages every wish can be met."""
    assert replicas_of(placed(TWO_PODS, place(layout=DEMO)).placement) == {
        "a1": "b2",
        "b2": "a1",
        "a2": "b1",
        "b1": "a2",
    }


def test_launch_does_not_depend_on_the_order_of_joins():
    """The same hosts get the same ranks."""
    backwards = FLEET_SPEC.given(*reversed(TWO_PODS.events))
    command = place(layout=DEMO)
    assert backwards.when(command).decision == TWO_PODS.when(command).decision


def test_host_with_more_chips_takes_several_cells():
    """Eight chips and tensor parallel 2: four data-parallel neighbours on one host."""
    given = FLEET_SPEC.given(*hosts({"a": ["a1", "a2"]}, chips=8))
    event = placed(given, place(layout=Layout(pp=2, dp_shard=4, tp=2)))
    assert ranks_of(event.placement) == {"a1": tuple(range(8)), "a2": tuple(range(8, 16))}


def test_chips_that_tensor_parallel_does_not_divide_stay_idle():
    """A group never leaves its host: five chips hold two groups of two."""
    given = FLEET_SPEC.given(*hosts({"a": ["a1", "a2"]}, chips=5))
    event = placed(given, place(layout=Layout(dp_shard=3, tp=2)))
    assert ranks_of(event.placement) == {"a1": (0, 1, 2, 3), "a2": (4, 5)}


def test_the_rest_goes_to_the_smallest_host_that_holds_it():
    """One group of two does not take the host with eight chips."""
    given = FLEET_SPEC.given(joined(join("big", chips=8)), joined(join("small", chips=2)))
    assert ranks_of(placed(given, place()).placement) == {"small": (0, 1)}


def test_shard_groups_stay_in_a_pod_when_state_is_replicated():
    """Three pods and two replicas of a shard group of two: no shard group crosses pods."""
    given = FLEET_SPEC.given(*hosts({"a": ["a1", "a2"], "b": ["b1", "b2"], "c": ["c1", "c2"]}))
    event = placed(given, place(layout=Layout(dp_replicate=2, dp_shard=2, tp=2)))
    assert ranks_of(event.placement) == {"a1": (0, 1), "a2": (2, 3), "b1": (4, 5), "b2": (6, 7)}


def test_pipeline_that_no_pod_holds_spans_pods_and_says_so():
    """Three pods of one host carry a pipeline of two stages rather than refuse it."""
    given = FLEET_SPEC.given(*hosts({"a": ["a1"], "b": ["b1"], "c": ["c1"]}))
    command = place(layout=Layout(pp=2, tp=2))
    event = placed(given, command)
    assert pipelines_across_pods(event.placement, fleet_of(given).hosts) == 1
    assert "1 of 1 pipelines span pods" in reply_to(given, command).outcome.detail


def test_place_repeated_decides_nothing_and_answers_the_same():
    """Asking again for a generation gives what was given."""
    command = place(layout=DEMO)
    given = after(TWO_PODS, command)
    given.when(command).then()
    assert reply_to(given, command) == reply_to(TWO_PODS, command)


def test_place_of_an_older_generation_is_refused():
    """A late message of a dead generation gets no hosts."""
    given = after(TWO_PODS, place(generation=2))
    given.when(place(generation=1)).then_rejected("stale_generation")


@pytest.mark.parametrize(
    ("command", "why"),
    [
        (place(job_id="a b"), "bad_job_id"),
        (place(generation=0), "bad_generation"),
        (place(layout=Layout(pp=0)), "bad_layout"),
        (place(lost=["nobody"]), "unknown_host"),
    ],
)
def test_place_with_bad_input_is_refused(command, why):
    """Every mistake has its code."""
    TWO_PODS.when(command).then_rejected(why)


def test_layout_that_needs_more_chips_than_exist_is_refused_with_numbers():
    """Five hosts of two chips never carry twelve ranks, free or not."""
    command = place(layout=Layout(pp=2, dp_shard=3, tp=2))
    TWO_PODS.when(command).then_rejected("does_not_fit")
    detail = reply_to(TWO_PODS, command).outcome.detail
    assert "12 chips" in detail
    assert "have 10" in detail


def test_tensor_parallel_wider_than_every_host_is_refused_with_numbers():
    """A group of four needs a host with four chips."""
    command = place(layout=Layout(tp=4))
    TWO_PODS.when(command).then_rejected("does_not_fit")
    assert "largest of 5 hosts has 2" in reply_to(TWO_PODS, command).outcome.detail


def test_launch_on_a_fleet_without_hosts_is_refused():
    """Nothing to wait for: the answer says what to do."""
    FLEET_SPEC.when(place()).then_rejected("does_not_fit")


def test_job_that_has_fitted_before_waits_for_hosts_that_have_left():
    """Seed 91331: begun again while some were away, it failed as one that can never fit."""
    command = place(layout=DEMO)
    over = after(TWO_PODS, command, ReleaseJob(job_id="job", at_ms=5))
    for host_id in ("a1", "a2", "b1"):
        over = after(over, LeaveHost(host_id=host_id, at_ms=6))
    again = place(layout=DEMO, generation=3)
    reply = reply_to(over, again)
    assert (reply.outcome.accepted, reply.hosts_short) == (True, 2)
    over.when(place("another", layout=DEMO)).then_rejected("does_not_fit")


def test_second_job_on_a_busy_fleet_waits_and_is_told_how_many_are_missing():
    """Hosts that are only busy or cordoned may come free: accepted, without a placement."""
    given = after(
        TWO_PODS,
        place(layout=DEMO),
        CordonHost(host_id="a3", reason="probe", incident_id="", at_ms=20),
    )
    second = place(job_id="second", layout=Layout(dp_shard=2, tp=2))
    given.when(second).then()
    reply = reply_to(given, second)
    assert reply.outcome.accepted
    assert not reply.HasField("placement")
    assert reply.hosts_short == 2
    assert "4 chips are needed" in reply.outcome.detail


def test_release_frees_the_hosts_and_ends_the_generation():
    """After the release a late placement of the same generation is refused, a later one is not."""
    release = ReleaseJob(job_id="job", generation=1, at_ms=50)
    given = after(TWO_PODS, place(layout=DEMO))
    given.when(release).then(JobReleased(job_id="job", generation=1, at_ms=50))
    free = after(given, release)
    assert {h.state for h in fleet_of(free).hosts.values()} == {HostState.SPARE}
    free.when(release).then()
    free.when(place(layout=DEMO)).then_rejected("stale_generation")
    placed(free, place(generation=2, layout=DEMO))


def test_release_of_an_older_generation_leaves_the_newer_one_alone():
    """The end of an earlier life, told late, must not take a later life's hosts."""
    given = after(TWO_PODS, place(generation=2))
    given.when(ReleaseJob(job_id="job", generation=1, at_ms=50)).then()


def test_release_without_a_generation_frees_whatever_is_held():
    """Zero stands for any generation."""
    given = after(TWO_PODS, place(generation=2))
    released = JobReleased(job_id="job", generation=2, at_ms=50)
    given.when(ReleaseJob(job_id="job", at_ms=50)).then(released)


def test_release_before_any_placement_fences_the_generation():
    """A job that ended while it waited for hosts does not get them from a delayed request."""
    given = after(TWO_PODS, ReleaseJob(job_id="job", generation=3, at_ms=50))
    given.when(place(generation=3)).then_rejected("stale_generation")


def test_job_that_comes_back_gets_its_old_hosts_if_they_are_free():
    """A paused or restarted job finds its own memory where it left it."""
    given = after(TWO_PODS, place(layout=DEMO))
    before = placed(TWO_PODS, place(layout=DEMO)).placement
    free = after(given, ReleaseJob(job_id="job", at_ms=50))
    more = free.given(*hosts({"a": ["a0"]}))
    assert placed(more, place(generation=2, layout=DEMO)).placement == before


def test_job_that_comes_back_with_another_layout_is_placed_afresh():
    """The old seats do not bind a released job."""
    free = after(TWO_PODS, place(layout=DEMO), ReleaseJob(job_id="job", at_ms=50))
    event = placed(free, place(generation=2, layout=Layout(dp_shard=5, tp=2)))
    assert sorted(event.placement.host_ids) == ["a1", "a2", "a3", "b1", "b2"]


def test_running_job_has_one_layout_a_generation():
    """Another one needs a newer generation; what is asked again is answered as before."""
    given = after(TWO_PODS, place(layout=DEMO))
    given.when(place()).then()
    assert placed(given, place(generation=2)).placement.layout == place().layout


def test_2048_hosts_are_placed_with_every_wish_met():
    """The mission's layout: 16 stages x 128 groups x 8 chips on 64 pods of 32 hosts."""
    joins: list[HostJoined] = [
        joined(join(f"h{i:04d}", pod=f"p{i // 32:02d}", chips=8)) for i in range(2048)
    ]
    given = FLEET_SPEC.given(*joins)
    placement = placed(given, place(layout=Layout(pp=16, dp_shard=128, tp=8))).placement
    known = fleet_of(given).hosts
    assert pipelines_across_pods(placement, known) == 0
    assert sorted(rank for host in placement.hosts for rank in host.ranks) == list(range(16_384))
    seats = {host.host_id: host for host in placement.hosts}
    for host in placement.hosts:
        peer = seats[host.replica_host_id]
        assert peer.replica_host_id == host.host_id
        assert known[peer.host_id].pod != known[host.host_id].pod
        assert host.ranks[0] // 8 % 128 != peer.ranks[0] // 8 % 128
        assert host.ranks[0] // 8 // 128 != peer.ranks[0] // 8 // 128


def test_no_host_is_taken_without_a_rank():
    """Where one large host holds all, a small one that sorts later is left alone."""
    given = FLEET_SPEC.given(joined(join("a", chips=4)), joined(join("b", chips=1)))
    assert ranks_of(placed(given, place(layout=Layout(dp_shard=2))).placement) == {"a": (0, 1)}
