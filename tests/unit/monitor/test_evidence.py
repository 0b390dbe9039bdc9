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
