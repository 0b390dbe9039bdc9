import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from everstep.core.errors import InvalidInput
from everstep.planner.quantities import BYTES, COUNT, RATE, SHARE, TIME

DIMENSIONS = (TIME, COUNT, BYTES, RATE, SHARE)


@pytest.mark.parametrize(
    ("dimension", "text", "value"),
    [
        (TIME, "5s", 5),
        (TIME, "120 s", 120),
        (TIME, "2m", 120),
        (TIME, "2min", 120),
        (TIME, "3h", 10_800),
        (TIME, "50_000h", 180e6),
        (TIME, "50,000h", 180e6),
        (TIME, "64d", 5_529_600),
        (TIME, "250ms", 0.25),
        (TIME, "1.5e3s", 1_500),
        (COUNT, "400e9", 4e11),
        (COUNT, "400B", 4e11),
        (COUNT, "15T", 15e12),
        (COUNT, "16384", 16_384),
        (BYTES, "6.4TB", 6.4e12),
        (BYTES, "1GiB", 2**30),
        (BYTES, "16", 16),
        (RATE, "500GB/s", 5e11),
        (RATE, "500 KB/s", 5e5),
        (RATE, "25giB/s", 25 * 2**30),
        (RATE, "400Gb/s", 50e9),
        (RATE, "400Gbit/s", 50e9),
        (RATE, "400 GBit/s", 50e9),
        (RATE, "1Tb/s", 125e9),
        (BYTES, "390mb", 390e6),
        (SHARE, "40%", 0.4),
        (SHARE, "0.4", 0.4),
    ],
)
def test_quantity_with_its_unit_is_read_into_the_base_unit(dimension, text, value):
    """As people write them; separators and spaces do not matter."""
    assert dimension.parse(text) == pytest.approx(value, rel=1e-12)


@pytest.mark.parametrize(
    ("dimension", "text", "complaint"),
    [
        (TIME, "120", "'120' has no unit: write for example 5s, 2m, 3h or 64d"),
        (TIME, "soon", "'soon' is not a time: write for example 5s, 2m, 3h or 64d"),
        (TIME, "5 parsecs", "'parsecs' in '5 parsecs' is no unit of a time: one of ms, s, m,"),
        (TIME, "5S", "'S' in '5S' is no unit of a time"),
        (TIME, "-5s", "'-5s' is out of range: a time is finite and not negative"),
        (TIME, "1e999s", "'1e999s' is out of range"),
        (COUNT, "nan", "'nan' is out of range"),
        (COUNT, "1e25", "'1e25' is out of range: a number is at most 1e+24"),
        (TIME, "1e16s", "'1e16s' is out of range: a time is at most 1e+15"),
        (TIME, "1e-25s", "'1e-25s' is out of range: a time is 0 or above 1e-24"),
        (COUNT, "", "'' is not a number"),
        (COUNT, "1..2", "'1..2' is not a number"),
        (TIME, "1,5s", "'1,5s' is not a time: a comma stands between thousands (16,384), and a"),
        (SHARE, "0,4%", "'0,4%' is not a share: a comma stands between thousands"),
        (COUNT, "1638,4", "'1638,4' is not a number: a comma stands between thousands"),
        (RATE, "500GB", "'GB' in '500GB' is no unit of a bandwidth: one of B/s,"),
        (
            RATE,
            "500gb/s",
            "'gb/s' in '500gb/s' may mean bits: write GB/s for bytes or Gb/s for bits",
        ),
        (RATE, "5kb/s", "'kb/s' in '5kb/s' may mean bits: write kB/s for bytes"),
        (RATE, "5Gib/s", "'Gib/s' in '5Gib/s' may mean bits: write GiB/s for bytes"),
        (RATE, "5b/s", "'b/s' in '5b/s' may mean bits: write B/s for bytes"),
        (RATE, "5xb/s", "'xb/s' in '5xb/s' is no unit of a bandwidth: one of B/s,"),
        (BYTES, "6.4Tb", "'Tb' in '6.4Tb' may mean bits: write TB for bytes"),
        (BYTES, "1Gib", "'Gib' in '1Gib' may mean bits: write GiB for bytes"),
        (SHARE, "140%", "'140%' is out of range: a share is at most 1"),
        (SHARE, "40", "'40' is out of range: a share is at most 1"),
    ],
)
def test_quantity_that_is_wrong_gets_one_sentence(dimension, text, complaint):
    """It quotes what was written and says what to write."""
    with pytest.raises(InvalidInput, match=re.escape(complaint)) as caught:
        dimension.parse(text)
    assert "\n" not in str(caught.value)


@given(st.sampled_from(DIMENSIONS), st.data())
def test_unit_of_any_quantity_round_trips(dimension, data):
    """A number with a unit is that number of the unit."""
    unit, factor = data.draw(st.sampled_from(sorted(dimension.units.items())))
    number = data.draw(st.just(0.0) | st.floats(1e-9, min(1e9, dimension.maximum / factor)))
    assert dimension.parse(f"{number!r}{unit}") == pytest.approx(number * factor, rel=1e-12)


@given(st.sampled_from(DIMENSIONS), st.floats(1e-6, 1e15))
@example(COUNT, 0.03125)
@example(COUNT, 0.0012341)
def test_text_of_any_value_is_read_back(dimension, value):
    """What a report shows can be given as an option, to the four digits shown."""
    value = min(value, dimension.maximum)
    assert dimension.parse(dimension.text(value)) == pytest.approx(value, rel=5.1e-4, abs=1e-7)


@pytest.mark.parametrize(
    ("dimension", "value", "text"),
    [
        (TIME, 0, "0 s"),
        (TIME, 0.039, "39 ms"),
        (TIME, 331.456, "331.5 s"),
        (TIME, 10_986, "3.052 h"),
        (TIME, 5_493_000, "63.58 d"),
        (BYTES, 6.4e12, "6.4 TB"),
        (BYTES, 390_625_000, "390.6 MB"),
        (RATE, 5e11, "500 GB/s"),
        (SHARE, 0.4, "40 %"),
        (COUNT, 16_384, "16,384"),
        (COUNT, 4e11, "4e+11"),
    ],
)
def test_text_of_a_value_has_the_unit_a_person_would_choose(dimension, value, text):
    """Four digits; a whole number is never rounded."""
    assert dimension.text(value) == text
