"""Stacks grouped by place, and who stands out."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.monitor.hang_looks import (
    LAYOUT,
    all_but,
    loading,
    spinning,
    stopped,
    waiting,
)
from tests.unit.monitor.recorded_stacks import (
    IN_ALL_REDUCE,
    IN_FIRST_STAGE,
    IN_LAST_STAGE,
    IN_LOADER,
    IN_PIPE,
    IN_RECEIVE,
    IN_SHARDED_PARAMETERS,
    IN_STEP_COLLECTIVE,
    IN_TENSOR_PARALLEL,
    SPINNING,
)

from everstep.core.record import changed
from everstep.core.spec import LayoutSpec
from everstep.monitor.detectors.hang_stacks import (
    Phase,
    Role,
    State,
    group_stacks,
    place_of,
    role_of,
    smallest_group,
    stage_of,
)
from everstep.monitor.detectors.hang_text import described, ranges

SAVING = (
    "/home/me/train.py:main:40",
    "site-packages/torch/serialization.py:save:992",
    "site-packages/torch/serialization.py:_save:1310",
)
COMPILING = (
    "/home/me/train.py:main:31",
    "site-packages/torch/_dynamo/convert_frame.py:__call__:1200",
    "python/threading.py:wait:324",
)
RUNS_COMPILED = (
    "/home/me/train.py:main:31",
    "site-packages/torch/_dynamo/eval_frame.py:compile_wrapper:900",
    "/home/me/model.py:forward:12",
)
SAVES_TOGETHER = (
    "/home/me/train.py:main:40",
    "site-packages/torch/distributed/checkpoint/state_dict_saver.py:save:160",
    "site-packages/torch/distributed/distributed_c10d.py:gather_object:3300",
    "site-packages/torch/distributed/distributed_c10d.py:all_gather:4100",
)
IN_PIPELINE = (
    "/home/me/train.py:main:31",
    "site-packages/torch/distributed/pipelining/schedules.py:step:700",
    "site-packages/torch/distributed/pipelining/schedules.py:_wait_batch_p2p:450",
)
CALLED_BACK = (
    "site-packages/torch/distributed/distributed_c10d.py:all_reduce:3252",
    *(f"/home/me/hooks.py:f{n}:1" for n in range(6)),
)
IN_USERS_LAYER = (*IN_PIPELINE[:2], "/home/me/model.py:forward:12")


@pytest.mark.parametrize(
    ("frames", "role"),
    [
        (IN_ALL_REDUCE, Role.WAITS),
        (IN_STEP_COLLECTIVE, Role.WAITS),
        (IN_RECEIVE, Role.WAITS),
        (IN_FIRST_STAGE, Role.WAITS),
        (IN_TENSOR_PARALLEL, Role.WAITS),
        (IN_SHARDED_PARAMETERS, Role.WAITS),
        (IN_LAST_STAGE, Role.WAITS),
        (IN_PIPELINE, Role.WAITS),
        (SAVES_TOGETHER, Role.WAITS),
        (IN_LOADER, Role.LOADS),
        (IN_PIPE, Role.LOADS),
        (SAVING, Role.SAVES),
        (COMPILING, Role.COMPILES),
        (RUNS_COMPILED, Role.OWN),
        (IN_USERS_LAYER, Role.OWN),
        (CALLED_BACK, Role.OWN),
        (SPINNING, Role.OWN),
        ((), Role.UNSEEN),
    ],
)
def test_role_is_read_from_the_innermost_frames(frames, role):
    """A library far out on the stack says nothing of what happens within."""
    assert role_of(waiting(0, frames=frames)) is role


@pytest.mark.parametrize(
    ("phase", "role"),
    [(Phase.LOADING, Role.LOADS), (Phase.SNAPSHOTTING, Role.SAVES), (Phase.BETWEEN, Role.OWN)],
)
def test_phase_tells_what_a_strange_stack_does_not(phase, role):
    """A dataset of the user's own, a copy in a thread."""
    assert role_of(waiting(0, frames=("/home/me/x.py:f:1",), phase=phase)) is role


def test_lines_of_libraries_are_left_out_and_own_ones_stay():
    """A library waits on several lines; the user's two collectives differ by theirs alone."""
    one = waiting(0, frames=("/me/t.py:main:3", "site-packages/torch/distributed/x.py:f:1"))
    other_line = changed(
        one, frames=("/me/t.py:main:3", "site-packages/torch/distributed/x.py:f:2")
    )
    other_call = changed(
        one, frames=("/me/t.py:main:4", "site-packages/torch/distributed/x.py:f:1")
    )
    assert place_of(one).where == "/me/t.py:main:3 > site-packages/torch/distributed/x.py:f"
    assert place_of(other_line) == place_of(one)
    assert place_of(other_call) != place_of(one)


def test_what_is_timed_around_a_wait_is_no_place():
    """The SDK's stopwatch is around every wait: what is waited for is the user's line."""
    assert IN_ALL_REDUCE[-1].startswith("everstep/train/own_time.py:")
    assert place_of(waiting(0)).where == (
        f"{IN_ALL_REDUCE[3]} > site-packages/torch/distributed/distributed_c10d.py:all_reduce"
    )


def test_ranks_that_do_the_same_are_one_group():
    """Nobody stands out among equals."""
    grouping = group_stacks(all_but(), LAYOUT)
    (group,) = grouping.groups
    assert (group.ranks, group.hosts) == (tuple(range(8)), ("h0", "h1", "h2", "h3"))
    assert (grouping.majority, grouping.outliers, grouping.unseen) == (group, (), ())


@pytest.mark.parametrize(
    "guilty",
    [stopped(5), waiting(5, state=State.STOPPED), spinning(5), loading(5)],
    ids=["stopped", "stopped_after_its_answer", "spinning", "loading"],
)
def test_rank_that_does_not_wait_stands_out(guilty):
    """Its neighbours wait for it, and are the majority."""
    grouping = group_stacks(all_but(guilty), LAYOUT)
    assert grouping.outliers == (5,)
    assert grouping.majority is not None
    assert grouping.majority.place.role is Role.WAITS
    assert grouping.majority.ranks == (0, 1, 2, 3, 4, 6, 7)


def test_rank_that_waits_elsewhere_stands_out_when_all_wait():
    """It has left out the collective that the others wait in."""
    grouping = group_stacks(all_but(waiting(5, frames=IN_STEP_COLLECTIVE)), LAYOUT)
    assert grouping.outliers == (5,)


def test_rank_that_waits_elsewhere_is_innocent_when_another_does_not_wait():
    """Who waits for whom may differ; who does not wait at all is the one."""
    grouping = group_stacks(all_but(waiting(2, frames=IN_STEP_COLLECTIVE), spinning(5)), LAYOUT)
    assert grouping.outliers == (5,)


def test_two_halves_are_no_majority():
    """One of two ranks waits elsewhere: nobody can tell which of them is wrong."""
    two = (waiting(0), waiting(1, frames=IN_STEP_COLLECTIVE))
    assert group_stacks(two, LayoutSpec(dp_shard=2)).outliers == ()


def test_stages_of_a_pipeline_wait_each_in_its_own_way():
    """What differs between stages sets nobody apart; what differs within one does."""
    layout = LayoutSpec(pp=2, dp_shard=4)
    stages = [waiting(rank, frames=IN_PIPELINE if rank < 4 else IN_ALL_REDUCE) for rank in range(8)]
    assert group_stacks(stages, layout).outliers == ()
    stages[6] = waiting(6, frames=IN_PIPELINE)
    assert group_stacks(stages, layout).outliers == (6,)


RECORDED = [
    *[IN_FIRST_STAGE] * 2,
    IN_TENSOR_PARALLEL,
    (),
    *[IN_SHARDED_PARAMETERS] * 2,
    *[IN_LAST_STAGE] * 2,
]
PARALLEL = LayoutSpec(pp=2, dp_shard=2, tp=2)


def test_ranks_of_a_real_parallel_run_wait_at_many_places_and_only_one_stands_out():
    """Four places in one moment: what all of them have in common is that they wait."""
    looks = [waiting(rank, frames=frames) for rank, frames in enumerate(RECORDED)]
    looks[3] = stopped(3)
    grouping = group_stacks(looks, PARALLEL)
    assert grouping.outliers == (3,)
    assert [group.ranks for group in grouping.groups] == [(0, 1), (4, 5), (6, 7), (2,), (3,)]


def test_rank_that_waits_elsewhere_is_innocent_where_there_are_several_kinds_of_groups():
    """A neighbour of the guilty one waits elsewhere than the rest, and so does the guilty one."""
    looks = [waiting(rank, frames=IN_LAST_STAGE) for rank in range(8)]
    looks[2] = waiting(2, frames=IN_TENSOR_PARALLEL)
    assert group_stacks(looks, PARALLEL).outliers == ()


def test_line_that_most_of_a_stage_stands_at_counts_as_waiting():
    """An accelerator's queue shows only the user's line that waits for it."""
    read = ("/home/me/train.py:main:35",)
    looks = [waiting(rank, frames=read) for rank in range(7)]
    grouping = group_stacks((*looks, loading(7)), LAYOUT)
    assert grouping.outliers == (7,)


def test_ranks_that_nobody_told_of_are_unseen():
    """A host that does not answer leaves a gap, and no suspicion."""
    grouping = group_stacks(all_but()[:6], LAYOUT)
    assert (grouping.outliers, grouping.unseen) == ((), (6, 7))


@pytest.mark.parametrize(
    ("ranks", "group"),
    [
        ((5,), (4, 5)),
        ((4, 5), (4, 5)),
        ((5, 7), (5, 7)),
        ((1, 5), (1, 5)),
        ((9, 13), (9, 13)),
        ((1, 9), (1, 9)),
        ((0, 3), ()),
    ],
)
def test_smallest_group_holds_all_of_them(ranks, group):
    """Of tp, dp_shard, dp_replicate and pp in a layout of 2 x 2 x 2 x 2."""
    layout = LayoutSpec(pp=2, dp_replicate=2, dp_shard=2, tp=2)
    assert smallest_group(ranks, layout) == group


def test_smallest_group_of_one_rank_is_the_one_that_notices_first():
    """Two ranks share its layers, four its parameters."""
    assert smallest_group((5,), LayoutSpec(dp_shard=4, tp=2)) == (4, 5)
    assert smallest_group((5,), LayoutSpec(pp=2, dp_shard=4)) == (1, 5)


def test_stage_counts_along_the_pipeline_last():
    """As the mesh does."""
    layout = LayoutSpec(pp=2, dp_shard=2, tp=2)
    assert [stage_of(rank, layout) for rank in range(8)] == [0] * 4 + [1] * 4


def test_text_shows_each_place_once_and_who_stands_out():
    """What a person reads first."""
    text = described(group_stacks(all_but(loading(5)), LAYOUT))
    majority, outlier = [line for line in text.splitlines() if not line.startswith(" ")]
    assert majority.startswith("7 ranks (0-4, 6-7) on h0, h1, h2, h3: waits for other ranks: ")
    assert outlier.startswith("1 rank (5) on h2: loads data: ")
    assert outlier.endswith(", stands out")


def test_ranges_are_bounded():
    """Thousands of ranks that alternate do not fill a page."""
    assert ranges([3, 1, 2, 7]) == "1-3, 7"
    assert ranges(range(0, 100, 2)) == "0, 2, 4, 6, 8, 10, 12, 14, ..."


PLACES = st.sampled_from([IN_ALL_REDUCE, IN_STEP_COLLECTIVE, IN_LOADER, SPINNING, SAVING, ()])
LAYOUTS = st.sampled_from(
    [LayoutSpec(dp_shard=8), LayoutSpec(pp=2, dp_shard=4), LayoutSpec(pp=4, tp=2)]
)


@given(st.lists(PLACES, min_size=8, max_size=8), LAYOUTS, st.randoms(use_true_random=False))
def test_grouping_does_not_depend_on_the_order_of_answers(stacks, layout, random):
    """Agents answer when they like."""
    looks = [waiting(rank, frames=frames) for rank, frames in enumerate(stacks)]
    shuffled = list(looks)
    random.shuffle(shuffled)
    assert group_stacks(shuffled, layout) == group_stacks(looks, layout)


@given(st.lists(PLACES, min_size=8, max_size=8), LAYOUTS)
def test_every_rank_is_in_one_group_and_no_innocent_one_stands_out(stacks, layout):
    """While anybody does not wait, who waits is left alone."""
    looks = [waiting(rank, frames=frames) for rank, frames in enumerate(stacks)]
    grouping = group_stacks(looks, layout)
    assert sorted(rank for group in grouping.groups for rank in group.ranks) == list(range(8))
    assert set(grouping.outliers) <= set(range(8))
    roles = {look.rank: place_of(look).role for look in looks}
    if any(roles[rank] is not Role.WAITS for rank in grouping.outliers):
        assert all(roles[rank] is not Role.WAITS for rank in grouping.outliers)
