"""What the inventory's HTTP API takes."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from pydantic import ValidationError

from everstep.host_inventory.api import MaintainRequest


def test_maintenance_ends_while_time_can_be_told():
    """A listing of hosts tells it as a date, for which a later one is none."""
    last = datetime(9999, 12, 31, 23, 59, 59, 999_000, tzinfo=UTC)
    last_ms = round(last.timestamp() * 1_000)
    assert MaintainRequest(until_ms=last_ms).until_ms == last_ms
    with pytest.raises(ValidationError, match="until_ms"):
        MaintainRequest(until_ms=last_ms + 1)
