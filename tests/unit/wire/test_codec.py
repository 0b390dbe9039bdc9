from __future__ import annotations

import math

import pytest
from google.protobuf.json_format import ParseError

from everstep.wire.codec import to_wire
from everstep.wire.v1.agents_pb2 import RANK_EXITED, RankReport, RankStep, StepMetrics
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


def test_unknown_field_is_an_error():
    """A name that drifted is found at once."""
    with pytest.raises(ParseError):
        to_wire({"tp": 1, "cp": 2}, Layout())
