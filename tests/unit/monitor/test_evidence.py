"""What the watcher's notebook says of a generation that is coming up."""

from __future__ import annotations

from dataclasses import replace

from everstep.monitor.events import WatchedHost
from everstep.monitor.evidence import Gathered
from everstep.monitor.state import Watch

PLACED = Watch(generation=2, placed=True, hosts=(WatchedHost(host_id="h0", ranks=(0, 1)),))


def test_ranks_are_expected_from_the_plan_on_and_not_from_the_placement():
    """A plan may wait for a person; nobody could start a rank before it."""
    gathered = Gathered()
    gathered.begin(PLACED, 1_000)
    waiting = gathered.weigh(PLACED, blind=False)
    assert not waiting.planned
    planned = replace(PLACED, restore_step=40)
    gathered.begin(planned, 900_000)
    coming_up = gathered.weigh(planned, blind=False)
    assert (coming_up.planned, coming_up.placed_ms) == (True, 900_000)
    gathered.begin(planned, 905_000)
    assert gathered.weigh(planned, blind=False).placed_ms == 900_000


def test_step_of_a_generation_whose_plan_is_told_late_is_its_own():
    """Not the one that was left behind, and not the plan's either when that comes."""
    gathered = Gathered()
    gathered.begin(replace(PLACED, generation=1, restore_step=0), 1_000)
    assert gathered.stepped("h0", 26, 2_000) == 26
    assert gathered.has_made(26)
    assert not gathered.has_made(27)
    gathered.begin(PLACED, 3_000)
    assert not gathered.has_made(26)
    assert not gathered.has_made(0)  # nobody makes the beginning
    gathered.reached(0)  # a rank that ends before its first step tells of none
    assert gathered.step == 26
    gathered.stepped("h0", 21, 4_000)
    assert gathered.step == 21
    gathered.begin(replace(PLACED, restore_step=20), 5_000)
    assert gathered.step == 21
    gathered.stepped("h0", 22, 6_000)
    assert gathered.step == 22
