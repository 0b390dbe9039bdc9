"""How an interval is told to a person."""

from __future__ import annotations

from typing import Any

import pytest

from everstep.cli.interval_command import said

TOLD: dict[str, Any] = {
    "auto": True,
    "schedule": {"version": 2, "memory_every_steps": 1, "object_every_steps": 40},
    "pending": False,
    "in_force": {"version": 2, "step": 41, "generation": 3, "at_ms": 1_000},
    "decided": {"at_ms": 900, "reason": "first_measured"},
}


def test_interval_in_force_says_how_often_why_and_since_which_step():
    """Both tiers, whose choice, and where the ranks changed."""
    memory, objects, chosen, since = said(TOLD)
    assert memory == "memory     every step"
    assert objects == "object     every 40 steps"
    assert chosen == "chosen     from measurements, last for first measured"
    assert since.startswith("in force   since step 41 of generation 3, ")


@pytest.mark.parametrize(
    ("change", "line"),
    [
        ({"pending": True}, "in force   not yet: at the ranks' next common step"),
        ({"in_force": None, "decided": None}, "in force   since the first step"),
        ({"decided": None, "auto": False}, "chosen     by hand or spec, the spec's own"),
        (
            {"schedule": {"memory_every_steps": 2, "object_every_steps": 0}},
            "object     on request only",
        ),
    ],
)
def test_interval_that_is_not_so_yet_says_so(change, line):
    """Before the ranks follow, before any change, and where no checkpoint is due by itself."""
    assert line in said({**TOLD, **change})
