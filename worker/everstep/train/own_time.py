"""Measures a rank's own time: what of a step it did not spend on waiting for other ranks.

In synchronous training all ranks' steps take equally long, so a step's time names nobody. Nearly
all waiting happens within forward and backward, so every wait for a collective is timed, whoever
asked for it: tensor-parallel layers, FSDP, the pipeline, the step's own sum. Of what is left, a
rank on a CPU also leaves out how long its thread stood in the scheduler's queue, and what it lost
from the caches meanwhile: another process that takes a core makes nobody a slow rank. Sleeping
outside of a wait counts: a rank that stands still is slow, however little of the processor it uses.

Rejected (figures in docs/decisions.md): processor time (a rank that sleeps looks fast), time
outside of waits with the queue in it (a busy machine alarms), a profiler (costs more than it
finds). Waits that PyTorch makes within C++ are not seen and count as own: DDP's reducer is one.
"""

from __future__ import annotations

import functools
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, Protocol

import torch
from torch.distributed import _functional_collectives as functional
from torch.distributed.distributed_c10d import Work

from everstep.core.system import Clock

# "<ns on a core> <ns in the queue> <times run>" of the thread that opens it: the kernel's
# Documentation/scheduler/sched-stats.rst. Absent or zero without CONFIG_SCHED_INFO.
SCHEDSTAT: Final = Path("/proc/thread-self/schedstat")
SCHEDSTAT_BYTES_MAX: Final = 64  # three numbers of at most 20 digits
# Both clocks are read one after the other, and whoever has just woken another thread is often made
# to stand back for it in between: seen to be wrong by 2 to 20 ms in every other step. Reading takes
# some microseconds; what took longer than this is read again.
GLANCE_MS_MAX: Final = 0.05
GLANCES_MAX: Final = 5  # a machine on which reading takes that long is measured as well as it goes
# Whoever stood in the queue finds colder caches: 0.018, 0.026 and 0.028 ms of work more for each ms
# in three runs of 8 ranks on 2 busy cores. Taken off, windows of 40 steps scatter by 1.2 instead of
# 1.8 %. Where nobody queues it changes nothing.
COLD_SHARE: Final = 0.02


class OwnTime(Protocol):
    """Adds up what lies outside of waits [ms]."""

    def wait_begins(self) -> None:
        """Stop counting: this thread is about to wait for other ranks."""
        ...

    def wait_ends(self) -> None:
        """Go on counting."""
        ...

    def so_far_ms(self) -> float:
        """Return what has been added up since the last lap."""
        ...

    def lap_ms(self) -> float:
        """Return what has been added up since the last lap, and begin the next one."""
        ...


class ThreadTime:
    """Own time by a clock that stands still while the thread is kept from running.

    Args:
        running_ms: reads that clock.
    """

    def __init__(self, running_ms: Callable[[], float]) -> None:
        self._running_ms = running_ms
        self._own_ms = 0.0
        self._since_ms = running_ms()

    def wait_begins(self) -> None:
        """Stop counting."""
        now_ms = self._running_ms()
        self._own_ms += now_ms - self._since_ms
        self._since_ms = now_ms  # a wait within a wait adds nothing

    def wait_ends(self) -> None:
        """Go on counting."""
        self._since_ms = self._running_ms()

    def so_far_ms(self) -> float:
        """Return what has been added up since the last lap."""
        return self._own_ms + self._running_ms() - self._since_ms

    def lap_ms(self) -> float:
        """Return what has been added up since the last lap, and begin the next one."""
        now_ms = self._running_ms()
        own_ms = self._own_ms + now_ms - self._since_ms
        self._own_ms, self._since_ms = 0.0, now_ms
        return own_ms


def running_clock(clock: Clock) -> Callable[[], float]:
    """Return a clock [ms] of the calling thread that stands still while it is queued to run.

    Where the kernel does not say how long that was, it is the thread's processor time: sleeping is
    not seen then, but nobody is blamed for a busy machine.
    """
    try:
        descriptor = os.open(SCHEDSTAT, os.O_RDONLY)
    except FileNotFoundError:
        return _processor_ms
    if not int(os.pread(descriptor, SCHEDSTAT_BYTES_MAX, 0).split()[0]):
        os.close(descriptor)
        return _processor_ms

    def running_ms() -> float:
        before_ms = clock.monotonic_ms()
        for _ in range(GLANCES_MAX):
            queued_ns = int(os.pread(descriptor, SCHEDSTAT_BYTES_MAX, 0).split()[1])
            now_ms = clock.monotonic_ms()
            if now_ms - before_ms < GLANCE_MS_MAX:
                break
            before_ms = now_ms
        return now_ms - queued_ns / 1e6 * (1 + COLD_SHARE)

    return running_ms


def _processor_ms() -> float:
    return time.thread_time_ns() / 1e6


class StreamTime:
    """Own time of an accelerator's current stream: events around every wait, read once a step.

    Reading waits for the stream to come so far. The step has then just read its gradients' norm,
    which waits for the same.
    """

    def __init__(self) -> None:
        self.stream = torch.cuda.current_stream()
        self._free: list[torch.cuda.Event] = []
        self._waits: list[tuple[torch.cuda.Event, torch.cuda.Event]] = []
        self._since = self._mark()
        self._wait_since = self._since

    def wait_begins(self) -> None:
        """Stop counting."""
        self._wait_since = self._mark()

    def wait_ends(self) -> None:
        """Go on counting."""
        self._waits.append((self._wait_since, self._mark()))

    def so_far_ms(self) -> float:
        """Return what has been added up since the last lap."""
        now = self._mark()
        own_ms = self._own_until(now)
        self._free.append(now)
        return own_ms

    def lap_ms(self) -> float:
        """Return what has been added up since the last lap, and begin the next one."""
        now = self._mark()
        own_ms = self._own_until(now)
        self._free += [self._since, *(event for wait in self._waits for event in wait)]
        self._waits.clear()
        self._since = now
        return own_ms

    def _own_until(self, end: torch.cuda.Event) -> float:
        end.synchronize()
        waited_ms = sum(begun.elapsed_time(ended) for begun, ended in self._waits)
        return float(self._since.elapsed_time(end) - waited_ms)

    def _mark(self) -> torch.cuda.Event:
        if not self._free:
            timed = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]  # torch's
            self._free.append(timed)
        event = self._free.pop()
        event.record(self.stream)
        return event


def measure(device: torch.device, clock: Clock) -> OwnTime:
    """Measure the calling thread's own time from now on, for good; once a process.

    PyTorch has no hook for waits, so its two ways to wait are replaced by timed ones: ``Work.wait``
    and the functional collectives' ``wait_tensor``. On an accelerator both make the stream wait.
    FSDP's collectives have streams of their own there, and the stream waits for their events.
    """
    if device.type == "cuda":
        on_stream = StreamTime()
        _time_waits(on_stream)
        _time_stream_waits(on_stream)
        return on_stream
    on_thread = ThreadTime(running_clock(clock))
    _time_waits(on_thread)
    return on_thread


def _time_waits(own: OwnTime) -> None:
    measured = threading.get_ident()

    def around(wait: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(wait)
        def timed(*args: Any, **kwargs: Any) -> Any:
            if torch.compiler.is_compiling() or threading.get_ident() != measured:
                return wait(*args, **kwargs)
            own.wait_begins()
            try:
                return wait(*args, **kwargs)
            finally:
                own.wait_ends()

        return timed

    Work.wait = around(Work.wait)  # type: ignore[method-assign]  # there is no hook
    functional.wait_tensor = around(functional.wait_tensor)


def _time_stream_waits(own: StreamTime) -> None:
    wait_event = torch.cuda.Stream.wait_event

    def timed(stream: torch.cuda.Stream, event: Any) -> None:
        if stream != own.stream:
            wait_event(stream, event)
            return
        own.wait_begins()
        wait_event(stream, event)
        own.wait_ends()

    torch.cuda.Stream.wait_event = timed  # type: ignore[assignment]  # there is no hook
