"""Another host's process: a snapshot server of ours, and beside it bare TCP for the same bytes.

The bare side keeps what comes in memory that is touched already and answers with one byte, or
sends a file by sendfile: the least that anybody could do. Run by the benchmarks as
``python -m benchmarks.support.peer_host FOLDER MB``; it tells its ports in one line of JSON and
answers every line on standard input with its processor time and peak memory.
"""

from __future__ import annotations

import json
import mmap
import os
import resource
import socket
import struct
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any, Final, Self

from benchmarks.support.processes import free_port

from everstep.agent.peer_server import PeerServer
from everstep.agent.store import HostMemory

ADDRESS: Final = "127.0.0.1"
BARE_CHUNK_BYTES: Final = 1 << 20  # the fastest of 64 kB to all, and of sendall and sendfile
_SINK: Final = b"p"  # and eight bytes that say how many come
_SOURCE: Final = b"g"  # and eight bytes that say how many to send of the file in FOLDER/source
_LENGTH: Final = struct.Struct(">cQ")


class PeerHost:
    """The process, from outside."""

    def __init__(self, folder: Path, size_mb: int) -> None:
        module = "benchmarks.support.peer_host"
        self._process = subprocess.Popen(
            [sys.executable, "-m", module, str(folder), str(size_mb)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        told = self._read()
        self.peer_port: int = told["peer_port"]
        self._bare_port: int = told["bare_port"]
        self._bare: socket.socket | None = None

    def usage(self) -> tuple[float, int]:
        """Return its processor time [s] and peak memory [bytes] so far."""
        assert self._process.stdin is not None
        self._process.stdin.write("usage\n")
        self._process.stdin.flush()
        told = self._read()
        return told["cpu_s"], told["peak_bytes"]

    def bare_push(self, path: Path, size_bytes: int) -> None:
        """Send bytes of a file by sendfile; returns when they are there."""
        connection = self._connected()
        connection.sendall(_LENGTH.pack(_SINK, size_bytes))
        with path.open("rb", buffering=0) as file:
            connection.sendfile(file, 0, size_bytes)
        assert connection.recv(1) == b"k"

    def bare_pull(self, into: memoryview) -> None:
        """Receive bytes of the file ``source`` into memory that is there."""
        connection = self._connected()
        connection.sendall(_LENGTH.pack(_SOURCE, len(into)))
        _receive(connection, into)

    def _connected(self) -> socket.socket:
        if self._bare is None:
            self._bare = socket.create_connection((ADDRESS, self._bare_port))
            self._bare.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return self._bare

    def _read(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        told: dict[str, Any] = json.loads(self._process.stdout.readline())
        return told

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        if self._bare is not None:
            self._bare.close()
        self._process.wait()


def usage() -> tuple[float, int]:
    """Return this process' processor time [s] and peak memory [bytes] so far."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime, used.ru_maxrss * 1024


def touched(path: Path, size_bytes: int) -> mmap.mmap:
    """Return shared memory with every page there; the file's name is taken away at once."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    os.posix_fallocate(descriptor, 0, size_bytes)
    mapping = mmap.mmap(descriptor, size_bytes, flags=mmap.MAP_SHARED | mmap.MAP_POPULATE)
    os.close(descriptor)
    path.unlink()
    return mapping


def _receive(connection: socket.socket, into: memoryview) -> None:
    received = 0
    while received < len(into):
        received += connection.recv_into(into[received : received + BARE_CHUNK_BYTES])


def _serve_bare(listener: socket.socket, folder: Path, memory: mmap.mmap) -> None:
    connection, _ = listener.accept()
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    while head := connection.recv(_LENGTH.size, socket.MSG_WAITALL):
        kind, size_bytes = _LENGTH.unpack(head)
        if kind == _SOURCE:
            with (folder / "source").open("rb", buffering=0) as file:
                connection.sendfile(file, 0, size_bytes)
            continue
        _receive(connection, memoryview(memory)[:size_bytes])
        connection.sendall(b"k")


def main() -> None:
    """Serve until standard input ends."""
    folder, size_mb = Path(sys.argv[1]), int(sys.argv[2])
    listener = socket.create_server((ADDRESS, 0))
    # Room for the header too.
    memory = touched(folder / "bare", size_mb * 1_000_000 + (16 << 20))
    arguments = (listener, folder, memory)
    threading.Thread(target=_serve_bare, args=arguments, daemon=True).start()
    server = PeerServer(HostMemory(folder / "peer", folder / "forgotten.json"))
    peer_port = free_port()
    server.start(ADDRESS, peer_port)
    told: dict[str, Any] = {"peer_port": peer_port, "bare_port": listener.getsockname()[1]}
    print(json.dumps(told), flush=True)
    for _ in sys.stdin:
        cpu_s, peak_bytes = usage()
        print(json.dumps({"cpu_s": cpu_s, "peak_bytes": peak_bytes}), flush=True)


if __name__ == "__main__":
    main()
