"""Who holds other bits than everybody else: votes, ties, and what decides them."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from everstep.core.circles import circle_of
from everstep.core.placement import Layout
from everstep.monitor.detectors.corruption import Values, blame, differences, tensors_of

REPLICAS = Layout(dp_replicate=3)
PAIR = Layout(dp_replicate=2)
COLUMNS = Layout(dp_replicate=2, tp=4)
CUT, WHOLE = 1, 5  # over dp_replicate; over dp_replicate and tp


def told(layout: Layout, over: int, odd: Mapping[int, str], name: str = "") -> dict[int, Values]:
    """All ranks hold the same but these."""
    return {
        rank: {(over, name): odd.get(rank, f"of {circle_of(layout, rank, over)}")}
        for rank in range(layout.world_size)
    }


def hosts(layout: Layout, ranks_a_host: int = 1) -> list[str]:
    """Ranks side by side share hosts."""
    return [f"h{rank // ranks_a_host}" for rank in range(layout.world_size)]


def judged(layout: Layout, seen: Mapping[int, Values], *, ranks_a_host: int = 1, refuted=()):
    """Return (ranks, hosts, certain)."""
    by = blame(differences(seen, layout), hosts(layout, ranks_a_host), refuted)
    return by.ranks, by.hosts, by.certain


@pytest.mark.parametrize("wrong", range(3))
def test_majority_of_replicas_names_the_one_that_differs(wrong: int):
    """Whoever it is."""
    assert judged(REPLICAS, told(REPLICAS, CUT, {wrong: "odd"})) == ((wrong,), (f"h{wrong}",), True)


def test_equal_ranks_differ_in_nothing():
    """In any layout; circles hold different things than one another."""
    for over in (CUT, WHOLE, 7):
        assert differences(told(COLUMNS, over, {}), COLUMNS) == ()


def test_two_replicas_are_a_tie():
    """Both are suspect, and which of them is not said."""
    assert judged(PAIR, told(PAIR, CUT, {1: "odd"})) == ((0, 1), ("h0", "h1"), False)


def test_tie_is_broken_by_work_that_was_made_again():
    """One of the two was refuted; if it was somebody else, nothing is decided."""
    seen = told(PAIR, CUT, {1: "odd"})
    assert judged(PAIR, seen, refuted={1}) == ((1,), ("h1",), True)
    assert judged(PAIR, seen, refuted={7}) == ((0, 1), ("h0", "h1"), False)
    assert judged(PAIR, seen, refuted={0, 1}) == ((0, 1), ("h0", "h1"), False)


def test_tie_within_one_host_names_the_host():
    """Whichever of its ranks it was."""
    assert judged(PAIR, told(PAIR, CUT, {1: "odd"}), ranks_a_host=2) == ((0, 1), ("h0",), True)


def test_tie_of_replicas_is_broken_by_tensor_parallel_ranks_that_hold_the_same():
    """Seven of eight agree with rank 4, nobody with rank 0."""
    assert judged(COLUMNS, told(COLUMNS, WHOLE, {0: "odd"})) == ((0,), ("h0",), True)


def test_column_that_was_bent_with_its_replica_breaks_no_tie():
    """Rank 0 held a wrong weight through a step: its column is bent in all replicas."""
    seen = told(COLUMNS, WHOLE, {0: "wrong and bent", 4: "bent"})
    assert judged(COLUMNS, seen) == ((0, 4), ("h0", "h4"), False)


def test_column_that_differs_while_its_replicas_agree_names_one_of_them():
    """The same was computed by both replicas' sum: one of the two has computed wrong."""
    seen = told(COLUMNS, WHOLE, {0: "bent", 4: "bent"})
    assert judged(COLUMNS, seen) == ((0, 4), ("h0", "h4"), False)
    assert judged(COLUMNS, seen, ranks_a_host=8) == ((0, 4), ("h0",), True)


def test_columns_without_replicas_are_put_to_the_vote():
    """Three of four agree; with two of two, nobody knows, and both are on one host anyway."""
    four, two = Layout(tp=4), Layout(tp=2)
    assert judged(four, told(four, 4, {2: "odd"})) == ((2,), ("h2",), True)
    assert judged(two, told(two, 4, {1: "odd"})) == ((0, 1), ("h0", "h1"), False)
    assert judged(two, told(two, 4, {1: "odd"}), ranks_a_host=2) == ((0, 1), ("h0",), True)


def test_bent_column_accuses_nobody_while_a_replica_stands_out():
    """With three replicas the majority of rank 0's own replicas decides."""
    layout = Layout(dp_replicate=3, tp=2)
    seen = told(layout, WHOLE, {0: "wrong and bent", 2: "bent", 4: "bent"})
    assert judged(layout, seen) == ((0,), ("h0",), True)


def test_several_at_once_are_each_named():
    """Two ranks in two circles, or two of five in one."""
    layout = Layout(dp_replicate=3, dp_shard=2)
    assert judged(layout, told(layout, CUT, {0: "odd", 3: "odd"}))[0] == (0, 3)
    five = Layout(dp_replicate=5)
    assert judged(five, told(five, CUT, {1: "a", 4: "b"})) == ((1, 4), ("h1", "h4"), True)


def test_more_hosts_at_once_than_chance_has_are_not_replaced():
    """Three of seven: code that does not repeat its bits is likelier."""
    seven = Layout(dp_replicate=7)
    seen = told(seven, CUT, {1: "a", 4: "b", 5: "c"})
    assert judged(seven, seen) == ((1, 4, 5), ("h1", "h4", "h5"), False)
    assert judged(seven, seen, ranks_a_host=7)[2], "one host it may well be"


def test_even_split_is_a_tie_of_all():
    """Two against two."""
    four = Layout(dp_replicate=4)
    assert judged(four, told(four, CUT, {1: "a", 2: "a"})) == (
        (0, 1, 2, 3),
        ("h0", "h1", "h2", "h3"),
        False,
    )


def test_holders_that_have_not_told_are_no_majority():
    """Two of three have told, and differ: the third would decide."""
    seen = told(REPLICAS, CUT, {1: "odd"})
    del seen[2]
    assert judged(REPLICAS, seen) == ((0, 1), ("h0", "h1"), False)


def test_majority_is_of_all_holders_and_not_of_those_that_told():
    """Two against one of five: the other two may be on either side."""
    five = Layout(dp_replicate=5)
    seen = {rank: values for rank, values in told(five, CUT, {1: "odd"}).items() if rank < 3}
    assert judged(five, seen) == ((0, 1, 2), ("h0", "h1", "h2"), False)


def test_ties_have_their_common_rank_in_them():
    """Rank 0 differs from its replica, and so does what it holds with its column."""
    layout = Layout(dp_replicate=2, tp=2)
    seen = {
        rank: {**cut, **whole}
        for (rank, cut), whole in zip(
            told(layout, CUT, {0: "odd"}).items(),
            told(layout, WHOLE, {0: "odd"}).values(),
            strict=True,
        )
    }
    assert judged(layout, seen) == ((0,), ("h0",), True)


def test_tensors_are_named_one_by_one():
    """And each votes for itself."""
    seen = {
        rank: {**told(REPLICAS, CUT, {1: "odd"}, "a")[rank], **told(REPLICAS, CUT, {}, "b")[rank]}
        for rank in range(3)
    }
    assert tensors_of(differences(seen, REPLICAS)) == ("a",)


layouts = st.builds(
    Layout,
    pp=st.integers(1, 2),
    dp_replicate=st.integers(3, 5),
    dp_shard=st.integers(1, 2),
    tp=st.integers(1, 3),
)


@given(layouts, st.data())
@settings(deadline=None)
def test_one_wrong_rank_among_three_replicas_or_more_is_always_named(layout: Layout, data):
    """Whatever it holds wrong, and in whatever order ranks are told of."""
    wrong = data.draw(st.integers(0, layout.world_size - 1))
    over = data.draw(st.sampled_from([1, 3, 5, 7]))
    seen = told(layout, over, {wrong: "odd"})
    mixed = {rank: seen[rank] for rank in data.draw(st.permutations(sorted(seen)))}
    assert judged(layout, mixed) == ((wrong,), (f"h{wrong}",), True)
