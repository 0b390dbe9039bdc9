"""Processes that run simulations side by side, and end with whoever wanted them."""

from __future__ import annotations

import logging
import multiprocessing
import signal
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager


@contextmanager
def processes(width: int) -> Iterator[ProcessPoolExecutor]:
    """Open a pool; left by an exception, also by an interrupt, it ends what its processes run."""
    before = set(multiprocessing.active_children())
    with ProcessPoolExecutor(width, initializer=_begin) as pool:
        try:
            yield pool
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            for process in set(multiprocessing.active_children()) - before:
                process.terminate()
            raise


def _begin() -> None:
    # A terminal interrupts all its processes, and in the middle of a world's loop that is one more
    # event in it: whoever opened the pool ends them.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # The services' logs of a thousand broken worlds are nobody's reading.
    logging.disable(logging.CRITICAL)
