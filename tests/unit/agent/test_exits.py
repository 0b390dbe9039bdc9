"""How two witnesses of a rank's end become one report."""

from __future__ import annotations

import pytest

from everstep.agent.exits import (
    EXIT_CODES,
    Ending,
    ExitClass,
    Intent,
    LastWords,
    Status,
    merge,
    signal_name,
)
from everstep.wire.v1 import agents_pb2

WORDS = LastWords(exit_class=ExitClass.USER_ERROR, error="ValueError: x", traceback="T")


def ended(exit_class, *, code=0, signal=0, error="", traceback=""):
    """An ending, in few words."""
    return Ending(
        exit_class=exit_class, exit_code=code, signal=signal, error=error, traceback=traceback
    )


def test_words_win_over_status():
    """A rank that said why it failed is not reported by its exit code alone."""
    assert merge(Status(exit_code=41, signal=0), WORDS, Intent.RUN, "log") == ended(
        ExitClass.USER_ERROR, code=41, error="ValueError: x", traceback="T"
    )


def test_crash_after_finishing_is_still_finished():
    """A segfault while the interpreter tears down does not undo a finished run."""
    words = LastWords(exit_class=ExitClass.FINISHED)
    assert merge(Status(exit_code=0, signal=11), words, Intent.RUN, "log") == ended(
        ExitClass.FINISHED, signal=11
    )


def test_signal_without_words_is_killed():
    """A killed rank could not speak; the signal has a name and the log's end is shown."""
    assert merge(Status(exit_code=0, signal=9), None, Intent.RUN, "log") == ended(
        ExitClass.KILLED, signal=9, error="ended by SIGKILL", traceback="log"
    )


@pytest.mark.parametrize(("exit_class", "code"), EXIT_CODES.items())
def test_exit_code_tells_the_class_when_the_words_are_lost(exit_class, code):
    """Each class has its own exit code."""
    ending = merge(Status(exit_code=code, signal=0), None, Intent.RUN, "log")
    assert ending is not None
    assert ending.exit_class is exit_class


def test_unknown_exit_code_is_the_users():
    """Whatever else ends a process with a code is user code."""
    ending = merge(Status(exit_code=7, signal=0), None, Intent.RUN, "log")
    assert ending == ended(
        ExitClass.USER_ERROR,
        code=7,
        error="exited with code 7 without a word; its log ends as shown",
        traceback="log",
    )


@pytest.mark.parametrize("words", [None, WORDS])
def test_fenced_rank_is_not_reported(words):
    """Nobody waits for the report of a rank that we killed on purpose."""
    assert merge(Status(exit_code=0, signal=9), words, Intent.KILL, "log") is None


def test_rank_killed_while_stopping_is_stopped():
    """A rank that did not leave in time was stopped all the same, and the report says how."""
    assert merge(Status(exit_code=0, signal=9), None, Intent.STOP, "log") == ended(
        ExitClass.STOPPED, signal=9, error="killed while it was asked to stop"
    )


def test_rank_that_is_through_while_it_is_asked_to_stop_has_finished():
    """It came to its end by itself: the run may have succeeded."""
    assert merge(Status(exit_code=0, signal=0), None, Intent.STOP, "log") == ended(
        ExitClass.FINISHED
    )


def test_every_class_is_on_the_wire():
    """The words here are those of agents.proto."""
    wire = set(agents_pb2.ExitClass.keys()) - {"EXIT_CLASS_UNSPECIFIED"}
    assert {one.value for one in ExitClass} == wire


def test_signal_without_a_name_is_numbered():
    """Real-time signals have no names."""
    assert signal_name(64 + 36) == "signal 100"
