"""Starts a peer's launchers, takes ranks or a whole node from it, and reads how it recovered."""

from __future__ import annotations

import random
import shutil
import socket
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Final

from benchmarks.contestants.faults import HOST_RANKS, Sample, newest_pids, strike
from benchmarks.contestants.peers import Peer
from benchmarks.support.figures import REPOSITORY
from benchmarks.support.peer_venv import VENV
from benchmarks.support.processes import Process, TimedOutError, free_port, kill, wait_for
from benchmarks.workload import probe
from benchmarks.workload.training import DEMO

SAVE_EVERY: Final = 1  # steps: what costs least after a fault; the price is paid before it
STORAGE_EVERY: Final = 20  # DLRover's second tier
LISTEN_S: Final = 60.0
STEPS: Final = 100_000  # more than any session makes


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
            if peer.launchers > 1 and number == 0:  # the first one to listen hosts the rendezvous
                wait_for(partial(_listens, port), LISTEN_S, "the first launcher's rendezvous")
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
            struck = _node_to_lose(notes, launchers)
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


def _node_to_lose(notes: Path, launchers: list[Process]) -> Process:
    """Return a launcher that holds ranks but not the rendezvous, which is in the first one."""
    ranks = set(newest_pids(notes, tuple(range(DEMO.world_size))))
    return next(one for one in launchers[1:] if ranks & {below.pid for below in one.descendants()})


def _listens(port: int) -> bool | None:
    with socket.socket() as probing:
        return probing.connect_ex(("127.0.0.1", port)) == 0 or None


def _delete(patterns: Sequence[str]) -> None:
    for pattern in patterns:
        for path in Path("/").glob(pattern.lstrip("/")):
            if path.is_dir():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink(missing_ok=True)
