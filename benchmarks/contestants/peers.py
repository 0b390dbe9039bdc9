"""Which peers take part, and how a user of each would start it.

Each is measured in the set-up that is cheapest on one machine, one launcher with all 8 ranks, where
the fault takes 2 rank processes: less than a host, and the easiest fault there is. Products that
survive the loss of a node's launcher are measured with that too: four launchers with 2 ranks each,
a fifth stands by, and the fault takes one with everything below it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from benchmarks.support.peer_venv import PYTHON, VENV

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


# With the shared store, restarted gloo ranks read their predecessors' addresses and no restart ever
# succeeds (pytorch issue 135712); this is the way out that it names.
_OWN_STORE: Final = {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}

TORCHRUN: Final = Peer(
    name="torchrun",
    script="benchmarks.peers.train_torchrun",
    launcher=lambda port: _torchrun(port, "--nnodes=1", "--nproc-per-node=8"),
    environment=lambda _: _OWN_STORE,
)
TORCHRUN_NODE: Final = Peer(
    name="torchrun_node",
    script="benchmarks.peers.train_torchrun",
    launcher=lambda port: _torchrun(
        port,
        "--nnodes=4",
        "--nproc-per-node=2",
        # A dead node is noticed after 6 s instead of 15. After 2 s, the launchers of a busy machine
        # take each other for dead and restart again and again.
        "--rdzv-conf=keep_alive_interval=2,keep_alive_max_attempt=3",
    ),
    environment=lambda _: _OWN_STORE,
    launchers=5,
)
NVRX: Final = Peer(
    name="nvrx",
    script="benchmarks.peers.train_nvrx",
    launcher=lambda port: _ft_launcher(port, "--nnodes=1", "--nproc-per-node=8"),
    in_memory=True,
)
NVRX_NODE: Final = Peer(
    name="nvrx_node",
    script="benchmarks.peers.train_nvrx",
    launcher=lambda port: _ft_launcher(port, "--nnodes=4:5", "--nproc-per-node=2"),
    launchers=5,
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


def _torchrun(port: int, *size: str) -> tuple[str, ...]:
    return (
        str(VENV / "bin" / "torchrun"),
        *size,
        "--max-restarts=100",
        "--monitor-interval=0.1",
        "--rdzv-backend=c10d",
        f"--rdzv-endpoint=127.0.0.1:{port}",
        "--rdzv-id=bench",
        "--local-addr=127.0.0.1",
    )


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


def _job_name(port: int) -> str:
    return f"everstep-bench-dlrover-{port}"
