"""Takes the tests of a folder out where they cannot run, and says so: a skip would be silent."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest

REASONS: Final = pytest.StashKey[list[str]]()


def only_where(
    config: pytest.Config,
    items: list[pytest.Item],
    folder: Path,
    *,
    mark: str,
    why_not: Callable[[], str],
) -> None:
    """Mark a folder's tests, and leave them out if there is a reason.

    Args:
        config: pytest's.
        items: what was collected; is changed.
        folder: whose tests.
        mark: for them, and what the message calls them.
        why_not: asked only if there are such tests; "" if they can run.
    """
    ours = [item for item in items if folder in item.path.parents]
    for item in ours:
        item.add_marker(mark)
    reason = why_not() if ours else ""
    if reason:
        reasons = config.stash.setdefault(REASONS, [])
        reasons.append(f"{len(ours)} {mark} tests were not run: {reason}")
        config.hook.pytest_deselected(items=ours)
        items[:] = [item for item in items if item not in ours]


def say_what_was_not_run(terminalreporter: pytest.TerminalReporter) -> None:
    """Say it at the end, also with -q."""
    for reason in terminalreporter.config.stash.get(REASONS, []):
        terminalreporter.write_line(reason, yellow=True)
