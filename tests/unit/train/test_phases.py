"""Where in a step a rank is, as it notes it."""

from __future__ import annotations

from everstep.memory.control import Control, Phase
from everstep.memory.layout import control_path, rank_dir
from everstep.train.environment import RankEnvironment
from everstep.train.phases import PhaseNote

BARE = RankEnvironment(rank=1, world_size=2, local_rank=1, rendezvous=True)


def test_phase_is_noted_where_the_agent_looks(tmp_path):
    """In the control words of this rank."""
    environment = RankEnvironment(
        rank=1, world_size=2, local_rank=1, rendezvous=True, job_id="job-1", memory_dir=tmp_path
    )
    PhaseNote(environment).enter(Phase.LOADING)
    agent = Control(control_path(rank_dir(tmp_path, "job-1", 1)))
    assert agent.phase is Phase.LOADING
    agent.close()


def test_phase_of_a_bare_run_is_noted_nowhere():
    """There is no agent to look, and no memory to share."""
    PhaseNote(BARE).enter(Phase.LOADING)
