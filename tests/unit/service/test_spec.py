"""The given/when/then helper itself: it must be able to fail."""

from __future__ import annotations

import pytest
from tests.spec import spec
from tests.toy import AGGREGATE, Cordon, HostCordoned

CORDONED = HostCordoned(host_id="a", reason="cordon 1", incident_id="i", at_ms=1_000)


def test_spec_accepts_what_is_decided() -> None:
    """Events, none, or a refusal."""
    spec(AGGREGATE).when(Cordon(host_id="a", incident_id="i")).then(CORDONED)
    spec(AGGREGATE).given(CORDONED).when(Cordon(host_id="a", incident_id="i")).then()
    spec(AGGREGATE).when(Cordon(host_id="bad")).then_rejected("unknown_host")


def test_spec_fails_on_anything_else() -> None:
    """Other events, an unexpected refusal, another reason."""
    when = spec(AGGREGATE).given(CORDONED).when(Cordon(host_id="a"))
    with pytest.raises(AssertionError):
        when.then()
    with pytest.raises(AssertionError):
        when.then(CORDONED)
    with pytest.raises(AssertionError, match="expected a refusal"):
        when.then_rejected("unknown_host")
    with pytest.raises(AssertionError, match="expected other"):
        spec(AGGREGATE).when(Cordon(host_id="bad")).then_rejected("other")
