"""What is found out of an entry point before anything is launched."""

from __future__ import annotations

import sys

import pytest

from everstep.cli.entry_check import entry_problem

FILES = {
    "own.py": "import torch_of_another_world\ndef main(run): ...\nif x:\n    late = main\n",
    "starred.py": "from own import *\n",
    "lazy.py": "def __getattr__(name): ...\n",
    "broken.py": "def main(run):\n",
    "package/__init__.py": "",
    "package/inner.py": "from own import main as go\n",
    "bare/inner.py": "class Main: ...\n",
    "elsewhere/far.py": "def main(run): ...\n",
}


@pytest.fixture
def here(tmp_path):
    """A directory of modules; none of them can be imported without harm."""
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


@pytest.mark.parametrize(
    "entry",
    [
        "own:main", "own:late", "starred:main", "lazy:main", "package.inner:go", "bare.inner:Main",
        "everstep.models.pretrain:main", "zlib:crc32", "far:main",
    ],
)  # fmt: skip
def test_entry_that_may_be_there_is_let_through(here, entry):
    """Also what only an import would tell, and what is no Python source."""
    assert entry_problem(entry, [here, here / "elsewhere"]) == ""


@pytest.mark.parametrize(
    ("entry", "problem"),
    [
        ("nosuch:main", "there is no module nosuch in {here}, nor in the Python of {python}"),
        ("far:main", "there is no module far in {here}, nor in the Python of {python}"),
        ("__main__:main", "there is no module __main__ in {here}, nor in the Python of {python}"),
        ("package.outer:main", "there is no module outer in package"),
        ("own.inner:main", "there is no module inner in own"),
        ("own:train", "{here}/own.py has no function train"),
        ("package.inner:main", "{here}/package/inner.py has no function main"),
        ("broken:main", "{here}/broken.py, line 1: expected an indented block after function"),
    ],
)
def test_entry_that_cannot_be_there_is_told(here, entry, problem):
    """In terms of files, and nothing of them is run."""
    told = entry_problem(entry, [here])
    assert told.startswith(problem.format(here=here, python=sys.prefix))
    assert "own" not in sys.modules
