"""How stored events become public ones."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pytest
from tests.toy import CODEC

from everstep.core.errors import CorruptData
from everstep.core.ports import StoredEvent
from everstep.eventstore.codec import EventCodec, Upcaster
from everstep.eventstore.outbox import envelopes, event_subject
from everstep.wire.v1.envelope_pb2 import EventEnvelope
from everstep.wire.v1.hosts_pb2 import HostLeft


def stored(type_name: str, data: Mapping[str, Any], **metadata: str) -> StoredEvent:
    """A committed event."""
    return StoredEvent(
        position=9,
        stream="host-h1",
        version=2,
        event_id="e-1",
        type=type_name,
        data=data,
        metadata=metadata,
        recorded_at_ms=1_000,
    )


def test_public_event_carries_its_origin_and_trace() -> None:
    """Everything a consumer in another language needs is in the envelope."""
    data = {"host_id": "h1", "reason": "r", "incident_id": "", "at_ms": 2**60}
    envelope = envelopes("toy", [CODEC])(stored("host_cordoned.v1", data, traceparent="t"))
    assert envelope == EventEnvelope(
        event_id="e-1",
        service="toy",
        stream="host-h1",
        version=2,
        position=9,
        type="host_cordoned.v1",
        recorded_at_ms=1_000,
        traceparent="t",
        host_cordoned={"host_id": "h1", "reason": "r", "at_ms": 2**60},
    )


def test_event_without_a_field_in_the_envelope_stays_private() -> None:
    """Not everything that a service decides is its contract."""
    data = {"host_id": "h1", "text": "x"}
    assert envelopes("toy", [CODEC])(stored("host_noted.v1", data)) is None


def test_event_whose_fields_are_all_zero_still_has_its_payload() -> None:
    """Which event it is must not depend on its values."""

    @dataclass(frozen=True, slots=True, kw_only=True)
    class Left:
        host_id: str = ""
        at_ms: int = 0

    envelope = envelopes("toy", [EventCodec({"host_left.v1": Left})])(stored("host_left.v1", {}))
    assert envelope is not None
    assert envelope.WhichOneof("payload") == "host_left"


def test_old_event_is_published_in_its_newest_version() -> None:
    """Consumers know one version of each event."""
    codec: EventCodec[Any] = EventCodec(
        {"host_left.v2": HostLeft},
        upcasters={
            "host_left.v1": Upcaster(to="host_left.v2", rewrite=lambda old: {"host_id": old["id"]})
        },
    )
    envelope = envelopes("toy", [CODEC, codec])(stored("host_left.v1", {"id": "h7"}))
    assert envelope is not None
    assert (envelope.type, envelope.host_left.host_id) == ("host_left.v2", "h7")


@pytest.mark.parametrize(
    ("type_name", "data"),
    [("never_heard_of.v1", {}), ("host_cordoned.v1", {"no_such_field": 1})],
)
def test_event_that_breaks_the_contract_is_named(type_name: str, data: dict[str, int]) -> None:
    """With its id: the outbox waits at it, and then sets it aside."""
    with pytest.raises(CorruptData, match="e-1"):
        envelopes("toy", [CODEC])(stored(type_name, data))


@pytest.mark.parametrize(
    ("envelope", "subject"),
    [
        (EventEnvelope(host_left={"host_id": "h1"}), "everstep.v1.event.toy.h1.host_left"),
        (EventEnvelope(job_placed={"job_id": "j1"}), "everstep.v1.event.toy.j1.job_placed"),
        (
            EventEnvelope(stream="watch.x y", incident_opened={"kind": "k"}),
            "everstep.v1.event.toy.watch-x-y.incident_opened",
        ),
    ],
)
def test_subject_is_about_the_job_or_host_else_the_stream(
    envelope: EventEnvelope, subject: str
) -> None:
    """Whoever follows one job subscribes to one subject."""
    assert event_subject("toy", envelope) == subject
