"""The words that rank and agent share, and the paths they lie at."""

import pytest

from everstep.core.errors import CorruptData
from everstep.memory.control import NO_STEP, Control, Phase
from everstep.memory.layout import (
    control_path,
    rank_dir,
    ranks_in,
    read_fence,
    replica_dir,
    slot_path,
    write_fence,
)
from everstep.wire.v1.agents_pb2 import RankPhase


def test_control_is_shared_by_two_openers(tmp_path):
    """What the agent writes the rank sees, and the other way round."""
    path = control_path(rank_dir(tmp_path, "job-1", 0))
    rank, agent = Control(path), Control(path)
    assert (rank.replicated_step, rank.replication_off, rank.durable_busy) == (
        NO_STEP,
        False,
        False,
    )
    agent.replicated_step = 12
    agent.replication_off = True
    rank.durable_busy = True
    assert (rank.replicated_step, rank.replication_off, agent.durable_busy) == (12, True, True)
    agent.reset(replication_off=False)
    assert (rank.replicated_step, rank.replication_off, rank.durable_busy) == (
        NO_STEP,
        False,
        False,
    )
    rank.close()
    agent.close()


def test_phase_is_told_until_the_next_start(tmp_path):
    """The agent sees where the rank is, and a new generation begins at the beginning."""
    path = control_path(rank_dir(tmp_path, "job-1", 0))
    rank, agent = Control(path), Control(path)
    assert agent.phase is Phase.STARTING
    for phase in Phase:
        rank.phase = phase
        assert agent.phase is phase
    agent.reset(replication_off=False)
    assert rank.phase is Phase.STARTING
    rank.close()
    agent.close()


def test_phases_are_numbered_as_on_the_wire():
    """Two lists of one thing."""
    assert {f"PHASE_{one.name}": one.value for one in Phase} == dict(RankPhase.items())


def test_control_of_foreign_content_is_refused(tmp_path):
    """A file that is something else is not taken for control words."""
    (tmp_path / "short").write_bytes(b"x")
    (tmp_path / "long").write_bytes(b"x" * 64)
    for name in ("short", "long"):
        with pytest.raises(CorruptData):
            Control(tmp_path / name)


def test_fence_only_rises(tmp_path):
    """An older generation cannot lower the fence."""
    assert read_fence(tmp_path, "job-1") == -1
    assert write_fence(tmp_path, "job-1", 3) == 3
    assert write_fence(tmp_path, "job-1", 2) == 3
    assert write_fence(tmp_path, "job-1", 4) == 4
    assert read_fence(tmp_path, "job-1") == 4


def test_ranks_and_replicas_are_listed_apart_and_sorted(tmp_path):
    """Own ranks and replicas do not mix; ten comes after two."""
    assert list(ranks_in(tmp_path, "job-1", own=True)) == []
    for rank in (10, 2):
        rank_dir(tmp_path, "job-1", rank).mkdir(parents=True)
    replica_dir(tmp_path, "job-1", 5).mkdir()
    write_fence(tmp_path, "job-1", 1)
    assert [rank for rank, _ in ranks_in(tmp_path, "job-1", own=True)] == [2, 10]
    (found,) = ranks_in(tmp_path, "job-1", own=False)
    assert found == (5, replica_dir(tmp_path, "job-1", 5))
    assert slot_path(found[1], 1).name == "slot-1"
