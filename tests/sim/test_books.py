"""The ledger's check sees what it is there to see."""

from __future__ import annotations

from dataclasses import replace

import pytest

from everstep.monitor import queries
from everstep.monitor.ledger import Cause, Laying
from everstep.sim.playing import play
from everstep.sim.swarm import run_seed


def _moved(ledger, cause, to, ms):
    causes = dict(ledger.causes)
    causes[cause] -= ms
    causes[to] += ms
    return replace(ledger, causes=causes)


def _lies(how):
    """Return an end of ``Laying`` that tells the truth and then changes it."""
    tell = Laying.finish

    def lying(laying):
        return how(tell(laying), ended=laying.facts.ended)

    return lying


@pytest.mark.parametrize(
    ("how", "said"),
    [
        (
            lambda told, ended: _moved(told, Cause.USEFUL, Cause.RESTART, 1),
            r"ms of useful time; of its 60 steps \d+ ms were, of which 0 ms were not told of",
        ),
        (
            lambda told, ended: _moved(told, Cause.RESTART, Cause.USEFUL, 1),
            r"ms of useful time; of its 60 steps \d+ ms were, of which 0 ms were not told of",
        ),
        (
            lambda told, ended: _moved(told, Cause.RESTART, Cause.VERIFICATION, 1),
            "has 1 ms of verification time; of its 60 steps 0 ms were",
        ),
        (
            lambda told, ended: _moved(told, Cause.RESTART, Cause.DEGRADED, 1),
            "has 1 ms of degraded time; of its 60 steps 0 ms were",
        ),
        (
            lambda told, ended: _moved(told, Cause.LOST_WORK, Cause.RESTART, 500),
            r"has \d+ ms of lost work; the 3 steps that were done again took \d+ ms",
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
    ids=[
        "useful too short",
        "useful too long",
        "verification",
        "degraded",
        "lost work",
        "negative",
        "sum",
        "sum on the way",
    ],
)
def test_ledger_that_is_wrong_is_found(how, said, monkeypatch):
    """By a millisecond, at the end or after a recovery, in a story that loses three steps."""
    monkeypatch.setattr(Laying, "finish", _lies(how))
    with pytest.raises(AssertionError, match=said):
        play("bad_copies", seed=9)


@pytest.mark.parametrize("said", [0, 2])
def test_incident_that_says_other_lost_steps_is_found(said, monkeypatch):
    """The job has lost three, and the monitor had heard of them."""
    read = queries.incidents

    async def incidents(connection, job_id):
        return [row | {"lost_steps": said} for row in await read(connection, job_id)]

    monkeypatch.setattr(queries, "incidents", incidents)
    with pytest.raises(AssertionError, match=r"lost 3 steps, 3 of which .*, and its incidents say"):
        play("bad_copies", seed=9)


@pytest.mark.parametrize("seed", [183, 223])
def test_host_whose_clock_is_an_hour_ahead_does_not_stretch_its_job(seed):
    """What it tells of has happened by then; the job took a minute, not an hour."""
    assert run_seed(seed).wrong == ()


def test_restart_by_a_person_while_something_is_noted_is_in_no_incident():
    """Seed 81016: the books took the note for what the restart came of, and missed its steps."""
    assert run_seed(81016).wrong == ()
