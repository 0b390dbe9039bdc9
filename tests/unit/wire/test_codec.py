from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import pytest
from google.protobuf.json_format import ParseError

from everstep.wire.codec import from_wire, to_wire
from everstep.wire.v1.agents_pb2 import (
    RANK_EXITED,
    RankReport,
    RankStep,
    RefusedSource,
    StepMetrics,
)
from everstep.wire.v1.common_pb2 import Layout, Placement


def test_nested_mappings_and_enum_names_are_filled_in():
    """As they come out of stored events."""
    placement = {"layout": {"tp": 2}, "hosts": [{"host_id": "h1", "ranks": [0, 1]}]}
    message = to_wire(placement, Placement())
    assert message.layout == Layout(tp=2)
    assert list(message.hosts[0].ranks) == [0, 1]
    assert to_wire({"kind": "RANK_EXITED"}, RankReport()).kind == RANK_EXITED


def test_what_is_set_already_is_kept():
    """A caller may fill a part by hand."""
    assert to_wire({"tp": 2}, Layout(pp=4)) == Layout(pp=4, tp=2)


def test_json_spellings_are_read():
    """Non-finite floats and numbers as text, as the event store keeps them."""
    step = to_wire({"loss": "NaN", "step": "7"}, RankStep())
    assert math.isnan(step.loss)
    assert step.step == 7
    metrics = to_wire({"ranks": [{"rank": 1, "loss": "Infinity"}]}, StepMetrics())
    assert metrics.ranks[0].loss == math.inf


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """Some of ``RankReport``: an enum by name, lists of messages and of text, numbers, text."""

    kind: str
    rank: int
    at_ms: int
    restore_problems: tuple[str, ...]
    refused_sources: tuple[dict[str, Any], ...]
    error: str = "default"


def test_message_is_read_with_enum_names_and_unset_fields_at_their_zero():
    """Integers stay integers; what a newer program calls by an unknown number stays a number."""
    report = RankReport(
        kind=RANK_EXITED,
        rank=3,
        at_ms=2**40,
        restore_problems=["a", "b"],
        refused_sources=[RefusedSource(kind=99, step=7)],
    )
    refused = {"step": 7, "kind": 99, "host_id": "", "uri": "", "detail": ""}
    assert from_wire(report, Told) == Told(
        kind="RANK_EXITED",
        rank=3,
        at_ms=2**40,
        restore_problems=("a", "b"),
        refused_sources=(refused,),
        error="",
    )


def test_absent_message_is_left_to_the_default():
    """A message that is not set is not an empty one."""
    assert from_wire(Placement(), Maybe) == Maybe(layout=None, hosts=())
    assert from_wire(Placement(layout=Layout()), Maybe).layout == {
        "pp": 0,
        "dp_replicate": 0,
        "dp_shard": 0,
        "tp": 0,
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class Maybe:
    """A placement that may have no layout."""

    layout: dict[str, int] | None = None
    hosts: tuple[dict[str, Any], ...]


def test_unknown_field_is_an_error():
    """A name that drifted is found at once."""
    with pytest.raises(ParseError):
        to_wire({"tp": 1, "cp": 2}, Layout())
