"""A whole stack of real servers, services, agents and ranks, with faults at hand.

One stack serves all tests of a process; ``heal`` puts its fleet back in order between them.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from everstep.chaos import fleet
from everstep.cli.client import Client
from everstep.cli.demo_state import compare_states, open_store, wait_durable
from everstep.core.errors import NotFoundError
from everstep.data.prepare import prepare
from everstep.local import launch
from everstep.local.state import SERVICES, Stack, StatePaths
from everstep.memory.layout import rank_dir, replica_dir, slot_path
from everstep.memory.slot import read_preamble

POLL_S = 0.05
PATIENCE_S = 300.0  # generous: other work may share the machine, and machines differ by three
HOSTS = 4
SPARES = 2
STEPS = 18
OBJECT_EVERY = 6
LAYERS = 4
UNHURRIED = '''
"""The reference model; steps after the one that is told take two seconds, until a file is there."""
import os
import pathlib
import time

from everstep.models import pretrain


def main(run):
    batches = run.batches
    after, file = int(os.environ["AFTER"]), pathlib.Path(os.environ["GO_ON"])

    def unhurried(dataset=None):
        for batch in batches(dataset):
            end_s = time.monotonic() + 2
            while run.step_index >= after and time.monotonic() < end_s and not file.exists():
                time.sleep(0.02)
            yield batch

    run.batches = unhurried
    pretrain.main(run)
'''


def wait_for(what: str, ask: Callable[[], Any], *, patience_s: float = PATIENCE_S) -> Any:
    """Ask until the answer is true, and return it."""
    give_up = time.monotonic() + patience_s
    while True:
        answer = ask()
        if answer:
            return answer
        assert time.monotonic() < give_up, f"waited {patience_s:.0f} s in vain for {what}"
        time.sleep(POLL_S)


@dataclass
class Lab:
    """The stack and the means to disturb it."""

    paths: StatePaths
    stack: Stack
    client: Client
    corpus: Path
    layers: int = LAYERS

    # ---- the fleet

    def order(self, **request: Any) -> Any:
        """Give the supervisor an order."""
        return launch.order(self.paths, request)

    def kill_host(self, host_id: str) -> Any:
        """Agent, fork server, ranks and memory, at once."""
        return self.order(command="kill", what="host", name=host_id)

    def kill_rank(self, rank: int, job_id: str) -> Any:
        """One rank's process."""
        return self.order(command="kill", what="rank", rank=rank, job=job_id)

    def kill_agent(self, host_id: str) -> Any:
        """The agent's process alone."""
        return self.order(command="kill", what="agent", name=host_id)

    def kill_service(self, name: str, *, down: bool = False) -> Any:
        """A service or server; it is started again at once unless ``down``."""
        return self.order(command="kill", what="service", name=name, down=down)

    def start_service(self, name: str) -> Any:
        """Start what was killed with ``down``."""
        return self.order(command="start", what="service", name=name)

    def start_host(self, host_id: str) -> Any:
        """Bring a killed or new host up."""
        return self.order(command="start", what="host", name=host_id)

    def hosts(self) -> dict[str, dict[str, Any]]:
        """Every host as the inventory sees it."""
        return {host["host_id"]: host for host in self.client.hosts()}

    def heal(self) -> None:
        """End every job, and bring every host back as a spare."""
        fleet.heal(self.paths, self.client, patience_s=PATIENCE_S)

    # ---- jobs

    def spec(self, name: str, **changes: Any) -> dict[str, Any]:
        """A small Llama in pp 2 x dp 2 x tp 2; dropout makes the RNG state matter."""
        spec: dict[str, Any] = {
            "name": name,
            "entry": "everstep.models.pretrain:main",
            "args": {
                "dim": 32,
                "layers": self.layers,
                "heads": 4,
                "kv_heads": 2,
                "ffn_dim": 64,
                "vocab_size": 264,
                "dropout": 0.1,
                "lr": 3e-3,
                "warmup_steps": 5,
            },
            "layout": {"pp": 2, "dp_shard": 2, "tp": 2},
            "steps": STEPS,
            "seed": 20,
            "data": {
                "path": str(self.corpus),
                "sequence_tokens": 32,
                "global_batch": 8,
                "micro_batch": 2,
            },
            "checkpoint": {"object_every_steps": OBJECT_EVERY, "keep_last": 3},
            "cwd": str(self.corpus.parent),
        }
        return {**spec, **changes}

    def submit(self, name: str, **changes: Any) -> str:
        """Launch a job."""
        return str(self.client.submit(self.spec(name, **changes))["job_id"])

    def submit_unhurried(self, name: str, *, after: int, **changes: Any) -> str:
        """Launch a job that is not over before ``let_go``: it hardly goes on after that step."""
        (self.corpus.parent / "unhurried.py").write_text(UNHURRIED)
        file = self._go_on(name)
        file.unlink(missing_ok=True)
        pace = {"AFTER": str(after), "GO_ON": str(file)}
        changes = {"entry": "unhurried:main", **changes, "env": {**changes.get("env", {}), **pace}}
        return self.submit(name, **changes)

    def let_go(self, name: str) -> None:
        """Let the job of that name train at its own pace."""
        self._go_on(name).touch()

    def _go_on(self, name: str) -> Path:
        return self.corpus.parent / f"{name}-may-go-on"

    def step_of(self, job_id: str) -> int:
        """Newest step that the monitor knows of."""
        try:
            points = self.client.metrics(job_id)
        except NotFoundError:  # it has not heard of the job yet
            return 0
        return max((point["step"] for point in points), default=0)

    def wait_step(self, job_id: str, step: int) -> None:
        """Wait until a step was completed."""
        wait_for(f"step {step} of {job_id}", lambda: self._stepped(job_id, step))

    def _stepped(self, job_id: str, step: int) -> bool:
        job = self.client.job(job_id)
        assert job["phase"] not in {"failed", "stopped"}, f"{job['why']}: {job['detail']}"
        return self.step_of(job_id) >= step

    def wait_phase(self, job_id: str, *phases: str) -> dict[str, Any]:
        """Wait until the job is in one of the phases, and return it."""

        def reached() -> dict[str, Any] | None:
            job = self.client.job(job_id)
            ended = job["ended_at_ms"] is not None and job["phase"] not in phases
            assert not ended, f"{job['phase']}: {job['why']}: {job['detail']}"
            return job if job["phase"] in phases else None

        found: dict[str, Any] = wait_for(f"{job_id} to be {' or '.join(phases)}", reached)
        return found

    def succeeded(self, job_id: str) -> dict[str, Any]:
        """Wait for the job's success and return it."""
        return self.wait_phase(job_id, "succeeded")

    def hosts_of(self, job_id: str) -> list[dict[str, Any]]:
        """The placement's hosts."""
        hosts: list[dict[str, Any]] = self.client.job(job_id)["placement"]["hosts"]
        return hosts

    def losses(self, job_id: str, *, steps: int = STEPS) -> list[float]:
        """The loss of every step, once all are there: the last row follows the run's end."""

        def whole() -> list[float] | None:
            points = self.client.metrics(job_id)
            return [p["loss"] for p in points] if len(points) == steps else None

        found: list[float] = wait_for(f"a loss of every step of {job_id}", whole)
        return found

    def newest_common_snapshot(self, job_id: str) -> int:
        """The newest step that every rank holds in its host's memory."""
        newest = []
        for host in self.hosts_of(job_id):
            root = Path(self.stack.memory_root) / host["host_id"]
            for rank in host["ranks"]:
                paths = (slot_path(rank_dir(root, job_id, rank), slot) for slot in (0, 1))
                found = [read_preamble(path) for path in paths]
                newest.append(max((one.step for one in found if one is not None), default=0))
        return min(newest)

    def kept_twice(self, job_id: str) -> bool:
        """Whether the newest step that all ranks have lies in two hosts' memory, of each rank."""
        ranks = [rank for host in self.hosts_of(job_id) for rank in host["ranks"]]
        places: Counter[tuple[int, int]] = Counter()
        for root in Path(self.stack.memory_root).iterdir():
            for rank in ranks:
                homes = (rank_dir(root, job_id, rank), replica_dir(root, job_id, rank))
                slots = [read_preamble(slot_path(home, slot)) for home in homes for slot in (0, 1)]
                places.update({(one.step, rank) for one in slots if one is not None})
        common = {step for step, _ in places if all((step, rank) in places for rank in ranks)}
        return bool(common) and min(places[max(common), rank] for rank in ranks) > 1

    def complete_steps(self, job_id: str) -> set[int]:
        """Steps whose checkpoint is complete."""
        return {c["step"] for c in self.client.checkpoints(job_id) if c["complete"]}

    def incidents(self, job_id: str) -> list[dict[str, Any]]:
        """The job's incidents, oldest first."""
        return self.client.incidents(job_id)

    def differences(
        self, job_a: str, job_b: str, into: Path, *, steps: int = STEPS
    ) -> tuple[int, tuple[str, ...]]:
        """Compare the final states of two jobs: tensors compared, and what differs."""
        checkpoints = [wait_durable(self.client, job, steps) for job in (job_a, job_b)]

        async def compare() -> Any:
            async with open_store(self.stack)() as store:
                return await compare_states(store, checkpoints[0], checkpoints[1], into)

        found = asyncio.run(compare())
        return found.tensors_compared, found.differences


def make_corpus(root: Path) -> Path:
    """Return a few thousand lines as token shards."""
    source = root / "text"
    source.mkdir()
    for part in range(4):
        text = "\n".join(f"line {part} {i}: {i * i} squares" for i in range(4_000))
        (source / f"{part}.txt").write_text(text)
    return prepare([source], root / "corpus").directory


@contextmanager
def open_lab(
    root: Path,
    corpus: Path,
    *,
    supervisor: Sequence[str] = launch.SUPERVISOR,
    layers: int = LAYERS,
) -> Iterator[Lab]:
    """Bring a stack up, and take it down at the end."""
    paths = StatePaths(root=root)
    plan = launch.Plan(hosts=HOSTS, spares=SPARES, chips=2, pods=2)
    try:
        stack = launch.up(paths, plan, lambda _: None, supervisor=supervisor).stack
        with Client({name: stack.url(name) for name in SERVICES}) as client:
            lab = Lab(paths=paths, stack=stack, client=client, corpus=corpus, layers=layers)
            wait_for("all hosts to join", lambda: len(lab.hosts()) == HOSTS + SPARES)
            yield lab
    finally:
        launch.down(paths, wipe=True)
