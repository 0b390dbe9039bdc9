"""A host that works badly gives way to a spare, and serves on when there is none."""

from __future__ import annotations

from dataclasses import replace

from tests.unit.host_inventory.fleet import (
    FLEET_SPEC,
    after,
    fleet_of,
    hosts,
    place,
    placed,
    ranks_of,
)
from tests.unit.host_inventory.test_placing import reply_to

from everstep.core.placement import Layout
from everstep.host_inventory.commands import PlaceJob
from everstep.host_inventory.events import HostCordoned, JobPlaced
from everstep.host_inventory.policy import replaceable

DEMO = Layout(pp=2, dp_shard=2, tp=2)
FOUR = FLEET_SPEC.given(*hosts({"a": ["a1", "a2"], "b": ["b1", "b2"]}))
FULL = after(FOUR, place(layout=DEMO))  # a1 0-1, b1 2-3, a2 4-5, b2 6-7; no spare
ONE_SPARE = FULL.given(*hosts({"a": ["a3"]}))


def without(*unsound: str, lost: tuple[str, ...] = ()) -> PlaceJob:
    """Ask for the next generation, better without these."""
    return replace(place(generation=2, layout=DEMO, lost=lost), unsound_hosts=unsound)


def cordoned(host_id: str, reason: str) -> HostCordoned:
    """Return the cordon of a host that gives way."""
    lost = reason == "host_lost"
    return HostCordoned(
        host_id=host_id,
        reason=reason,
        incident_id="i1",
        at_ms=10,
        job_id="job",
        generation=2,
        fault={"host_lost": "lost", "drained": "slow"}.get(reason, "unsound"),
        relapses=1,
        held_ms=600_000,
        returns=lost,
    )


def test_unsound_host_is_cordoned_and_a_spare_takes_its_seat():
    """As a lost one, as long as there is somebody to replace it."""
    cordon, event = ONE_SPARE.when(without("a1")).decision.events
    assert cordon == cordoned("a1", "unsound")
    assert event.replacements == ("a3",)
    assert reply_to(ONE_SPARE, without("a1")).outcome.detail == ""


def test_unsound_host_keeps_its_ranks_when_no_spare_can_be_had():
    """It is not cordoned, nothing is short, and the answer says what happened and what to do."""
    (event,) = FULL.when(without("a1")).decision.events
    assert isinstance(event, JobPlaced)
    assert (event.replacements, ranks_of(event.placement)["a1"]) == ((), (0, 1))
    reply = reply_to(FULL, without("a1"))
    assert reply.hosts_short == 0
    assert reply.outcome.detail == (
        "no spare host can take the ranks of a1: restarted in place; add a host or look after a1"
    )
    again = after(FULL, without("a1"))
    again.when(without("a1")).then()
    assert reply_to(again, without("a1")) == reply


def test_spare_goes_to_the_lost_host_before_the_unsound_one():
    """Only a host that is really dead must be replaced."""
    events = ONE_SPARE.when(without("a1", lost=("b1",))).decision.events
    assert events[0] == cordoned("b1", "host_lost")
    assert events[1].replacements == ("a3",)
    assert set(ranks_of(events[1].placement)) == {"a1", "a2", "a3", "b2"}


def test_one_spare_for_two_unsound_hosts_replaces_one_of_them():
    """Half a cure is better than none."""
    cordon, event = ONE_SPARE.when(without("a1", "b2")).decision.events
    assert cordon == cordoned("a1", "unsound")
    assert set(ranks_of(event.placement)) == {"a2", "a3", "b1", "b2"}
    assert "b2" in reply_to(ONE_SPARE, without("a1", "b2")).outcome.detail


def test_dead_host_without_a_spare_waits_and_cordons_no_unsound_one():
    """Waiting is for what is dead; the unsound host serves when the wait is over."""
    FULL.when(without("a1", lost=("b1",))).then(cordoned("b1", "host_lost"))
    waiting = after(FULL, without("a1", lost=("b1",)))
    joined = waiting.given(*hosts({"b": ["b3"]}))
    event = placed(joined, without("a1"))
    assert set(ranks_of(event.placement)) == {"a1", "a2", "b2", "b3"}


def test_hosts_that_spares_could_replace_are_named_all_at_once():
    """As many as there are spares for, and nobody moves yet."""
    assert replaceable("job", ("a1", "b1"), fleet_of(FULL)) == ()
    assert replaceable("job", ("a1", "b1"), fleet_of(ONE_SPARE)) == ("a1",)
    two = ONE_SPARE.given(*hosts({"b": ["b3"]}))
    assert replaceable("job", ("b1", "a1"), fleet_of(two)) == ("a1", "b1")


def test_nobody_is_replaceable_who_serves_another_job_or_none():
    """The question is about this job's seats."""
    assert replaceable("job", ("a3", "zz"), fleet_of(ONE_SPARE)) == ()
    assert replaceable("other", ("a1",), fleet_of(ONE_SPARE)) == ()


def test_host_that_is_drained_is_cordoned_as_that():
    """A person who finds it cordoned sees that it was meant."""
    moving = replace(without("a1"), unsound_reason="drained")
    cordon, event = ONE_SPARE.when(moving).decision.events
    assert cordon == cordoned("a1", "drained")
    assert event.replacements == ("a3",)
