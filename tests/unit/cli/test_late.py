"""What a command is doing is told late, and where there is no terminal, in few lines."""

from __future__ import annotations

from io import StringIO

import pytest
from rich.console import Console

from everstep.cli import late


@pytest.fixture
def lines(monkeypatch):
    """What is printed, from the first moment on."""
    out = StringIO()
    monkeypatch.setattr(late, "ERR", Console(file=out, soft_wrap=True, highlight=False))
    monkeypatch.setattr(late, "QUIET_S", 0.0)
    return lambda: out.getvalue().splitlines()


def test_each_thing_that_is_done_is_a_line_and_so_is_the_first_word_of_how_far_it_is(lines):
    """The next one comes a while later."""
    with late.Late() as told:
        told.tell("reading")
        told.tell("reading")
        told.tell("running seeds", 0, 9)
        for done in (1, 2, 3):
            told.tell("running seeds", done, 9, f"{done} done")
    told.tell("anything", 9, 9, "after the end")
    assert [line for line in lines() if line != "starting"] == [
        "reading", "running seeds", "running seeds: 1 done",
    ]  # fmt: skip


def test_how_far_it_is_is_told_again_after_a_while(lines, monkeypatch):
    """However often it is told of."""
    monkeypatch.setattr(late, "LINE_S", 0.0)
    with late.Late() as told:
        for done in (1, 2):
            told.tell("running seeds", done, 9, f"{done} done")
    assert lines()[-2:] == ["running seeds: 1 done", "running seeds: 2 done"]


def test_what_is_over_soon_is_not_told(lines, monkeypatch):
    """Two seconds need no words."""
    monkeypatch.setattr(late, "QUIET_S", 1e6)
    with late.Late() as told:
        told.tell("running seeds", 1, 9, "1 done")
    assert lines() == []
