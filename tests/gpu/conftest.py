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
from tests.only_where import only_where


def _why_not() -> str:
    return "" if torch.cuda.is_available() else "torch sees no GPU here"


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave them out where they cannot run."""
    only_where(config, items, Path(__file__).parent, mark="gpu", why_not=_why_not)


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
