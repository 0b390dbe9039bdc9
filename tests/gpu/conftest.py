"""Runs these tests where there is an accelerator, and says so where there is none.

All ranks may share one device: the stack's hosts are emulated, and to NCCL each rank is a host of
its own that is reached over loopback.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from tests.e2e.lab import Lab, make_corpus, open_lab

HERE = Path(__file__).parent
REASON = pytest.StashKey[str]()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark the tests of this folder; take them out where they cannot run."""
    ours = [item for item in items if HERE in item.path.parents]
    for item in ours:
        item.add_marker("gpu")
    if ours and not torch.cuda.is_available():
        config.stash[REASON] = f"{len(ours)} tests were not run: torch sees no GPU here"
        config.hook.pytest_deselected(items=ours)
        items[:] = [item for item in items if item not in ours]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say what was not run, and why, also with -q."""
    reason = terminalreporter.config.stash.get(REASON, "")
    if reason:
        terminalreporter.write_line(reason, yellow=True)


@pytest.fixture(scope="session")
def stack() -> Iterator[Lab]:
    """Servers, services, four hosts of two chips and two spares, on this machine's GPUs."""
    root = Path(tempfile.mkdtemp(prefix="es-"))  # short: sockets lie in it
    try:
        with open_lab(root / "s", make_corpus(root)) as lab:
            yield lab
    except BaseException:
        _show_logs(root / "s" / "logs")
        raise
    finally:
        shutil.rmtree(root, ignore_errors=True)


@pytest.fixture
def lab(stack: Lab) -> Lab:
    """The stack with every host sound and free."""
    stack.heal()
    return stack


def _show_logs(logs: Path) -> None:
    for path in sorted(logs.glob("*.log")):
        sys.stderr.write(f"== {path.name}\n{path.read_text(errors='replace')[-2000:]}\n")
