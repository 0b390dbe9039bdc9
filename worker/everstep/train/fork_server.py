"""Forks ranks from a process that has torch already imported: 0.05 s instead of seconds each.

One single-threaded loop, because a fork copies only the thread that calls it: any lock that another
thread holds would stay locked in the child. No accelerator is touched here, so children may.

The server is the parent of all ranks of its host and outlives the agent. It keeps every exit until
an agent has acknowledged it, so a rank that dies while the agent is away is told all the same.
The newest connection wins: an old agent that hangs cannot keep a new one out. Rejected: letting the
agent fork (it would need torch, and its death would take the ranks along), and
``multiprocessing.forkserver`` (its exits are told to one parent only).
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import gc
import importlib
import os
import selectors
import signal
import socket
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import msgspec

from everstep.agent import framing
from everstep.core.errors import CorruptData
from everstep.core.system import Clock, SystemClock
from everstep.train import fork_child, fork_probe
from everstep.train.fork_child import ForkRequest
from everstep.train.fork_probe import ProbeFork

# What every rank needs; each costs 0.1 to 1 s to import and nothing to inherit.
PRELOAD: Final = (
    "numpy",
    "torch",
    "torch.distributed",
    "torch.distributed.device_mesh",
    "torch.distributed.fsdp",
    "torch.distributed.tensor.parallel",
    "torch.distributed.pipelining",
    "everstep.train",
    "everstep.train.rank_main",
    "everstep.train.probes.run",
    "everstep.train.warm:warm_up",
)
PRELOAD_HELP: Final = "modules to import and module:function to call, comma-separated"
RUN: Final = "everstep.train.rank_main:run_rank"
RECEIVE_BYTES: Final = 1 << 16  # requests are a few kB each


@dataclass(frozen=True, slots=True, kw_only=True)
class Exit:
    """How a rank ended; ``exit_code`` is 0 when a signal ended it."""

    job_id: str
    generation: int
    rank: int
    pid: int
    exit_code: int
    signal: int
    at_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class KillRequest:
    """Ends the ranks of a job's older generations, and refuses to fork them from now on."""

    job_id: str
    generation_below: int
    signal: int


class ForkServer:
    """The loop: forks, kills and reaps on behalf of the agent that connected last."""

    def __init__(self, listener: socket.socket, run: Callable[[], Any], clock: Clock) -> None:
        self._listener = listener
        self._run = run
        self._clock = clock
        self._selector = selectors.DefaultSelector()
        self._agent: socket.socket | None = None
        self._decoder = framing.FrameDecoder()
        self._outgoing = bytearray()
        self._live: dict[int, ForkRequest] = {}  # by pid
        self._exits: dict[int, Exit] = {}  # by pid, until acknowledged
        self._fences: dict[str, int] = {}  # job -> lowest generation that may still be forked
        self._probes: dict[int, str] = {}  # pid -> examination; one that was ended, until reaped
        self._wake_in, self._wake_out = socket.socketpair()
        self._ending = False

    def serve(self) -> None:
        """Serve until SIGTERM, then end every rank and return."""
        self._wake_in.setblocking(False)
        self._wake_out.setblocking(False)
        signal.set_wakeup_fd(self._wake_out.fileno(), warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)  # the wake-up byte is what counts
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal's Ctrl-C is not meant for us
        signal.signal(signal.SIGTERM, self._end)
        self._selector.register(self._wake_in, selectors.EVENT_READ)
        self._selector.register(self._listener, selectors.EVENT_READ)
        while not self._ending:
            for key, events in self._selector.select():
                if key.fileobj is self._wake_in:
                    with contextlib.suppress(BlockingIOError):
                        self._wake_in.recv(RECEIVE_BYTES)
                elif key.fileobj is self._listener:
                    self._accept()
                elif key.fileobj is self._agent:
                    self._serve_agent(events)
            self._reap()
            self._reap_probes()
        for pid in (*self._live, *self._probes):
            _kill_session(pid, signal.SIGKILL)
        for pid in (*self._live, *self._probes):
            os.waitpid(pid, 0)

    def _end(self, *_: object) -> None:
        self._ending = True

    def _accept(self) -> None:
        connection, _ = self._listener.accept()
        self._drop_agent()
        connection.setblocking(False)
        self._agent = connection
        self._selector.register(connection, selectors.EVENT_READ)
        self._tell({"kind": "warm", "pid": os.getpid()})
        for ended in self._exits.values():
            self._tell({"kind": "exit", **asdict(ended)})
        self._tell_ranks()  # last: whoever is in neither list is not ours

    def _drop_agent(self) -> None:
        if self._agent is not None:
            self._selector.unregister(self._agent)
            self._agent.close()
        self._agent = None
        self._decoder = framing.FrameDecoder()
        self._outgoing.clear()

    def _serve_agent(self, events: int) -> None:
        try:
            if events & selectors.EVENT_WRITE:
                self._flush()
            if events & selectors.EVENT_READ and self._agent is not None:
                data = self._agent.recv(RECEIVE_BYTES)
                if not data:
                    self._drop_agent()
                for frame in self._decoder.feed(data):
                    self._handle(frame)
        except BlockingIOError:
            return
        except (OSError, CorruptData, msgspec.ValidationError) as error:
            _log(f"agent connection dropped: {error!r}")
            self._drop_agent()

    def _handle(self, frame: framing.Frame) -> None:
        match frame["kind"]:
            case "fork":
                self._fork(msgspec.convert(frame, ForkRequest))
            case "kill":
                self._kill(msgspec.convert(frame, KillRequest))
            case "probe":
                self._probe(msgspec.convert(frame, ProbeFork))
            case "end_probes":
                self._end_probes()
            case "list":
                self._tell_ranks()
            case "ack_exit":
                self._exits.pop(frame.get("pid", 0), None)
            case unknown:
                _log(f"unknown request {unknown!r} ignored")

    def _fork(self, request: ForkRequest) -> None:
        pid = next((pid for pid, one in self._live.items() if one.slot == request.slot), None)
        if pid is not None:  # asked again: the answer was lost, or the agent is new
            self._tell({"kind": "forked", "pid": pid, **request.names()})
            return
        lowest = self._fences.get(request.job_id, 0)
        if request.generation < lowest:
            why = f"generation {request.generation} is fenced off: the lowest allowed is {lowest}"
            self._tell({"kind": "fork_failed", "error": why, **request.names()})
            return
        self._end_probes()
        sys.stdout.flush()
        sys.stderr.flush()
        server_pid = os.getpid()
        try:
            pid = os.fork()
        except OSError as error:
            self._tell({"kind": "fork_failed", "error": f"fork: {error}", **request.names()})
            return
        if pid == 0:
            self._close_in_child()
            fork_child.become_rank(request, server_pid, self._run)
        self._live[pid] = request
        self._tell({"kind": "forked", "pid": pid, **request.names()})

    def _probe(self, fork: ProbeFork) -> None:
        """Fork the probes, unless ranks run: nothing may take their cores and memory."""
        self._end_probes()
        why = "ranks run here" if self._live else ""
        pid = -1
        if not why:
            server_pid = os.getpid()
            try:
                pid = os.fork()
            except OSError as error:
                why = f"fork: {error}"
        if pid == 0:
            self._close_in_child()
            fork_probe.become_probe(fork, server_pid, _load)
        if why:
            self._tell_probed(fork.examination_id, why)
        else:
            self._probes[pid] = fork.examination_id

    def _end_probes(self) -> None:
        for pid in self._probes:
            _kill_session(pid, signal.SIGKILL)

    def _tell_probed(self, examination_id: str, why: str) -> None:
        self._tell({"kind": "probed", "examination_id": examination_id, "why": why})

    def _close_in_child(self) -> None:
        signal.set_wakeup_fd(-1)
        self._selector.close()
        for held in (self._listener, self._wake_in, self._wake_out, self._agent):
            if held is not None:
                held.close()

    def _kill(self, kill: KillRequest) -> None:
        lowest = max(kill.generation_below, self._fences.get(kill.job_id, 0))
        self._fences[kill.job_id] = lowest
        for pid, request in self._live.items():
            if request.job_id == kill.job_id and request.generation < kill.generation_below:
                _kill_session(pid, kill.signal)

    def _reap(self) -> None:
        for pid in list(self._live):
            ended = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            if ended is None:
                continue
            # While the leader is a zombie its id cannot be reused: end what it left behind.
            _kill_session(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            request = self._live.pop(pid)
            by_signal = ended.si_code in {os.CLD_KILLED, os.CLD_DUMPED}
            self._exits[pid] = Exit(
                job_id=request.job_id,
                generation=request.generation,
                rank=request.rank,
                pid=pid,
                exit_code=0 if by_signal else ended.si_status,
                signal=ended.si_status if by_signal else 0,
                at_ms=self._clock.now_ms(),
            )
            self._tell({"kind": "exit", **asdict(self._exits[pid])})

    def _reap_probes(self) -> None:
        for pid in list(self._probes):
            ended, status = os.waitpid(pid, os.WNOHANG)
            if ended:
                code = os.waitstatus_to_exitcode(status)
                why = f"the probes ended with code {code}" if code else ""
                self._tell_probed(self._probes.pop(pid), why)

    def _tell_ranks(self) -> None:
        ranks = [{"pid": pid, **request.names()} for pid, request in self._live.items()]
        self._tell({"kind": "ranks", "ranks": ranks})

    def _tell(self, message: framing.Frame) -> None:
        if self._agent is None:
            return  # exits are kept and ranks are listed when the next agent connects
        self._outgoing += framing.encode(message)
        try:
            self._flush()
        except OSError:
            self._drop_agent()

    def _flush(self) -> None:
        assert self._agent is not None
        with contextlib.suppress(BlockingIOError):
            while self._outgoing:
                sent = self._agent.send(self._outgoing)
                del self._outgoing[:sent]
        wanted = selectors.EVENT_READ | (selectors.EVENT_WRITE if self._outgoing else 0)
        self._selector.modify(self._agent, wanted)


def _kill_session(pid: int, number: int) -> None:
    for kill in (os.killpg, os.kill):  # the child may not have its own group yet
        with contextlib.suppress(ProcessLookupError):
            kill(pid, number)


def _log(text: str) -> None:
    sys.stderr.write(f"fork server {os.getpid()}: {text}\n")
    sys.stderr.flush()


def _lock_pid_file(path: Path) -> int | None:
    """Write our pid and hold the lock for life; None when another server holds it."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    os.ftruncate(descriptor, 0)
    os.write(descriptor, f"{os.getpid()}\n".encode())
    return descriptor


def _listen(path: Path) -> socket.socket:
    path.unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(str(path))
    path.chmod(0o600)
    listener.listen(8)  # one agent at a time; a few more while they replace each other
    return listener


def _load(name: str) -> Callable[[], Any]:
    module, _, function = name.partition(":")
    found: Callable[[], Any] = getattr(importlib.import_module(module), function)
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the server; returns 0 after SIGTERM, 3 when another server serves this host."""
    parser = argparse.ArgumentParser(prog="everstep.train.fork_server", description=__doc__)
    parser.add_argument("--socket", type=Path, required=True)
    parser.add_argument("--pid-file", type=Path, required=True)
    parser.add_argument("--preload", default=",".join(PRELOAD), help=PRELOAD_HELP)
    parser.add_argument("--run", default=RUN, help="module:function that a rank runs")
    options = parser.parse_args(arguments)
    lock = _lock_pid_file(options.pid_file)
    if lock is None:
        _log(f"{options.pid_file} is locked: another fork server serves this host")
        return 3
    listener = _listen(options.socket)  # agents may connect and ask while we import
    for name in filter(None, options.preload.split(",")):
        if ":" in name:
            _load(name)()
        else:
            importlib.import_module(name)
    run = _load(options.run)
    gc.collect()
    gc.freeze()  # a collection in a child must not copy the pages of all that was imported
    _log("warm")
    ForkServer(listener, run, SystemClock()).serve()
    return 0


if __name__ == "__main__":
    sys.exit(main())
