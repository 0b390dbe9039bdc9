"""A job that takes less when hosts are short, and asks whether there is room for more."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.host_inventory.fleet import (
    FLEET_SPEC,
    after,
    fleet_of,
    hosts,
    place,
    placed,
    ranks_of,
)
from tests.unit.host_inventory.test_placing import reply_to

from everstep.core.placement import Layout
from everstep.core.resharding import sources_needed
from everstep.host_inventory.commands import CordonHost, PlaceJob
from everstep.host_inventory.events import HostCordoned
from everstep.host_inventory.policy import placeable
from everstep.host_inventory.settling import settle

FULL, HALF = Layout(pp=2, dp_shard=2, tp=2), Layout(pp=2, tp=2)
FOUR = FLEET_SPEC.given(*hosts({"a": ["a1", "a2"], "b": ["b1", "b2"]}))
RUNNING = after(FOUR, place(layout=FULL))


def less(generation: int = 2, lost: tuple[str, ...] = ("a1",), **changes: object) -> PlaceJob:
    """Ask for all, or for half of it."""
    command = place(generation=generation, layout=FULL, lost=lost)
    return replace(command, smaller=(HALF,), **changes)


def test_job_gets_less_when_hosts_are_short():
    """On hosts of its own, a pipeline in one pod; who is left over is free; the answer says so."""
    command = less()
    placement = placed(RUNNING, command).placement
    assert placement.layout == HALF
    assert ranks_of(placement) == {"b1": (0, 1), "b2": (2, 3)}
    then = after(RUNNING, command)
    assert fleet_of(then).hosts["a2"].job_id == ""
    reply = reply_to(RUNNING, command)
    assert "4 of 8 ranks" in reply.outcome.detail
    assert reply.placement.layout.dp_shard == 1


def test_job_gets_all_when_there_is_a_spare():
    """Less is only for want of hosts."""
    given = RUNNING.given(*hosts({"a": ["a3"]}))
    assert placed(given, less()).placement.layout == FULL


def test_too_few_hosts_for_the_smallest_layout_are_told():
    """What is missing is missing for that one."""
    command = less(lost=("a1", "a2", "b1"))
    assert all(isinstance(one, HostCordoned) for one in RUNNING.when(command).decision.events)
    assert reply_to(RUNNING, command).hosts_short == 1


def test_job_stays_on_unsound_hosts_rather_than_shrink():
    """A host that works badly is better than none."""
    command = less(lost=(), unsound_hosts=("a1",))
    placement = placed(RUNNING, command).placement
    assert (placement.layout, "a1" in placement.host_ids) == (FULL, True)


def test_smaller_job_keeps_its_seats_until_there_is_room():
    """A restart in place moves nobody; with one more host it is whole again."""
    small = after(RUNNING, less())
    again = placed(small, less(3, ()))
    assert ranks_of(again.placement) == {"b1": (0, 1), "b2": (2, 3)}
    more = small.given(*hosts({"a": ["a3"]}))
    grown = placed(more, less(3, ()))
    assert grown.placement.layout == FULL
    assert set(grown.placement.host_ids) == {"a2", "a3", "b1", "b2"}


def test_newer_generation_may_have_any_layout():
    """Also without the one that the job has now: it did not fit, and the job waits."""
    small = after(RUNNING, less())
    small.when(place(generation=3, layout=FULL)).then()
    assert reply_to(small, place(generation=3, layout=FULL)).hosts_short == 1
    more = small.given(*hosts({"a": ["a3"]}))
    assert placed(more, place(generation=3, layout=FULL)).placement.layout == FULL


def test_job_that_is_to_grow_takes_no_hosts_of_another():
    """Nor those of its own that are cordoned: what is free and its own is all there is."""
    small = after(RUNNING, less())  # on b1 and b2; a1 is cordoned and a2 free
    busy = after(small, place("other", layout=Layout(tp=2)))
    assert fleet_of(busy).hosts["a2"].job_id == "other"
    assert reply_to(busy, place(generation=3, layout=FULL)).hosts_short == 2
    assert placeable("job", [FULL, HALF], fleet_of(busy)) == HALF


def test_question_for_room_names_the_first_layout_that_fits():
    """And reserves nothing."""
    small = after(RUNNING, less())
    assert placeable("job", (FULL,), fleet_of(small)) is None
    assert placeable("job", (FULL, HALF), fleet_of(small)) == HALF
    more = fleet_of(small.given(*hosts({"a": ["a3"]})))
    assert placeable("job", (FULL, HALF), more) == FULL
    assert placeable("other", (HALF,), more) is None


LAYOUTS = (
    Layout(dp_replicate=2, dp_shard=3),
    Layout(dp_shard=3),
    Layout(dp_shard=2),
    Layout(),
)


@settings(max_examples=60)
@given(rounds=st.lists(st.frozensets(st.sampled_from(["a1", "a2", "b1", "b2"])), max_size=5))
def test_any_losses_leave_every_rank_one_seat(rounds):
    """Each placement is whole, on hosts that serve, and asking again decides nothing."""
    chips = {host.host_id: host.chips for host in hosts({"": ["a1", "a2", "b1", "b2"]})}
    fleet = after(FOUR, place(layout=LAYOUTS[0]))
    for generation, lost in enumerate(rounds, start=2):
        command = replace(
            place(generation=generation, layout=LAYOUTS[0], lost=sorted(lost)),
            smaller=LAYOUTS[1:],
        )
        fleet = after(fleet, command)
        job = fleet_of(fleet).jobs["job"]
        assert job.placement is not None
        if job.generation == generation:
            ranks = sorted(r for seat in job.placement.hosts for r in seat.ranks)
            assert ranks == list(range(job.placement.layout.world_size))
            for seat in job.placement.hosts:
                assert len(seat.ranks) <= chips[seat.host_id]
                assert fleet_of(fleet).hosts[seat.host_id].cordon is None
            assert fleet.when(command).decision.events == ()


def test_drained_host_is_left_for_a_smaller_layout_only_if_it_must():
    """What is cordoned by a person meanwhile does not serve on."""
    cordon = CordonHost(host_id="a2", reason="x", incident_id="", at_ms=40)
    gone = after(RUNNING, cordon)
    placement = placed(gone, less(lost=("a1",))).placement
    assert set(placement.host_ids) == {"b1", "b2"}


@pytest.mark.parametrize("lost_seat", range(4))
def test_ranks_settle_near_what_they_are_put_together_from(lost_seat):
    """Two shards of four: each new rank finds both of its old ones in its host's memory."""
    wide, narrow = Layout(dp_shard=4, tp=2), Layout(dp_shard=2, tp=2)
    one_pod = FLEET_SPEC.given(*hosts({"a": ["a1", "a2", "a3", "a4"]}))
    given = after(one_pod, place(layout=wide))
    before = fleet_of(given).jobs["job"].placement
    lost = before.hosts[lost_seat].host_id
    command = replace(place(generation=2, layout=wide, lost=[lost]), smaller=(narrow,))
    placement = placed(given, command).placement
    kept: dict[str, set[int]] = {}
    for seat in before.hosts:
        kept.setdefault(seat.host_id, set()).update(seat.ranks)
        kept.setdefault(seat.replica_host_id, set()).update(seat.ranks)
    near = sum(
        old in kept[seat.host_id]
        for seat in placement.hosts
        for rank in seat.ranks
        for old in sources_needed(wide, narrow, rank, lengths=(8,))
    )
    swapped = dict(zip(placement.host_ids[::-1], (s.ranks for s in placement.hosts), strict=True))
    other = sum(
        old in kept[host_id]
        for host_id, ranks in swapped.items()
        for rank in ranks
        for old in sources_needed(wide, narrow, rank, lengths=(8,))
    )
    assert near >= other
    assert near > 0


@given(
    seed=st.permutations(["a1", "a2", "b1", "b2"]),
    shards=st.tuples(st.integers(1, 4), st.integers(1, 4)),
)
def test_settled_seats_are_the_same_seats(seed, shards):
    """Nobody gets two, none is left out, and nobody leaves its pod for it."""
    pods = {host: host[0] for host in seed}
    fleet = fleet_of(FOUR)
    old, new = (Layout(dp_shard=count, tp=2) for count in shards)
    seats = [
        (fleet.hosts[host], (2 * index, 2 * index + 1))
        for index, host in enumerate(seed[: new.dp_shard])
    ]
    before = placed(FOUR, place(layout=old)).placement
    settled = settle(seats, before, new)
    assert [ranks for _, ranks in settled] == [ranks for _, ranks in seats]
    assert {host.host_id for host, _ in settled} == {host.host_id for host, _ in seats}
    for (host, _), (was, _) in zip(settled, seats, strict=True):
        assert pods[host.host_id] == pods[was.host_id]
