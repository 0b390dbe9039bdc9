"""One thread beside training that finishes snapshots.

Copies and checksums let go of Python's lock, so they run beside the next forward and backward pass.
On an accelerator the thread's work comes after all that was queued when it was begun, whatever
streams are in use.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from queue import SimpleQueue

import torch


class Copier:
    """Does one piece of work at a time; the thread comes with the first.

    Args:
        device: where the tensors are.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._queued: torch.cuda.Event | None = None
        self._work: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self._idle = threading.Event()
        self._idle.set()
        self._thread: threading.Thread | None = None
        self._error: BaseException | None = None

    def begin(self, work: Callable[[], None]) -> None:
        """Do ``work`` in the thread; what was begun before must have been waited for."""
        assert self._idle.is_set(), "the last work has not been waited for"
        self._idle.clear()
        if self._device.type == "cuda":
            self._queued = torch.cuda.current_stream(self._device).record_event()
        if self._thread is None:
            # It must not keep a rank alive that is through.
            self._thread = threading.Thread(target=self._run, name="snapshots", daemon=True)
            self._thread.start()
        self._work.put(work)

    def wait(self) -> None:
        """Return when what was begun is done. Raises whatever it raised."""
        self._idle.wait()
        error, self._error = self._error, None
        if error is not None:
            raise error

    def _run(self) -> None:
        torch.set_num_threads(1)  # the rank's threads belong to training
        if self._device.type == "cuda":
            torch.cuda.set_device(self._device)
            # A stream of its own: training's does not wait for the copies in it.
            torch.cuda.set_stream(torch.cuda.Stream(self._device))  # type: ignore[no-untyped-call]  # torch has no types for it
        while True:
            work = self._work.get()
            try:
                if self._queued is not None:
                    torch.cuda.current_stream(self._device).wait_event(self._queued)
                work()
            except BaseException as error:  # noqa: BLE001 - whoever waits for it gets it
                self._error = error
            del work  # what it held on to, slots' memory, is let go before anybody goes on
            self._idle.set()
