"""Seats are found by rank wherever ranks lie; what is kept of a placement is no part of it."""

from __future__ import annotations

import random
from dataclasses import replace

import msgspec
import pytest

from everstep.core.placement import LOOKED_UP_COST, HostPlacement, Layout, Placement

HOSTS = 4 * LOOKED_UP_COST


def placed(ranks_by_host) -> Placement:
    """Seats of these ranks, by first rank."""
    seats = [
        HostPlacement(host_id=f"h{i}", ranks=tuple(ranks))
        for i, ranks in enumerate(sorted(ranks_by_host))
    ]
    return Placement(layout=Layout(tp=2 * HOSTS), hosts=tuple(seats))


IN_A_ROW = placed([2 * i, 2 * i + 1] for i in range(HOSTS))
# The second half of every seat lies far from the first: as of two stages on one host.
APART = placed([i, HOSTS + i] for i in range(HOSTS))


@pytest.mark.parametrize("placement", [IN_A_ROW, APART], ids=["in a row", "apart"])
@pytest.mark.parametrize("count", [0, 1, 3, 20])
def test_seats_are_those_that_hold_any_of_the_ranks(placement, count):
    """Few ranks or many, also some that nobody has: each seat once, by first rank."""
    rng = random.Random(count)
    for _ in range(50):
        ranks = rng.sample(range(-2, 2 * HOSTS + 2), count)
        found = placement.seats_of(ranks)
        assert found == [seat for seat in placement.hosts if {*seat.ranks} & {*ranks}]


@pytest.mark.parametrize("placement", [IN_A_ROW, APART], ids=["in a row", "apart"])
def test_host_of_a_rank_is_the_one_that_has_it(placement):
    """Nobody's rank has none."""
    for seat in placement.hosts:
        assert {placement.host_of(rank) for rank in seat.ranks} == {seat.host_id}
    assert placement.host_of(2 * HOSTS) == placement.host_of(-1) == ""


def test_what_is_kept_beside_a_placement_is_no_part_of_it():
    """It is equal, hashed, copied and stored by its fields."""
    asked, fresh = placed([[0, 1], [2, 3]]), placed([[0, 1], [2, 3]])
    assert asked.host_ids == ("h0", "h1")
    assert asked.host_set == {"h0", "h1"}
    assert asked.seats == dict(zip(asked.host_ids, asked.hosts, strict=True))
    assert (asked, hash(asked)) == (fresh, hash(fresh))
    assert msgspec.json.encode(asked) == msgspec.json.encode(fresh)
    assert replace(asked, hosts=asked.hosts[:1]).host_ids == ("h0",)
