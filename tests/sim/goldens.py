"""Golden traces: readable text, rewritten by ``--update-goldens`` and reviewed as diffs."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import pytest

DIGEST = re.compile(r" [0-9a-f]{8}$")  # of an event's data: for comparing runs, not for readers
GOLDEN = Path(__file__).parent / "golden"


def compare(request: pytest.FixtureRequest, name: str, lines: Sequence[str]) -> None:
    """Compare with the golden of that name, or rewrite it."""
    path = GOLDEN / f"{name}.txt"
    text = "".join(f"{DIGEST.sub('', line)}\n" for line in lines)
    if request.config.getoption("--update-goldens"):
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    assert text == path.read_text(), f"{path.name} differs; --update-goldens rewrites it"
