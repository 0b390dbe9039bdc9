"""A campaign through the command line: what was done, beside what was made of it."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from tests.e2e.lab import make_corpus
from typer.testing import CliRunner

from everstep.cli.app import app
from everstep.local import launch
from everstep.local.state import StatePaths

pytestmark = [pytest.mark.stack, pytest.mark.torch, pytest.mark.timeout(600)]

PLAN = launch.Plan(hosts=2, spares=1, chips=2, pods=2, chaos=True)
CAMPAIGN = {
    "version": 1,
    "name": "two-faults",
    "faults": [
        {"kind": "nan_gradient", "rank": 1, "at_step": 5},
        {"kind": "partition_host", "rank": 2, "at_step": 9, "for_s": 15},
    ],
}


@pytest.fixture
def root() -> Iterator[Path]:
    """A short path, for sockets, with a stack for chaos below it."""
    root = Path(tempfile.mkdtemp(prefix="es-"))
    paths = StatePaths(root=root / "s")
    try:
        launch.up(paths, PLAN, lambda _: None)
        yield root
    finally:
        launch.down(paths, wipe=True)
        shutil.rmtree(root, ignore_errors=True)


def test_two_faults_are_found_blamed_and_put_right_and_the_report_says_so(root: Path):
    """One that the rank does to itself, one that is done to its host; exit code 0."""
    spec = {
        "name": "chaos",
        "entry": "everstep.models.pretrain:main",
        "args": {"dim": 32, "layers": 2, "heads": 4, "kv_heads": 2, "ffn_dim": 64},
        "layout": {"dp_shard": 2, "tp": 2},
        "steps": 16,
        "data": {
            "path": str(make_corpus(root)),
            "sequence_tokens": 32,
            "global_batch": 8,
            "micro_batch": 2,
        },
        "checkpoint": {"object_every_steps": 8},
        "cwd": str(root),
    }
    for name, document in (("job", spec), ("campaign", CAMPAIGN)):
        (root / f"{name}.yaml").write_text(yaml.safe_dump(document))
    command = ["--state", str(root / "s"), "chaos", "run", str(root / "campaign.yaml")]
    more = ["--spec", str(root / "job.yaml"), "--out", str(root / "report.json")]
    ran = CliRunner().invoke(app, [*command, *more])
    assert ran.exit_code == 0, ran.output
    assert "2 of 2 faults answered rightly: all is right" in ran.output
    report = json.loads((root / "report.json").read_text())
    nan, partition = report["faults"]
    assert (nan["to"]["rank"], nan["incident"]["kind"]) == (1, "step_skipped")
    assert partition["incident"]["hosts"] == partition["to"]["hosts"]
    assert 0 < partition["detected_ms"] < partition["recovered_ms"]
    assert report["ledger"]["sums"]
    assert (report["false_alarms"], report["problems"]) == ([], [])
