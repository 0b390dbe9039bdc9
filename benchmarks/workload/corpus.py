"""A small corpus of real text that every machine has: part of Python's standard library."""

from __future__ import annotations

import sysconfig
from pathlib import Path

from everstep.data.prepare import prepare


def make_corpus(directory: Path) -> Path:
    """Write token shards under ``directory`` and return where they are."""
    source = Path(sysconfig.get_paths()["stdlib"]) / "asyncio"
    return prepare([source], directory / "corpus", suffixes=(".py",)).directory
