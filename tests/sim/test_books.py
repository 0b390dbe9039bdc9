"""The ledger's check sees what it is there to see."""

from __future__ import annotations

from dataclasses import replace

import pytest

from everstep.monitor import queries
from everstep.monitor.ledger import Cause, account
from everstep.sim.scenarios import play


def _moved(ledger, cause, to, ms):
    causes = dict(ledger.causes)
    causes[cause] -= ms
    causes[to] += ms
    return replace(ledger, causes=causes)


def _lies(how):
    """Return an ``account`` that tells the truth and then changes it."""

    def lying(**facts):
        return how(account(**facts), ended=facts["ended"])

    return lying


@pytest.mark.parametrize(
    ("how", "said"),
    [
        (
            lambda told, ended: _moved(told, Cause.USEFUL, Cause.RESTART, 1),
            r"60 steps took \d+ ms, of which 0 ms were not told of",
        ),
        (
            lambda told, ended: _moved(told, Cause.RESTART, Cause.USEFUL, 1),
            r"60 steps took \d+ ms, of which 0 ms were not told of",
        ),
        (
            lambda told, ended: _moved(told, Cause.LOST_WORK, Cause.RESTART, 500),
            r"has \d+ ms of lost work; the 1 steps that were done again took \d+ ms",
        ),
        (
            lambda told, ended: _moved(told, Cause.DATA_WAIT, Cause.RESTART, 1),
            "has causes below 0: data_wait",
        ),
        (
            lambda told, ended: replace(told, wall_ms=told.wall_ms + 1),
            r"sums to \d+ ms and \d+ ms have passed",
        ),
        (
            # Only while the job runs: what is looked at after a recovery.
            lambda told, ended: told if ended else replace(told, wall_ms=told.wall_ms + 1),
            r"sums to \d+ ms and \d+ ms have passed",
        ),
    ],
    ids=["useful too short", "useful too long", "lost work", "negative", "sum", "sum on the way"],
)
def test_ledger_that_is_wrong_is_found(how, said, monkeypatch):
    """By a millisecond, at the end or after a recovery, in a story that loses one step."""
    monkeypatch.setattr(queries, "account", _lies(how))
    with pytest.raises(AssertionError, match=said):
        play("host_lost")
