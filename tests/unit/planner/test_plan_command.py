import json
import sys

import pytest
from typer.testing import CliRunner

from everstep.cli.app import app
from everstep.core.errors import NotFoundError
from everstep.planner.inputs import PARAMETERS, option

MISSION = (
    "plan --params 400e9 --tokens 15e12 --chips 16384 --chip-flops 1e15 --mfu 0.4 "
    "--chip-mtbf 50000h --stall 5s --restart 120s"
)


def _run(line):
    return CliRunner().invoke(app, line.split())


def _json(line):
    result = _run(f"{line} --json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def test_plan_of_the_mission_prints_its_numbers():
    """Days, failures, sizes, times, intervals, causes and spares, each with its unit."""
    result = _run(MISSION)
    assert result.exit_code == 0, result.output
    for text in (
        "63.58 d", "7.86 a day", "6.4 TB", "390.6 MB a chip", "12.8 s", "331.5 s", "328.1 s",
        "4.11 %", "4.04 %", "95.96 %", "asynchronous", "two levels", "checkpoint stalls",
        "log-normal with mean 1 d", "WITH IDLE SPARES",
    ):  # fmt: skip
        assert text in result.output, text


def test_plan_as_json_is_the_same_with_and_without_spelling_the_preset():
    """The mission's numbers are the defaults; every option reaches the plan."""
    spelled = _json(MISSION)
    assert spelled == _json("plan") == _json("plan --preset mission")
    assert spelled["compute_days"] == pytest.approx(63.58, abs=0.01)
    assert spelled["interval_young_s"] == pytest.approx(331.46, abs=0.01)
    assert spelled["waste_first_order"] == pytest.approx(0.0411, abs=1e-4)
    assert spelled["waste_exact"] == pytest.approx(0.0404, abs=1e-4)
    assert spelled["files"] == []
    other = _json("plan --chips-per-host 4 --repair 2h --patience 10m --interval 5m")
    assert other["hosts"] == 4096
    assert other["interval_s"] == 300
    assert other["spares_p99"] < spelled["spares_p99"]


@pytest.mark.parametrize(
    ("preset", "days", "failures"), [("llama3-405b", 66.0, 7.76), ("lab-64", 5.76, 0.031)]
)
def test_plan_of_a_preset_takes_its_numbers(preset, days, failures):
    """And options change them."""
    value = _json(f"plan --preset {preset}")
    assert value["compute_days"] == pytest.approx(days, rel=0.01)
    assert value["failures_per_day"] == pytest.approx(failures, rel=0.01)
    double = _json(f"plan --preset {preset} --tokens 60T")
    assert double["inputs"]["tokens"] == 6e13
    assert double["failures_per_day"] == value["failures_per_day"]


def test_plan_with_simulated_runs_tells_how_sure_it_is():
    """The formula lies near the interval, the interval holds its mean."""
    value = _json("plan --simulate 40 --seed 3")
    assert [one["model"] for one in value["simulated"]] == [
        "complete model", "asynchronous", "two levels",
    ]  # fmt: skip
    for one in value["simulated"]:
        goodput = one["goodput"]
        assert goodput["low"] < goodput["mean"] < goodput["high"]
        assert goodput["mean"] == pytest.approx(one["goodput_formula"], abs=0.002)
        assert one["wall_days_p05"] < one["wall_days_p50"] < one["wall_days_p95"]
    assert value == _json("plan --simulate 40 --seed 3")
    assert "95 %:" in _run("plan --simulate 5").output


def test_plan_with_a_sweep_writes_its_report(tmp_path):
    """A table on the screen, images and the page in the folder."""
    folder = tmp_path / "report"
    result = _run(f"plan --sweep restart=30s..600s:3 --out {folder}")
    assert result.exit_code == 0, result.output
    assert "Sweep of --restart" in result.output
    assert sorted(path.name for path in folder.iterdir()) == [
        "plan.png", "report.html", "sweep.png",
    ]  # fmt: skip
    assert str(folder / "report.html") in result.output


def test_plan_without_the_plotting_library_still_plans(monkeypatch, tmp_path):
    """A sweep prints its table and says what is missing; an asked folder is an error at once."""
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.chdir(tmp_path)
    result = _run("plan --sweep restart=30s,600s")
    assert result.exit_code == 0, result.output
    assert "no plots: plots and reports need matplotlib" in result.stderr
    assert "Sweep of --restart" in result.stdout
    refused = _run("plan --out report")
    assert isinstance(refused.exception, NotFoundError)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ("--restart 120", "Invalid value for '--restart': '120' has no unit: write for example"),
        ("--chip-mtbf 5 --stall 5s", "Invalid value for '--chip-mtbf': '5' has no unit"),
        ("--upload-bandwidth 500GB", "'GB' in '500GB' is no unit of a bandwidth"),
        ("--mfu 140%", "'140%' is out of range: a share is at most 1"),
        ("--chips 0", "--chips is 0: it must be greater than 0"),
        ("--preset gpt5", "there is no preset 'gpt5': one of mission, llama3-405b, lab-64"),
        ("--sweep restart", "--sweep 'restart' names no range"),
        ("--sweep luck=1..2", "--sweep cannot vary 'luck'"),
        ("--simulate 1", "'1' is no number of runs: 0 for none, or 2 to 100,000"),
        ("--simulate many", "'many' is no number of runs"),
        ("--chip-mtbf 1h", "such a run never ends"),
        ("--out=", "Invalid value for '--out': it names no folder"),
        ("--simulate 1000 --out pyproject.toml", "pyproject.toml is no folder to write to"),
    ],
)
def test_plan_with_a_wrong_value_gets_one_sentence(options, sentence):
    """Usage errors end with code 2 and name the option."""
    result = _run(f"plan {options}")
    assert result.exit_code == 2
    assert sentence in result.stderr


def test_plan_help_names_every_input_with_what_it_means():
    """The options come from the planner's table."""
    text = " ".join(_run("plan --help").output.split())
    for name in PARAMETERS:
        assert option(name) in text
    assert "Mean time until a lost host is back. [mission: 1 d]" in text
