"""Suspicion fades with time alone, and two doubts name whom they have in common."""

from __future__ import annotations

from functools import reduce

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sqlalchemy import insert

from everstep.monitor.doubts import Doubt, named, suspicion
from everstep.monitor.events import SILENT_CORRUPTION, Action, IncidentOpened
from everstep.monitor.projections import INCIDENTS
from everstep.monitor.queries import doubts_elsewhere
from everstep.monitor.state import Watch, evolve
from everstep.sim.tables import Tables

DAY_MS = 86_400_000
WEEK_MS = 7 * DAY_MS


def doubt(*hosts: str, day: int = 0) -> Doubt:
    """One of these hosts was wrong."""
    return Doubt(hosts=hosts, at_ms=day * DAY_MS)


def test_one_doubt_between_two_names_nobody():
    """Each has half of it."""
    assert suspicion([doubt("a", "b")], 0, WEEK_MS) == {"a": 0.5, "b": 0.5}
    assert named((), doubt("a", "b"), WEEK_MS) == ""


def test_second_pair_within_a_half_life_names_the_common_host():
    """Just within it, and no longer beyond."""
    assert named([doubt("a", "b")], doubt("b", "c", day=7), WEEK_MS) == "b"
    assert named([doubt("a", "b")], doubt("b", "c", day=8), WEEK_MS) == ""


def test_same_pair_again_tells_nothing_new():
    """However often: both are as likely as before."""
    again = [doubt("a", "b", day=day) for day in range(5)]
    assert named(again, doubt("a", "b", day=6), WEEK_MS) == ""


def test_somebody_who_is_not_among_the_newest_is_not_named():
    """What was wrong now was one of these."""
    earlier = [doubt("a", "b"), doubt("a", "c")]
    assert named(earlier, doubt("d", "e", day=1), WEEK_MS) == ""


@pytest.mark.parametrize(("count", "who"), [(1, ""), (2, "a")])
def test_three_suspects_take_three_doubts(count: int, who: str):
    """A third each: two doubts come to two thirds, three to one."""
    earlier = [doubt("a", f"x{n}", f"y{n}") for n in range(count)]
    assert named(earlier, doubt("a", "x", "y"), WEEK_MS) == who


hosts = st.lists(st.sampled_from("abcde"), min_size=1, max_size=4, unique=True)


@given(st.lists(hosts, max_size=6), hosts, st.randoms())
@settings(deadline=None)
def test_order_of_doubts_and_hosts_does_not_matter(earlier, newest, random):
    """Sums do not ask for it."""
    before = [doubt(*one) for one in earlier]
    mixed = [doubt(*random.sample(one, len(one))) for one in random.sample(earlier, len(earlier))]
    who = named(before, doubt(*newest), WEEK_MS)
    assert named(mixed, doubt(*reversed(newest)), WEEK_MS) == who
    assert who in {"", *newest}


def opened(number: int, action: Action, *hosts: str) -> IncidentOpened:
    """What a watch was told of wrong bits."""
    return IncidentOpened(
        incident_id=f"i{number}",
        job_id="j",
        generation=number,
        kind=SILENT_CORRUPTION,
        action=action,
        hosts=hosts,
    )


@pytest.mark.parametrize("action", [Action.REPLACE, Action.DRAIN])
def test_who_is_known_to_have_been_wrong_takes_the_doubt_off_the_others(action: Action):
    """It was between two, and now it was the one."""
    events = [
        opened(1, Action.RESTART, "a", "b"),
        opened(2, Action.RESTART, "c", "d"),
        opened(3, action, "a"),
    ]
    watch = reduce(evolve, events, Watch(job_id="j"))
    assert [one.hosts for one in watch.doubts] == [("c", "d")]


@pytest.mark.parametrize("action", [Action.NOTE, Action.HOLD, Action.REPLACE_IF_SPARE])
def test_what_decides_nothing_leaves_doubts_as_they_are(action: Action):
    """A third place to try is no proof."""
    events = [opened(1, Action.RESTART, "a", "b"), opened(2, action, "a")]
    watch = reduce(evolve, events, Watch(job_id="j"))
    assert [one.hosts for one in watch.doubts] == [("a", "b")]


async def test_doubts_of_other_jobs_are_read_in_order_and_end_when_any_job_names_a_host():
    """What the job itself has left it knows; other kinds, and notes, are no doubts."""
    tables = Tables()
    for day, (job_id, kind, action, hosts) in enumerate(
        [
            ("j1", SILENT_CORRUPTION, Action.RESTART, ["a", "b"]),
            ("j2", SILENT_CORRUPTION, Action.RESTART, ["b", "c"]),
            ("j1", SILENT_CORRUPTION, Action.RESTART, ["c", "d"]),
            ("j1", SILENT_CORRUPTION, Action.NOTE, ["a", "d"]),
            ("j1", "collective_error", Action.RESTART, ["a", "d"]),
            ("j2", SILENT_CORRUPTION, Action.DRAIN, ["a"]),
        ]
    ):
        row = {
            "incident_id": f"i{day}",
            "job_id": job_id,
            "kind": kind,
            "action": action.value,
            "hosts": hosts,
            "detected_at_ms": day * DAY_MS,
        }
        await tables.execute(insert(INCIDENTS).values(**row))
    first, last = doubt("b", "c", day=1), doubt("c", "d", day=2)
    assert await doubts_elsewhere(tables.connection, "j3") == (first, last)
    assert await doubts_elsewhere(tables.connection, "j2") == (last,)
    assert await doubts_elsewhere(tables.connection, "j1") == (first,)
