"""What people are told of a host that is out, probed or wanted."""

from __future__ import annotations

import time
from typing import Any

import pytest

from everstep.cli.host_care import back_at, host_lines, last_probe, until_ms
from everstep.cli.output import short_time
from everstep.core.errors import InvalidInput

NOW_MS = 1_800_000_000_000
PASSED = {"name": "loopback", "where": "", "verdict": "passed", "detail": "", "duration_ms": 3,
          "figures": [{"name": "sent_bytes", "value": 4_194_304.0}]}  # fmt: skip
FAILED = {"name": "product_float32", "where": "core 3", "verdict": "failed",
          "detail": "1 of 65536 elements wrong", "duration_ms": 9, "figures": []}  # fmt: skip


def host(**changes: Any) -> dict[str, Any]:
    """A host as the inventory tells, after a failed probe."""
    return {
        "host_id": "h3",
        "state": "cordoned",
        "job_id": "",
        "cordon_reason": "probe failed: product_float32 on core 3",
        "awaits": "",
        "relapses": 2,
        "held_until_ms": NOW_MS + 60_000,
        "returns": False,
        "maintenance": "",
        "error_counts": {"ecc": 4},
        "last_probe": {
            "depth": "burn_in", "at_ms": NOW_MS - 5_000, "duration_ms": 2_300,
            "probes": [PASSED, FAILED],
        },
        "repair": {"attempts": 3, "delivered_ms": None, "given_up_ms": None,
                   "last_error": "answered 503"},
        **changes,
    }  # fmt: skip


def test_host_that_failed_its_probes_is_told_whole():
    """Why, how it comes back, what failed with its numbers, and whether anybody was told."""
    at = short_time(NOW_MS - 5_000, now_ms=NOW_MS)
    assert host_lines(host(), now_ms=NOW_MS) == [
        "h3: cordoned",
        "  why       probe failed: product_float32 on core 3",
        "  back      when told",
        "  failures  2 that still count",
        "  errors    4 ecc",
        f"  probes    burn-in at {at}, 2.3 s",
        "            loopback passed: sent_bytes 4.194e+06",
        "            product_float32 (core 3) failed: 1 of 65536 elements wrong",
        "  repair    not told yet, after 3 tries: answered 503",
    ]


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"state": "spare"}, ""),
        ({"state": "probing", "awaits": "quick"}, "after its probes"),
        ({"state": "probing", "awaits": "burn_in"}, "after its burn-in"),
        ({"returns": True, "held_until_ms": NOW_MS}, "when it joins"),
        (
            {"returns": True},
            f"from {short_time(NOW_MS + 60_000, now_ms=NOW_MS)} on",
        ),
    ],
)
def test_way_back_is_told_in_words(changes, told):
    """By itself, by hand, or through which probes."""
    assert back_at(host(**changes), now_ms=NOW_MS) == told


def test_last_probe_names_what_failed():
    """Or that it passed, or that there was none."""
    when = short_time(NOW_MS - 5_000, now_ms=NOW_MS)
    assert last_probe(host(), now_ms=NOW_MS) == f"{when} failed: product_float32"
    report = {**host()["last_probe"], "probes": [PASSED]}
    assert last_probe(host(last_probe=report), now_ms=NOW_MS) == f"{when} passed"
    assert last_probe(host(last_probe=None), now_ms=NOW_MS) == ""


def test_times_are_read_with_and_without_a_zone():
    """What cannot be read is refused with an example."""
    assert until_ms("", now_ms=NOW_MS) == 0
    assert until_ms("2026-12-01T08:00:00+01:00", now_ms=0) == 1_796_108_400_000
    with pytest.raises(InvalidInput, match="write it as 2030-01-31T08:00"):
        until_ms("tomorrow", now_ms=0)


def test_time_that_is_over_is_refused_with_dates():
    """Both, as a person reads them."""
    over = r"'2020-01-01' is 2020-01-01 00:00:00, which is over: it is 2027-01-1\d \d\d:\d\d:\d\d"
    with pytest.raises(InvalidInput, match=over):
        until_ms("2020-01-01", now_ms=NOW_MS)


@pytest.mark.parametrize("zone", ["UTC", "Asia/Tokyo", "America/New_York"])
def test_times_at_the_ends_of_the_calendar_are_read_wherever_it_is(zone, monkeypatch):
    """The zone's own clock shows another year there, which no calendar has."""
    monkeypatch.setenv("TZ", zone)
    time.tzset()
    try:
        assert until_ms("9999-12-31T23:59", now_ms=NOW_MS) > until_ms("9990-01-01", now_ms=NOW_MS)
        for first in ("0001-01-01", "0001-01-01T00:00+14:00"):
            with pytest.raises(InvalidInput, match="which is over"):
                until_ms(first, now_ms=NOW_MS)
    finally:
        monkeypatch.undo()
        time.tzset()
