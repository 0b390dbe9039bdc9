"""Refuses a host that is too small, with the numbers, before the first step."""

from __future__ import annotations

from everstep.memory.room import Demand, declare, limit_of, shortage
from everstep.train.endings import HostTooSmallError
from everstep.train.environment import RankEnvironment
from everstep.train.snapshots import Sizes


def require_room(environment: RankEnvironment, sizes: Sizes) -> None:
    """Declare what this rank keeps, and check it together with the others'.

    Raises:
        HostTooSmallError: says what is needed, what there is, and what sets that.
    """
    memory_dir = environment.memory_dir
    assert memory_dir is not None, "a bare run keeps nothing"
    demands = declare(
        memory_dir,
        environment.job_id,
        environment.rank,
        Demand(
            generation=environment.generation, slot=sizes.slot_bytes, durable=sizes.durable_bytes
        ),
        environment.host_ranks,
    )
    short = shortage(
        demands,
        rank_count=len(environment.host_ranks) or 1,
        replica_count=environment.replica_count,
        limit=limit_of(memory_dir, environment.job_id),
    )
    if short is not None:
        raise HostTooSmallError(short)
