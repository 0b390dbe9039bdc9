"""The style rules hold here, and each of them would notice if it did not."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.architecture.rules import RULES

HERE = Path(__file__).resolve().parents[2]
CORE = "lib/everstep/core"
SERVICE = "services/tick-tock/everstep/tick_tock"
DOC = '"""Says why."""\n'

# For every rule: files that break it, and what the complaint must name.
BROKEN = {
    "no_package_at_namespace_levels": ({"lib/everstep/__init__.py": DOC}, "remove it"),
    "inits_are_one_docstring": ({f"{CORE}/__init__.py": f"{DOC}import time\n"}, "only a docstring"),
    "modules_are_short": ({f"{CORE}/a.py": DOC + "x = 1\n" * 400}, "401 lines"),
    "functions_are_short": (
        {f"{CORE}/a.py": DOC + 'def long():\n    """Do."""\n' + "    x = 1\n" * 60}, "61 lines",
    ),
    "lines_are_short": ({f"{CORE}/a.py": f"{DOC}x = '{'a' * 95}'\n"}, "101 characters"),
    "modules_have_docstrings": ({f"{CORE}/a.py": "x = 1\n"}, "needs a docstring"),
    "services_look_alike": ({f"{SERVICE}/decider.py": DOC}, "projections.py: missing"),
    "service_pages_are_pages": ({"services/tick-tock/README.md": "word\n" * 121}, "121 lines"),
    "pure_files_import_only_pure_files": (
        {
            f"{SERVICE}/decider.py": f"{DOC}from everstep.tick_tock.helper import f\n",
            f"{SERVICE}/helper.py": f"{DOC}import time\n",
        },
        "helper.py:2: a pure file may not import time",
    ),
    "core_is_pure": ({f"{CORE}/a.py": f"{DOC}from everstep.bus import nats\n"}, "everstep.bus"),
    "ignores_are_explained": ({f"{CORE}/a.py": f"{DOC}x = 1  # noqa: E501\n"}, "say why"),
    "no_test_is_skipped": ({"tests/unit/test_a.py": "@pytest.mark.skip\n"}, "no skipped"),
    "tests_say_what_they_guard": (
        {"tests/unit/test_a.py": "def test_a():\n    assert 1\n"}, "test_a needs",
    ),
    "wire_code_is_fresh": (
        {"scripts/proto.py": "import sys\nprint('stale wire code: a_pb2.py')\nsys.exit(1)\n"},
        "stale wire code",
    ),
}  # fmt: skip
MORE_BROKEN = [
    ("inits_are_one_docstring", {f"{CORE}/__init__.py": ""}, "needs a docstring"),
    (
        "inits_are_one_docstring",
        {"worker/everstep/train/__init__.py": f"{DOC}from a import b\nprint(b)\n"},
        "re-exports only",
    ),
    ("pure_files_import_only_pure_files", {f"{SERVICE}/state.py": f"{DOC}import msgspec\n"}, "msg"),
    (
        "pure_files_import_only_pure_files",
        {f"{SERVICE}/policy.py": f"{DOC}from everstep.core.system import Clock\n"},
        "everstep.core.system",
    ),
    (
        "pure_files_import_only_pure_files",
        {f"{SERVICE}/policy.py": f"{DOC}def f():\n    import random\n"},
        "import random",
    ),
    ("services_look_alike", {f"{SERVICE}/decider.py": DOC}, "README.md: missing"),
    ("services_look_alike", {f"{SERVICE}/decider.py": DOC}, "migrations: missing"),
    ("ignores_are_explained", {f"{CORE}/a.py": f"{DOC}x = 1  # type: ignore\n"}, "name the code"),
    ("core_is_pure", {f"{CORE}/a.py": f"{DOC}import time\n"}, "import time"),
]


@pytest.mark.parametrize("name", sorted(RULES))
def test_rule_holds_in_this_repository(name):
    """Nobody has to remember the rule in a review."""
    assert RULES[name](HERE) == []


@pytest.mark.parametrize(
    ("name", "files", "complaint"),
    [*((name, *case) for name, case in sorted(BROKEN.items())), *MORE_BROKEN],
)
def test_rule_that_is_broken_is_noticed(tmp_path, name, files, complaint):
    """A check that cannot fail guards nothing."""
    for path, text in files.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    complaints = RULES[name](tmp_path)
    assert any(complaint in one for one in complaints), complaints


def test_every_rule_has_a_broken_example():
    """A new rule comes with the proof that it can fail."""
    assert set(BROKEN) == set(RULES)
