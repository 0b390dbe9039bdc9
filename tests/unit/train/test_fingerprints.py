"""Fingerprints are made of the checksums of what a rank shares, and of nothing else."""

from __future__ import annotations

import torch
from torch import nn

from everstep.core.placement import Layout
from everstep.train.fingerprints import Fingerprints, over_of
from everstep.train.state import TrackedState

LAYOUT = Layout(dp_replicate=2, tp=2)
NAMES = ["model.weight", "model.bias", "optimizer.state.weight.exp_avg", "rng.torch"]
SUMS = ["aa", "bb", "cc", "dd"]


def prints(*, every_steps: int = 1) -> Fingerprints:
    """Rank 1's, over a plain model: held alike over all dimensions there are."""
    found = Fingerprints(LAYOUT, 1, every_steps)
    found.plan(NAMES, {name: torch.zeros(1) for name in NAMES[:3]})
    return found


def shown(sums: list[str]) -> dict[int, int]:
    """Return what comes of these checksums."""
    found = prints()
    found.begin(3)
    found.take(3, sums)
    return dict(found.shown.values)


def test_plain_tensor_is_held_over_every_dimension_of_more_than_one():
    """A mesh that it does not have cannot cut it."""
    assert over_of(LAYOUT, 1, torch.zeros(1)) == 1 + 4
    assert over_of(Layout(), 0, torch.zeros(1)) == 0


def test_each_shared_tensor_changes_the_fingerprint_and_no_other_does():
    """Random states are a rank's own."""
    usual = shown(SUMS)
    assert usual.keys() == {5}
    for number in range(3):
        assert shown([*SUMS[:number], "xx", *SUMS[number + 1 :]]) != usual
    assert shown([*SUMS[:3], "xx"]) == usual


def test_word_is_unknown_until_the_snapshot_is_whole():
    """Nothing is said of one that is under way, and none is there at first."""
    found = prints()
    assert (found.word, found.compared) == (0.0, False)
    found.begin(3)
    assert found.word is None
    found.take(3, SUMS)
    assert found.word is not None
    assert found.compared
    assert found.told() == {"compared_step": 3, "fingerprints": [(5, found.shown.values[5])]}


def test_steps_between_are_not_compared():
    """They say nothing, and nothing against anybody."""
    found = prints(every_steps=2)
    found.begin(3)
    found.take(3, SUMS)
    assert (found.word, found.compared, found.told()) == (0.0, False, {})


def test_state_shares_parameters_and_moments_and_no_buffers():
    """Frozen parameters too: whoever does not train them holds them all the same."""
    model = nn.BatchNorm1d(2)
    model.bias.requires_grad_(requires_grad=False)
    optimizer = torch.optim.Adam([model.weight])
    model.weight.grad = torch.ones(2)
    optimizer.step()
    state = TrackedState(torch.device("cpu"), {"model": model, "optimizer": optimizer})
    assert state.shared() == {
        "model.weight": model.weight,
        "model.bias": model.bias,
        "optimizer.state.weight.step": model.weight,
        "optimizer.state.weight.exp_avg": model.weight,
        "optimizer.state.weight.exp_avg_sq": model.weight,
    }


def test_step_of_another_layout_is_waited_for_by_nobody(tmp_path):
    """It lies in old ranks' slots and not in this one's: the next snapshot may be taken."""
    mine = prints()
    mine.begin(7)
    assert mine.word is None
    mine.take_kept(tmp_path / "slot-1", [])
    assert mine.word is not None
    assert not mine.compared
