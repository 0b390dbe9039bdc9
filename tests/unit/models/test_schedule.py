"""The learning rate, the split into stages, and the job's args."""

import itertools

import pytest

from everstep.core.errors import InvalidInput
from everstep.models.llama import LlamaConfig
from everstep.models.parallel import layer_range
from everstep.models.pretrain import Hyperparameters, read_args
from everstep.models.schedule import FINAL_SHARE, rate_share


def test_rate_rises_to_the_peak_then_falls_to_a_tenth():
    """Linear warm-up, cosine decay, and flat after the end."""
    shares = [rate_share(step, warmup_steps=4, total_steps=24) for step in range(30)]
    assert shares[:4] == [0.25, 0.5, 0.75, 1.0]
    assert shares[4] == 1.0
    assert shares[14] == pytest.approx((1 + FINAL_SHARE) / 2)
    assert shares[24:] == [pytest.approx(FINAL_SHARE)] * 6
    assert all(a >= b for a, b in itertools.pairwise(shares[4:]))


def test_rate_without_warm_up_begins_at_the_peak():
    """Zero warm-up steps divide by nothing."""
    assert rate_share(0, warmup_steps=0, total_steps=1) == 1.0


@pytest.mark.parametrize(("layers", "stages"), [(4, 2), (5, 2), (7, 3), (3, 3)])
def test_stages_cover_every_layer_once(layers, stages):
    """Contiguous, in order, none left out, sizes differ by one at most."""
    ranges = [layer_range(layers, stages, index) for index in range(stages)]
    covered = [layer for first, count in ranges for layer in range(first, first + count)]
    assert covered == list(range(layers))
    counts = [count for _, count in ranges]
    assert max(counts) - min(counts) <= 1


def test_args_are_split_into_sizes_and_hyperparameters():
    """Every known argument arrives where it belongs."""
    config, hyper = read_args({"dim": 32, "lr": 0.1, "dropout": 0.2}, 48)
    assert config == LlamaConfig(dim=32, dropout=0.2, sequence_tokens=48)
    assert hyper == Hyperparameters(lr=0.1)


def test_unknown_arg_is_refused_with_the_known_ones():
    """A misspelt argument is not silently ignored."""
    with pytest.raises(InvalidInput, match=r"unknown args dimm; known are dim, dropout"):
        read_args({"dimm": 32}, 48)
