from __future__ import annotations

from collections import Counter
from functools import cache
from itertools import combinations, permutations
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from everstep.host_inventory.pairing import Seat, pair, penalty

SEATS = st.lists(
    st.builds(
        Seat,
        host_id=st.uuids().map(str),
        pod=st.sampled_from("abcd"),
        power=st.sampled_from(["", "x", "y"]),
        stages=st.integers(1, 7),
        pipelines=st.integers(1, 7),
    ),
    max_size=20,
    unique_by=lambda seat: seat.host_id,
)


def seat(host_id: str, pod: str = "a", *, stage: int = 0, pipeline: int = 0, power: str = ""):
    """Return a host with one cell."""
    return Seat(host_id=host_id, pod=pod, power=power, stages=1 << stage, pipelines=1 << pipeline)


def test_host_alone_has_no_partner():
    """Copies beside the original are none."""
    assert pair([seat("h1")]) == {"h1": ""}
    assert pair([]) == {}


def test_two_hosts_keep_each_others_copies_whatever_they_share():
    """A partner in the same pod is better than none."""
    assert pair([seat("h1"), seat("h2")]) == {"h1": "h2", "h2": "h1"}


def test_odd_host_makes_one_ring_of_three():
    """Nobody keeps two hosts' copies."""
    peers = pair([seat("h1", "a"), seat("h2", "b"), seat("h3", "c")])
    assert sorted(peers.values()) == ["h1", "h2", "h3"]
    assert all(host != peer for host, peer in peers.items())


def test_sharing_a_pod_weighs_more_than_all_else_together():
    """What must be shared is given up in the order of the module's docstring."""
    host = seat("h", "a", stage=0, pipeline=0, power="x")
    shared = [
        seat("p", "b", stage=0, pipeline=1, power="y"),
        seat("p", "b", stage=1, pipeline=0, power="y"),
        seat("p", "b", stage=1, pipeline=1, power="x"),
        seat("p", "a", stage=1, pipeline=1, power="y"),
    ]
    weights = [penalty(host, peer) for peer in shared]
    assert all(weight > sum(weights[:i]) for i, weight in enumerate(weights))


def test_unnamed_power_domains_are_not_shared():
    """An operator who names no power domains loses nothing by it."""
    assert penalty(seat("a", "a"), seat("b", "b", stage=1, pipeline=1)) == 0


def test_three_stages_in_two_pods_find_partners_of_another_stage():
    """The middle needs an exchange between pairs."""
    seats = [
        seat(f"{pod}{stage}", pod, stage=stage, pipeline=i)
        for stage in range(3)
        for i, pod in enumerate("ab")
    ]
    by_id = {s.host_id: s for s in seats}
    peers = pair(seats)
    assert {penalty(by_id[a], by_id[b]) for a, b in peers.items()} == {0}


@given(SEATS)
def test_everyone_keeps_exactly_one_other_hosts_copies(seats):
    """Memory is the same everywhere, and nobody is their own partner."""
    peers = pair(seats)
    assert set(peers) == {s.host_id for s in seats}
    if len(seats) > 1:
        assert sorted(peers.values()) == sorted(peers)
        assert all(host != peer for host, peer in peers.items())
        mutual = sum(peers[peer] == host for host, peer in peers.items())
        assert mutual >= len(seats) - (3 if len(seats) % 2 else 0)


@given(SEATS.filter(lambda seats: len(seats) % 2 == 0))
def test_no_more_pairs_share_a_pod_than_the_largest_pod_forces(seats):
    """Only what the largest pod has above half of all hosts must stay inside it."""
    peers = pair(seats)
    pods = {s.host_id: s.pod for s in seats}
    forced = max([0, *(2 * n - len(seats) for n in Counter(pods.values()).values())])
    assert sum(pods[a] == pods[b] for a, b in peers.items()) == forced


@cache
def pairings(count: int) -> list[tuple[int, ...]]:
    """Return every way in which hosts can keep each other's copies: pairs, and one ring if odd."""
    mutual = count - (3 if count % 2 else 0)
    return [
        peers
        for peers in permutations(range(count))
        if all(peer != host for host, peer in enumerate(peers))
        and sum(peers[peer] == host for host, peer in enumerate(peers)) == mutual
    ]


FEW_SEATS = st.lists(
    st.builds(
        Seat,
        host_id=st.uuids().map(str),
        pod=st.sampled_from("abc"),
        power=st.sampled_from(["", "x", "y"]),
        stages=st.integers(1, 7),
        pipelines=st.integers(1, 7),
    ),
    min_size=2,
    max_size=7,
    unique_by=lambda seat: seat.host_id,
)


@settings(max_examples=200)
@given(FEW_SEATS)
def test_no_other_pairing_of_few_hosts_shares_less(seats):
    """Of 2 to 7 hosts in up to 3 pods, against every pairing there is."""
    peers = pair(seats)
    by_id = {s.host_id: s for s in seats}
    shared = sum(penalty(by_id[host], by_id[peer]) for host, peer in peers.items())
    least = min(
        sum(penalty(seats[host], seats[peer]) for host, peer in enumerate(way))
        for way in pairings(len(seats))
    )
    assert shared == least


@given(SEATS, st.randoms(use_true_random=False))
def test_partners_follow_from_the_hosts_alone(seats, random):
    """Asked twice, the answer is the same."""
    assert pair(seats) == pair(list(seats))


@pytest.mark.parametrize("seed", range(20))
def test_no_two_pairs_of_many_hosts_would_share_less_with_each_others_partners(seed):
    """With more hosts than are compared in all pairings, halves are exchanged until none gains."""
    random = Random(seed)
    seats = [
        seat(
            f"h{i}",
            random.choice("abc"),
            stage=random.randrange(3),
            pipeline=random.randrange(3),
            power=random.choice("xyz"),
        )
        for i in range(16)
    ]
    sizes = Counter(one.pod for one in seats)
    left = sorted(seats, key=lambda one: (-sizes[one.pod], one.pod))[:8]
    by_id, peers = {one.host_id: one for one in seats}, pair(seats)
    pairs = [(one, by_id[peers[one.host_id]]) for one in left]
    worse = [
        (a, b, c, d)
        for (a, b), (c, d) in combinations(pairs, 2)
        if penalty(a, d) + penalty(c, b) < penalty(a, b) + penalty(c, d)
    ]
    assert worse == []
