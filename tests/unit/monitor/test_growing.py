"""A job whose layout changes is watched under the one that it was placed with."""

from __future__ import annotations

import pytest
from tests.spec import spec

from everstep.core.placement import HostPlacement, Layout, Placement
from everstep.monitor.codec import AGGREGATE
from everstep.monitor.commands import ObserveExit, ObserveStray
from everstep.monitor.events import (
    ExitClass,
    JobMarked,
    Mark,
    RankEnded,
    RunFinished,
    StrayFound,
    WatchedHost,
)
from everstep.monitor.inputs import controller_mark
from everstep.wire.codec import to_wire
from everstep.wire.v1.envelope_pb2 import EventEnvelope

WATCH = spec(AGGREGATE)
FULL, ONE = Layout(dp_shard=2), Layout()


def marked(generation: int, mark: Mark, **fields: object) -> JobMarked:
    """A mark of job j."""
    return JobMarked(job_id="j", generation=generation, mark=mark, **fields)


def placed(generation: int, ranks: int, layout: Layout) -> JobMarked:
    """One rank a host."""
    hosts = tuple(WatchedHost(host_id=f"h{rank}", ranks=(rank,)) for rank in range(ranks))
    return marked(generation, Mark.PLACED, hosts=hosts, layout=layout)


LAUNCHED = (
    marked(0, Mark.SUBMITTED, layout=FULL),
    marked(1, Mark.BEGUN, cause="launch"),
    placed(1, 2, FULL),
)
SMALL = (*LAUNCHED, marked(2, Mark.BEGUN, cause="recovery"), placed(2, 1, ONE))
GROWING = (*SMALL, marked(3, Mark.BEGUN, cause="grow"), placed(3, 2, FULL))


@pytest.mark.parametrize(
    ("events", "layout"),
    [(LAUNCHED, FULL), (SMALL, ONE), (GROWING, FULL)],
    ids=["launched", "small", "growing"],
)
def test_layout_is_that_of_the_newest_placement(events, layout):
    """Stages, groups and peers follow from it."""
    assert WATCH.given(*events).state.layout == layout


def test_placement_of_before_that_does_not_tell_its_layout_keeps_the_specs():
    """It is stored as one of a single rank."""
    old = placed(1, 2, Layout())
    assert WATCH.given(*LAUNCHED[:2], old).state.layout == FULL


def test_layout_comes_with_the_controllers_placement():
    """As it says it."""
    envelope = EventEnvelope()
    decided = envelope.placement_decided
    decided.job_id, decided.generation = "j", 2
    seats = (HostPlacement(host_id="h0", ranks=(0,)), HostPlacement(host_id="h1", ranks=(1,)))
    to_wire(Placement(layout=FULL, hosts=seats), decided.placement)
    mark = controller_mark(envelope)
    assert mark is not None
    assert mark.layout == FULL


def finished(rank: int, generation: int) -> dict[str, object]:
    """Fields of a rank that is through."""
    return {
        "job_id": "j",
        "generation": generation,
        "rank": rank,
        "host_id": f"h{rank}",
        "exit_class": ExitClass.FINISHED,
        "step": 10,
        "at_ms": 100,
    }


def test_run_that_finishes_while_it_grows_is_through():
    """When all ranks that it had are: those that it would have had are not waited for."""
    last = finished(0, 2)
    done = RunFinished(job_id="j", generation=2, step=10, at_ms=100)
    WATCH.given(*GROWING).when(ObserveExit(**last)).then(RankEnded(**last), done)


def test_ranks_that_stop_to_grow_are_not_stray_before_there_is_a_plan():
    """They agree on a last step first."""
    left = ObserveStray(job_id="j", generation=2, host_id="h0", at_ms=7)
    WATCH.given(*GROWING).when(left).then()
    found = StrayFound(job_id="j", generation=3, host_id="h0", stray_generation=2, at_ms=7)
    WATCH.given(*GROWING, marked(3, Mark.PLANNED, step=30)).when(left).then(found)
