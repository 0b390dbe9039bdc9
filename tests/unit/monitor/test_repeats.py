"""Hangs that come again at the same step."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.spec import spec

from everstep.core.record import changed
from everstep.monitor.codec import AGGREGATE
from everstep.monitor.commands import OpenIncident
from everstep.monitor.events import Action, IncidentOpened, JobMarked, Mark, WatchedHost
from everstep.monitor.repeats import Hang, action_for

WATCH = spec(AGGREGATE)
HUNG = Hang(kind="rank_spinning", step=12, ranks=(3,), hosts=("h1",))


def generation(number: int, host_id: str) -> tuple[JobMarked, ...]:
    """A generation whose only host is ``host_id``."""
    hosts = (WatchedHost(host_id=host_id, ranks=(3,)),)
    return (
        JobMarked(job_id="j", generation=number, mark=Mark.BEGUN, cause="recovery"),
        JobMarked(job_id="j", generation=number, mark=Mark.PLACED, hosts=hosts),
    )


def hang(number: int, host_id: str, **fields: object) -> dict[str, object]:
    """Rank 3 spins after step 12."""
    return {
        "incident_id": f"i{number}",
        "job_id": "j",
        "generation": number,
        "kind": "rank_spinning",
        "ranks": (3,),
        "hosts": (host_id,),
        "step": 12,
        "action": Action.RESTART,
        "reason": "rank 3 runs in a circle",
        **fields,
    }


def opened(*events: object, **fields: object) -> IncidentOpened:
    """Return the incident that is opened after ``events``."""
    (event,) = WATCH.given(*events).when(OpenIncident(**fields)).decision.events
    return event


def test_hang_of_user_code_moves_and_then_stops_the_job():
    """A new process, then another host, then a person."""
    first = (*generation(1, "h1"), IncidentOpened(**hang(1, "h1")))
    second = opened(*first, *generation(2, "h1"), **hang(2, "h1"))
    assert second.action is Action.REPLACE_IF_SPARE
    assert "a new process has not helped" in second.reason
    moved = (*first, *generation(2, "h1"), second, *generation(3, "h2"))
    third = opened(*moved, **hang(3, "h2"))
    assert third.action is Action.FAIL
    assert third.reason.startswith("rank 3 runs in a circle. the same ranks hung after step 12")
    assert "(h1)" in third.reason


def test_without_a_spare_it_is_restarted_where_it_is():
    """The host may still be to blame, so the job is not given up before its restart budget is."""
    assert action_for(HUNG, Action.RESTART, [HUNG] * 3)[0] is Action.REPLACE_IF_SPARE


@pytest.mark.parametrize(
    "other",
    [
        {"step": 13},
        {"kind": "hang"},
        {"ranks": (2,)},
        {"ranks": ()},
        {"kind": "rank_stopped"},
    ],
)
def test_another_hang_says_nothing_about_this_one(other: dict[str, object]):
    """Another step, rank or way; nobody named; or stopped from outside."""
    earlier = changed(HUNG, **other)
    assert action_for(HUNG, Action.RESTART, [earlier]) == (Action.RESTART, "")
    assert action_for(earlier, Action.RESTART, [HUNG]) == (Action.RESTART, "")


def test_nobody_named_and_stopped_ranks_may_come_again():
    """They are left to the restart budget."""
    for kind, ranks in (("hang", ()), ("rank_stopped", (3,))):
        one = Hang(kind=kind, step=12, ranks=ranks, hosts=("h1",))
        elsewhere = Hang(kind=kind, step=12, ranks=ranks, hosts=("h2",))
        assert action_for(one, Action.RESTART, [one, elsewhere]) == (Action.RESTART, "")


@given(st.permutations([("h1",), ("h2",), ("h3",)]), st.sampled_from(["h1", "h4"]))
def test_order_of_earlier_hangs_does_not_matter(places: list[tuple[str]], here: str):
    """What counts is that it hung somewhere else."""
    earlier = [Hang(kind="hang", step=5, ranks=(0, 1), hosts=hosts) for hosts in places]
    now = Hang(kind="hang", step=5, ranks=(0, 1), hosts=(here,))
    action, why = action_for(now, Action.RESTART, earlier)
    assert action is Action.FAIL
    assert "(h1; h2; h3)" in why
