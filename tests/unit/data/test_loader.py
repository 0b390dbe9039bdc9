"""Which samples a step trains on."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from everstep.core.errors import InvalidInput
from everstep.data.loader import BatchPlan, DataState

PLAN = BatchPlan(seed=3, samples=1000, global_batch=24, micro_batch=2)


@given(position=st.integers(0, 10**9), groups=st.sampled_from([1, 2, 3, 4, 6, 12]))
@settings(max_examples=60, deadline=None)
def test_any_number_of_groups_splits_the_same_batch_in_the_same_order(position, groups):
    """The groups' shares, one after the other, are the global list of micro-batches."""
    whole = PLAN.batch(position)
    shares = [PLAN.share(position, group, groups) for group in range(groups)]
    assert tuple(micro for share in shares for micro in share) == whole
    assert len({len(share) for share in shares}) == 1


def test_an_epoch_uses_every_sample_once_and_the_next_has_another_order():
    """Epochs are re-keyed permutations of all samples, also inside a batch that spans two."""
    plan = BatchPlan(seed=3, samples=10, global_batch=4, micro_batch=2)
    stream = [sample for p in range(10) for micro in plan.batch(p) for sample in micro]
    epochs = [stream[start : start + 10] for start in range(0, 40, 10)]
    assert all(sorted(epoch) == list(range(10)) for epoch in epochs)
    assert len({tuple(epoch) for epoch in epochs}) == 4


def test_another_seed_is_another_order():
    """The seed keys the shuffle."""
    other = BatchPlan(seed=4, samples=1000, global_batch=24, micro_batch=2)
    assert other.batch(0) != PLAN.batch(0)


def test_corpus_of_1e12_samples_is_addressed_at_once():
    """Nothing is proportional to the corpus."""
    plan = BatchPlan(seed=1, samples=10**12, global_batch=2048, micro_batch=1)
    share = plan.share(10**6, 5, 128)
    assert len(share) == 16
    assert all(0 <= sample < 10**12 for (sample,) in share)


@pytest.mark.parametrize(("group", "groups"), [(0, 5), (3, 3), (-1, 3)])
def test_unequal_share_is_refused(group, groups):
    """Groups must get the same whole number of micro-batches."""
    with pytest.raises(InvalidInput, match="equal share"):
        PLAN.share(0, group, groups)


def test_plan_that_cannot_be_is_refused():
    """No samples, or a batch that is no whole number of micro-batches."""
    with pytest.raises(InvalidInput, match="no whole sample"):
        BatchPlan(seed=0, samples=0, global_batch=2, micro_batch=1)
    with pytest.raises(InvalidInput, match="not a multiple"):
        BatchPlan(seed=0, samples=9, global_batch=5, micro_batch=2)


ranges = st.lists(
    st.tuples(st.integers(0, 60), st.integers(0, 8)).map(lambda item: (item[0], sum(item))),
    max_size=4,
)


@given(skipped=ranges, step=st.integers(0, 40))
def test_seek_is_where_that_many_steps_lead(skipped, step):
    """Seeking to a step equals walking there, whatever is skipped."""
    state = DataState()
    for start, stop in skipped:
        state = state.skipping(start, stop)
    walked = state
    for _ in range(step):
        walked = walked.advanced()
    assert state.seek(step) == walked
    positions = {position for start, stop in skipped for position in range(start, stop)}
    assert walked.position not in positions


def test_skipping_ahead_of_a_resumed_run_leaves_the_range_out():
    """After a roll-back the skipped batches never come, and the later ones follow in order."""
    state = DataState(position=94).skipping(95, 97)
    seen = []
    for _ in range(4):
        seen.append(state.position)
        state = state.advanced()
    assert seen == [94, 97, 98, 99]


@given(skipped=ranges, position=st.integers(0, 60))
def test_state_survives_json(skipped, position):
    """What is written is read back."""
    state = DataState(position=position)
    for start, stop in skipped:
        state = state.skipping(start, stop)
    assert DataState.from_json(state.to_json()) == state


@pytest.mark.parametrize("value", [{}, {"position": "x"}, {"position": 1, "skipped": [[1]]}])
def test_garbled_state_is_refused(value):
    """A data state that cannot be read is an error, not position 0."""
    with pytest.raises(InvalidInput, match="not a data state"):
        DataState.from_json(value)


def test_impossible_moves_are_refused():
    """Negative steps and positions and reversed ranges do not exist."""
    with pytest.raises(InvalidInput):
        DataState().seek(-1)
    with pytest.raises(InvalidInput):
        DataState().at_position(-1)
    with pytest.raises(InvalidInput):
        DataState().skipping(5, 4)


sizes_of_batches = st.lists(st.tuples(st.integers(1, 5), st.integers(1, 4)), min_size=1, max_size=5)


@given(spans=sizes_of_batches)
def test_stream_has_no_gap_where_the_batch_changes_its_size(spans):
    """Each sample once, in the order that batches of one size would have had."""
    sizes: list[tuple[int, int]] = []
    position = 0
    for length, micro_batches in spans:
        sizes.append((position, 2 * micro_batches))
        position += length
    seen: list[int] = []
    for (begin, samples), (length, _) in zip(sizes, spans, strict=True):
        plan = BatchPlan(
            seed=3, samples=1000, global_batch=samples, micro_batch=2, sizes=tuple(sizes)
        )
        for at in range(begin, begin + length):
            seen += [sample for micro in plan.batch(at) for sample in micro]
    assert seen == [PLAN.sample_at(place) for place in range(len(seen))]


def test_batch_of_another_size_than_it_had_is_refused():
    """A rank that is told the wrong size trains on nothing."""
    plan = BatchPlan(seed=3, samples=99, global_batch=4, micro_batch=2, sizes=((0, 8), (5, 4)))
    assert plan.first_of(5) == 40
    assert plan.first_of(7) == 48
    with pytest.raises(InvalidInput, match="position 4 is one of 8 samples"):
        plan.batch(4)
