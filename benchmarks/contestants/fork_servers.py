"""Warm fork servers of the project's own, one a host, driven without any agent.

``everstep.train.fork_server`` is what an agent forks its ranks from; here the benchmark talks to it
directly, for runs that have no control plane.
"""

from __future__ import annotations

import socket
import sys
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from benchmarks.support.figures import REPOSITORY
from benchmarks.support.processes import Process, free_port, wait_for
from benchmarks.workload.training import DEMO

from everstep.agent import framing
from everstep.train.fork_server import PRELOAD

HOSTS: Final = 4
RANKS_A_HOST: Final = 2
WARM_S: Final = 90.0


class ForkServers:
    """The servers, warm while the context lasts.

    Args:
        directory: for sockets and logs; must not exist.
        run: ``module:function`` that a rank runs; its module is imported before the fork, with all
            that Everstep's own ranks find imported and warmed up.
    """

    def __init__(self, directory: Path, run: str) -> None:
        self._directory = directory
        self._run = run
        self._preload = ",".join((*PRELOAD, run.partition(":")[0]))
        self._servers: list[Process] = []
        self._connections: list[socket.socket] = []
        self._generation = 0
        self._ranks = 0  # of the newest run

    def __enter__(self) -> Self:
        try:
            self._directory.mkdir(parents=True)
            for host in range(HOSTS):
                self._start(host)
            for host in range(HOSTS):
                self._connections.append(self._connect(self._socket_of(host)))
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

    def fork(self, environment: dict[str, str], ranks: int = DEMO.world_size) -> None:
        """Ask for all ranks of a new run; torchrun's variables are added to ``environment``."""
        self._generation += 1
        self._ranks = ranks
        everyone = {
            **environment,
            "WORLD_SIZE": str(ranks),
            "LOCAL_WORLD_SIZE": str(RANKS_A_HOST),
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(free_port()),
            "OMP_NUM_THREADS": "1",
            "GLOO_SOCKET_IFNAME": "lo",
            "PYTHONWARNINGS": "ignore",
        }
        for rank in range(ranks):
            own = {"RANK": str(rank), "LOCAL_RANK": str(rank % RANKS_A_HOST)}
            request = self._request(rank, {**everyone, **own})
            framing.send(self._connections[rank // RANKS_A_HOST], request)

    def wait_for_ends(self, timeout_s: float) -> list[int]:
        """Wait until all ranks have left; returns their exit codes, signals as negative ones.

        Raises:
            TimeoutError: they have not.
        """
        codes = []
        for host, connection in enumerate(self._connections):
            connection.settimeout(timeout_s)
            left = 0
            while left < min(RANKS_A_HOST, self._ranks - host * RANKS_A_HOST):
                frame = framing.receive(connection)
                assert frame is not None, "a fork server ended"
                if frame["kind"] == "exit":
                    left += 1
                    codes.append(frame["exit_code"] or -frame["signal"])
                    framing.send(connection, {"kind": "ack_exit", "pid": frame["pid"]})
        return codes

    def _close(self) -> None:
        for connection in self._connections:
            connection.close()
        for server in self._servers:
            server.end()

    def _request(self, rank: int, environment: dict[str, str]) -> dict[str, Any]:
        return {
            "kind": "fork",
            "job_id": "bare",
            "generation": self._generation,
            "rank": rank,
            "env": environment,
            "cwd": str(REPOSITORY),
            "argv": ["bare"],
            "log_path": str(self._directory / f"rank-{rank}.log"),
        }

    def _start(self, host: int) -> None:
        arguments = (
            sys.executable,
            "-m",
            "everstep.train.fork_server",
            f"--socket={self._socket_of(host)}",
            f"--pid-file={self._directory / f'server-{host}.pid'}",
            f"--preload={self._preload}",
            f"--run={self._run}",
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
