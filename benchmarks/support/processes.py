"""Starts processes of a benchmark and ends them with all their descendants, by pid."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final, TypeVar

import psutil

T = TypeVar("T")

POLL_S: Final = 0.1  # times are taken by the ranks themselves, so polling decides nothing
END_S: Final = 10.0  # after SIGKILL a process is gone in milliseconds unless the disk hangs


class TimedOutError(Exception):
    """Something did not happen in time."""


class Process:
    """A process in a session of its own.

    Args:
        arguments: the command.
        environment: added to ours.
        log: where its output goes.
    """

    def __init__(self, arguments: Sequence[str], environment: Mapping[str, str], log: Path) -> None:
        self.log = log
        with log.open("ab") as output:
            self._popen = subprocess.Popen(
                arguments,
                env={**os.environ, **environment},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._popen.pid

    def ended(self) -> int | None:
        """Return the exit code, None while it runs."""
        return self._popen.poll()

    def descendants(self) -> list[psutil.Process]:
        """Return every process below it."""
        with contextlib.suppress(psutil.NoSuchProcess):
            return psutil.Process(self.pid).children(recursive=True)
        return []

    def end(self) -> None:
        """Kill it and all that it started."""
        below = self.descendants()
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)
        kill(one.pid for one in below)
        psutil.wait_procs(below, timeout=END_S)
        self._popen.wait(END_S)

    def last_lines(self, count: int = 15) -> str:
        """Return the end of its log."""
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-count:])


def end_in_order() -> None:
    """Let SIGTERM end the program as Ctrl-C does: else its stack, stopped perhaps, would stay."""

    def leave(number: int, _: object) -> None:
        sys.exit(128 + number)

    signal.signal(signal.SIGTERM, leave)


def kill(pids: Iterable[int]) -> None:
    """Send SIGKILL to each."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def wait_for(condition: Callable[[], T | None], timeout_s: float, what: str) -> T:
    """Return the condition's value as soon as it has one.

    Raises:
        TimedOutError: it has none within ``timeout_s``.
    """
    deadline = time.monotonic() + timeout_s
    while (value := condition()) is None:
        if time.monotonic() > deadline:
            raise TimedOutError(f"{what}: not within {timeout_s:.0f} s")
        time.sleep(POLL_S)
    return value


def free_port() -> int:
    """Return a port that nobody listens on now."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


def say(text: str) -> None:
    """Tell the person who waits; the figures alone go to standard output."""
    print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)
