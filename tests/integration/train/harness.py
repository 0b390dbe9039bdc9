"""Real ranks under a minimal agent, all driven by one single-threaded loop.

Ranks are forked from this process, which is as warm as a fork server, with the code of one. The
agent answers hellos, acknowledges every snapshot as replicated at once and "uploads" durable ones
into a directory.
"""

from __future__ import annotations

import json
import os
import selectors
import shutil
import signal
import socket
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from everstep.agent import framing
from everstep.agent.stack_file import STACKS_SIGNAL, stacks_path
from everstep.core.system import RandomIds
from everstep.local.server_command import free_ports
from everstep.memory import layout
from everstep.memory.control import Control
from everstep.memory.slot import read_preamble
from everstep.train import fork_child, rank_main, warm

WAIT_S = 120.0
JOB = "job-1"


@dataclass
class Rank:
    """What the agent knows of one rank process."""

    rank: int
    pid: int
    connection: socket.socket | None = None
    steps: list[dict[str, Any]] = field(default_factory=list)
    ready: dict[str, Any] | None = None
    words: dict[str, Any] | None = None
    status: int | None = None  # as os.waitpid gives it

    @property
    def exit_code(self) -> int:
        """Exit code, or minus the signal."""
        assert self.status is not None
        return os.waitstatus_to_exitcode(self.status)

    @property
    def step(self) -> int:
        """Newest step it has told of."""
        return self.steps[-1]["step"] if self.steps else -1


class World:
    """One generation after the other of the ranks of a job.

    Args:
        directory: for logs, the socket and the stored checkpoints.
        memory_dir: for the snapshots.
        spec: of the job, as in YAML.
    """

    def __init__(self, directory: Path, memory_dir: Path, spec: dict[str, Any]) -> None:
        self.directory = directory
        self.memory_dir = memory_dir
        self.spec = spec
        sizes = spec["layout"]
        self.world_size = 1
        for size in sizes.values():
            self.world_size *= size
        self.ranks: list[Rank] = []
        self.replicate = True
        self.upload = True
        self.damaged: list[dict[str, Any]] = []  # what ranks said of slots
        self.mend: Callable[[int], dict[str, Any]] | None = None  # rank -> another answer
        self._answers: dict[int, dict[str, Any]] = {}
        self._selector = selectors.DefaultSelector()
        self._listener: socket.socket | None = None
        self.listen()
        self._decoders: dict[int, framing.FrameDecoder] = {}

    @property
    def socket_path(self) -> Path:
        """Where the agent listens."""
        return self.directory / "agent.sock"

    def listen(self) -> None:
        """Open the agent's socket."""
        self.directory.mkdir(parents=True, exist_ok=True)
        self.socket_path.unlink(missing_ok=True)
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.bind(str(self.socket_path))
        self._listener.listen(64)
        self._selector.register(self._listener, selectors.EVENT_READ)

    def go_away(self) -> None:
        """Die like an agent: every connection and the listener are gone."""
        for key in list(self._selector.get_map().values()):
            self._selector.unregister(key.fileobj)
            key.fileobj.close()
        for rank in self.ranks:
            rank.connection = None
        self._listener = None

    def rank_dir(self, rank: int) -> Path:
        """Return a rank's own snapshots."""
        return layout.rank_dir(self.memory_dir, JOB, rank)

    def control(self, rank: int) -> Control:
        """Open a rank's control words."""
        return Control(layout.control_path(self.rank_dir(rank)))

    def start(
        self, generation: int = 0, *, step: int | None = None, env: dict[str, str] | None = None
    ) -> None:
        """Fork all ranks; ``step`` is restored from memory, None begins afresh."""
        warm_up()
        self.ranks = []
        self._answers = {}
        port = free_port()
        for rank in range(self.world_size):
            if step is None:
                self._answers[rank] = {"kind": "fresh"}
            else:
                slot = self.slot_of(rank, step)
                self._answers[rank] = {
                    "kind": "slot_ready",
                    "step": step,
                    "slot": slot,
                    "source_kind": "OWN_MEMORY",
                    "problems": [],
                }
            control = self.control(rank)
            control.reset(replication_off=False)
            if step is not None:
                control.replicated_step = step
            control.close()
        for rank in range(self.world_size):
            self.ranks.append(Rank(rank=rank, pid=self._fork(rank, generation, port, env or {})))

    def slot_of(self, rank: int, step: int) -> int:
        """Return the slot that holds a step."""
        for slot in range(layout.SLOT_COUNT):
            preamble = read_preamble(layout.slot_path(self.rank_dir(rank), slot))
            if preamble is not None and preamble.step == step:
                return slot
        raise AssertionError(f"rank {rank} does not hold step {step}")

    def held_steps(self, rank: int) -> set[int]:
        """Return the steps of a rank's complete snapshots."""
        found = set()
        for slot in range(layout.SLOT_COUNT):
            preamble = read_preamble(layout.slot_path(self.rank_dir(rank), slot))
            if preamble is not None:
                found.add(preamble.step)
        return found

    def newest_common_step(self) -> int:
        """Return the newest step that every rank holds."""
        return max(set.intersection(*(self.held_steps(rank) for rank in range(self.world_size))))

    def until(
        self, condition: Callable[[], bool], *, timeout_s: float = WAIT_S, poll_s: float = 0.02
    ) -> None:
        """Serve the ranks until the condition holds, looked at every ``poll_s`` at least."""
        deadline = time.monotonic() + timeout_s
        while not condition():
            if time.monotonic() > deadline:
                self._dump_stacks()
                raise AssertionError(f"not so after {timeout_s} s\n{self.logs()}")
            self._serve(poll_s)

    def until_step(self, step: int) -> None:
        """Serve until every rank has told of ``step``; fails when one ends before."""
        self.until(lambda: all(rank.step >= step for rank in self.ranks) or self._any_ended())
        assert all(rank.step >= step for rank in self.ranks), self.logs()

    def until_steps_told(self, count: int) -> None:
        """Serve until every rank of this generation has told of ``count`` steps."""
        self.until(lambda: all(len(rank.steps) >= count for rank in self.ranks))

    def until_ended(self) -> None:
        """Serve until every rank process is gone."""
        self.until(lambda: all(rank.status is not None for rank in self.ranks))

    def finish(self) -> None:
        """Serve until all ranks have finished; fails with their logs when one did not."""
        self.until_ended()
        assert [rank.exit_code for rank in self.ranks] == [0] * self.world_size, self.logs()

    def kill(self, ranks: list[int] | None = None, number: int = signal.SIGKILL) -> None:
        """Kill some or all ranks."""
        for rank in self.ranks:
            if rank.status is None and (ranks is None or rank.rank in ranks):
                os.kill(rank.pid, number)

    def ask(self, what: str, ranks: list[int] | None = None) -> None:
        """Send a request to some or all ranks."""
        for rank in self.ranks:
            if rank.connection is not None and (ranks is None or rank.rank in ranks):
                framing.send(rank.connection, {"kind": "request", "what": what})

    def tell_schedule(self, ranks: list[int], **schedule: int) -> None:
        """Tell some ranks how often to snapshot."""
        for rank in self.ranks:
            if rank.connection is not None and rank.rank in ranks:
                framing.send(rank.connection, {"kind": "schedule", "schedule": schedule})

    def close(self) -> None:
        """Kill what is left and let go of everything."""
        self.kill()
        for rank in self.ranks:
            if rank.status is None:
                rank.status = os.waitpid(rank.pid, 0)[1]
        self.go_away()
        self._selector.close()

    def durable(self) -> list[Path]:
        """Return the ranks' durable slots."""
        return [layout.durable_path(self.rank_dir(rank)) for rank in range(self.world_size)]

    def logs(self) -> str:
        """Return the ends of the ranks' logs and stacks."""
        parts = []
        for rank in self.ranks:
            path = self.directory / f"rank-{rank.rank}.log"
            text = "".join(
                one.read_text()[-3000:] for one in (path, stacks_path(path)) if one.exists()
            )
            parts.append(f"--- rank {rank.rank}, status {rank.status}, step {rank.step}\n{text}")
        return "\n".join(parts)

    def _fork(self, rank: int, generation: int, port: int, extra: dict[str, str]) -> int:
        env = {
            "RANK": str(rank),
            "WORLD_SIZE": str(self.world_size),
            "LOCAL_RANK": str(rank),
            "LOCAL_WORLD_SIZE": str(self.world_size),
            "GROUP_RANK": "0",
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(port),
            "GLOO_SOCKET_IFNAME": "lo",
            "OMP_NUM_THREADS": "1",
            "EVERSTEP_JOB_ID": JOB,
            "EVERSTEP_GENERATION": str(generation),
            "EVERSTEP_SPEC": json.dumps(self.spec),
            "EVERSTEP_HOST_ID": "host-0",
            "EVERSTEP_AGENT_SOCKET": str(self.socket_path),
            "EVERSTEP_MEMORY_DIR": str(self.memory_dir),
            **extra,
        }
        request = fork_child.ForkRequest(
            job_id=JOB,
            generation=generation,
            rank=rank,
            env=env,
            cwd=str(self.directory),
            argv=[],
            log_path=str(self.directory / f"rank-{rank}.log"),
        )
        parent = os.getpid()
        pid = os.fork()
        if pid == 0:
            sys.stdout, sys.stderr = sys.__stdout__, sys.__stderr__  # not pytest's: the log
            self._selector.close()
            if self._listener is not None:
                self._listener.close()
            fork_child.become_rank(request, parent, rank_main.run_rank)
        return pid

    def stacks(self) -> list[str]:
        """Return all that the ranks have written of their stacks, now once more."""
        self._dump_stacks()
        paths = (stacks_path(self.directory / f"rank-{rank.rank}.log") for rank in self.ranks)
        return [path.read_text() if path.exists() else "" for path in paths]

    def _dump_stacks(self) -> None:
        """Make every rank write its stacks beside its log, and wait until it has."""
        before = {rank.rank: self._stacks_size(rank) for rank in self.ranks}
        self.kill(number=STACKS_SIGNAL)
        deadline = time.monotonic() + 5
        alive = [rank for rank in self.ranks if rank.status is None]
        while any(self._stacks_size(rank) == before[rank.rank] for rank in alive):
            if time.monotonic() > deadline:
                return
            self._serve()

    def _stacks_size(self, rank: Rank) -> int:
        path = stacks_path(self.directory / f"rank-{rank.rank}.log")
        return path.stat().st_size if path.exists() else 0

    def _any_ended(self) -> bool:
        return any(rank.status is not None for rank in self.ranks)

    def _serve(self, poll_s: float = 0.02) -> None:
        for key, _ in self._selector.select(timeout=poll_s):
            if key.fileobj is self._listener:
                connection, _ = self._listener.accept()
                self._decoders[connection.fileno()] = framing.FrameDecoder()
                self._selector.register(connection, selectors.EVENT_READ)
            else:
                self._receive(key.fileobj)
        for rank in self.ranks:
            if rank.status is None:
                pid, status = os.waitpid(rank.pid, os.WNOHANG)
                if pid:
                    self._drain(rank)
                    rank.status = status

    def _drain(self, rank: Rank) -> None:
        while rank.connection is not None:
            self._receive(rank.connection)

    def _receive(self, connection: socket.socket) -> None:
        try:
            data = connection.recv(65536)
        except ConnectionResetError:
            data = b""
        if not data:
            self._selector.unregister(connection)
            for rank in self.ranks:
                if rank.connection is connection:
                    rank.connection = None
            connection.close()
            return
        for frame in self._decoders[connection.fileno()].feed(data):
            self._handle(connection, frame)

    def _handle(self, connection: socket.socket, frame: dict[str, Any]) -> None:
        if frame["kind"] == "hello":
            rank = self.ranks[frame["rank"]]
            assert rank.pid == frame["pid"]
            rank.connection = connection
            if not frame["restored"]:
                framing.send(connection, self._answers[frame["rank"]])
            return
        rank = next(one for one in self.ranks if one.connection is connection)
        match frame["kind"]:
            case "ready":
                rank.ready = frame
            case "slot_bad":
                self.damaged.append(frame)
                failed = {"kind": "restore_failed", "problems": [frame["problem"]]}
                answer = self.mend(rank.rank) if self.mend is not None else failed
                framing.send(connection, answer)
            case "step":
                rank.steps.append(frame)
                self._take_over(rank.rank, frame)
            case "failed" | "finished":
                rank.words = frame

    def _take_over(self, rank: int, frame: dict[str, Any]) -> None:
        control = self.control(rank)
        if frame["snapshot_slot"] >= 0 and self.replicate:
            control.replicated_step = frame["step"]
        if frame["durable"] and self.upload:
            target = self.directory / "store" / f"step-{frame['step']}" / f"rank-{rank}.shard"
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(layout.durable_path(self.rank_dir(rank)), target)
            control.durable_busy = False
        control.close()


@cache
def warm_up() -> None:
    """Do once what every rank would spend a second on, as the fork server does."""
    warm.warm_up()


def free_port() -> int:
    """Return a TCP port that nobody listens on, and that the system gives to no connection."""
    (port,) = free_ports(1, RandomIds())
    return port
