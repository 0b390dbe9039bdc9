"""The stack of docker-compose.yml as the tests use it: from outside, through published ports."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from testcontainers.compose import DockerCompose
from tests.containers.engine import ROOT, docker
from tests.e2e.lab import wait_for

from everstep.cli.client import SERVICES, Client
from everstep.cli.demo_state import compare_states, wait_durable
from everstep.core.errors import NotFoundError
from everstep.data.prepare import prepare
from everstep.memory.compare import Comparison
from everstep.objectstore.s3 import S3Store

HOSTS = ("h1", "h2", "h3", "h4", "h5")
JOB = ROOT / "deploy" / "pretrain.yaml"
JOB_TIMEOUT_S = 600.0  # a run of 60 steps takes about two minutes on two cores


@dataclass(frozen=True, kw_only=True)
class Stack:
    """The running stack and the means to disturb it."""

    compose: DockerCompose
    settings: Mapping[str, str]
    client: Client

    def cli(self, *arguments: str) -> subprocess.Popen[str]:
        """Start a command of the command line, which knows the services' URLs only."""
        return subprocess.Popen(
            [sys.executable, "-m", "everstep.cli", *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env={**os.environ, **service_urls(self.settings)},
            cwd="/",
        )

    def container(self, name: str) -> str:
        """Return the id of a service's or host's container, also of one that has ended."""
        found = self.compose.get_container(name, include_all=True).ID
        assert found is not None
        return found

    def execute(self, name: str, *command: str) -> str:
        """Run a command in a container and return what it printed."""
        done = docker("exec", self.container(name), *command)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def kill(self, name: str) -> None:
        """End all that runs in a container at once; its memory goes with it."""
        done = docker("kill", self.container(name))
        assert done.returncode == 0, done.stderr

    def start(self, name: str) -> None:
        """Start a container that was killed."""
        done = docker("start", self.container(name))
        assert done.returncode == 0, done.stderr

    def host_states(self) -> dict[str, str]:
        """Every host's state, as the inventory sees it."""
        return {host["host_id"]: host["state"] for host in self.client.hosts()}

    def hosts_of(self, job_id: str) -> list[str]:
        """The hosts of a job's placement."""
        return [host["host_id"] for host in self.client.job(job_id)["placement"]["hosts"]]

    def wait_step(self, job_id: str, step: int) -> None:
        """Wait until a step was completed."""

        def stepped() -> bool:
            try:
                points = self.client.metrics(job_id)
            except NotFoundError:  # the monitor has not heard of the job yet
                return False
            return any(point["step"] >= step for point in points)

        wait_for(f"step {step} of {job_id}", stepped, patience_s=JOB_TIMEOUT_S)

    def compare(self, job_a: str, job_b: str, step: int, directory: Path) -> Comparison:
        """Fetch the checkpoints of two jobs at a step and compare every tensor."""
        checkpoints = [wait_durable(self.client, job, step) for job in (job_a, job_b)]

        async def work() -> Comparison:
            async with S3Store.open(
                endpoint=f"127.0.0.1:{self.settings['EVERSTEP_S3_PORT']}",
                access_key="everstep",
                secret_key=self.settings["EVERSTEP_S3_SECRET_KEY"],
                bucket="everstep",
                secure=False,
            ) as store:
                return await compare_states(store, checkpoints[0], checkpoints[1], directory)

        return asyncio.run(work())


def service_urls(settings: Mapping[str, str]) -> dict[str, str]:
    """Return what the command line reads to find the services."""
    ports = {name: settings[f"EVERSTEP_{name.upper()}_PORT"] for name in SERVICES}
    return {f"EVERSTEP_{n.upper()}_URL": f"http://127.0.0.1:{port}" for n, port in ports.items()}


@contextmanager
def open_stack(directory: Path) -> Iterator[Stack]:
    """Build the images, bring the stack up, and take it down with its volumes at the end."""
    settings_file = write_settings(directory)
    settings = read_settings(settings_file)
    compose = DockerCompose(
        ROOT, compose_file_name="docker-compose.yml", build=True, env_file=str(settings_file)
    )
    urls = {name: service_urls(settings)[f"EVERSTEP_{name.upper()}_URL"] for name in SERVICES}
    with compose, Client(urls) as client:
        stack = Stack(compose=compose, settings=settings, client=client)
        wait_for("all hosts to join", lambda: set(stack.host_states()) == set(HOSTS))
        yield stack


def write_settings(directory: Path) -> Path:
    """Make passwords as a user does, and add what keeps this stack apart from any other."""
    path = directory / "settings.env"
    write_secrets(path)
    source = directory / "text"
    source.mkdir()
    for page in (ROOT / "docs").glob("*.md"):
        shutil.copy(page, source / f"{page.stem}.txt")
    names = [f"EVERSTEP_{name.upper()}_PORT" for name in SERVICES] + ["EVERSTEP_S3_PORT"]
    ours = {
        "COMPOSE_PROJECT_NAME": f"everstep-test-{os.getpid()}",
        "EVERSTEP_DATA": str(prepare([source], directory / "corpus").directory),
        **dict(zip(names, map(str, free_ports(len(names))), strict=True)),
    }
    with path.open("a") as file:
        file.writelines(f"{name}={value}\n" for name, value in ours.items())
    return path


def write_secrets(path: Path) -> None:
    """Make passwords and settings as a user does."""
    subprocess.run([ROOT / "deploy" / "new-secrets.sh", path], check=True, capture_output=True)


def read_settings(path: Path) -> dict[str, str]:
    """Return the variables of an env file."""
    return dict(re.findall(r"^([A-Z_0-9]+)=(.*)$", path.read_text(), re.MULTILINE))


def free_ports(count: int) -> list[int]:
    """Return ports that nobody listens on."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]
