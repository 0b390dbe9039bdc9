"""Everstep itself: the real one-machine stack, one host killed whole, a spare takes over.

The fault is the strongest of the comparison: agent, fork server, both ranks and the host's memory
with its snapshots and the replicas that it kept are gone at once. Afterwards the host is started
again and becomes the spare of the next fault.
"""

from __future__ import annotations

import contextlib
import json
import random
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import psutil
from benchmarks.contestants.faults import HOST_RANKS, Sample, strike
from benchmarks.support.processes import TimedOutError, wait_for
from benchmarks.workload.job import job_spec
from benchmarks.workload.training import DEMO

from everstep.cli.client import Client, service_urls
from everstep.core.errors import EverstepError
from everstep.local import launch
from everstep.local.state import StatePaths, load_stack

KILLED: Final = (
    "SIGKILL of a whole host: agent, fork server, 2 ranks; its memory (snapshots and the replicas "
    "it kept) deleted"
)
PLAN: Final = launch.Plan(hosts=4, spares=1, chips=2, pods=2)
SETTLE_S: Final = 60.0
STEPS: Final = 100_000  # more than any session makes
ENDED: Final = frozenset({"succeeded", "failed", "stopped"})


class Stack:
    """A private stack for the benchmark.

    Args:
        directory: of its state; short, because sockets lie in it.
        corpus: token shards.
    """

    def __init__(self, directory: Path, corpus: Path) -> None:
        self._paths = StatePaths(root=directory)
        self._corpus = corpus
        self._client: Client | None = None

    def __enter__(self) -> Self:
        try:
            launch.up(self._paths, PLAN, lambda _: None)
            self._client = Client(service_urls(self._paths)).__enter__()
            self._wait_for_spare()
            for number in range(PLAN.hosts + PLAN.spares):
                host = f"h{number + 1}"
                self._wait_for_warm_server(host, more_than=0)
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Take the stack down and delete its data."""
        if self._client is not None:
            self._client.__exit__(None, None, None)
        launch.down(self._paths, wipe=True)

    @property
    def client(self) -> Client:
        """The services' client."""
        assert self._client is not None, "the stack is not up"
        return self._client

    def measure(self, directory: Path, faults: int, rng: random.Random) -> list[Sample]:
        """Run one job and strike it ``faults`` times.

        Raises:
            TimedOutError: it does not train or recover.
        """
        shutil.rmtree(directory, ignore_errors=True)
        directory.mkdir(parents=True)
        job_id: str = self.client.submit(job_spec(DEMO, directory, self._corpus, steps=STEPS))[
            "job_id"
        ]
        try:
            return [self._strike(job_id, directory, rng) for _ in range(faults)]
        except TimedOutError as error:
            raise TimedOutError(f"{error}; {self._evidence(job_id)}") from None
        finally:
            self.client.act(job_id, "stop")
            wait_for(
                lambda: self.client.job(job_id)["phase"] in ENDED or None, SETTLE_S, "end of job"
            )

    def submit(self, spec: dict[str, Any]) -> str:
        """Launch a job and return its id."""
        return str(self.client.submit(spec)["job_id"])

    def wait_for_success(self, job_id: str, timeout_s: float) -> None:
        """Wait for the end of a job.

        Raises:
            TimedOutError: it does not succeed in time.
        """

        def ended() -> dict[str, Any] | None:
            job = self.client.job(job_id)
            return job if job["phase"] in ENDED else None

        job = wait_for(ended, timeout_s, f"the end of {job_id}")
        if job["phase"] != "succeeded":
            raise TimedOutError(f"{job_id} {job['phase']}: {job['detail']}")

    @contextlib.contextmanager
    def frozen(self) -> Iterator[None]:
        """Stop every process of the stack for a while, so that it takes no processor time at all.

        Outsiders last and first: nobody may see another one stand still.
        """
        supervisor = load_stack(self._paths).supervisor
        units = launch.order(self._paths, {"command": "status"})["units"]
        kinds = {"agent": 0, "service": 1, "server": 2}
        order = sorted(units, key=lambda unit: kinds[unit["kind"]])
        processes = [psutil.Process(supervisor.pid)]
        for unit in order:
            process = psutil.Process(unit["pid"])
            processes += [process, *process.children(recursive=True)]
        for process in processes:
            process.suspend()
        try:
            yield
        finally:
            for process in reversed(processes):
                process.resume()

    def cpu_s(self) -> dict[str, float]:
        """Return the processor time used so far, by kind of process; ranks are not in it."""
        used: dict[str, float] = {}
        for unit in launch.order(self._paths, {"command": "status"})["units"]:
            process = psutil.Process(unit["pid"])
            # An agent's children are the fork server and its ranks; a server's are its workers.
            family = [process]
            if unit["kind"] == "server":
                family += process.children(recursive=True)
            kind = unit["name"] if unit["kind"] != "agent" else "agents"
            used.setdefault(kind, 0.0)
            for one in family:
                times = one.cpu_times()
                used[kind] += times.user + times.system
        return used

    def _strike(self, job_id: str, directory: Path, rng: random.Random) -> Sample:
        killed = ""

        def kill_host() -> float:
            nonlocal killed
            hosts = self.client.job(job_id)["placement"]["hosts"]
            killed = next(one["host_id"] for one in hosts if HOST_RANKS[0] in one["ranks"])
            done = launch.order(
                self._paths, {"command": "kill", "what": "host", "name": killed}, timeout_s=60.0
            )
            return float(done["at_ms"]) / 1e3

        def why_dead() -> str | None:
            job = self.client.job(job_id)
            return f"the job {job['phase']}: {job['detail']}" if job["phase"] in ENDED else None

        before = {one["incident_id"] for one in self.client.incidents(job_id)}
        sample = strike(directory, rng, kill_host, why_dead)
        extra = self._told(job_id, before, sample.fault_at)
        self._bring_back(killed)
        return replace(sample, extra={"killed_host": killed, **extra})

    def _evidence(self, job_id: str) -> str:
        """Keep the logs of a failure and return where they are and what the services say."""
        kept = Path(tempfile.mkdtemp(prefix="everstep-bench-failed-"))
        shutil.copytree(self._paths.logs, kept / "logs")
        unwanted = shutil.ignore_patterns("*.sock")
        shutil.copytree(self._paths.root / "hosts", kept / "hosts", ignore=unwanted)
        said = {"job": self.client.job(job_id), "incidents": self.client.incidents(job_id)}
        (kept / "services.json").write_text(json.dumps(said, indent=1))
        job = said["job"]
        return f"{job_id} is {job['phase']} in generation {job['generation']}; logs in {kept}"

    def _told(self, job_id: str, before: set[str], fault_at: float) -> dict[str, Any]:
        """Return what the services say of the newest recovery, in seconds after the fault."""

        def running() -> dict[str, Any] | None:
            newest: dict[str, Any] = self.client.job(job_id)["recoveries"][-1]
            return newest if newest["running_at_ms"] is not None else None

        recovery = wait_for(running, SETTLE_S, "the controller to see the first step")
        incidents = [
            one for one in self.client.incidents(job_id) if one["incident_id"] not in before
        ]
        stages = recovery["stages_ms"]
        begun_ms = recovery["begun_at_ms"]
        ready_ms = begun_ms + max(stages["fence"], stages["place"])
        planned_ms = ready_ms + stages["plan"]
        moments_ms = {
            "detected": min(one["detected_at_ms"] for one in incidents),
            "begun": begun_ms,
            "fenced": begun_ms + stages["fence"],
            "placed": begun_ms + stages["place"],
            "planned": planned_ms,
            "start_answered": planned_ms + stages["start"],
            "seen_running": recovery["running_at_ms"],
        }
        return {
            "incidents": [one["kind"] for one in incidents],
            "sources": recovery["sources"],
            "control_plane_s": {
                name: round(at_ms / 1e3 - fault_at, 3) for name, at_ms in moments_ms.items()
            },
        }

    def _bring_back(self, host: str) -> None:
        """Start the killed host again and wait until it is the spare, warm."""
        servers = self._warm_servers(host)
        launch.order(
            self._paths, {"command": "start", "what": "host", "name": host}, timeout_s=120.0
        )
        self._uncordon(host)
        self._wait_for_spare()
        self._wait_for_warm_server(host, more_than=servers)

    def _wait_for_warm_server(self, host: str, *, more_than: int) -> None:
        wait_for(
            lambda: self._warm_servers(host) > more_than or None,
            SETTLE_S,
            f"the fork server of {host}",
        )

    def _warm_servers(self, host: str) -> int:
        """Count how many fork servers of the host have said that they are warm."""
        log = self._paths.run_dir(host) / "logs" / "fork-server.log"
        return log.read_text().count(": warm\n") if log.exists() else 0

    def _uncordon(self, host: str) -> None:
        def uncordoned() -> bool | None:
            try:
                self.client.uncordon(host, now=True)
            except EverstepError:
                return None
            return True

        wait_for(uncordoned, SETTLE_S, f"host {host} to come back")

    def _wait_for_spare(self) -> None:
        def spare() -> str | None:
            free = [one["host_id"] for one in self.client.hosts() if one["state"] == "spare"]
            return free[0] if free else None

        wait_for(spare, SETTLE_S, "a spare host")
