"""Refuses a host that is too small, with the numbers, before the first step."""

from __future__ import annotations

from everstep.memory.room import Demand, declare, limit_of, shortage
from everstep.train.endings import HostTooSmallError, too_small_without_room
from everstep.train.environment import RankEnvironment
from everstep.train.snapshots import Sizes


def require_room(environment: RankEnvironment, sizes: Sizes) -> None:
    """Declare what this rank keeps, and check it together with the others'.

    Raises:
        HostTooSmallError: says what is needed, what there is, and what sets that.
    """
    memory_dir = environment.memory_dir
    assert memory_dir is not None, "a bare run keeps nothing"
    generation = environment.generation
    demand = Demand(generation=generation, slot=sizes.slot_bytes, durable=sizes.durable_bytes)
    with too_small_without_room():
        demands = declare(
            memory_dir, environment.job_id, environment.rank, demand, environment.host_ranks
        )
    short = shortage(
        demands,
        rank_count=len(environment.host_ranks) or 1,
        replica_count=environment.replica_count,
        limit=limit_of(memory_dir, environment.job_id),
    )
    if short is not None:
        raise HostTooSmallError(short)
