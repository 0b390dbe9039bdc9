"""Runs these tests where network namespaces can be made, and says so where they cannot."""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.e2e.lab import HOSTS, SPARES, Lab, make_corpus, open_lab
from tests.namespaces.fabric import CONTROL, DEVICE, Fabric, open_fabric, why_not
from tests.only_where import only_where

HERE = Path(__file__).parent


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave them out where they cannot run."""
    only_where(config, items, Path(__file__).parent, mark="namespace", why_not=why_not)


@pytest.fixture(scope="session")
def network() -> Iterator[Fabric]:
    """A namespace for every host of the stack."""
    with open_fabric([f"h{number + 1}" for number in range(HOSTS + SPARES)]) as opened:
        yield opened


@pytest.fixture(scope="session")
def stack(network: Fabric) -> Iterator[Lab]:
    """The stack of the end-to-end tests, each host in a namespace of its own."""
    places = {
        host_id: [network.namespace(host_id), network.address(host_id), DEVICE]
        for host_id in network.hosts
    }
    told = json.dumps({"control": network.address(CONTROL), "places": places})
    supervisor = (sys.executable, str(HERE / "supervisor.py"), told)
    root = Path(tempfile.mkdtemp(prefix="es-"))  # short: sockets lie in it
    try:
        with open_lab(root / "s", make_corpus(root), supervisor=supervisor) as lab:
            yield lab
    finally:
        shutil.rmtree(root, ignore_errors=True)


@pytest.fixture
def fabric(network: Fabric) -> Iterator[Fabric]:
    """The network, whole before and after."""
    network.mend()
    yield network
    network.mend()


@pytest.fixture
def lab(stack: Lab, fabric: Fabric) -> Lab:
    """The stack with every host sound and free."""
    stack.heal()
    return stack


@pytest.fixture(scope="session")
def reference(stack: Lab) -> str:
    """The same job, undisturbed."""
    job_id = stack.submit("reference")
    stack.succeeded(job_id)
    assert stack.incidents(job_id) == []
    return job_id
