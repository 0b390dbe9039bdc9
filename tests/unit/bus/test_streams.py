"""Which subject belongs to which durable stream."""

from __future__ import annotations

import pytest

from everstep.bus.streams import matches, stream_of
from everstep.core.errors import InvalidInput


@pytest.mark.parametrize(
    ("subject", "stream"),
    [
        ("everstep.v1.event.monitor.j1.incident_opened", "EVERSTEP_EVENTS"),
        ("everstep.v1.event.monitor.>", "EVERSTEP_EVENTS"),
        ("everstep.v1.host.h1.report", "EVERSTEP_REPORTS"),
        ("everstep.v1.host.*.report", "EVERSTEP_REPORTS"),
    ],
)
def test_stored_subject_has_its_stream(subject: str, stream: str) -> None:
    """Wildcards of a consumer's filter are subjects too."""
    assert stream_of(subject).name == stream


@pytest.mark.parametrize(
    "subject", ["everstep.v1.host.h1.heartbeat", "everstep.v1.event", "x", "everstep.v1.host.>"]
)
def test_other_subject_has_none(subject: str) -> None:
    """Storing a heartbeat would be a mistake."""
    with pytest.raises(InvalidInput, match=r"EVERSTEP|everstep\.v1\.event"):
        stream_of(subject)


@pytest.mark.parametrize(
    ("pattern", "subject", "expected"),
    [
        ("a.b", "a.b", True),
        ("a.b", "a.b.c", False),
        ("a.b.c", "a.b", False),
        ("a.*", "a.b", True),
        ("a.*", "a.b.c", False),
        ("a.*.c", "a.b.c", True),
        ("a.>", "a.b.c", True),
        ("a.>", "a", False),
        (">", "a", True),
        ("a.b", "a.c", False),
    ],
)
def test_pattern_matches_as_nats_does(pattern: str, subject: str, expected: bool) -> None:
    """The rules of NATS' subject-based messaging."""
    assert matches(pattern, subject) is expected
