"""Values that nobody means but somebody types: each is answered in a sentence."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

from everstep.cli.app import app
from everstep.core.errors import InvalidInput, NotFoundError

RUNNER = CliRunner()


@pytest.mark.parametrize("which", ["9" * 5_000, "9" * 30])
def test_rank_of_more_digits_than_any_job_has_is_refused(which):
    """A pasted number, or a key that hung."""
    result = RUNNER.invoke(app, ["kill", "rank", which])
    assert isinstance(result.exception, InvalidInput)
    assert "names no rank" in str(result.exception)


@pytest.mark.parametrize(
    ("name", "data", "why"),
    [("bytes", bytes(range(256)), "it is no text"), ("deep", b"a=" + b"[" * 50_000, "too deeply")],
)
def test_scenario_that_is_no_text_or_has_no_end_is_refused(tmp_path, name, data, why):
    """Any file may end in .toml."""
    path = tmp_path / f"{name}.toml"
    path.write_bytes(data)
    result = RUNNER.invoke(app, ["sim", "fleet", str(path)])
    assert isinstance(result.exception, InvalidInput)
    assert str(result.exception).startswith(f"{path} is no scenario: ")
    assert why in str(result.exception)


def test_seeds_that_no_memory_holds_are_refused():
    """Before a list of them is made."""
    result = RUNNER.invoke(app, ["sim", "fleet", "--seeds", "10000001"])
    assert result.exit_code == 2
    assert "--seeds" in result.output


def test_log_whose_name_looks_like_a_pattern_is_not_found(tmp_path):
    """And the pattern is not searched for."""
    rank = tmp_path / "hosts" / "h1" / "logs" / "tiny-1" / "gen-1" / "rank-3.log"
    rank.parent.mkdir(parents=True)
    rank.write_text("step 1\nstep 2\n")
    asked = ["--state", str(tmp_path), "logs"]
    for name in ("a**/3", "tiny-?/3"):
        result = RUNNER.invoke(app, [*asked, name])
        assert isinstance(result.exception, NotFoundError)
    assert RUNNER.invoke(app, [*asked, "tiny-1/3", "-n", "1"]).output == "step 2\n"
    assert RUNNER.invoke(app, [*asked, "tiny-1/3", "-n", "9" * 30]).output == "step 1\nstep 2\n"
