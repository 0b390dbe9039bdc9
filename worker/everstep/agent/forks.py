"""The agent's side of the fork server: starts it, finds it again, asks it for ranks.

The server outlives the agent, so the first thing is always to look for one that is there. After
each connection it tells which exits nobody has acknowledged and which ranks live; what the agent
expected and finds in neither list has been lost with an earlier server, or was never forked.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal as signals
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final, Protocol

import msgspec

from everstep.agent import framing
from everstep.agent.environment import OMP_NUM_THREADS
from everstep.core.errors import CorruptData

log = logging.getLogger(__name__)

RETRY_S: Final = 0.05  # between two looks at the socket of a server that is starting
# A server that ended at once would end at once again (torch missing, no memory).
RESTART_S: Final = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Fork:
    """A rank to fork; see ``fork_child.ForkRequest``."""

    job_id: str
    generation: int
    rank: int
    env: dict[str, str]
    cwd: str
    argv: tuple[str, ...]
    log_path: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Forked:
    """A live rank process."""

    job_id: str
    generation: int
    rank: int
    pid: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ForkFailed:
    """The server could not or would not fork."""

    job_id: str
    generation: int
    rank: int
    error: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Exited:
    """A rank process has ended."""

    job_id: str
    generation: int
    rank: int
    pid: int
    exit_code: int
    signal: int
    at_ms: int


class ForkEvents(Protocol):
    """Who is told of ranks."""

    def forked(self, forked: Forked) -> None:
        """Take note that a rank lives."""

    def fork_failed(self, failed: ForkFailed) -> None:
        """Take note that a rank will not live."""

    def exited(self, exited: Exited) -> None:
        """Take note of an end; call ``ForkServer.acknowledge`` once it is stored."""

    def listed(self, alive: Sequence[Forked]) -> None:
        """Compare with what was expected: all there is, after every unacknowledged exit."""

    def server_gone(self) -> None:
        """Look after the ranks: they die with the server, or the connection alone broke."""


class ForkServer:
    """A connection to this host's fork server, kept up for ever by ``run``.

    Args:
        run_dir: for its pid file and log.
        socket: where it listens.
        arguments: extra ones for its command line; tests run something lighter than torch.
    """

    def __init__(self, run_dir: Path, socket: Path, arguments: Sequence[str] = ()) -> None:
        self._run_dir = run_dir
        self._socket = socket
        self._arguments = tuple(arguments)
        self._writer: asyncio.StreamWriter | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._pid = 0
        self._warmed = asyncio.Event()
        self._probing: tuple[str, asyncio.Future[str]] | None = None

    @property
    def warm(self) -> bool:
        """Whether ranks can be forked."""
        return self._warmed.is_set()

    async def wait_warm(self) -> None:
        """Wait until ranks can be forked."""
        await self._warmed.wait()

    async def probe(self, examination_id: str, request: str, log_path: str) -> str:
        """Run probes in a process of their own, instead of those that run already.

        Args:
            examination_id: of these probes.
            request: JSON of ``everstep.train.probes.run.Request``.
            log_path: where what goes wrong is written.

        Returns:
            "" when they are through; else why nothing came of them.
        """
        self._probed("", "other probes began")
        done: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._probing = (examination_id, done)
        message = {"examination_id": examination_id, "request": request, "log_path": log_path}
        self._tell({"kind": "probe", **message})
        return await done

    def end_probes(self) -> None:
        """End probes at once: ranks come."""
        if self._probing is not None:
            self._tell({"kind": "end_probes"})
            self._probed("", "ranks came")

    def fork(self, request: Fork) -> None:
        """Ask for a rank; not before the server is warm: ask again when ``listed`` is called."""
        if self.warm:
            self._tell({"kind": "fork", **asdict(request)})

    def kill(self, job_id: str, generation_below: int, signal: int) -> None:
        """End the ranks of older generations."""
        self._tell(
            {
                "kind": "kill",
                "job_id": job_id,
                "generation_below": generation_below,
                "signal": signal,
            }
        )

    def acknowledge(self, pid: int) -> None:
        """Let the server forget an exit."""
        self._tell({"kind": "ack_exit", "pid": pid})

    async def run(self, events: ForkEvents) -> None:
        """Stay connected; start a server whenever there is none."""
        try:
            while True:
                reader = await self._connect()
                try:
                    await self._read(reader, events)
                except (OSError, CorruptData, msgspec.ValidationError) as error:
                    log.warning("fork server connection broke: %s", error)
                self._disconnect()
                events.server_gone()
        finally:
            self._disconnect()

    def end(self) -> None:
        """End the server, whoever started it, with its ranks."""
        if self._pid:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._pid, signals.SIGTERM)

    async def _connect(self) -> asyncio.StreamReader:
        while True:
            with contextlib.suppress(OSError):
                reader, self._writer = await asyncio.open_unix_connection(str(self._socket))
                return reader
            if self._process is None:
                self._process = self._start()
            elif self._process.poll() is not None:
                code = self._process.returncode
                log.error("fork server ended with code %s: see %s", code, self._log_path)
                self._process = None
                await asyncio.sleep(RESTART_S)
            await asyncio.sleep(RETRY_S)

    def _start(self) -> subprocess.Popen[bytes]:
        """Start a server in its own session: our end, or a Ctrl-C for us, is not its.

        Not by asyncio, whose transports kill their process when the loop closes. Its libraries must
        make no threads of their own before it forks.
        """
        self._log_path.parent.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "-m", "everstep.train.fork_server"]
        command += [
            "--socket",
            str(self._socket),
            "--pid-file",
            str(self._run_dir / "fork_server.pid"),
        ]
        with self._log_path.open("ab") as output:
            return subprocess.Popen(  # noqa: S603 - our own module and paths
                [*command, *self._arguments],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
                env={"OMP_NUM_THREADS": OMP_NUM_THREADS, **os.environ},
            )

    async def _read(self, reader: asyncio.StreamReader, events: ForkEvents) -> None:
        while (frame := await framing.read(reader)) is not None:
            match frame["kind"]:
                case "warm":
                    self._warmed.set()
                    self._pid = int(frame["pid"])
                    log.info("fork server %d is warm", self._pid)
                case "forked":
                    events.forked(msgspec.convert(frame, Forked))
                case "fork_failed":
                    events.fork_failed(msgspec.convert(frame, ForkFailed))
                case "exit":
                    events.exited(msgspec.convert(frame, Exited))
                case "ranks":
                    events.listed(msgspec.convert(frame["ranks"], list[Forked]))
                case "probed":
                    self._probed(str(frame["examination_id"]), str(frame["why"]))
                case unknown:
                    log.warning("unknown frame %r from the fork server", unknown)

    def _tell(self, message: dict[str, Any]) -> None:
        if self._writer is not None and not self._writer.is_closing():
            framing.write(self._writer, message)

    def _probed(self, examination_id: str, why: str) -> None:
        """Say what became of the probes, of this examination or ("") of any."""
        if self._probing is None or examination_id not in ("", self._probing[0]):
            return
        _, done = self._probing
        self._probing = None
        if not done.done():
            done.set_result(why)

    def _disconnect(self) -> None:
        self._warmed.clear()
        self._probed("", "the fork server is gone")
        self._pid = 0
        if self._writer is not None:
            self._writer.close()
            self._writer = None

    @property
    def _log_path(self) -> Path:
        return self._run_dir / "logs" / "fork-server.log"
