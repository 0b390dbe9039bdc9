import pytest

from everstep.cli.__main__ import sentence
from everstep.cli.host_commands import incident_lines
from everstep.cli.output import (
    clock_time,
    counted,
    duration,
    ranges,
    share,
    short_time,
    size,
    styled,
)
from everstep.core.errors import Unavailable


@pytest.mark.parametrize(
    ("milliseconds", "text"),
    [
        (None, ""),
        (0, "0 ms"),
        (850, "850 ms"),
        (12_340, "12.3 s"),
        (119_000, "119.0 s"),
        (600_000, "10 min"),
        (7_500_000, "2 h 05 min"),
    ],
)
def test_duration_of_any_length_reads_as_a_person_says_it(milliseconds, text):
    """One unit, or two for hours."""
    assert duration(milliseconds) == text


@pytest.mark.parametrize(
    ("numbers", "text"),
    [([], ""), ([3], "3"), ([0, 1, 2, 3], "0-3"), ([6, 0, 1, 3], "0-1,3,6")],
)
def test_ranks_in_any_order_are_shortened_to_ranges(numbers, text):
    """Neighbours become one range."""
    assert ranges(numbers) == text


def test_size_grows_in_binary_units():
    """Bytes are whole, larger units have one digit."""
    assert [size(0), size(1023), size(1536), size(5 * 1024**4)] == [
        "0 B", "1023 B", "1.5 KiB", "5.0 TiB",
    ]  # fmt: skip


def test_share_of_nothing_is_a_dash():
    """A job without wall time has no goodput yet."""
    assert share(0, 0) == "-"
    assert share(1, 8) == "12.5 %"


def test_text_with_brackets_is_not_taken_for_markup():
    """An error message with [brackets] is printed as it is."""
    assert styled("list[int]") == r"list\[int]"
    assert styled("failed") == "[bold red]failed[/]"


def test_missing_package_is_told_with_how_to_get_it():
    """A plain installation says what a command needs more."""
    error = ModuleNotFoundError("No module named 'numpy'", name="numpy")
    assert sentence(error) == (
        "this needs numpy, which is not installed: pip install 'everstep[all]'"
    )


def test_error_without_words_is_told_by_its_name():
    """An empty line helps nobody."""
    assert sentence(Unavailable("")) == "Unavailable"


def test_error_of_a_file_is_told_without_its_number():
    """People know no errno."""
    error = PermissionError(13, "Permission denied", "/root/x")
    assert sentence(error) == "cannot use /root/x: Permission denied"


def test_incidents_fit_a_screen_of_100_columns():
    """All of it: what, where, when, why, and what it cost."""
    reason = "; ".join(["host h2 does not answer probes (no responders after 3 ms)"] * 3)
    incident = {
        "job_id": "pretrain-with-a-name-4f21ac", "step": 41_000, "kind": "collective_error",
        "ranks": [2, 3], "hosts": ["h2"], "action": "REPLACE", "reason": reason,
        "failed_at_ms": 4_000, "detected_at_ms": 4_400, "recovered_at_ms": 7_160, "lost_ms": 3_160,
        "lost_steps": 1,
    }  # fmt: skip
    lines = incident_lines(incident, now_ms=86_400_000 * 400, width=100)
    assert [line.strip() for line in lines[:2]] == [
        (
            "1970-01-01  job pretrain-with-a-name-4f21ac at step 41000: collective_error on "
            "hosts h2 ranks 2-3"
        ),
        "REPLACE, noticed after 400 ms; recovered, 3.2 s and 1 step lost",
    ]
    assert " ".join(line.strip() for line in lines[2:]) == reason
    assert max(map(len, lines)) <= 100
    still = {**incident, "recovered_at_ms": None}
    assert "not recovered yet" in incident_lines(still, now_ms=5_000, width=100)[1]


def test_moment_of_today_is_its_time_and_of_another_day_has_the_day():
    """A listing has no room for what everybody knows."""
    day_ms, noon_ms = 86_400_000, 86_400_000 * 200 + 43_200_000
    assert short_time(None, now_ms=noon_ms) == ""
    assert len(short_time(noon_ms, now_ms=noon_ms + 1_000)) == len("12:00:00")
    assert short_time(noon_ms - 30 * day_ms, now_ms=noon_ms).startswith("20 Jun ")
    assert short_time(noon_ms, now_ms=noon_ms + 400 * day_ms) == "1970-07-20"


def test_moment_beyond_the_calendar_is_told_as_such():
    """One of them must not cost the whole listing."""
    assert [clock_time(10**17), short_time(10**17, now_ms=0), short_time(2**62, now_ms=0)] == [
        "after 9999"
    ] * 3
    assert clock_time(-(10**17)) == "before the year 1"


def test_one_thing_is_no_plural():
    """And none is."""
    assert [counted(count, "host") for count in (0, 1, 2)] == ["0 hosts", "1 host", "2 hosts"]
