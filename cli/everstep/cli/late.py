"""Says what a command is doing that takes its time."""

from __future__ import annotations

import threading
import time
from types import TracebackType
from typing import Final, Self

from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from everstep.cli.output import ERR

QUIET_S: Final = 2.0  # what is over sooner needs no progress
LINE_S: Final = 10.0  # between lines about one thing, where nothing can be shown in place


class Late:
    """Shows progress on standard error, once something takes its time.

    A bar on a terminal; elsewhere a line for each thing that is done, and one now and then about
    how far it is. A timer shows what is being done when it takes long to be told of again.
    """

    def __init__(self) -> None:
        self._began_s = time.monotonic()
        self._lock = threading.Lock()
        self._timer = threading.Timer(QUIET_S, self._show)
        self._timer.daemon = True
        self._bar: Progress | None = None
        self._task = TaskID(0)
        self._doing: tuple[str, float, float | None, str] = ("starting", 0, None, "")
        self._told: tuple[str, bool] = ("", False)
        self._told_s = 0.0
        self._over = False

    def __enter__(self) -> Self:
        self._timer.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._timer.cancel()
        with self._lock:
            self._over = True
            if self._bar is not None:
                self._bar.stop()

    def tell(self, what: str, done: float = 0, total: float | None = None, how: str = "") -> None:
        """Say what is being done, how far it is, and what there is to say of it (``how``)."""
        self._doing = (what, done, total, how)
        if time.monotonic() - self._began_s >= QUIET_S:
            self._show()

    def _show(self) -> None:
        with self._lock:
            if self._over:
                return
            what, done, total, how = self._doing
            text = f"{what}: {how}" if how else what
            if not ERR.is_terminal:
                self._line((what, bool(how)), text)
                return
            if self._bar is None:
                columns = (TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn())
                self._bar = Progress(*columns, console=ERR, transient=True)
                self._bar.start()
                self._task = self._bar.add_task(what)
            self._bar.update(self._task, description=text, completed=done, total=total)

    def _line(self, told: tuple[str, bool], text: str) -> None:
        now_s = time.monotonic()
        if told != self._told or (told[1] and now_s - self._told_s >= LINE_S):
            ERR.print(text, markup=False)
            self._told, self._told_s = told, now_s
