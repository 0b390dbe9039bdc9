"""Killed, restored and bit-equal: the promise of the project, on real process groups."""

import pytest

from everstep.memory.compare import compare

pytestmark = pytest.mark.torch


def losses(world) -> dict[int, float]:
    """Return the loss of each step as rank 0 told it."""
    return {frame["step"]: frame["loss"] for frame in world.ranks[0].steps}


@pytest.mark.parametrize(
    ("layout", "args"),
    [
        ({"pp": 2, "dp_shard": 2, "tp": 2}, {"dropout": 0.1}),
    ],
    ids=["pp2 dp2 tp2"],
)
def test_killed_ranks_restored_from_memory_end_bit_equal(make_world, make_spec, layout, args):
    """Every tensor of the final state equals the undisturbed run's."""
    spec = make_spec(layout, args=args)
    undisturbed = make_world("undisturbed", spec)
    undisturbed.start()
    undisturbed.finish()

    killed = make_world("killed", spec)
    killed.start()
    killed.until_step(3)
    killed.kill()
    killed.until_ended()
    step = killed.newest_common_step()
    assert step >= 2
    killed.start(1, step=step)
    killed.finish()

    result = compare(undisturbed.durable(), killed.durable())
    assert result.equal, result.differences[:10]
    assert result.tensors_compared > 100
    assert losses(killed) == {s: loss for s, loss in losses(undisturbed).items() if s > step}
