"""``stragglers``, as a person runs it on a recorded trace."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest
import typer
from pyarrow import parquet
from typer.testing import CliRunner

from everstep.cli import straggler_command
from everstep.core.errors import InvalidInput
from everstep.planner.recorded_steps import read_trace

APP = typer.Typer()
straggler_command.add_to(APP)


def write_trace(path: Path, *, slow: dict[int, float], steps: int = 32, dp: int = 4) -> Path:
    """Write a trace of two stages; the second one has more to do, and its ranks wait less."""
    rows = []
    for step in range(100, 100 + 3 * steps, 3):
        for rank in range(2 * dp):
            stage = rank // dp
            forward = (1.0 + stage) * slow.get(rank, 1.0)
            for optype, duration in (
                ("forward-compute", forward),
                ("backward-compute", 2 * forward),
                ("grads-reduce-scatter", 50.0 - 20 * stage),
            ):
                rows.append(
                    {"rank": rank, "stage": stage, "step": step, "optype": optype,
                     "duration": duration}
                )  # fmt: skip
    table = pa.Table.from_pylist(rows)
    optype = table["optype"].dictionary_encode()  # as the published ones have it
    parquet.write_table(table.set_column(3, "optype", optype), path)
    return path


def judged(path: Path) -> dict:
    """Return what the command says for programs."""
    done = CliRunner().invoke(APP, [str(path), "--json"])
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


@pytest.mark.parametrize("factor", [1.05, 2.35])
def test_slow_rank_of_a_trace_is_named_with_its_numbers(tmp_path, factor):
    """Communication does not count: it is mostly waiting for the slow one."""
    found = judged(write_trace(tmp_path / "slow.parquet", slow={6: factor}))
    assert (found["steps"], found["ranks"], found["doubts"]) == (32, 8, [])
    (straggler,) = found["stragglers"]
    assert (straggler["ranks"], straggler["ratio"], straggler["next_ratio"]) == ([6], factor, 1.0)
    assert found["ratios"]["6"] == factor
    assert {ratio for rank, ratio in found["ratios"].items() if rank != "6"} == {1.0}


def test_trace_without_a_slow_rank_has_none(tmp_path):
    """Unequal stages are no stragglers."""
    assert judged(write_trace(tmp_path / "even.parquet", slow={}))["stragglers"] == []


def test_slow_rank_with_one_peer_is_said_to_be_doubtful(tmp_path):
    """Nobody is named, and it is said why."""
    path = write_trace(tmp_path / "pair.parquet", slow={1: 1.5}, dp=2)
    found = judged(path)
    assert found["stragglers"] == []
    assert [(one["why"], one["ranks"]) for one in found["doubts"]] == [("too_few_peers", [1])]
    done = CliRunner().invoke(APP, [str(path)])
    assert "but by 1 of them nobody can tell who is off" in done.stdout
    assert done.stdout.strip().endswith("no straggler")


def test_trace_is_told_to_people_by_stage(tmp_path):
    """The slowest of each stage first."""
    path = write_trace(tmp_path / "slow.parquet", slow={2: 1.5})
    lines = CliRunner().invoke(APP, [str(path)]).stdout.splitlines()
    assert lines[0] == "slow.parquet: 32 steps of 8 ranks in 2 stages"
    assert lines[2].split() == ["0", "0-3", "2:", "1.500,", "0:", "1.000,", "1:", "1.000"]
    assert lines[4].startswith("rank 2 of worker-2 slow over steps 100 to ")


def test_file_that_is_no_trace_is_refused_with_the_reason(tmp_path):
    """Text, another table, too few steps, no file."""
    text = tmp_path / "text.parquet"
    text.write_text("step,rank\n")
    with pytest.raises(InvalidInput, match="is no Parquet file"):
        read_trace(text)
    other = tmp_path / "other.parquet"
    parquet.write_table(pa.table({"rank": [0], "step": [1]}), other)
    with pytest.raises(InvalidInput, match="has no column stage, optype, duration"):
        read_trace(other)
    with pytest.raises(InvalidInput, match="of 3 steps: at least 4"):
        read_trace(write_trace(tmp_path / "short.parquet", slow={}, steps=3))
    with pytest.raises(FileNotFoundError):
        read_trace(tmp_path / "none.parquet")
