"""Which ports are offered, and when a step's shards are complete."""

from __future__ import annotations

import math

from everstep.agent.ports import PORT_FIRST, PORT_LAST, STRIDE, candidates
from everstep.agent.shards import ShardBatch, StoredShard, object_key


def shard(rank, checksum="c"):
    """A stored shard."""
    return StoredShard(rank=rank, uri=f"u{rank}", bytes=1, checksum=checksum)


def batch():
    """Of ranks 2 and 3."""
    return ShardBatch(
        job_id="j", generation=1, step=20, world_size=4, data_state="{}", expected=(2, 3)
    )


def test_offered_ports_lie_outside_the_kernels_range():
    """No outgoing connection can take a port between its choice and its use."""
    offered = list(candidates((32_768, 60_999)))
    assert not any(32_768 <= port <= 60_999 for port in offered)
    assert (offered[0], offered[-1]) == (PORT_FIRST, PORT_LAST)


def test_every_port_comes_up_before_one_comes_twice():
    """The stride shares no factor with the number of candidates."""
    count = len(candidates((32_768, 60_999)))
    assert math.gcd(STRIDE, count) == 1
    assert math.gcd(STRIDE, PORT_LAST - PORT_FIRST + 1) == 1


def test_kernel_that_takes_all_leaves_all():
    """Where every port is the kernel's, any must do."""
    assert len(list(candidates((1_024, 65_535)))) == PORT_LAST - PORT_FIRST + 1


def test_batch_is_complete_with_its_last_rank():
    """One message a host holds all its ranks, in order."""
    half = batch().with_shard(shard(3))
    assert not half.complete
    whole = half.with_shard(shard(2))
    assert whole.complete
    assert [one.rank for one in whole.report("h", 5).shards] == [2, 3]


def test_shard_stored_again_replaces_the_first():
    """An upload that an earlier agent had finished does not count twice."""
    twice = batch().with_shard(shard(2)).with_shard(shard(2, "d"))
    assert [(one.rank, one.checksum) for one in twice.shards] == [(2, "d")]


def test_key_names_step_generation_and_rank():
    """A late writer of an older generation writes elsewhere."""
    assert object_key("j", 20, 3, 7) == "jobs/j/step-00000020/gen-3/rank-00007.shard"
