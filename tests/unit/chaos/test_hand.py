"""What the hand orders, seen by a supervisor that only listens."""

from __future__ import annotations

from pathlib import Path

import pytest

from everstep.chaos.campaign import parse_campaign
from everstep.chaos.hand import Hand
from everstep.cli.client import Client
from everstep.core.system import SystemClock
from everstep.local import launch
from everstep.local.state import StatePaths


@pytest.mark.parametrize("kind", ["drop_messages", "duplicate_messages", "s3_errors"])
def test_share_of_messages_follows_from_the_campaigns_seed(monkeypatch, kind):
    """The same ones again with the same seed, others with another."""
    orders = []

    def listen(_, request, **__):
        orders.append(request)
        return {}

    monkeypatch.setattr(launch, "order", listen)
    paths = StatePaths(root=Path("/nonexistent"))
    hand = Hand(paths=paths, client=Client({}), job_id="j", clock=SystemClock())
    for seed in (3, 3, 4):
        fault = {"kind": kind, "host": "h1", "at_step": 1}
        document = {"version": 1, "seed": seed, "faults": [fault]}
        (planned,) = parse_campaign(document, world_size=8).faults
        hand.strike(planned)
    first, again, other = (order["rule"]["seed"] for order in orders)
    assert first == again != other
