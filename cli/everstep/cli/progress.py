"""Shows a stack coming up: one line that changes on a terminal, plain lines elsewhere."""

from __future__ import annotations

from types import TracebackType
from typing import Any, Self

from rich.status import Status

from everstep.cli.output import ERR


class UpProgress:
    """Takes the supervisor's status while ``up`` waits."""

    def __init__(self, *, quiet: bool = False) -> None:
        self._quiet = quiet
        self._status: Status | None = None
        self._last = ""

    def __enter__(self) -> Self:
        if not self._quiet and ERR.is_terminal:
            self._status = ERR.status("starting")
            self._status.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._status is not None:
            self._status.stop()

    def show(self, state: dict[str, Any]) -> None:
        """Tell how far it is."""
        text = _sentence(state)
        if self._quiet or text == self._last:
            return
        self._last = text
        if self._status is not None:
            self._status.update(text)
        else:
            ERR.print(text, markup=False)


def _sentence(state: dict[str, Any]) -> str:
    if state["phase"] != "starting":
        return f"stack {state['phase']}"
    waiting = [unit["name"] for unit in state["units"] if unit["state"] != "ready"]
    names = f": waiting for {', '.join(waiting)}" if waiting else ""
    return f"starting {state['doing'] or 'the supervisor'}{names}"
