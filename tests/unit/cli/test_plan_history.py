import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from everstep.cli import late
from everstep.cli.app import app
from everstep.core.errors import InvalidInput, NotFoundError

SAMPLES = Path(__file__).parents[1] / "planner" / "samples"
SAVED = str(SAMPLES / "real.history.json")
EVENTS = str(SAMPLES / "real.events.jsonl")


def plan(*options):
    """Replay as a person would."""
    return CliRunner().invoke(app, ["plan", "--from-history", *options])


def values(*options):
    """What it prints for programs."""
    result = plan(*options, "--json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def test_replay_prints_the_saving_its_interval_and_the_models_error():
    """The answer first, then cause by cause, then what is assumed."""
    result = plan(SAVED, "--restart", "1s", "--spares", "2")
    assert result.exit_code == 0, result.output
    for text in (
        "What another policy would have made of real", "restart 1 s, 2 spares", "saved", "95 %: +",
        "model's own error", "86.31 % measured", "6 failures, 4 hosts and 1 spare,",
        "CAUSE", "MEASURED", "REPLAYED", "WITH THE POLICY", "DIFFERENCE", "waits for hosts",
        "Assumed: hosts and processes break",
    ):  # fmt: skip
        assert text in result.output, text
    assert result.stderr == ""


def test_replay_without_a_policy_shows_the_record_and_the_models_error():
    """There is no saving, and no column of it."""
    result = plan(SAVED)
    assert "The record of real" in result.output
    assert "DIFFERENCE" not in result.output
    assert "saved" not in result.output


def test_replay_as_json_has_all_of_it():
    """Causes sum to the wall time in each of the three columns."""
    value = values(SAVED, "--restart", "1s", "--spares", "2", "--seed", "7")
    assert value["policy"] == {"restart_ms": 1_000, "spares": 2}
    wall_ms = value["history"]["wall_ms"]
    assert [sum(causes.values()) for causes in value["causes_ms"].values()] == [wall_ms] * 3
    assert value["goodput"]["policy"] > value["goodput"]["replayed"]
    assert value["saved_ms_low"] < value["saved_ms"] < value["saved_ms_high"]
    assert value["saved_share"] == pytest.approx(value["saved_ms"] / wall_ms)
    assert abs(value["model_error"]) < 0.002
    assert value["resamples"] == 1_000
    assert len(value["history"]["failures"]) == 6
    assert value == values(SAVED, "--restart", "1s", "--spares", "2", "--seed", "7")
    assert (
        value["saved_ms_low"] != values(SAVED, "--restart", "1s", "--spares", "2")["saved_ms_low"]
    )


def test_every_option_reaches_the_policy():
    """In milliseconds, shares and words."""
    value = values(
        SAVED, "--interval", "1m", "--detection", "3s", "--repair", "2h", "--straggler-threshold",
        "5%", "--no-spare", "elastic",
    )  # fmt: skip
    assert value["policy"] == {
        "interval_ms": 60_000, "detection_ms": 3_000, "repair_ms": 7_200_000,
        "straggler_share": 0.05, "no_spare": "elastic",
    }  # fmt: skip


def test_exported_events_are_read_too_with_a_stall_that_a_person_knows():
    """Events do not tell it."""
    assert values(EVENTS)["history"]["stall_ms"] == 0
    assert values(EVENTS, "--stall", "0.2s")["history"]["stall_ms"] == 200
    refused = plan(SAVED, "--stall", "0.2s")
    assert isinstance(refused.exception, InvalidInput)
    assert "this record has measured the stalls" in str(refused.exception)


def test_sweep_prints_a_line_a_value():
    """Each against the same record."""
    result = plan(SAVED, "--spares", "2", "--sweep", "restart=1s,10s,60s")
    assert "real with other values of --restart" in result.output
    assert "95 %" in result.output
    swept = values(SAVED, "--spares", "2", "--sweep", "restart=1s,10s,60s")["sweep"]
    assert [point["restart"] for point in swept] == [1, 10, 60]
    saved = [point["saved_ms"] for point in swept]
    assert saved == sorted(saved, reverse=True)
    assert values(SAVED, "--spares", "2", "--restart", "10s")["saved_ms"] == saved[1]


def test_record_with_few_failures_gets_no_interval(tmp_path):
    """It says so instead."""
    document = json.loads(Path(SAVED).read_text())
    document["job"]["recoveries"] = document["job"]["recoveries"][:3]
    document["incidents"] = document["incidents"][:2]
    short = tmp_path / "short.json"
    short.write_text(json.dumps(document))
    result = plan(str(short), "--restart", "1s")
    assert "no interval: it takes 5 failures, here are 2" in result.output
    assert "95 %" not in result.output
    assert values(str(short), "--restart", "1s")["saved_ms_low"] is None


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--chips", "64"], "--chips makes no sense with --from-history"),
        (["--preset", "lab-64", "--simulate", "9"], "--preset, --simulate makes no sense with"),
        (["--out", "folder"], "--out makes no sense with --from-history"),
        (["--sweep", "chips=1..9"], "--sweep cannot vary 'chips': one of interval, restart"),
        (["--sweep", "restart=1s,2s", "--sweep", "repair=1h,2h"], "got restart and repair"),
        (["--no-spare", "panic"], "'panic' is not known: one of wait, elastic"),
        (["--spares", "-1"], "'-1' is no number of hosts"),
        (["--spares", "100001"], "100001 spares are more than any run needs: 100,000 at most"),
        (["--host-loss", "0"], "--host-loss makes no sense with --from-history"),
        (["--straggler-threshold", "5"], "'5' is out of range: a share is at most 1"),
        (["--restart", "5"], "'5' has no unit"),
    ],
)
def test_option_that_makes_no_sense_is_refused_by_name(options, sentence):
    """As wrong usage."""
    result = plan(SAVED, *options)
    assert result.exit_code == 2
    assert sentence in " ".join(result.stderr.split())


@pytest.mark.parametrize(
    "options", [["--spares", "0"], ["--straggler-threshold", "5%"], ["--no-spare", "wait"]]
)
def test_option_of_a_replay_needs_a_history(options):
    """A plan of a run that is to be has other words for it."""
    result = CliRunner().invoke(app, ["plan", *options])
    assert result.exit_code == 2
    assert f"{options[0]} needs --from-history JOB|FILE" in " ".join(result.stderr.split())


def no_history(tmp_path, text):
    """A file with something else in it."""
    path = tmp_path / "record.json"
    path.write_text(text)
    return str(path)


@pytest.mark.parametrize(
    ("text", "kind", "sentence"),
    [
        (None, NotFoundError, "there is no file"),
        ("hello", InvalidInput, "is no history: line 1 is no event"),
        ("[" * 100_000, InvalidInput, "is no history: line 1 is no event"),
        ("[1, 2]", InvalidInput, "is no history: expected what"),
        ('{"format": "everstep-history", "version": 9}', InvalidInput, "has version 9"),
        ('{"type": "a.v1", "recorded_at_ms": "1"}', InvalidInput, "does not begin with a job's"),
    ],
)
def test_file_that_is_no_history_gets_one_sentence(tmp_path, text, kind, sentence):
    """Which the top level prints, and ends with 1."""
    path = str(tmp_path / "none.json") if text is None else no_history(tmp_path, text)
    result = plan(path)
    assert isinstance(result.exception, kind)
    assert sentence in str(result.exception)
    assert "\n" not in str(result.exception)


def test_file_that_is_no_text_gets_one_sentence(tmp_path):
    """A picture, for instance."""
    path = tmp_path / "record.json"
    path.write_bytes(b"\x89PNG\xff\xfe")
    assert "it is no text" in str(plan(str(path)).exception)


def test_long_replay_tells_how_far_it_is(monkeypatch):
    """On standard error, and nothing of it in what is printed."""
    monkeypatch.setattr(late, "QUIET_S", 0.0)
    result = plan(SAVED, "--restart", "1s")
    assert "drawing resamples" in result.stderr
    assert "drawing resamples" not in result.stdout


@pytest.mark.parametrize("source", ["", "  "])
def test_history_that_is_named_by_nothing_is_refused(source):
    """No service is asked for a job without a name."""
    with pytest.raises(InvalidInput, match="--from-history names nothing"):
        plan_raises(source)


def test_history_comes_from_standard_input_too():
    """What `everstep jobs export JOB --out -` writes, through a pipe; and an empty one says so."""
    text = Path(SAVED).read_text()
    piped = CliRunner().invoke(app, ["plan", "--from-history", "-", "--json"], input=text)
    assert piped.exit_code == 0, piped.output
    assert json.loads(piped.stdout) == values(SAVED)
    with pytest.raises(InvalidInput, match="standard input is no history: it is empty"):
        plan_raises("-")


def test_option_that_is_given_and_swept_is_refused():
    """With a history and without."""
    for arguments in (
        ["--from-history", SAVED, "--restart", "30s", "--sweep", "restart=10s..1m"],
        ["--restart", "30s", "--sweep", "restart=10s..1m"],
    ):
        result = CliRunner().invoke(app, ["plan", *arguments])
        assert result.exit_code == 2
        assert "--restart is given and swept" in " ".join(result.output.split())


def test_what_is_taken_in_and_what_is_not_is_said():
    """For people and for programs."""
    value = values(SAVED)
    assert value["taken_in"] == {
        "interval_changes": 0, "rollbacks": 0, "drains": 0, "pauses": 0, "begun_again": 0,
    }  # fmt: skip
    assert value["not_accounted"] == [
        "changes of the interval (this export does not tell them: the spec's is taken)"
    ]
    shown = " ".join(plan(SAVED).output.split())
    assert "Not accounted for: changes of the interval (this export" in shown
    assert "also in it" not in shown


def plan_raises(source):
    """Replay, and raise what a person would read."""
    result = plan(source)
    assert result.exception is not None, result.output
    raise result.exception
