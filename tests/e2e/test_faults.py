"""Faults that users of other systems reported, and input that cannot be right."""

from __future__ import annotations

import json
from pathlib import Path, PurePosixPath
from typing import Any

import pytest
from tests.e2e.lab import OBJECT_EVERY, STEPS, Lab, wait_for

from everstep.chaos.hand import damage_object
from everstep.core.errors import EverstepError
from everstep.faults.kinds import MARKS_VARIABLE, Part, as_environment, at
from everstep.memory.damage import flip_snapshot
from everstep.memory.layout import rank_dir, replica_dir, slot_path
from everstep.memory.slot import read_preamble

pytestmark = [pytest.mark.stack, pytest.mark.torch, pytest.mark.timeout(400)]

FAULT_STEP = OBJECT_EVERY + 3

CRASHING = '''
"""User code with a bug after step 3."""
from everstep.models import pretrain


def main(run):
    step = run.step

    def broken(*args, **kwargs):
        if run.step_index == 3:
            raise ValueError("bad sample")
        return step(*args, **kwargs)

    run.step = broken
    pretrain.main(run)
'''


@pytest.fixture
def ends_equal(lab: Lab, reference: str, tmp_path: Path) -> Any:
    """Wait for a job's success and compare its final state with the undisturbed run's."""

    def check(job_id: str) -> dict[str, Any]:
        job = lab.succeeded(job_id)
        compared, differences = lab.differences(job_id, reference, tmp_path / "compare")
        assert differences == ()
        assert compared > 100
        return job

    return check


def copies(lab: Lab, job_id: str, rank: int) -> dict[str, list[tuple[int, Path]]]:
    """Every snapshot of a rank in any host's memory: host -> (step, file), newest first."""
    found: dict[str, list[tuple[int, Path]]] = {}
    for host in lab.hosts_of(job_id):
        root = Path(lab.stack.memory_root) / host["host_id"]
        for directory in (rank_dir(root, job_id, rank), replica_dir(root, job_id, rank)):
            for slot in (0, 1):
                path = slot_path(directory, slot)
                preamble = read_preamble(path) if path.exists() else None
                if preamble is not None:
                    found.setdefault(host["host_id"], []).append((preamble.step, path))
    for files in found.values():
        files.sort(reverse=True)
    return found


def object_of(lab: Lab, job_id: str, step: int, *, rank: int) -> str:
    """The key of a rank's shard."""
    stored = next(c for c in lab.client.checkpoints(job_id) if c["step"] == step)
    return str(PurePosixPath(stored["manifest_uri"]).parent / f"rank-{rank:05d}.shard")


def pause(lab: Lab, job_id: str) -> int:
    """Pause the job and return the step at which its ranks stopped."""
    lab.client.act(job_id, "pause")
    lab.wait_phase(job_id, "paused")
    return max(step for files in copies(lab, job_id, 0).values() for step, _ in files)


def refused(lab: Lab, job_id: str) -> list[dict[str, Any]]:
    """Copies that could not be used, as the monitor tells."""
    return lab.client.refused_sources(job_id)


def test_pause_and_resume_change_nothing(lab: Lab, ends_equal):
    """The ranks stop at a common step and go on from memory."""
    job_id = lab.submit("paused")
    lab.wait_step(job_id, 5)
    step = pause(lab, job_id)
    lab.client.act(job_id, "resume")
    job = ends_equal(job_id)
    assert job["recoveries"][-1]["restore_step"] == step
    assert lab.incidents(job_id) == []
    assert lab.client.goodput(job_id)["causes"]["paused"] > 0


def test_restart_from_a_durable_step_changes_nothing(lab: Lab, ends_equal):
    """Going back on request repeats the same steps with the same data."""
    job_id = lab.submit("restarted")
    lab.wait_step(job_id, FAULT_STEP)
    wait_for(
        "a complete checkpoint",
        lambda: any(c["complete"] for c in lab.client.checkpoints(job_id)),
    )
    lab.client.act(job_id, "restart", {"from_step": OBJECT_EVERY})
    job = ends_equal(job_id)
    assert job["recoveries"][-1]["restore_step"] == OBJECT_EVERY


def test_job_that_was_stopped_goes_on_from_its_newest_checkpoint(lab: Lab, ends_equal):
    """A stop is for good only until somebody thinks better of it; a failure is no other end."""
    job_id = lab.submit("reopened")
    wait_for(
        "a complete checkpoint",
        lambda: any(c["complete"] for c in lab.client.checkpoints(job_id)),
    )
    lab.client.act(job_id, "stop")
    wait_for("the stop", lambda: lab.client.job(job_id)["phase"] == "stopped")
    with pytest.raises(EverstepError, match=f"`everstep jobs restart {job_id}` goes on from"):
        lab.client.act(job_id, "resume")
    assert lab.client.job(job_id)["ended_at_ms"] is not None
    lab.client.act(job_id, "restart")
    assert lab.client.job(job_id)["ended_at_ms"] is None, "the next controller would leave it alone"
    job = ends_equal(job_id)
    assert [one["cause"] for one in job["recoveries"]] == ["launch", "stop", "restart"]
    assert job["recoveries"][-1]["restore_step"] >= OBJECT_EVERY
    assert lab.client.goodput(job_id)["causes"]["paused"] > 0


def test_restart_from_a_step_that_does_not_exist_leaves_the_run_alone(lab: Lab):
    """A typo must not cost a running job anything."""
    job_id = lab.submit("typo")
    lab.wait_step(job_id, 3)
    with pytest.raises(EverstepError, match="no checkpoint of step 999 that may be restored"):
        lab.client.act(job_id, "restart", {"from_step": 999})
    job = lab.client.job(job_id)
    assert (job["phase"], job["generation"]) == ("running", 1)


def test_damaged_own_snapshot_is_refused_by_name_and_the_peers_copy_serves(lab: Lab, ends_equal):
    """A checksum tells, the next source is used, nobody loads the damage (PEERS 6.1)."""
    job_id = lab.submit("damaged-own")
    lab.wait_step(job_id, 5)
    step = pause(lab, job_id)
    owner = next(h["host_id"] for h in lab.hosts_of(job_id) if 2 in h["ranks"])
    newest, path = copies(lab, job_id, 2)[owner][0]
    assert newest == step
    flip_snapshot(path, seed=path.name)
    lab.client.act(job_id, "resume")
    job = ends_equal(job_id)
    assert job["recoveries"][-1]["restore_step"] == step
    (one,) = refused(lab, job_id)
    assert (one["rank"], one["step"], one["kind"]) == (2, step, "own_memory")
    assert "checksum" in one["detail"]
    assert "expected" in one["detail"]


def test_snapshot_that_goes_bad_in_a_running_rank_is_found_by_its_next_process(
    lab: Lab, ends_equal, tmp_path: Path
):
    """The rank itself flips the bit, goes on, and dies a step later; the peer's copy serves."""
    kept, rank = 3, 2  # no checkpoint is stored before the rank dies
    flip = at(rank=rank, step=kept + 1).flip(Part.SNAPSHOT)
    struck = as_environment(flip, at(rank=rank, step=kept + 2).kill())
    checkpoint = {"object_every_steps": OBJECT_EVERY, "memory_every_steps": kept}
    env = {**struck, MARKS_VARIABLE: str(tmp_path)}
    job_id = lab.submit("damaged-live", checkpoint=checkpoint, env=env)
    job = ends_equal(job_id)
    said = [json.loads(path.read_text()) for path in (tmp_path / job_id).glob("*.json")]
    assert sorted(one["fault"]["type"] for one in said) == ["flip", "kill"]
    assert [one["kind"] for one in lab.incidents(job_id)] == ["rank_killed"]
    assert [one["restore_step"] for one in job["recoveries"][1:]] == [kept]
    (one,) = refused(lab, job_id)
    assert (one["rank"], one["step"], one["kind"]) == (rank, kept, "own_memory")
    assert "checksum" in one["detail"]


def test_every_copy_of_a_step_damaged_falls_back_to_the_step_before(lab: Lab, ends_equal):
    """Bad copies are tried once, not for ever (PEERS 6.1: 44 restarts)."""
    job_id = lab.submit("damaged-all")
    lab.wait_step(job_id, 5)
    step = pause(lab, job_id)
    damaged = [
        path for files in copies(lab, job_id, 2).values() for at, path in files if at == step
    ]
    assert len(damaged) == 2
    for path in damaged:
        flip_snapshot(path, seed=path.name)
    wait_for("the pause's checkpoint", lambda: step in lab.complete_steps(job_id))
    damage_object(lab.paths, object_of(lab, job_id, step, rank=2))
    lab.client.act(job_id, "resume")
    job = ends_equal(job_id)
    assert job["recoveries"][-1]["restore_step"] == step - 1
    assert {one["step"] for one in refused(lab, job_id)} == {step}
    assert [i["kind"] for i in lab.incidents(job_id)] == ["restore_failed"] * len(
        lab.incidents(job_id)
    )
    assert 1 <= len(lab.incidents(job_id)) <= 3


def test_damaged_object_is_refused_by_name_and_an_older_checkpoint_serves(lab: Lab, ends_equal):
    """The object store lies, both memories are gone: the checkpoint before is used."""
    job_id = lab.submit_unhurried("damaged-object", after=2 * OBJECT_EVERY + 1)
    lab.wait_step(job_id, 2 * OBJECT_EVERY + 1)
    wait_for("two complete checkpoints", lambda: len(lab.complete_steps(job_id)) == 2)
    newest = max(lab.complete_steps(job_id))
    key = object_of(lab, job_id, newest, rank=0)

    damage_object(lab.paths, key)
    owner = lab.hosts_of(job_id)[0]
    lab.kill_host(owner["host_id"])
    lab.kill_host(owner["replica_host_id"])
    lab.let_go("damaged-object")
    job = ends_equal(job_id)
    steps = [g["restore_step"] for g in job["recoveries"] if g["restore_step"] is not None]
    assert newest in steps
    assert steps[-1] == newest - OBJECT_EVERY
    assert key in {one["uri"] for one in refused(lab, job_id)}


def test_user_code_that_raises_stops_after_the_second_time_with_its_traceback(lab: Lab):
    """The same error after the same step is the user's bug: no third try."""
    (lab.corpus.parent / "crashing.py").write_text(CRASHING)
    job_id = lab.submit("user-error", entry="crashing:main")
    job = lab.wait_phase(job_id, "failed")
    assert job["why"] == "user_error"
    assert "ValueError: bad sample" in job["detail"]
    assert 'raise ValueError("bad sample")' in job["detail"]
    assert [i["kind"] for i in lab.incidents(job_id)] == ["user_error", "user_error"]
    assert [i["action"] for i in lab.incidents(job_id)] == ["RESTART", "FAIL"]
    assert all(host["state"] != "cordoned" for host in lab.hosts().values())


@pytest.mark.parametrize("entry", ["no_such_module:main", "everstep.models.pretrain:nothing"])
def test_unknown_entry_point_fails_at_once(lab: Lab, entry: str):
    """No restart finds a function that is not there."""
    job_id = lab.submit("unknown-entry", entry=entry)
    job = lab.wait_phase(job_id, "failed")
    assert job["why"] == "bad_entry_point"
    assert entry.split(":", maxsplit=1)[0] in job["detail"] or "nothing" in job["detail"]
    assert job["generation"] == 1


def test_layout_that_does_not_divide_the_batch_is_refused(lab: Lab):
    """The answer names the field and the numbers."""
    with pytest.raises(EverstepError, match=r"multiple of 6 \(micro_batch 2 x 3 .* got 8"):
        lab.submit("bad-layout", layout={"pp": 1, "dp_shard": 3, "tp": 2})


def test_layout_that_can_never_fit_fails_with_the_numbers(lab: Lab):
    """32 ranks on a fleet of 12 chips: waiting would not help."""
    job_id = lab.submit("too-large", layout={"pp": 8, "dp_shard": 2, "tp": 2})
    job = lab.wait_phase(job_id, "failed")
    assert job["why"] == "does_not_fit"
    assert "32" in job["detail"]
    assert "12" in job["detail"]


def test_state_that_host_memory_cannot_hold_fails_at_launch_with_the_numbers(lab: Lab):
    """Before the first step, and without a second try: 4 TB a rank fit nowhere here."""
    (lab.corpus.parent / "huge.py").write_text(
        "import torch\ndef main(run):\n    run.track(big=torch.zeros(1).expand(10**12))\n"
    )
    job_id = lab.submit("huge-state", entry="huge:main")
    job = lab.wait_phase(job_id, "failed")
    assert (job["why"], job["generation"]) == ("host_too_small", 1)
    assert "2 snapshots and one that is uploaded" in job["detail"]
    assert all(host["state"] != "cordoned" for host in lab.hosts().values())


def test_second_job_on_a_busy_fleet_waits_and_then_runs(lab: Lab, ends_equal):
    """It says what it waits for, takes nothing from the first, and starts when that has ended."""
    first = lab.submit("first")
    lab.wait_step(first, 1)
    second = lab.submit("second")
    job = lab.wait_phase(second, "waiting_for_hosts")
    assert job["hosts_short"] == 2
    ends_equal(first)
    ends_equal(second)
    assert lab.incidents(first) == lab.incidents(second) == []


def test_host_that_joins_during_training_disturbs_nothing(lab: Lab, ends_equal):
    """A spare's arrival is no rendezvous (PEERS 6.2)."""
    job_id = lab.submit_unhurried("joined", after=4)
    lab.wait_step(job_id, 4)
    lab.start_host("late")
    wait_for("the new host", lambda: lab.hosts().get("late", {}).get("state") == "spare")
    assert lab.step_of(job_id) < STEPS
    lab.let_go("joined")
    job = ends_equal(job_id)
    assert job["generation"] == 1
    lab.kill_host("late")


def test_object_store_away_hurts_no_step_and_uploads_follow(lab: Lab, ends_equal):
    """A failed save never hurts training (PEERS 6.5)."""
    job_id = lab.submit("store-away")
    lab.wait_step(job_id, 2)
    lab.kill_service("s3", down=True)
    lab.wait_step(job_id, OBJECT_EVERY + 4)
    lab.start_service("s3")
    job = ends_equal(job_id)
    assert job["generation"] == 1
    assert lab.incidents(job_id) == []


def test_script_made_for_torchrun_runs_unchanged(lab: Lab):
    """Torchrun's variables are set; nothing of ours is imported."""
    script = lab.corpus.parent / "plain.py"
    script.write_text(
        "import os, torch, torch.distributed as dist\n"
        "dist.init_process_group('gloo')\n"
        "total = torch.ones(1)\n"
        "dist.all_reduce(total)\n"
        "assert total.item() == int(os.environ['WORLD_SIZE']) == 4\n"
        "assert int(os.environ['LOCAL_RANK']) < int(os.environ['LOCAL_WORLD_SIZE']) == 2\n"
        "dist.destroy_process_group()\n"
    )
    job_id = lab.submit(
        "script", entry="plain.py", args={}, data=None, layout={"dp_shard": 4}, steps=1
    )
    lab.succeeded(job_id)
