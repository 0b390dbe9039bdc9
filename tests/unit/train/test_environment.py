"""The variables that a rank is started with."""

import json
from pathlib import Path

import pytest

from everstep.core.errors import InvalidInput
from everstep.core.schedule import Schedule
from everstep.train.environment import RankEnvironment, read_environment

SPEC = {"name": "x", "entry": "m:f", "layout": {"dp_shard": 2}, "steps": 3}
FULL = {
    "RANK": "1",
    "WORLD_SIZE": "2",
    "LOCAL_RANK": "1",
    "MASTER_ADDR": "h",
    "MASTER_PORT": "1",
    "EVERSTEP_JOB_ID": "job-1",
    "EVERSTEP_GENERATION": "4",
    "EVERSTEP_SPEC": json.dumps(SPEC),
    "EVERSTEP_AGENT_SOCKET": "/run/agent.sock",
    "EVERSTEP_MEMORY_DIR": "/dev/shm/x",
}


def test_empty_environment_is_a_bare_single_rank():
    """A plain ``python script.py`` is rank 0 of 1, with no agent."""
    found = read_environment({})
    assert found == RankEnvironment(rank=0, world_size=1, local_rank=0, rendezvous=False)
    assert found.is_bare


def test_torchrun_environment_is_bare_with_a_rendezvous():
    """Torchrun's variables alone are enough."""
    found = read_environment({k: v for k, v in FULL.items() if not k.startswith("EVERSTEP")})
    assert (found.rank, found.world_size, found.rendezvous, found.is_bare) == (1, 2, True, True)


def test_full_environment_names_job_agent_and_memory():
    """Everything that Everstep sets is read."""
    found = read_environment({**FULL, "EVERSTEP_SEEK_POSITION": "17"})
    assert (found.job_id, found.generation, found.seek_position) == ("job-1", 4, 17)
    assert (found.agent_socket, found.memory_dir) == (Path("/run/agent.sock"), Path("/dev/shm/x"))
    assert found.spec is not None
    assert found.spec.layout.dp_shard == 2
    assert read_environment(FULL).seek_position is None


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"RANK": "one"}, "RANK should be an integer, not 'one'"),
        ({"EVERSTEP_SPEC": "{}"}, "invalid job spec"),
        ({"EVERSTEP_MEMORY_DIR": None}, "EVERSTEP_MEMORY_DIR"),
    ],
)
def test_wrong_environment_is_refused(change, message):
    """A variable that is wrong or missing is named."""
    env = {key: value for key, value in {**FULL, **change}.items() if value is not None}
    with pytest.raises(InvalidInput, match=message):
        read_environment(env)


def test_schedule_of_the_start_comes_before_that_of_the_spec():
    """A new generation begins with the schedule that was in force, not with the job's first."""
    told = '{"version": 3, "memory_every_steps": 2, "object_every_steps": 40}'
    spec = read_environment(FULL).spec
    assert spec is not None
    at_first = read_environment(FULL).schedule_for(spec)
    assert at_first == Schedule(memory_every_steps=1, object_every_steps=100)
    changed = read_environment({**FULL, "EVERSTEP_SCHEDULE": told}).schedule_for(spec)
    assert changed == Schedule(version=3, memory_every_steps=2, object_every_steps=40)
    with pytest.raises(InvalidInput, match="EVERSTEP_SCHEDULE is no schedule"):
        read_environment({**FULL, "EVERSTEP_SCHEDULE": '{"version": "x"}'})
