"""The event store's contract on the PostgreSQL image that docker-compose.yml names."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager

import pytest
from tests.clocks import ManualClock
from tests.contract import test_eventstore as contract

from everstep.core.ports import EventStore, Projection
from everstep.eventstore.postgres import PostgresStore

store = contract.store


@pytest.fixture
def open_store(database_url: str) -> contract.OpenStore:
    """Opens a store on an empty database of the container."""

    def opened(*projections: Projection) -> AbstractAsyncContextManager[EventStore]:
        return PostgresStore.open(database_url, clock=ManualClock(), projections=projections)

    return opened


# Every test of the contract, as if it stood here.
globals().update({name: test for name, test in vars(contract).items() if name.startswith("test_")})
