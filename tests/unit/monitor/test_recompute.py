"""Pairs that came out otherwise name whom they have in common, where it began."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from everstep.core.placement import Layout
from everstep.core.resharding import Coordinate, rank_at
from everstep.monitor.detectors.recompute import Finding, Pair, Why, contradicted, judge

FOUR = Layout(dp_replicate=2, dp_shard=2)


def exchange(
    layout: Layout, step: int, shift: int, *, outputs: set[int] = frozenset(), gradients=frozenset()
) -> list[Pair]:
    """All pairs of a step; ranks whose outputs, or gradients alone, are never the same twice."""
    pairs = []
    replicas = layout.dp_replicate * layout.dp_shard
    for pp in range(layout.pp):
        for tp in range(layout.tp):
            ranks = [
                rank_at(layout, Coordinate(pp=pp, replicate=r, shard=s, tp=tp))
                for r in range(layout.dp_replicate)
                for s in range(layout.dp_shard)
            ]
            for index, runner in enumerate(ranks):
                owner = ranks[(index + shift) % replicas]
                two = {runner, owner}
                forward = not two & set(outputs)
                pairs.append(
                    Pair(
                        step=step,
                        runner=runner,
                        owner=owner,
                        forward=forward,
                        gradient=forward and not two & set(gradients),
                    )
                )
    return pairs


def concluded(pairs: list[Pair], layout: Layout = FOUR, **options) -> Finding | None:
    """Judge what there is."""
    return judge(pairs, layout, **{"final": True, "ever_alike": True, **options})


@pytest.mark.parametrize("shift", [1, 2, 3])
@pytest.mark.parametrize("rank", range(4))
def test_replica_that_is_always_wrong_is_named_by_one_step(shift: int, rank: int):
    """It differs from whoever did its work, and from whose work it did; one pair alone says half.

    Halfway around a circle of four both are the same one.
    """
    pairs = exchange(FOUR, 8, shift, gradients={rank})
    found = concluded(pairs)
    if shift == 2:
        partner = (rank + 2) % 4
        assert (found.why, found.ranks) == (Why.PAIR, tuple(sorted((rank, partner))))
        pairs += exchange(FOUR, 9, 3, gradients={rank})
        found = concluded(pairs)
    assert (found.why, found.ranks, found.first_step) == (Why.NAMED, (rank,), 8)


def test_one_pair_that_differs_is_said_when_no_other_pairing_comes():
    """Wrong once: nobody knows in which of the two runs."""
    pairs = exchange(FOUR, 8, 1)
    pairs[1] = Pair(step=8, runner=1, owner=2, forward=True, gradient=False)
    assert concluded(pairs, final=False) is None
    later = pairs + exchange(FOUR, 9, 2) + exchange(FOUR, 10, 3)
    assert concluded(later) == Finding(
        why=Why.PAIR,
        ranks=(1, 2),
        first_step=8,
        last_step=10,
        reason="in step 8 the same micro-batches have come to other gradients: one of replicas "
        "1, 2 was wrong (1 of 12 comparisons in 3 steps differ). No other pair has told which",
    )


def test_second_pair_with_another_partner_names_the_common_one():
    """Wrong in one run of each step: in the second one its partner was another."""
    pairs = exchange(FOUR, 8, 1) + exchange(FOUR, 9, 2)
    pairs[1] = Pair(step=8, runner=1, owner=2, forward=True, gradient=False)
    pairs[4] = Pair(step=9, runner=0, owner=2, forward=False, gradient=False)
    found = concluded(pairs, final=False)
    assert (found.why, found.ranks) == (Why.NAMED, (2,))


def test_two_replicas_are_a_tie_however_often():
    """Another host has to do the work for either."""
    two = Layout(dp_shard=2)
    pairs = [one for step in (4, 5, 6) for one in exchange(two, step, 1, gradients={1})]
    assert concluded(pairs[:2], two, final=False) is None
    found = concluded(pairs, two)
    assert (found.why, found.ranks) == (Why.PAIR, (0, 1))
    assert "There is no third replica to tell which" in found.reason


def test_one_of_two_that_differs_from_itself_too_is_named():
    """The other one has made its own work alike."""
    two = Layout(dp_shard=2)
    pairs = exchange(two, 4, 1, gradients={1})
    pairs += [
        Pair(step=5, runner=rank, owner=rank, forward=True, gradient=rank == 0) for rank in (0, 1)
    ]
    found = concluded(pairs, two, final=False)
    assert (found.why, found.ranks, found.lasting) == (Why.ITSELF, (1,), True)
    assert "replica 1 differs from itself and replica 0" in found.reason


def test_group_that_is_alone_is_named_if_it_used_to_repeat_its_bits():
    """Else the program does not."""
    alone = [Pair(step=4, runner=0, owner=0, forward=True, gradient=False)]
    found = concluded(alone, Layout())
    assert (found.why, found.ranks) == (Why.ITSELF, (0,))
    assert "replica 0 differs from itself" in found.reason
    assert concluded(alone, Layout(), ever_alike=False).why is Why.NOBODY
    assert concluded(alone, Layout(), ever_alike=False, final=False) is None


@pytest.mark.parametrize("layout", [Layout(dp_shard=2), Layout(dp_replicate=3), FOUR], ids=str)
def test_program_whose_bits_do_not_repeat_is_nobodys_fault(layout: Layout):
    """All pairs differ, and never did one come out alike."""
    everybody = set(range(layout.world_size))
    found = concluded(exchange(layout, 4, 1, gradients=everybody), layout, ever_alike=False)
    assert (found.why, found.ranks) == (Why.NOBODY, ())


def test_two_wrong_replicas_are_not_taken_for_one():
    """Of six, two that are no neighbours: no one is in all pairs that differ."""
    six = Layout(dp_shard=6)
    assert concluded(exchange(six, 4, 1, gradients={1, 4}), six).why is Why.NOBODY


DEEP = Layout(pp=3, dp_replicate=3, tp=2)


def at(pp: int, replica: int, tp: int) -> int:
    """Return a rank of ``DEEP``."""
    return rank_at(DEEP, Coordinate(pp=pp, replicate=replica, shard=0, tp=tp))


def test_wrong_outputs_are_traced_to_the_first_stage_that_has_them():
    """Later stages compute from them, earlier ones get other gradients back."""
    outputs = {at(pp, 2, tp) for pp in (1, 2) for tp in (0, 1)}
    found = concluded(exchange(DEEP, 4, 1, outputs=outputs, gradients={at(0, 2, 0)}), DEEP)
    assert (found.why, found.ranks) == (Why.NAMED, (at(1, 2, 0), at(1, 2, 1)))
    assert "other outputs, from stage 1 on" in found.reason


def test_wrong_gradients_are_traced_to_the_last_stage_that_has_them():
    """Earlier stages only pass them on."""
    gradients = {at(1, 0, 1), at(0, 0, 0), at(0, 0, 1)}
    found = concluded(exchange(DEEP, 4, 2, gradients=gradients), DEEP)
    assert (found.why, found.ranks) == (Why.NAMED, (at(1, 0, 1),))


def test_nothing_differs_and_nothing_is_said():
    """That is the usual step."""
    assert concluded(exchange(DEEP, 4, 1), DEEP) is None


@given(
    st.integers(3, 7),
    st.lists(st.integers(1, 6), min_size=1, max_size=3),
    st.integers(0, 6),
    st.randoms(),
)
@settings(deadline=None)
def test_only_who_is_wrong_is_ever_named(replicas, shifts, wrong, random):
    """Whatever the pairings, if it is wrong in some of its runs, and in whatever order."""
    layout = Layout(dp_shard=replicas)
    wrong %= replicas
    pairs = []
    for step, shift in enumerate(shifts):
        for one in exchange(layout, step, 1 + shift % (replicas - 1)):
            alike = wrong not in {one.runner, one.owner} or random.random() < 0.5
            pairs.append(
                Pair(step=step, runner=one.runner, owner=one.owner, forward=True, gradient=alike)
            )
    found = concluded(pairs, layout)
    if found is not None:
        assert wrong in found.ranks
        assert found.why in {Why.NAMED, Why.PAIR}
        assert found.why is Why.PAIR or found.ranks == (wrong,)
    shuffled = random.sample(pairs, len(pairs))
    assert concluded(shuffled, layout) == found


def test_rank_that_contradicts_itself_is_named_alone():
    """With the modules; nobody else is needed."""
    told = [(0, ()), (3, ("layers.1", "layers.2"))]
    found = contradicted(told, 7, DEEP)
    assert (found.why, found.ranks, found.first_step) == (Why.ITSELF, (3,), 7)
    assert "rank 3 in layers.1, layers.2" in found.reason
    assert contradicted([(0, ())], 7, DEEP) is None


def test_tensor_parallel_ranks_that_contradict_themselves_together_may_be_one():
    """They add up their shares of an output."""
    pair = [(at(1, 2, 0), ("layers.3",)), (at(1, 2, 1), ("layers.3",))]
    assert "may be one of them" in contradicted(pair, 7, DEEP).reason
    apart = [(at(1, 2, 0), ("layers.3",)), (at(1, 1, 1), ("layers.3",))]
    assert "may be one of them" not in contradicted(apart, 7, DEEP).reason
