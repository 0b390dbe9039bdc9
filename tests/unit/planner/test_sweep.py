import pytest

from everstep.core.errors import InvalidInput
from everstep.planner.inputs import MISSION
from everstep.planner.summary import sweep_json, sweep_table
from everstep.planner.sweep import Axis, parse_axes, run_sweep


@pytest.mark.parametrize(
    ("spec", "name", "values"),
    [
        ("restart=30s..600s:3", "restart", (30, 315, 600)),
        ("restart=10m,30s", "restart", (30, 600)),
        ("--chip-mtbf=1h..100h:2", "chip_mtbf", (3_600, 360_000)),
        ("repair=1h..10000h:3", "repair", (3_600, 360_000, 36e6)),
        ("chips=8..16:4", "chips", (8, 11, 13, 16)),
        ("mfu=30%..50%:3", "mfu", (0.3, 0.4, 0.5)),
    ],
)
def test_sweep_specification_names_its_values(spec, name, values):
    """Equal steps, or equal factors beyond two decades; both ends are hit."""
    (axis,) = parse_axes([spec])
    assert axis.name == name
    assert axis.values == pytest.approx(values)


def test_sweep_without_a_count_takes_nine_values_and_a_pair_seven_each():
    """Enough for a curve, and for a table that fits a screen."""
    assert len(parse_axes(["restart=30s..600s"])[0].values) == 9
    pair = parse_axes(["restart=30s..600s", "stall=1s..5s"])
    assert [len(axis.values) for axis in pair] == [7, 7]


@pytest.mark.parametrize(
    ("specs", "complaint"),
    [
        (["chips=1..2:" + "9" * 5_000], "asks for 9{5000} values: 2 to"),
        (["restart"], "names no range"),
        (["restart="], "names no range"),
        (["luck=1..2"], "cannot vary 'luck': one of params,"),
        (["restart=600s..30s"], "is empty"),
        (["restart=30..600"], "'30' has no unit"),
        (["restart=30s..600s:1"], "asks for 1 values: 2 to 200"),
        (["restart=30s..600s"] * 2, "both sweeps are over restart"),
        (["restart=" + ",".join(["1s"] * 201)], "--sweep restart lists 201 values: 200 at most"),
        (["restart=1s,2s", "stall=1s,2s", "mfu=0.3,0.4"], "one input or two, got 3"),
    ],
)
def test_sweep_specification_that_is_wrong_gets_one_sentence(specs, complaint):
    """It says what to write."""
    with pytest.raises(InvalidInput, match=complaint):
        parse_axes(specs)


def test_sweep_of_the_restart_lowers_goodput_as_the_document_says():
    """From 120 s to 600 s the waste grows from 4.0 to 8.1 %; other inputs stay."""
    swept = run_sweep(MISSION, parse_axes(["restart=120s,600s"]), runs=20)
    assert [round(point.plan.waste_exact, 4) for point in swept.points] == [0.0404, 0.0814]
    for point in swept.points:
        assert point.simulated is not None
        assert point.simulated.mean == pytest.approx(point.plan.goodput, abs=0.003)
    table = sweep_table(swept)
    assert [row[0] for row in table.rows] == ["120 s", "600 s"]
    assert len({len(row) for row in (*table.rows, table.columns)}) == 1
    assert [point["restart"] for point in sweep_json(swept)] == [120, 600]


def test_sweep_of_a_pair_is_a_grid():
    """The first input goes down, the second across."""
    axes = (Axis(name="chips", values=(1024, 2048)), Axis(name="restart", values=(30, 60, 90)))
    told = []
    swept = run_sweep(MISSION, axes, progress=lambda done, total: told.append((done, total)))
    assert told == [(i, 6) for i in range(1, 7)]
    table = sweep_table(swept)
    assert table.columns == ("", "30 s", "60 s", "90 s")
    assert [row[0] for row in table.rows] == ["1,024", "2,048"]
    assert sweep_json(swept)[1]["chips"] == 1024
    assert sweep_json(swept)[1]["restart"] == 60


def test_sweep_that_changes_nothing_for_copies_in_memory_shows_the_other_ways():
    """All its goodputs would be the same."""
    swept = run_sweep(MISSION, parse_axes(["upload-bandwidth=1GB/s,500GB/s"]))
    simulated = sweep_table(run_sweep(MISSION, swept.axes, runs=2))
    assert simulated.columns[2] == "SIMULATED"
    assert {len(row) for row in simulated.rows} == {len(simulated.columns)}
    table = sweep_table(swept)
    assert table.columns[:4] == ("UPLOAD-BANDWIDTH", "GOODPUT", "ASYNCHRONOUS", "TWO LEVELS")
    slow, fast = table.rows
    assert slow[1] == fast[1]
    assert slow[2] != fast[2]
    assert slow[3] != fast[3]
    assert "--upload-bandwidth changes nothing for saves in host memory" in table.note
    wastes = [point["waste_asynchronous"] for point in sweep_json(swept)]
    assert wastes[0] > wastes[1]


def test_sweep_of_the_quantile_shows_its_spares():
    """And the usual one's, for programs."""
    swept = run_sweep(MISSION, parse_axes(["quantile=50%,99%"]))
    half, most = sweep_json(swept)
    assert half["spares"] < half["spares_p99"] == most["spares"] == most["spares_p99"]
    table = sweep_table(swept)
    assert table.columns[-1] == "SPARES"
    assert [row[-1] for row in table.rows] == [str(half["spares"]), str(most["spares"])]


def test_ends_of_a_sweep_are_as_they_were_given():
    """Or refused, as they would be alone; what lies between them is whole."""
    assert parse_axes(["chips=1..4:3"])[0].values == (1, 2, 4)
    with pytest.raises(InvalidInput, match=r"--chips is 1\.5: it must be a whole number"):
        run_sweep(MISSION, parse_axes(["chips=1.5..4"]))


def test_sweep_over_a_value_that_makes_no_sense_names_it():
    """Which of many points was refused?"""
    with pytest.raises(InvalidInput, match=r"at --slow 100 %: nothing is left"):
        run_sweep(MISSION, parse_axes(["slow=0,1"]))
