"""Whose snapshots a new rank needs, against a count of every element."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from everstep.core.errors import InvalidInput
from everstep.core.placement import Layout
from everstep.core.resharding import (
    Coordinate,
    Sources,
    coordinate_of,
    elder_of,
    rank_at,
    sources_needed,
    stand_ins,
    why_unreachable,
)

sizes = st.integers(1, 5)
layouts = st.builds(
    Layout,
    pp=st.integers(1, 2),
    dp_replicate=st.integers(1, 3),
    dp_shard=sizes,
    tp=st.integers(1, 2),
)


@st.composite
def changes(draw: st.DrawFn) -> tuple[Layout, Layout, int]:
    """Return an old layout, a new one with other data-parallel degrees, and a rank of it."""
    old = draw(layouts)
    new = Layout(pp=old.pp, dp_replicate=draw(st.integers(1, 3)), dp_shard=draw(sizes), tp=old.tp)
    return old, new, draw(st.integers(0, new.world_size - 1))


def shard_of(element: int, length: int, shards: int) -> int:
    """Return which of ``torch.chunk``'s pieces holds an element."""
    return element // -(-length // shards)


def needed_by_count(old: Layout, new: Layout, rank: int, lengths) -> set[int]:
    """Look at every element of the new shard, and who had it."""
    at = coordinate_of(new, rank)
    elder = elder_of(old, new, rank)
    replica = coordinate_of(old, elder.rank).replicate
    found = {elder.rank}
    for length in lengths:
        for element in range(length):
            if shard_of(element, length, new.dp_shard) == at.shard:
                shard = shard_of(element, length, old.dp_shard)
                place = Coordinate(pp=at.pp, replicate=replica, shard=shard, tp=at.tp)
                found.add(rank_at(old, place))
    return found


@given(layout=layouts)
def test_rank_and_place_are_two_ways_to_say_the_same(layout):
    """Ranks count along tp, then shards, replicas and stages, as ``Layout`` says."""
    for rank in range(layout.world_size):
        at = coordinate_of(layout, rank)
        sizes = layout.dp_replicate, layout.dp_shard, layout.tp
        counted = ((at.pp * sizes[0] + at.replicate) * sizes[1] + at.shard) * sizes[2] + at.tp
        assert rank == counted == rank_at(layout, at)


@given(change=changes(), lengths=st.lists(st.integers(1, 40), max_size=4))
def test_known_lengths_name_exactly_who_holds_an_element(change, lengths):
    """No rank more, no rank less, uneven and empty shards included."""
    found = sources_needed(*change, lengths=lengths)
    assert found == tuple(sorted(needed_by_count(*change, lengths)))


@given(change=changes())
def test_unknown_lengths_name_who_holds_an_element_of_any_tensor(change):
    """Every length up to far beyond the shards' product is covered."""
    assert needed_by_count(*change, range(1, 120)) <= set(sources_needed(*change))


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        (Layout(pp=2, dp_shard=2, tp=2), Layout(pp=2, tp=2), [(0, 2), (1, 3), (4, 6), (5, 7)]),
        (Layout(tp=2), Layout(dp_shard=2, tp=2), [(0,), (1,), (0,), (1,)]),
        (Layout(dp_replicate=2), Layout(), [(0,)]),
        (Layout(), Layout(dp_replicate=2), [(0,), (0,)]),
        (Layout(dp_replicate=2, dp_shard=2), Layout(dp_shard=2), [(0,), (1,)]),
        (Layout(dp_shard=4), Layout(dp_shard=2), [(0, 1), (1, 2, 3)]),
        (Layout(dp_shard=2, tp=2), Layout(dp_shard=2), [(0, 1, 2, 3), (0, 1, 2, 3)]),
        (Layout(), Layout(tp=2), [(0,), (0,)]),
    ],
    ids=[
        "shrink",
        "grow",
        "replica lost",
        "replica back",
        "hybrid",
        "any length",
        "less tp",
        "more tp",
    ],
)
def test_layouts_people_use_need_these_ranks(old, new, expected):
    """The cases of the guide, rank by rank."""
    assert [sources_needed(old, new, rank) for rank in range(new.world_size)] == expected


def test_long_tensors_need_two_ranks_where_any_tensor_needs_many():
    """What the lengths are for: 512 shards become 256."""
    old, new = Layout(dp_shard=512), Layout(dp_shard=256)
    assert sources_needed(old, new, 200, lengths=[4096, 8192]) == (200, 400, 401)
    assert sources_needed(old, new, 200) == tuple(range(200, 402))


def test_ranks_of_other_replicas_stand_in_for_one_that_is_lost():
    """Those with the same stage, shard and tensor-parallel place, and not the rank itself."""
    old = Layout(pp=2, dp_replicate=3, dp_shard=2, tp=2)
    assert stand_ins(old, 12 + 4 + 3) == (12 + 3, 12 + 8 + 3)
    assert stand_ins(Layout(dp_shard=2), 1) == ()


@given(change=changes())
def test_same_layout_needs_the_rank_itself(change):
    """Nothing moves, and nobody is new."""
    old, _, _ = change
    for rank in range(old.world_size):
        assert sources_needed(old, old, rank) == (rank,)
        assert elder_of(old, old, rank).is_new is False


@given(change=changes())
def test_elder_is_of_the_same_group_stage_and_tensor_place(change):
    """Or of another group, and then the group is new."""
    old, new, rank = change
    elder = elder_of(old, new, rank)
    at, before = coordinate_of(new, rank), coordinate_of(old, elder.rank)
    group = before.replicate * old.dp_shard + before.shard
    assert (before.pp, before.tp) == (at.pp, at.tp)
    assert elder.group == at.replicate * new.dp_shard + at.shard
    old_groups = old.dp_replicate * old.dp_shard
    assert elder.is_new == (group != elder.group) == (elder.group >= old_groups)


@given(change=changes(), data=st.data())
def test_lost_rank_is_replaced_by_one_that_holds_the_same_or_refused(change, data):
    """Its tensors come from another replica; its random streams end on all ranks of its group."""
    old, new, rank = change
    lost = data.draw(st.sets(st.integers(0, old.world_size - 1), min_size=1, max_size=3))
    groups = {one: elder_of(old, old, one).group for one in range(old.world_size)}
    gone = {groups[one] for one in lost}
    assume(gone != set(groups.values()))
    elder = elder_of(old, new, rank, lost=lost)
    assert groups[elder.rank] not in gone
    assert elder.is_new == (elder.group in gone or elder.group not in groups.values())
    wanted = sources_needed(old, new, rank, lengths=[old.dp_shard * new.dp_shard])
    try:
        found = sources_needed(old, new, rank, lengths=[old.dp_shard * new.dp_shard], lost=lost)
    except InvalidInput:
        assert any({one, *stand_ins(old, one)} <= lost for one in range(old.world_size))
        return
    assert not lost & set(found)
    for one in set(wanted) - {elder_of(old, new, rank).rank}:
        assert {one, *stand_ins(old, one)} & set(found)


@given(change=changes(), tp=st.integers(1, 2), data=st.data())
def test_sources_of_a_whole_job_are_those_of_each_rank(change, tp, data):
    """Whatever is lost, in whichever stage, and in whatever order they are asked for."""
    old, new = change[0], replace(change[1], tp=tp)
    lost = data.draw(st.frozensets(st.integers(0, old.world_size - 1), max_size=2))
    ranks = [*range(-1, new.world_size + 1), *range(new.world_size, -2, -1)]

    def said(needed):
        try:
            return needed()
        except InvalidInput as error:
            return str(error)

    alone = [said(lambda rank=rank: sources_needed(old, new, rank, lost=lost)) for rank in ranks]
    whole = said(lambda: Sources(old, new, lost=lost))
    if isinstance(whole, str):  # refused for every rank
        assert {whole} == set(alone[1 : 1 + new.world_size])
    else:
        assert [said(lambda rank=rank: whole.of(rank)) for rank in ranks] == alone


def test_tensor_parallel_ranks_agree_on_who_is_new():
    """One lost rank of a group makes all of its group new: their masks must stay equal."""
    old, new = Layout(dp_replicate=2, tp=2), Layout(tp=2)
    elders = [elder_of(old, new, rank, lost={1}) for rank in range(2)]
    assert [(one.rank, one.is_new) for one in elders] == [(2, True), (3, True)]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: sources_needed(Layout(pp=2), Layout(), 0), "pp 2 cannot go on with pp 1"),
        (lambda: elder_of(Layout(pp=2), Layout(), 0), "pp 2 cannot go on with pp 1"),
        (lambda: sources_needed(Layout(), Layout(), 1), "rank 1 is not one of the 1 ranks"),
        (lambda: elder_of(Layout(), Layout(), 0, lost={0}), "every data-parallel group"),
        (
            lambda: sources_needed(Layout(dp_shard=2), Layout(), 0, lost={1}),
            "old rank 1 is lost, and with it the only parts",
        ),
    ],
    ids=["stages", "stages of elders", "no such rank", "nothing left", "no copy"],
)
def test_what_cannot_be_resharded_is_refused_with_the_reason(call, message):
    """Before anything is fetched."""
    with pytest.raises(InvalidInput, match=message):
        call()


@given(change=changes(), data=st.data())
def test_whole_layout_is_unreachable_if_one_of_its_ranks_is(change, data):
    """Said at once for all what each rank would be refused with."""
    old, new, _ = change
    lost = data.draw(st.frozensets(st.integers(0, old.world_size - 1)))
    refused = False
    for rank in range(new.world_size):
        try:
            sources_needed(old, new, rank, lost=lost)
        except InvalidInput:
            refused = True
    assert bool(why_unreachable(old, new, lost)) == refused


def test_other_stages_are_unreachable():
    """Which layers move is the model's."""
    assert "stages are 2" in why_unreachable(Layout(pp=2), Layout(pp=1), ())


def test_no_group_that_is_whole_is_told_although_every_part_is_there():
    """Each of two replicas has lost another of its tensor-parallel ranks: nobody is an elder."""
    old, new = Layout(dp_replicate=2, tp=2), Layout(tp=2)
    assert why_unreachable(old, new, {0, 3}) == "no data-parallel group of its ranks is whole"
    with pytest.raises(InvalidInput):
        sources_needed(old, new, 0, lost={0, 3})
    assert why_unreachable(old, new, {0, 1}) == ""
