"""A stack for the end-to-end tests of a worker, and the undisturbed run they are compared with."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.e2e.lab import Lab, make_corpus, open_lab


@pytest.fixture(scope="session")
def stack() -> Iterator[Lab]:
    """Servers, services, four hosts of two chips and two spares."""
    root = Path(tempfile.mkdtemp(prefix="es-"))  # short: sockets lie in it
    try:
        with open_lab(root / "s", make_corpus(root), layers=2) as lab:  # one a stage
            yield lab
    finally:
        shutil.rmtree(root, ignore_errors=True)


@pytest.fixture
def lab(stack: Lab) -> Lab:
    """The stack with every host sound and free."""
    stack.heal()
    return stack


@pytest.fixture(scope="session")
def reference(stack: Lab) -> str:
    """The same job, undisturbed: what every disturbed one must end equal to."""
    stack.heal()
    job_id = stack.submit("reference")
    stack.succeeded(job_id)
    assert stack.incidents(job_id) == []
    return job_id
