"""That each of the rules about links and counters is what makes its stories end well."""

from __future__ import annotations

import pytest

from everstep.monitor import linking
from everstep.monitor.counting import Counting
from everstep.monitor.detectors import links
from everstep.monitor.lookout import Lookout
from everstep.sim.playing import play


def fails(name: str) -> None:
    """Say whether a story does not end well."""
    with pytest.raises(AssertionError):
        play(name)


def test_without_a_look_at_links_a_run_is_started_beside_its_cut_host(monkeypatch):
    """Every host answers, and every start hangs again."""

    async def nothing(*_: object) -> bool:
        return False

    monkeypatch.setattr(Lookout, "links", nothing)
    fails("partitioned_host")


def test_without_a_second_look_a_link_that_flaps_once_costs_a_host(monkeypatch):
    """The first time is no proof."""
    real = links.standing_of

    def hasty(now_ms, looks):
        one = real(now_ms, looks)
        sides = links.sides_of(looks[-1]) if looks else links.Sides()
        return links.Standing(cut=sides.cut, text=sides.text) if sides.cut else one

    monkeypatch.setattr(linking, "standing_of", hasty)
    fails("partition_flaps")


def test_without_the_tie_a_run_is_started_again_in_a_network_that_is_cut(monkeypatch):
    """Nobody is evicted, but the run does not just go on either."""
    monkeypatch.setattr(linking, "undecided", lambda *_, **__: None)
    fails("partition_of_halves")


def test_without_counters_a_broken_host_is_blamed_by_nobody(monkeypatch):
    """Only echoes, and every host answers."""
    monkeypatch.setattr(Counting, "fatal", lambda *_: ())
    fails("broken_host_and_its_run_fails")
