"""The examples, as somebody finds them who has just fetched the repository."""

import shutil
from pathlib import Path

import pytest
from tests.command import everstep

ROOT = Path(__file__).resolve().parents[3]
EXAMPLES = sorted(path.name for path in (ROOT / "examples").glob("*.yaml"))


@pytest.fixture
def fetched(tmp_path):
    """What the examples use of the repository, with the corpus that their page tells to make."""
    for name in ("docs", "examples"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("out"))
    made = everstep("data", "prepare", "docs", "--out", "corpus", cwd=tmp_path)
    assert made.returncode == 0, made.stderr
    return tmp_path


@pytest.mark.parametrize("name", EXAMPLES)
def test_example_can_be_launched_from_the_root_as_it_is(local, fetched, name):
    """Every path in it is there, and none is outside of the repository."""
    local.on("POST", "/v1/jobs", {"job_id": "example"}, 201)
    done = everstep("run", f"examples/{name}", "--detach", cwd=fetched)
    assert done.returncode == 0, done.stderr
    (_, _, body) = local.asked[-1]
    spec = body["spec"]
    assert Path(spec["cwd"]).is_relative_to(fetched)
    paths = [spec["entry"], *spec["argv"], (spec["data"] or {"path": ""})["path"]]
    assert [path for path in paths if path.startswith("/")] == []
