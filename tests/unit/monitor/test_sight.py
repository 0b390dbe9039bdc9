"""Whether the monitor can see."""

from __future__ import annotations

from dataclasses import replace

from everstep.monitor.detectors.sight import Sight, blind_because

NOW = 100_000
CLEAR = Sight(
    started_ms=0,
    connected=True,
    connected_since_ms=0,
    paused_until_ms=0,
    unrecorded_ms=0,
    heard_ms=(NOW, NOW, NOW, NOW, NOW),
    silence_ms=3_000,
)


def test_clear_sight_judges():
    """Connected for long, never paused, everybody heard."""
    assert blind_because(NOW, CLEAR) == ""


def test_bus_away_or_just_back_is_blind():
    """After a reconnect, agents need a moment to come back too."""
    assert blind_because(NOW, replace(CLEAR, connected=False))
    assert blind_because(NOW, replace(CLEAR, connected_since_ms=NOW - 2_999))
    assert blind_because(NOW, replace(CLEAR, connected_since_ms=NOW - 3_000)) == ""


def test_monitor_that_has_just_started_is_blind():
    """It may have come up with the whole fleet."""
    assert blind_because(NOW, replace(CLEAR, started_ms=NOW - 5_999))
    assert blind_because(NOW, replace(CLEAR, started_ms=NOW - 6_000)) == ""


def test_own_pause_is_blind_for_a_while():
    """A stopped process must not mistake its own sleep for the fleet's."""
    assert blind_because(NOW, replace(CLEAR, paused_until_ms=NOW - 100))
    assert blind_because(NOW, replace(CLEAR, paused_until_ms=NOW - 2_000)) == ""


def test_most_hosts_silent_at_once_is_blindness_but_two_of_five_are_dead():
    """Losing the majority of a fleet in one moment says something about the watcher."""
    old = NOW - 4_000
    two = replace(CLEAR, heard_ms=(old, old, NOW, NOW, NOW))
    three = replace(CLEAR, heard_ms=(old, old, old, NOW, NOW))
    assert blind_because(NOW, two) == ""
    assert blind_because(NOW, three) == "3 of 5 hosts went silent at once"


def test_monitor_that_cannot_store_what_it_sees_is_blind():
    """Reports that wait for its database may explain what looks like a fault."""
    assert "stored" in blind_because(NOW, replace(CLEAR, unrecorded_ms=NOW - 5_999))
    assert blind_because(NOW, replace(CLEAR, unrecorded_ms=NOW - 6_000)) == ""
