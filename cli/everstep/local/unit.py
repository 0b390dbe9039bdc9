"""Keeps one process running: starts it, watches it, starts it again when it dies unasked.

A unit knows nothing of what it runs. It is told how to launch, how to ask whether the process is
ready, and whom to tell when something changed.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Final

from everstep.core.system import Clock
from everstep.local import processes
from everstep.local.restarts import Deaths, after_death, restart_delay_ms
from everstep.local.state import ProcessRecord

READY_POLL_S: Final = 0.1  # start-up takes a second or more
LOG_BYTES_MAX: Final = (
    20_000_000  # then the log is put aside at the next start; one old one is kept
)
LAST_BYTES: Final = 4_000  # of a log: enough for the last line of any traceback of ours
WORDS_MAX: Final = 300  # characters


Ready = Callable[[ProcessRecord], Awaitable[bool]]  # is this process, no earlier one, ready?


class UnitState(StrEnum):
    """Where a unit is."""

    STOPPED = "stopped"
    STARTING = "starting"
    READY = "ready"
    WAITING = "waiting"  # died; waits before it is started again


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """How a process is started."""

    argv: tuple[str, ...]
    env: Mapping[str, str]
    cwd: Path
    stop_signal: signal.Signals = signal.SIGTERM
    stop_timeout_s: float = 8.0  # then SIGKILL; long enough to close connections and flush
    with_children: bool = False  # a kill takes the process's children too


@dataclass(slots=True, kw_only=True)
class Unit:
    """One supervised process."""

    name: str
    kind: str
    launch: Launch
    ready: Ready
    log: Path
    clock: Clock
    changed: Callable[[], None]
    state: UnitState = UnitState.STOPPED
    record: ProcessRecord | None = None
    starts: int = 0
    last_end: str = ""
    deaths: Deaths = field(default_factory=Deaths)
    _wanted: bool = field(init=False, default=False)
    _task: asyncio.Task[None] | None = field(init=False, default=None)
    _process: asyncio.subprocess.Process | None = field(init=False, default=None)
    _watch: asyncio.Task[None] | None = field(init=False, default=None)
    _stirred: asyncio.Event = field(init=False, default_factory=asyncio.Event)

    def start(self) -> None:
        """Run it from now on; already so is fine."""
        self._wanted = True
        self._stirred.set()
        if self._task is None or self._task.done():
            self.deaths = Deaths()
            self._task = asyncio.create_task(self._keep(), name=f"unit {self.name}")

    async def wait_ready(self) -> bool:
        """Wait until it is ready (True), or until it died too often without ever being so.

        Whatever the question for readiness raised is raised here.
        """
        while self.state is not UnitState.READY:
            if self._watch is not None and self._watch.done() and not self._watch.cancelled():
                self._watch.result()
            if self.deaths.hopeless or not self._wanted:
                return False
            await asyncio.sleep(READY_POLL_S / 2)
        return True

    def last_words(self) -> str:
        """Return the last line of its log, cut to a sentence's length; "" if there is none."""
        with contextlib.suppress(OSError), self.log.open("rb") as log:
            log.seek(-min(LAST_BYTES, log.seek(0, os.SEEK_END)), os.SEEK_END)
            lines = log.read().decode(errors="replace").splitlines()
            return next((line.strip()[:WORDS_MAX] for line in lines[::-1] if line.strip()), "")
        return ""

    async def stop(self) -> None:
        """End it in an orderly way and keep it down."""
        self._wanted = False
        self._stirred.set()
        if self._task is None:
            return
        if self.record is not None:
            processes.send_signal([self.record], self.launch.stop_signal)
        done, _ = await asyncio.wait({self._task}, timeout=self.launch.stop_timeout_s)
        if not done:
            self._kill_now()
            await self._task

    async def kill(self, *, keep_down: bool) -> None:
        """SIGKILL it, as a crash would; it is started again unless ``keep_down``."""
        if keep_down:
            self._wanted = False
            self._stirred.set()
        task, process = self._task, self._process
        self._kill_now()
        if process is not None:
            await process.wait()
        if keep_down and task is not None:
            await task

    def _kill_now(self) -> None:
        if self.record is not None:
            with_it = processes.descendants(self.record) if self.launch.with_children else []
            processes.send_signal([self.record, *with_it], signal.SIGKILL)

    async def _keep(self) -> None:
        while self._wanted:
            started_ms = self.clock.monotonic_ms()
            was_ready = await self._live_once()
            lived_ms = int(self.clock.monotonic_ms() - started_ms)
            if not self._wanted:
                break
            self.deaths = after_death(self.deaths, lived_ms=lived_ms, was_ready=was_ready)
            self._move(UnitState.WAITING)
            await self._pause(restart_delay_ms(self.deaths))
        self._move(UnitState.STOPPED)

    async def _live_once(self) -> bool:
        """Start the process and wait for its end; say whether it was ever ready."""
        self.starts += 1
        self._stirred.clear()
        try:
            self._process = await self._spawn()
        except OSError as error:
            self.last_end = f"cannot be started: {error}"
            return False
        self.record = processes.record_of(self.name, self._process.pid)
        self._move(UnitState.STARTING)
        if not self._wanted and self.record is not None:  # stopped while it was being started
            processes.send_signal([self.record], self.launch.stop_signal)
        self._watch = asyncio.create_task(self._watch_ready(), name=f"ready {self.name}")
        try:
            code = await self._process.wait()
        finally:
            self._watch.cancel()
        was_ready = self.state is UnitState.READY
        self.last_end = _describe_end(code)
        self.record = None
        self._process = None
        return was_ready

    async def _spawn(self) -> asyncio.subprocess.Process:
        _put_aside(self.log)
        handle = os.open(self.log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            return await asyncio.create_subprocess_exec(
                *self.launch.argv,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=handle,
                stderr=handle,
                env=dict(self.launch.env),
                cwd=self.launch.cwd,
                start_new_session=True,  # a Ctrl-C in the terminal is not for it
            )
        finally:
            os.close(handle)

    async def _watch_ready(self) -> None:
        record = self.record
        while record is not None:
            if await self.ready(record):
                self._move(UnitState.READY)
                return
            await asyncio.sleep(READY_POLL_S)

    async def _pause(self, delay_ms: int) -> None:
        """Wait, unless somebody starts or stops the unit meanwhile."""
        self._stirred.clear()
        if delay_ms > 0 and self._wanted:
            waits = asyncio.create_task(self._stirred.wait())
            await asyncio.wait({waits}, timeout=delay_ms / 1000)
            waits.cancel()

    def _move(self, state: UnitState) -> None:
        self.state = state
        self.changed()


def _describe_end(code: int) -> str:
    if code >= 0:
        return f"exit code {code}"
    try:
        return f"killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"killed by signal {-code}"


def _put_aside(log: Path) -> None:
    if log.exists() and log.stat().st_size > LOG_BYTES_MAX:
        log.replace(log.with_suffix(".log.1"))
