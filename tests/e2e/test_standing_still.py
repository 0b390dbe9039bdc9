"""What stands still is watched too: paused jobs, spares, hosts that work badly."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.e2e.lab import STEPS, Lab, wait_for

from everstep.core.errors import EverstepError

pytestmark = [pytest.mark.stack, pytest.mark.torch, pytest.mark.timeout(400)]

LINGERING = '''
"""User code that is through with its steps and not yet with its work."""
import os
import pathlib
import time

from everstep.models import pretrain


def main(run):
    pretrain.main(run)
    while not pathlib.Path(os.environ["GATE"]).exists():
        time.sleep(0.05)
'''

ENDLESS = "import time\nwhile True:\n    time.sleep(0.1)\n"

EARLY = '''
"""User code that leaves before the spec's last step."""


def main(run):
    return
'''


@pytest.fixture
def ends_equal(lab: Lab, reference: str, tmp_path: Path) -> Any:
    """Wait for a job's success and compare its final state with the undisturbed run's."""

    def check(job_id: str) -> dict[str, Any]:
        job = lab.succeeded(job_id)
        compared, differences = lab.differences(job_id, reference, tmp_path / "compare")
        assert differences == ()
        assert compared > 100
        assert lab.losses(job_id) == lab.losses(reference)
        return job

    return check


def incidents_of_host(lab: Lab, host_id: str) -> list[dict[str, Any]]:
    """Open incidents of a host that served no running job."""
    return [
        one
        for one in lab.client.incidents()
        if one["hosts"] == [host_id] and not one["job_id"] and one["recovered_at_ms"] is None
    ]


def wait_cordoned(lab: Lab, host_id: str) -> None:
    """Wait until the monitor has noticed and the inventory has acted."""
    wait_for(f"an incident of {host_id}", lambda: incidents_of_host(lab, host_id))
    wait_for(f"{host_id} to be cordoned", lambda: lab.hosts()[host_id]["state"] == "cordoned")


def test_host_killed_while_its_job_is_paused_is_replaced_at_the_resume(lab: Lab, ends_equal):
    """It is found while nothing runs on it; its memory is gone, its peer's copies serve."""
    job_id = lab.submit("paused-loss")
    lab.wait_step(job_id, 5)
    lab.client.act(job_id, "pause")
    lab.wait_phase(job_id, "paused")
    victim = lab.hosts_of(job_id)[1]["host_id"]
    lab.kill_host(victim)
    wait_cordoned(lab, victim)
    assert lab.client.job(job_id)["phase"] == "paused"
    lab.client.act(job_id, "resume")
    job = ends_equal(job_id)
    last = job["recoveries"][-1]
    assert (last["cause"], last["unreachable"]) == ("resume", [victim])
    assert last["sources"] == {"own_memory": 6, "peer_memory": 2, "object_store": 0}
    assert victim not in [host["host_id"] for host in job["placement"]["hosts"]]
    assert lab.incidents(job_id) == []


def test_spare_killed_while_the_monitor_is_away_is_found_when_it_is_back(lab: Lab):
    """It never speaks to the new monitor; the inventory says that it should be there."""
    spare = next(h["host_id"] for h in lab.hosts().values() if h["state"] == "spare")
    lab.kill_service("monitor", down=True)
    lab.kill_host(spare)
    lab.start_service("monitor")
    wait_cordoned(lab, spare)


def test_third_death_on_a_host_without_a_spare_restarts_in_place(lab: Lab, ends_equal):
    """The host works badly, but it works: the job goes on there and says so."""
    job_id = lab.submit("unsound")
    lab.wait_step(job_id, 1)
    host = lab.hosts_of(job_id)[1]
    for spare in [h["host_id"] for h in lab.hosts().values() if h["state"] == "spare"]:
        lab.client.cordon(spare, "no spare for this test")
    for death in (1, 2, 3):
        lab.wait_step(job_id, 3 * death)
        # It still counts as running when its last death is known and not yet answered.
        wait_for("its ranks", lambda death=death: lab.client.job(job_id)["generation"] == death)
        lab.wait_phase(job_id, "running")
        lab.kill_rank(host["ranks"][0], job_id)
        wait_for("the incident", lambda death=death: len(lab.incidents(job_id)) == death)
    job = ends_equal(job_id)
    assert [one["action"] for one in lab.incidents(job_id)] == [
        "RESTART",
        "RESTART",
        "REPLACE_IF_SPARE",
    ]
    last = job["recoveries"][-1]
    assert (last["unsound_hosts"], last["replacements"]) == ([host["host_id"]], [])
    assert f"no spare host can take the ranks of {host['host_id']}" in last["remark"]
    assert lab.hosts()[host["host_id"]]["state"] != "cordoned"


def test_run_that_finishes_while_it_is_being_paused_has_succeeded(lab: Lab, ends_equal):
    """Its ranks are through with their steps, so nothing is left to resume."""
    (lab.corpus.parent / "lingering.py").write_text(LINGERING)
    gate = lab.corpus.parent / "gate"
    gate.unlink(missing_ok=True)
    job_id = lab.submit("finishing", entry="lingering:main", env={"GATE": str(gate)})
    lab.wait_step(job_id, STEPS)
    lab.client.act(job_id, "pause")
    lab.wait_phase(job_id, "pausing")
    gate.touch()
    job = ends_equal(job_id)
    assert job["detail"] == ""


def test_script_without_the_sdk_cannot_be_paused_and_is_told_what_to_do(lab: Lab):
    """A pause would kill it and keep its hosts; a stop gives them back."""
    (lab.corpus.parent / "endless.py").write_text(ENDLESS)
    job_id = lab.submit(
        "endless", entry="endless.py", args={}, data=None, layout={"dp_shard": 4}, steps=1
    )
    lab.wait_phase(job_id, "running")
    with pytest.raises(EverstepError, match=f"everstep jobs stop {job_id}"):
        lab.client.act(job_id, "pause")
    assert lab.client.job(job_id)["phase"] == "running"
    lab.client.act(job_id, "stop")
    lab.wait_phase(job_id, "stopped")
    assert wait_for("its hosts", lambda: _all_free(lab, job_id), patience_s=30)


def test_entry_that_returns_early_succeeds_and_says_so(lab: Lab):
    """Exit code 0 is success, but nobody should think that all steps were made."""
    (lab.corpus.parent / "early.py").write_text(EARLY)
    job_id = lab.submit("early", entry="early:main")
    assert lab.succeeded(job_id)["detail"] == f"returned at step 0 of {STEPS}"


def _all_free(lab: Lab, job_id: str) -> bool:
    return all(host["job_id"] != job_id for host in lab.hosts().values())


def test_host_is_drained_without_losing_a_step(lab: Lab, ends_equal):
    """Its ranks stop after a last common step, a spare goes on from there, nobody is blamed."""
    job_id = lab.submit_unhurried("drained", after=6)
    lab.wait_step(job_id, 6)
    host_id = lab.hosts_of(job_id)[1]["host_id"]
    lab.client.act(job_id, "drain", {"hosts": [host_id], "why": "new firmware"})
    wait_for("the move", lambda: lab.client.job(job_id)["generation"] == 2)
    lab.let_go("drained")
    job = ends_equal(job_id)
    first, second = job["recoveries"]
    assert (first["cause"], second["cause"]) == ("launch", "drain")
    assert second["sources"]["object_store"] == 0
    assert host_id not in {host["host_id"] for host in lab.hosts_of(job_id)}
    assert lab.hosts()[host_id]["state"] == "cordoned"
    assert lab.hosts()[host_id]["cordon_reason"] == "drained"
    assert lab.incidents(job_id) == []
    assert not any(point["redone"] for point in lab.client.metrics(job_id))
    with pytest.raises(EverstepError, match="does not run on"):
        lab.client.act(lab.submit("other"), "drain", {"hosts": ["h99"]})
