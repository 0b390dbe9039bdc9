"""What must hold of the fleet after any sequence of commands."""

from __future__ import annotations

from functools import reduce

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.host_inventory.fleet import join

from everstep.core.decision import Accepted
from everstep.core.placement import Layout
from everstep.core.probes import PAIR, Depth, ProbeReport, ProbeResult, Verdict
from everstep.host_inventory.codec import EVENTS
from everstep.host_inventory.commands import (
    CordonHost,
    CountErrors,
    LeaveHost,
    MaintainHost,
    PlaceJob,
    RecordProbes,
    ReleaseJob,
    ReturnHost,
    UncordonHost,
)
from everstep.host_inventory.decider import decide
from everstep.host_inventory.events import JobPlaced
from everstep.host_inventory.state import Fleet, HostState, evolve

HOSTS = st.sampled_from([f"h{i}" for i in range(6)])
TIMES = st.integers(0, 20_000)
# Each job keeps its layout, so that later generations are often placed; together they need 8 of the
# 12 chips, so that jobs run side by side and compete for what is left.
LAYOUTS = {
    "job-1": Layout(tp=2),
    "job-2": Layout(pp=2),
    "job-3": Layout(dp_replicate=2, dp_shard=2),
}
JOBS = st.sampled_from(sorted(LAYOUTS))


def place(job_id: str, generation: int, lost: list[str], at_ms: int) -> PlaceJob:
    """Ask for hosts."""
    return PlaceJob(
        job_id=job_id,
        generation=generation,
        layout=LAYOUTS[job_id],
        lost_hosts=tuple(lost),
        reason="host_lost",
        incident_id="i1",
        at_ms=at_ms,
    )


RESULTS = st.builds(
    ProbeResult,
    name=st.sampled_from(["memory", PAIR]),
    where=st.sampled_from(["", "h1", "h2"]),
    verdict=st.sampled_from(Verdict),
)
REPORTS = st.builds(
    ProbeReport,
    examination_id=st.sampled_from(["x1", "x2", "x3"]),
    depth=st.sampled_from(Depth),
    at_ms=TIMES,
    duration_ms=st.just(1),
    probes=st.lists(RESULTS, max_size=2).map(tuple),
)
PLACES = st.builds(place, JOBS, st.integers(1, 5), st.lists(HOSTS, max_size=2), TIMES)
COMMANDS = st.one_of(
    st.builds(
        join,
        HOSTS,
        pod=st.sampled_from("ab"),
        power=st.sampled_from(["", "x"]),
        chips=st.integers(1, 4),
        address=st.sampled_from(["10.0.0.1", "10.0.0.2"]),
        epoch=st.sampled_from(["e1", "e2"]),
        at_ms=TIMES,
        probes=st.booleans(),
        heard_ms=TIMES,
    ),
    st.builds(LeaveHost, host_id=HOSTS, at_ms=TIMES),
    st.builds(
        CordonHost,
        host_id=HOSTS,
        reason=st.just("probe"),
        incident_id=st.sampled_from(["", "i1", "i2"]),
        at_ms=TIMES,
    ),
    st.builds(UncordonHost, host_id=HOSTS, at_ms=TIMES, now=st.booleans()),
    st.builds(
        MaintainHost,
        host_id=HOSTS,
        reason=st.sampled_from(["firmware", "fan"]),
        until_ms=st.sampled_from([0, 30_000]),
        at_ms=TIMES,
    ),
    st.builds(ReturnHost, host_id=HOSTS, at_ms=st.integers(0, 2_000_000)),
    st.builds(
        RecordProbes,
        host_id=HOSTS,
        agent_epoch=st.sampled_from(["e1", "e2"]),
        report=REPORTS,
        at_ms=TIMES,
    ),
    st.builds(
        CountErrors,
        host_id=HOSTS,
        kind=st.sampled_from(["ecc", "link"]),
        count=st.integers(0, 3),
        at_ms=TIMES,
    ),
    PLACES,
    PLACES,  # twice: half of all commands would be joins and cordons otherwise
    st.builds(ReleaseJob, job_id=JOBS, generation=st.integers(0, 5), at_ms=TIMES),
)
START = tuple(join(f"h{i}", pod="ab"[i % 2], at_ms=0) for i in range(6))


def run(commands):
    """Put every command to the fleet; yield each with its events and the fleet after them."""
    fleet = Fleet()
    for command in (*START, *commands):
        decision = decide(command, fleet)
        events = decision.events if isinstance(decision, Accepted) else ()
        fleet = reduce(evolve, events, fleet)
        yield command, events, fleet


def final(commands):
    """Return the events and the fleet at the end."""
    steps = list(run(commands))
    return [event for _, events, _ in steps for event in events], steps[-1][2]


@settings(max_examples=300)
@given(st.lists(COMMANDS, max_size=30))
def test_no_host_is_ever_in_two_jobs(commands):
    """Seats of held jobs never overlap, hosts know their job, and nobody else is active."""
    for _, _, fleet in run(commands):
        seats = {}
        for job in fleet.jobs.values():
            for seat in job.placement.hosts if job.held else ():
                assert seat.host_id not in seats, f"{seat.host_id} is in two jobs"
                seats[seat.host_id] = job.job_id
        assert {h.host_id: h.job_id for h in fleet.hosts.values() if h.job_id} == seats


@settings(max_examples=300)
@given(st.lists(COMMANDS, max_size=30))
def test_every_command_repeated_decides_nothing(commands):
    """A retry after the effect is already so, or is refused; it never acts twice."""
    for command, _, fleet in run(commands):
        again = decide(command, fleet)
        assert not isinstance(again, Accepted) or again == Accepted()


@settings(max_examples=200)
@given(st.lists(COMMANDS, max_size=30))
def test_every_placement_is_whole_on_able_hosts(commands):
    """Each rank has one chip of a present, uncordoned host, and groups of tp stay together."""
    for _, events, fleet in run(commands):
        for event in (event for event in events if isinstance(event, JobPlaced)):
            tp = event.placement.layout.tp
            ranks = [rank for seat in event.placement.hosts for rank in seat.ranks]
            assert sorted(ranks) == list(range(event.placement.layout.world_size))
            firsts = [seat.ranks[0] for seat in event.placement.hosts]
            assert firsts == sorted(firsts)
            ids = set(event.placement.host_ids)
            for seat in event.placement.hosts:
                host = fleet.hosts[seat.host_id]
                assert host.state is HostState.ACTIVE
                assert len(seat.ranks) <= host.chips
                assert seat.ranks == tuple(sorted(seat.ranks))
                groups = {rank // tp for rank in seat.ranks}
                assert len(seat.ranks) == tp * len(groups)
                expected = ids - {seat.host_id}
                assert seat.replica_host_id in (expected or {""})


@settings(max_examples=300)
@given(st.lists(COMMANDS, max_size=30))
def test_no_host_is_placed_that_was_not_free_for_work(commands):
    """Who is new in a placement was a spare: neither probing nor cordoned, and in no other job."""
    before = Fleet()
    for _, events, fleet in run(commands):
        for event in (event for event in events if isinstance(event, JobPlaced)):
            for host_id in event.placement.host_ids:
                host = before.hosts[host_id]
                assert host.state is HostState.SPARE or host.job_id == event.job_id
                assert host.awaits is None
        before = fleet


@settings(max_examples=100)
@given(st.lists(COMMANDS, max_size=30))
def test_stored_events_replay_to_the_same_fleet(commands):
    """What the codec stores and reads again folds to the state that was decided on."""
    events, fleet = final(commands)
    stored = [EVENTS.encode(event) for event in events]
    assert reduce(evolve, (EVENTS.decode(*item) for item in stored), Fleet()) == fleet
