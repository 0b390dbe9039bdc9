"""The floor: how fast 8 fresh ranks can make a step when there is no control plane at all.

Four fork servers of the project's own (``everstep.train.fork_server``), one for each host of the
run, warm as they are after a host was lost. The clock starts when they are asked to fork and stops
when the last rank has made the next step: fork, rendezvous, groups, model, load, first step.
"""

from __future__ import annotations

import shutil
import socket
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from benchmarks.contestants import floor_rank
from benchmarks.support.figures import REPOSITORY
from benchmarks.support.processes import Process, wait_for
from benchmarks.workload import probe
from benchmarks.workload.training import DEMO

from everstep.agent import framing

HOSTS: Final = 4
RANKS_A_HOST: Final = 2
STEPS_BEFORE: Final = 3  # of the run whose state is then loaded again and again
PRELOAD: Final = (
    "numpy,torch,torch.distributed,torch.distributed.device_mesh,torch.distributed.fsdp,"
    "torch.distributed.tensor.parallel,torch.distributed.pipelining,benchmarks.workload.training"
)
WARM_S: Final = 60.0
RUN_S: Final = 90.0


class Floor:
    """The warm servers and the state in shared memory.

    Args:
        directory: for sockets, logs and the probe.
        corpus: token shards.
    """

    def __init__(self, directory: Path, corpus: Path) -> None:
        self._directory = directory
        self._corpus = corpus
        self._state = Path("/dev/shm") / f"everstep-bench-floor-{directory.parent.name}"
        self._servers: list[Process] = []
        self._connections: list[socket.socket] = []
        self._generation = 0

    def __enter__(self) -> Self:
        try:
            self._open()
        except BaseException:
            self._close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._close()

    def _open(self) -> None:
        self._directory.mkdir(parents=True)
        self._state.mkdir()
        for host in range(HOSTS):
            self._start_server(host)
        for host in range(HOSTS):
            self._connections.append(self._connect(self._socket_of(host)))
        self._run(first=1, last=STEPS_BEFORE, save=True)

    def _close(self) -> None:
        for connection in self._connections:
            connection.close()
        for server in self._servers:
            server.end()
        shutil.rmtree(self._state, ignore_errors=True)

    def measure(self) -> probe.Recovery:
        """Fork 8 ranks from the warm servers and return what they took to make the next step."""
        return self._run(first=STEPS_BEFORE + 1, last=STEPS_BEFORE + 1, save=False)

    def _run(self, *, first: int, last: int, save: bool) -> probe.Recovery:
        self._generation += 1
        notes = self._directory / f"probe-{self._generation}"
        notes.mkdir()
        with socket.socket() as listener:
            listener.bind(("127.0.0.1", 0))
            port = listener.getsockname()[1]
        environment = {
            "WORLD_SIZE": str(DEMO.world_size),
            "LOCAL_WORLD_SIZE": str(RANKS_A_HOST),
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(port),
            "OMP_NUM_THREADS": "1",
            "GLOO_SOCKET_IFNAME": "lo",
            "BENCH_CORPUS": str(self._corpus),
            probe.DIRECTORY_VARIABLE: str(notes),
            floor_rank.STATE_VARIABLE: str(self._state),
            floor_rank.STEPS_VARIABLE: str(last - first + 1),
            floor_rank.SAVE_VARIABLE: str(int(save)),
        }
        asked_at = time.time()
        for rank in range(DEMO.world_size):
            request = self._request(rank, environment)
            framing.send(self._connections[rank // RANKS_A_HOST], request)

        def done() -> probe.Recovery | None:
            return probe.recovery(probe.read(notes, DEMO.world_size), asked_at, last - 1)

        found = wait_for(done, RUN_S, f"the floor's ranks (logs in {self._directory})")
        self._wait_until_all_have_left()
        return found

    def _request(self, rank: int, environment: dict[str, str]) -> dict[str, Any]:
        return {
            "kind": "fork",
            "job_id": "floor",
            "generation": self._generation,
            "rank": rank,
            "env": {
                **environment,
                "RANK": str(rank),
                "LOCAL_RANK": str(rank % RANKS_A_HOST),
            },
            "cwd": str(REPOSITORY),
            "argv": ["floor"],
            "log_path": str(self._directory / f"rank-{rank}.log"),
        }

    def _wait_until_all_have_left(self) -> None:
        for connection in self._connections:
            left = 0
            while left < RANKS_A_HOST:
                frame = framing.receive(connection)
                assert frame is not None, "a fork server ended"
                if frame["kind"] == "exit":
                    left += 1
                    framing.send(connection, {"kind": "ack_exit", "pid": frame["pid"]})

    def _start_server(self, host: int) -> None:
        arguments = (
            sys.executable,
            "-m",
            "everstep.train.fork_server",
            f"--socket={self._socket_of(host)}",
            f"--pid-file={self._directory / f'server-{host}.pid'}",
            f"--preload={PRELOAD}",
            "--run=benchmarks.contestants.floor_rank:run",
        )
        environment = {"PYTHONPATH": str(REPOSITORY), "OMP_NUM_THREADS": "1"}
        log = self._directory / f"server-{host}.log"
        self._servers.append(Process(arguments, environment, log))

    def _socket_of(self, host: int) -> Path:
        return self._directory / f"server-{host}.sock"

    def _connect(self, path: Path) -> socket.socket:
        def connected() -> socket.socket | None:
            connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            try:
                connection.connect(str(path))
            except OSError:
                connection.close()
                return None
            return connection

        connection = wait_for(connected, WARM_S, f"the fork server at {path}")
        connection.settimeout(WARM_S)
        while (frame := framing.receive(connection)) is not None and frame["kind"] != "warm":
            pass
        return connection
