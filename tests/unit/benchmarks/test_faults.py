"""The matrix tries every kind, and every row is a campaign."""

from __future__ import annotations

from benchmarks.faults import STRIKE_AT, rows

from everstep.chaos.campaign import parse_campaign
from everstep.chaos.kinds import KINDS


def test_every_kind_has_a_row_and_every_row_is_a_campaign():
    """What is not tried proves nothing."""
    found = rows()
    assert {row.fault["kind"] for row in found} == set(KINDS)
    assert len({row.name for row in found}) == len(found)
    for row in found:
        document = {"version": 1, "faults": [{"at_step": STRIKE_AT, **row.fault}]}
        assert len(parse_campaign(document, world_size=6).faults) == 1
