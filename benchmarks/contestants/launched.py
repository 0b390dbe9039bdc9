"""The peers: launchers that start ranks of a training script and restart them after a fault.

Where a product survives the loss of a node's launcher, the fault takes a whole node: one of four
launchers with everything below it, 2 ranks among that, while a fifth launcher stands by. Elsewhere
one launcher holds all 8 ranks, the cheapest set-up on one machine, and the fault takes 2 rank
processes: less than a host, and the easiest fault there is.
"""

from __future__ import annotations

import random
import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from benchmarks.contestants.faults import HOST_RANKS, Sample, newest_pids, strike
from benchmarks.support.figures import REPOSITORY
from benchmarks.support.peer_venv import PYTHON, VENV
from benchmarks.support.processes import Process, TimedOutError, free_port, kill
from benchmarks.workload import probe

SAVE_EVERY: Final = 1  # steps: what costs least after a fault; the price is paid before it
STORAGE_EVERY: Final = 20  # DLRover's second tier
STEPS: Final = 100_000  # more than any session makes
KILLED_RANKS: Final = "SIGKILL of 2 of the 8 rank processes; launcher, files and memory survive"
KILLED_NODE: Final = (
    "SIGKILL of one of 4 launchers, its rank monitors and 2 ranks; files and memory survive, a "
    "fifth launcher stands by"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    """How a peer is started.

    Args:
        name: as in the figures.
        script: module of its training script.
        launcher: the command before ``-m script``, given a free port.
        service: a process that must run first, given the same port; none for most.
        environment: what the launcher wants, given the same port.
        launchers: how many are started; more than one: the fault takes one of them.
        in_memory: whether checkpoints go to /dev/shm instead of the disk.
        leftovers: patterns of files that it leaves behind, deleted after a session.
    """

    name: str
    script: str
    launcher: Callable[[int], Sequence[str]]
    service: Callable[[int], Sequence[str]] | None = None
    environment: Callable[[int], dict[str, str]] = lambda _: {}
    launchers: int = 1
    in_memory: bool = False
    leftovers: tuple[str, ...] = ()

    @property
    def killed(self) -> str:
        """What the fault takes."""
        return KILLED_RANKS if self.launchers == 1 else KILLED_NODE

    @property
    def faults(self) -> int:
        """How many faults a session can take: the spare launcher is used up by the first."""
        return 2 if self.launchers == 1 else 1


TORCHRUN: Final = Peer(
    name="torchrun",
    script="benchmarks.peers.train_torchrun",
    launcher=lambda port: (
        str(VENV / "bin" / "torchrun"),
        "--nnodes=1",
        "--nproc-per-node=8",
        "--max-restarts=100",
        "--monitor-interval=0.1",
        "--rdzv-backend=c10d",
        f"--rdzv-endpoint=127.0.0.1:{port}",
        "--rdzv-id=bench",
    ),
    # With the shared store, restarted gloo ranks read their predecessors' addresses and no restart
    # ever succeeds (pytorch issue 135712); this is the way out that it names.
    environment=lambda _: {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"},
)
NVRX: Final = Peer(
    name="nvrx",
    script="benchmarks.peers.train_nvrx",
    launcher=lambda port: _ft_launcher(port, "--nnodes=4:5", "--nproc-per-node=2"),
    launchers=5,
    in_memory=True,
)
NVRX_RANKS_ONLY: Final = Peer(
    name="nvrx_ranks_only",
    script="benchmarks.peers.train_nvrx",
    launcher=lambda port: _ft_launcher(port, "--nnodes=1", "--nproc-per-node=8"),
    in_memory=True,
)
DLROVER: Final = Peer(
    name="dlrover",
    script="benchmarks.peers.train_dlrover",
    launcher=lambda _: (
        str(VENV / "bin" / "dlrover-run"),
        "--nnodes=1",
        "--nproc_per_node=8",
        "--max_restarts=100",
        "--monitor-interval=0.1",
    ),
    service=lambda port: (
        str(PYTHON),
        "-u",
        "-m",
        "dlrover.python.master.main",
        "--platform=local",
        f"--port={port}",
        "--node_num=1",
        f"--job_name={_job_name(port)}",
    ),
    environment=lambda port: {
        "DLROVER_MASTER_ADDR": f"127.0.0.1:{port}",
        "NODE_RANK": "0",
        "ELASTIC_JOB_NAME": _job_name(port),
    },
    leftovers=("/dev/shm/everstep-bench-dlrover-*", "/tmp/ckpt_sock/everstep-bench-dlrover-*"),
)


def measure(peer: Peer, directory: Path, corpus: Path, rng: random.Random) -> list[Sample]:
    """Start the peer once and strike it as often as it can take.

    Raises:
        TimedOutError: it does not start, train or recover; the text has the end of its log.
    """
    shutil.rmtree(directory, ignore_errors=True)
    notes, temporary = directory / "probe", directory / "tmp"
    for path in (notes, temporary):
        path.mkdir(parents=True)
    memory = Path("/dev/shm") / f"everstep-bench-{peer.name}-{directory.parent.name}"
    checkpoints = memory if peer.in_memory else directory / "checkpoints"
    checkpoints.mkdir(parents=True, exist_ok=True)
    port = free_port()
    environment = {
        "PYTHONPATH": ":".join(str(REPOSITORY / part) for part in (".", "worker", "lib")),
        "PATH": f"{VENV / 'bin'}:/usr/local/bin:/usr/bin:/bin",
        "TMPDIR": str(temporary),  # launchers leave sockets behind
        "PYTHONWARNINGS": "ignore",
        "OMP_NUM_THREADS": "1",
        "GLOO_SOCKET_IFNAME": "lo",
        probe.DIRECTORY_VARIABLE: str(notes),
        "BENCH_CHECKPOINT_DIR": str(checkpoints),
        "BENCH_SAVE_EVERY": str(SAVE_EVERY),
        "BENCH_STORAGE_EVERY": str(STORAGE_EVERY),
        "BENCH_CORPUS": str(corpus),
        "BENCH_STEPS": str(STEPS),
        **peer.environment(port),
    }
    services: list[Process] = []
    launchers: list[Process] = []
    try:
        if peer.service is not None:
            services.append(Process(peer.service(port), environment, directory / "service.log"))
        command = (*peer.launcher(port), "-m", peer.script)
        for number in range(peer.launchers):
            log = directory / f"launcher-{number}.log"
            launchers.append(Process(command, environment, log))
        return _strike_all(launchers, notes, peer.faults, rng)
    finally:
        for process in (*launchers, *services):
            process.end()
        shutil.rmtree(memory, ignore_errors=True)
        _delete(peer.leftovers)


def _strike_all(
    launchers: list[Process], notes: Path, faults: int, rng: random.Random
) -> list[Sample]:
    standing = list(launchers)

    def strike_host() -> float:
        pids = newest_pids(notes, HOST_RANKS)
        if len(launchers) > 1:
            struck = _launcher_of(pids[0], launchers)
            standing.remove(struck)
            pids = [struck.pid, *(one.pid for one in struck.descendants())]
        at = time.time()
        kill(pids)
        return at

    def why_dead() -> str | None:
        codes = [one.ended() for one in standing]
        return None if None in codes else f"the launchers ended with {codes}"

    try:
        return [strike(notes, rng, strike_host, why_dead) for _ in range(faults)]
    except TimedOutError as error:
        raise TimedOutError(f"{error}; its log ends:\n{standing[0].last_lines()}") from None


def _launcher_of(pid: int, launchers: list[Process]) -> Process:
    return next(one for one in launchers if pid in {below.pid for below in one.descendants()})


def _ft_launcher(port: int, *size: str) -> tuple[str, ...]:
    """Return NVRx's launcher with limits as tight as a step of a second allows."""
    return (
        str(PYTHON),
        "-m",
        "nvidia_resiliency_ext.fault_tolerance.launcher",
        *size,
        "--max-restarts=100",
        "--monitor-interval=0.1",
        "--rdzv-backend=c10d",
        f"--rdzv-endpoint=127.0.0.1:{port}",
        "--rdzv-id=bench",
        "--local-addr=127.0.0.1",
        "--ft-initial-rank-heartbeat-timeout=60",
        "--ft-rank-heartbeat-timeout=10",
        "--ft-workload-check-interval=1",
    )


def _delete(patterns: Sequence[str]) -> None:
    for pattern in patterns:
        for path in Path("/").glob(pattern.lstrip("/")):
            if path.is_dir():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink(missing_ok=True)


def _job_name(port: int) -> str:
    return f"everstep-bench-dlrover-{port}"
