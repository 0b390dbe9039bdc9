"""How events become rows and rows become events."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from enum import StrEnum

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from everstep.core.errors import CorruptData
from everstep.eventstore.codec import EventCodec, Upcaster, storable


class Kind(StrEnum):
    LOST = "lost"


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    rank: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Opened:
    kind: Kind
    loss: float
    parts: tuple[Part, ...]
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Closed:
    at_ms: int


CODEC: EventCodec[Opened | Closed] = EventCodec({"opened.v2": Opened, "closed.v1": Closed})
OPENED = Opened(kind=Kind.LOST, loss=1.5, parts=(Part(rank=1), Part(rank=2)), note="x")


def test_event_is_stored_under_its_name_as_json() -> None:
    """The stored form holds nothing but JSON types."""
    assert CODEC.encode(OPENED) == (
        "opened.v2",
        {"kind": "lost", "loss": 1.5, "parts": [{"rank": 1}, {"rank": 2}], "note": "x"},
    )


def test_stored_event_is_read_back_equal() -> None:
    """Nested values, enums and tuples included."""
    assert CODEC.decode(*CODEC.encode(OPENED)) == OPENED


def test_row_without_a_newer_field_gets_its_default() -> None:
    """Fields are only added, with defaults: old rows stay readable."""
    row = {"kind": "lost", "loss": 1.0, "parts": []}
    assert CODEC.decode("opened.v2", row) == Opened(kind=Kind.LOST, loss=1.0, parts=())


def test_unknown_type_is_named_with_what_is_known() -> None:
    """An old program on a newer database says so."""
    with pytest.raises(CorruptData, match=r"unknown event type 'opened\.v3'.*closed\.v1, opened"):
        CODEC.decode("opened.v3", {})


def test_row_that_does_not_fit_is_corrupt() -> None:
    """The field is named."""
    with pytest.raises(CorruptData, match=r"closed\.v1.*at_ms"):
        CODEC.decode("closed.v1", {"at_ms": "soon"})


def test_class_outside_the_table_is_a_bug() -> None:
    """A decider cannot store what nobody could read."""
    with pytest.raises(KeyError, match="Part"):
        CODEC.encode(Part(rank=1))  # type: ignore[arg-type]  # that is the point


def test_old_versions_are_upcast_in_steps() -> None:
    """v1 to v2 to v3: each step knows only its neighbour."""
    codec: EventCodec[Closed] = EventCodec(
        {"closed.v3": Closed},
        upcasters={
            "closed.v1": Upcaster(to="closed.v2", rewrite=lambda old: {"at_s": old["seconds"]}),
            "closed.v2": Upcaster(
                to="closed.v3", rewrite=lambda old: {"at_ms": old["at_s"] * 1000}
            ),
        },
    )
    assert codec.decode("closed.v1", {"seconds": 2}) == Closed(at_ms=2000)
    assert codec.decode("closed.v2", {"at_s": 3}) == Closed(at_ms=3000)
    assert codec.knows("closed.v1")
    assert not codec.knows("opened.v1")


@pytest.mark.parametrize(
    ("types", "upcasters"),
    [
        ({"Closed": Closed}, {}),
        ({"closed.v1": Closed, "shut.v1": Closed}, {}),
        ({"closed.v1": Closed}, {"closed.v1": Upcaster(to="closed.v1", rewrite=dict)}),
        ({"closed.v2": Closed}, {"closed.v1": Upcaster(to="closed.v9", rewrite=dict)}),
    ],
    ids=["no version", "one class twice", "current and old", "leads nowhere"],
)
def test_inconsistent_table_is_refused_at_once(
    types: dict[str, type], upcasters: dict[str, Upcaster]
) -> None:
    """A wrong table is found at start-up, not at the first old row."""
    with pytest.raises(AssertionError):
        EventCodec(types, upcasters=upcasters)


@pytest.mark.parametrize("loss", [math.nan, math.inf, -math.inf])
def test_loss_that_is_not_finite_survives(loss: float) -> None:
    """The very events that matter when training goes wrong must be storable."""
    event = Opened(kind=Kind.LOST, loss=loss, parts=())
    type_name, data = CODEC.encode(event)
    again = CODEC.decode(type_name, json.loads(json.dumps(data, allow_nan=False)))
    assert isinstance(again, Opened)
    assert repr(again.loss) == repr(loss)


@given(st.text() | st.text(st.characters(codec=None, categories=["Cs", "Cc"])))
def test_any_text_can_be_stored(text: str) -> None:
    """A traceback may hold anything; PostgreSQL takes neither NUL nor lone surrogates."""
    stored = storable({"traceback": text})["traceback"]
    stored.encode()
    assert "\0" not in stored
    assert len(stored) == len(text)


@given(
    st.floats(),
    st.text(st.characters(codec=None)) | st.sampled_from(["null", "\\u0000", "a\0b"]),
    st.lists(st.integers(-(2**63), 2**64 - 1).map(lambda rank: Part(rank=rank))).map(tuple),
)
def test_event_is_stored_as_the_walk_through_its_data_would(
    loss: float, note: str, parts: tuple[Part, ...]
) -> None:
    """The short way over the JSON encoder and the long way say the same."""
    event = Opened(kind=Kind.LOST, loss=loss, parts=parts, note=note)
    _, data = CODEC.encode(event)
    walked = storable(msgspec.to_builtins(event))
    assert (data, str(data["loss"])) == (walked, str(walked["loss"]))


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    )
)
def test_storable_data_is_strict_json_and_stays_so(value: object) -> None:
    """Whatever goes in, JSON comes out, and making it storable again changes nothing."""
    once = storable(value)
    json.dumps(once, allow_nan=False).encode()
    assert storable(once) == once
