"""The stack of docker-compose.yml keeps what the stack of one machine keeps."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
import yaml
from tests.containers.compose import HOSTS, JOB, JOB_TIMEOUT_S, Stack, write_secrets
from tests.containers.engine import ROOT, docker
from tests.e2e.lab import wait_for

pytestmark = pytest.mark.timeout(1_800)  # the first of them builds the images

SERVERS = ("postgres", "nats", "s3")
SERVICES = ("controller", "monitor", "checkpoint-registry", "host-inventory")
STEPS = yaml.safe_load(JOB.read_text())["steps"]
FAULT_STEP = STEPS // 2


PASSWORDS = (
    "EVERSTEP_POSTGRES_PASSWORD",
    "EVERSTEP_NATS_PASSWORD",
    "EVERSTEP_NATS_SYSTEM_PASSWORD",
    "EVERSTEP_S3_SECRET_KEY",
)


def run_to_the_end(command: subprocess.Popen[str]) -> None:
    """Wait for a command's success."""
    output, _ = command.communicate(timeout=JOB_TIMEOUT_S)
    assert command.returncode == 0, output


@pytest.fixture(scope="session")
def reference(stack: Stack) -> str:
    """The job of deploy/pretrain.yaml, undisturbed."""
    run_to_the_end(stack.cli("run", str(JOB), "--job-id", "reference"))
    assert stack.client.incidents("reference") == []
    return "reference"


def test_command_line_follows_a_job_of_a_stack_that_it_did_not_start(
    stack: Stack, reference: str
) -> None:
    """The services' URLs are all that it needs."""
    assert stack.client.job(reference)["phase"] == "succeeded"
    assert len(stack.client.metrics(reference)) == STEPS


def test_host_container_killed_is_replaced_and_the_run_ends_bit_equal(
    stack: Stack, reference: str, tmp_path: Path
) -> None:
    """A container that is killed is a host that is lost, and comes back as a host."""
    command = stack.cli("run", str(JOB), "--job-id", "disturbed")
    stack.wait_step("disturbed", FAULT_STEP)
    victim = stack.hosts_of("disturbed")[1]
    stack.kill(victim)
    run_to_the_end(command)
    (incident,) = stack.client.incidents("disturbed")
    assert (incident["kind"], incident["hosts"]) == ("host_lost", [victim])
    assert incident["lost_steps"] <= 1
    assert victim not in stack.hosts_of("disturbed")
    found = stack.compare("disturbed", reference, STEPS, tmp_path / "states")
    assert found.differences == ()
    assert found.tensors_compared > 100
    stack.start(victim)
    stack.client.uncordon(victim, now=True)
    wait_for("the host to be back", lambda: stack.host_states()[victim] == "spare")


def test_agent_killed_in_its_container_comes_back_to_its_ranks(
    stack: Stack, reference: str, tmp_path: Path
) -> None:
    """The container outlives an agent, so that the ranks beside it train on."""
    command = stack.cli("run", str(JOB), "--job-id", "agent-killed")
    stack.wait_step("agent-killed", FAULT_STEP)
    host = stack.hosts_of("agent-killed")[0]
    before = stack.execute(host, "cat", "/run/everstep/agent.pid")
    stack.execute(host, "kill", "-KILL", before)
    run_to_the_end(command)
    assert stack.execute(host, "cat", "/run/everstep/agent.pid") != before
    assert stack.client.incidents("agent-killed") == []
    assert stack.compare("agent-killed", reference, STEPS, tmp_path / "states").differences == ()


@pytest.mark.parametrize("name", [*SERVERS, *SERVICES, *HOSTS])
def test_container_has_no_rights_that_it_does_not_need(stack: Stack, name: str) -> None:
    """Neither root, nor able to become it, nor with a capability."""
    status = dict(
        line.split(":\t", 1)
        for line in stack.execute(name, "cat", "/proc/1/status").splitlines()
        if ":\t" in line
    )
    assert "0" not in status["Uid"].split()
    assert (int(status["CapEff"], 16), int(status["CapBnd"], 16)) == (0, 0)
    assert status["NoNewPrivs"] == "1"


def test_stack_taken_down_and_up_again_knows_its_jobs(stack: Stack, reference: str) -> None:
    """Volumes outlive containers: databases, streams and checkpoints are still there."""
    known = {checkpoint["manifest_uri"] for checkpoint in stack.client.checkpoints(reference)}
    command = stack.compose.docker_compose_command()
    subprocess.run([*command, "down"], check=True, cwd=ROOT, capture_output=True)
    subprocess.run([*command, "up", "--wait"], check=True, cwd=ROOT, capture_output=True)
    assert stack.client.job(reference)["phase"] == "succeeded"
    now = {checkpoint["manifest_uri"] for checkpoint in stack.client.checkpoints(reference)}
    assert now == known
    wait_for("all hosts to be back", lambda: set(stack.host_states()) == set(HOSTS))


@pytest.mark.parametrize("name", PASSWORDS)
def test_stack_with_a_password_missing_is_refused(tmp_path: Path, name: str) -> None:
    """No server is ever started with an empty password, or one that everybody knows."""
    whole, lacking = tmp_path / "whole", tmp_path / "lacking"
    write_secrets(whole)
    lines = whole.read_text().splitlines(keepends=True)
    lacking.write_text("".join(line for line in lines if not line.startswith(f"{name}=")))
    command = ("compose", "--project-directory", str(ROOT), "--env-file")
    assert docker(*command, str(whole), "config", "--quiet").returncode == 0
    refused = docker(*command, str(lacking), "config", "--quiet")
    assert refused.returncode != 0
    assert f"{name} is missing a value: it is not in COMPOSE_ENV_FILES" in refused.stderr
