"""The command line against the real stack: servers, services, agents, ranks."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import httpx
import pytest
from tests.command import everstep

from everstep.local import launch, processes
from everstep.local.state import StatePaths, load_stack

pytestmark = [pytest.mark.stack, pytest.mark.torch, pytest.mark.timeout(600)]

SPEC = """
name: tiny
entry: everstep.models.pretrain:main
args: {dim: 32, layers: 2, heads: 2, kv_heads: 2, ffn_dim: 64, vocab_size: 264}
layout: {tp: 2}
steps: 4
data: {path: corpus, sequence_tokens: 16, global_batch: 2}
checkpoint: {object_every_steps: 4}
"""
REPORT_KEYS = {
    "seed", "steps", "losses", "killed_host", "killed_at_step", "restored_from_step",
    "restore_sources", "detection_ms", "recovery_ms", "recovery_stages_ms", "lost_steps", "goodput",
    "state_equal", "tensors_compared", "reference_checksum", "run_checksum",
}  # fmt: skip


class Shell:
    """Types `everstep` commands in one directory."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.paths = StatePaths(root=directory / "state")

    def __call__(self, *arguments: str, code: int = 0) -> str:
        """Run a command, expect its exit code, return what it printed."""
        done = everstep("--state", str(self.paths.root), *arguments, cwd=self.directory)
        assert done.returncode == code, f"{arguments}: {done.stdout}\n{done.stderr}"
        return done.stdout

    def json(self, *arguments: str) -> object:
        """Run a listing and decode it."""
        return json.loads(self(*arguments, "--json"))

    def wait(self, condition) -> None:
        """Wait until the condition holds."""
        deadline = time.monotonic() + 120
        while not condition():
            assert time.monotonic() < deadline, "the condition did not come true in time"
            time.sleep(0.1)


@pytest.fixture
def shell():
    """A directory of its own, with a short path, and nothing left of its stack afterwards."""
    with tempfile.TemporaryDirectory(prefix="everstep-cli-") as directory:
        shell = Shell(Path(directory))
        yield shell
        for paths in (shell.paths, StatePaths(root=shell.paths.root / "demo")):
            launch.down(paths, wipe=True)


def test_one_machine_stack_trains_and_tells_about_it(shell, monkeypatch):
    """From `up` to `down`: a job runs, and every listing knows of it."""
    shell("data", "prepare", str(Path(launch.__file__).parent), "--out", "corpus")
    up = shell.json("up", "--hosts", "1", "--spares", "1", "--chips", "2", "--pods", "1")
    assert up["was_up"] is False
    assert {unit["state"] for unit in shell.json("status")["units"]} == {"ready"}
    assert [host["state"] for host in shell.json("hosts")] == ["spare", "spare"]

    (shell.directory / "job.yaml").write_text(SPEC)
    assert "step 4/4" in shell("run", "job.yaml", "--job-id", "tiny")
    job = shell.json("jobs", "show", "tiny")
    assert (job["phase"], job["step"]) == ("succeeded", 4)
    shell.wait(lambda: [c["step"] for c in shell.json("checkpoints")] == [4])
    assert shell.json("incidents") == []
    stack = load_stack(shell.paths)
    for part in ("metrics", "goodput", "refused-sources", "uncopied", "audits"):
        url = f"{stack.url('monitor')}/v1/jobs"
        assert httpx.get(f"{url}/tiny/{part}").status_code == 200
        unknown = httpx.get(f"{url}/tyni/{part}")
        assert unknown.status_code == 404
        assert "knows no job 'tyni'" in unknown.json()["error"]["message"]
    assert shell("logs", "tiny/0") is not None
    types = [json.loads(line)["type"] for line in shell("events", "--json", "-n", "0").splitlines()]
    assert {"host_joined.v1", "job_submitted.v1", "job_succeeded.v1"} <= set(types)
    assert "job_succeeded" in shell("events", "--job", "tiny", "--service", "controller")
    assert shell("events", "--job", "nobody") == "no such events\n"

    shell("kill", "service", "controller")
    shell.wait(lambda: _state_of(shell, "controller") == "ready")
    assert [job["job_id"] for job in shell.json("jobs")] == ["tiny"]
    shell("kill", "host", "h2")
    shell("start", "host", "h2")
    shell("start", "host", "late")
    assert {h["host_id"] for h in shell.json("hosts")} == {"h1", "h2", "late"}

    shell("down")
    assert processes.marked(stack.stack_id) == []
    monkeypatch.setenv("EVERSTEP_HOLD_OUT_S", "77")
    assert shell.json("up", "--hosts", "1", "--spares", "1", "--pods", "1")["was_up"] is False
    assert [job["job_id"] for job in shell.json("jobs")] == ["tiny"]
    assert environment_of(shell, "host_inventory")["EVERSTEP_HOLD_OUT_S"] == "77"
    assert "EVERSTEP_HOLD_OUT_S" not in environment_of(shell, "controller")


def environment_of(shell, name: str) -> dict[str, str]:
    """What a unit was started with."""
    (pid,) = [unit["pid"] for unit in shell.json("status")["units"] if unit["name"] == name]
    told = Path(f"/proc/{pid}/environ").read_text().strip("\0").split("\0")
    return dict(one.split("=", 1) for one in told)


def test_demo_works_after_an_earlier_one_was_killed(shell):
    """A demo that is shot in the middle is swept up by the next one, which holds."""
    cold = [sys.executable, "-m", "everstep.cli", "--state", str(shell.paths.root)]
    demo = [*cold, "demo", "--steps", "12", "--seed", "11"]
    first = subprocess.Popen(demo, stdout=subprocess.PIPE, text=True, cwd=shell.directory)
    for line in first.stdout:
        if line.startswith("step "):
            break
    first.send_signal(signal.SIGKILL)
    first.communicate()
    left = load_stack(StatePaths(root=shell.paths.root / "demo"))
    assert processes.is_alive(left.supervisor)

    told = shell("demo", "--steps", "12", "--seed", "11")
    assert "ended bit for bit equal to the one that did not" in told
    assert not processes.is_alive(left.supervisor)
    report = json.loads((shell.paths.root / "demo" / "report.json").read_text())
    assert set(report) >= REPORT_KEYS
    assert (report["ok"], report["state_equal"], report["seed"]) == (True, True, 11)
    assert sorted(map(int, report["losses"])) == list(range(1, 13))
    assert sum(report["restore_sources"].values()) == 8
    stack = load_stack(StatePaths(root=shell.paths.root / "demo"))
    assert processes.marked(stack.stack_id) == []


def _state_of(shell: Shell, name: str) -> str:
    units = shell.json("status")["units"]
    return next(unit["state"] for unit in units if unit["name"] == name)
