import pytest

from everstep.cli.__main__ import sentence
from everstep.cli.output import duration, ranges, share, size, styled
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
