"""What is found about bits becomes an incident: who is replaced, what is suspect, what is said."""

from __future__ import annotations

from dataclasses import replace
from functools import reduce

import pytest
from tests.spec import spec

from everstep.core.placement import Layout
from everstep.monitor.codec import AGGREGATE, CODEC
from everstep.monitor.commands import OpenIncident, SettleNote
from everstep.monitor.corrupting import Corrupting
from everstep.monitor.detectors.verdict import Verdict
from everstep.monitor.doubts import Doubt
from everstep.monitor.events import (
    Action,
    CorruptionRules,
    IncidentOpened,
    IncidentRecovered,
    JobMarked,
    Mark,
    TieFound,
    WatchedHost,
)
from everstep.monitor.state import Watch, evolve
from everstep.monitor.ties import CLAIMS_STORED_MAX, Claim, Tie
from everstep.wire.v1.agents_pb2 import Fingerprint, RankStep, StepMetrics

HOSTS = tuple(WatchedHost(host_id=f"h{n}", ranks=(n,)) for n in range(3))
WATCH = Watch(
    job_id="j",
    generation=1,
    hosts=HOSTS,
    placed=True,
    restore_step=0,
    layout=Layout(dp_replicate=3),
    corruption=CorruptionRules(on_corruption="replace"),
)
PAIR = replace(WATCH, hosts=HOSTS[:2], layout=Layout(dp_replicate=2))
ODD = {1: 7}


def metrics(step: int, rank: int, value: int, generation: int = 1) -> StepMetrics:
    """One host's message."""
    shown = [Fingerprint(over=1, value=value)]
    told = RankStep(rank=rank, step=step, compared_step=step, fingerprints=shown)
    return StepMetrics(job_id="j", generation=generation, host_id=f"h{rank}", ranks=[told])


def tell(one: Corrupting, watch: Watch, step: int, odd: dict[int, int] | None = None):
    """Let all hosts tell of a step."""
    one.begin(watch)
    said = []
    for rank in range(watch.world_size):
        value = (odd or {}).get(rank, 1_000 + step)
        message = metrics(step, rank, value, watch.generation)
        said += one.told(message, watch, 50)
    return said


def verdict(watch: Watch, told=None) -> Verdict:
    """Return what comes of a second step that differs."""
    one = Corrupting()
    assert tell(one, watch, 1) == []
    assert tell(one, watch, 2, ODD) == []
    (found,) = one.take()
    assert one.take() == []
    return one.verdict(found, told or {}, watch, 60)


def held(*, names: dict[int, dict[str, str]]):
    """Return what hosts answer."""
    return {rank: {(1, name): one for name, one in ones.items()} for rank, ones in names.items()}


def test_wrong_host_is_replaced_and_its_tensor_named():
    """All steps from the one that differs on are suspect."""
    told = held(names={0: {"w": "a", "v": "b"}, 1: {"w": "x", "v": "b"}, 2: {"w": "a", "v": "b"}})
    assert verdict(WATCH, told) == Verdict(
        kind="silent_corruption",
        action=Action.REPLACE,
        ranks=(1,),
        hosts=("h1",),
        reason="at step 2 ranks differ in w: 2 of 3 ranks that hold the same agree with one "
        "another, and rank 1 with none of them; step 1 is the newest that was equal everywhere",
        failed_at_ms=60,
        detail="w",
        step=2,
        suspect_from_step=2,
    )


def test_host_that_does_not_answer_leaves_the_fingerprints_to_speak():
    """What the others say names the tensor, if they differ; who is wrong is known anyway."""
    silent = verdict(WATCH)
    assert (silent.hosts, silent.detail) == (("h1",), "")
    assert "what they must hold alike" in silent.reason
    partly = verdict(WATCH, held(names={0: {"w": "a"}, 1: {"w": "x"}}))
    assert (partly.hosts, partly.action, partly.detail) == (("h1",), Action.REPLACE, "w")


def test_nobody_is_replaced_for_a_tie():
    """The run goes back all the same."""
    tie = verdict(PAIR)
    assert (tie.action, tie.hosts, tie.suspect_from_step) == (Action.RESTART, ("h0", "h1"), 2)
    assert tie.reason.startswith("inconclusive, so nobody is replaced")


def test_tie_that_an_earlier_process_found_is_broken_by_the_step_that_is_made_again():
    """Whoever had what comes out now was right; without the tie nothing is said."""
    tie = verdict(PAIR)
    (kept,) = tie.ties
    assert (kept.step, kept.suspected_hosts, kept.work) == (2, {"h0", "h1"}, False)
    again = replace(PAIR, restore_step=1)
    for ties, hosts in (((kept,), [("h1",)]), ((replace(kept, work=True),), []), ((), [])):
        other = Corrupting()
        other.remember(ties)
        assert [one.hosts for one in tell(other, again, 2)] == hosts
    assert verdict(WATCH).ties == ()


def test_suspect_whose_host_does_not_answer_stays_one():
    """Two against two: the tensors of three of them tell less than the fingerprints of all."""
    four = tuple(WatchedHost(host_id=f"h{n}", ranks=(n,)) for n in range(4))
    watch = replace(WATCH, hosts=four, layout=Layout(dp_replicate=4))
    one = Corrupting()
    tell(one, watch, 1)
    tell(one, watch, 2, {1: 7, 2: 7})
    (found,) = one.take()
    told = held(names={0: {"w": "a"}, 1: {"w": "x"}, 2: {"w": "x"}})
    tie = one.verdict(found, told, watch, 60)
    assert (tie.hosts, tie.detail) == (("h0", "h1", "h2", "h3"), "w")


def test_tie_is_decided_by_work_that_came_out_otherwise():
    """The rank that another one has refuted."""
    one = Corrupting(refuted={1})
    tell(one, PAIR, 1)
    tell(one, PAIR, 2, ODD)
    (found,) = one.take()
    decided = one.verdict(found, {}, PAIR, 60)
    assert (decided.action, decided.hosts) == (Action.REPLACE, ("h1",))


def test_note_makes_nothing_suspect_and_ends_when_all_is_equal():
    """Said, and no more."""
    noted = replace(WATCH, corruption=CorruptionRules(on_corruption="note"))
    assert verdict(noted).action is Action.NOTE
    assert verdict(noted).suspect_from_step == 0
    one = Corrupting()
    tell(one, noted, 1)
    tell(one, noted, 2, ODD)
    assert tell(one, noted, 3) == [
        SettleNote(job_id="j", kind="silent_corruption", lost_ms=0, lost_steps=0, at_ms=50)
    ]


def test_what_was_never_equal_is_noted_once():
    """Along which dimension, and that it is not compared."""
    one = Corrupting()
    (said,) = tell(one, WATCH, 1, {0: 1, 1: 2})
    assert (said.kind, said.action) == ("never_equal", Action.NOTE)
    assert "along dp_replicate" in said.reason
    assert tell(one, WATCH, 2, {0: 1, 1: 2}) == []


def test_what_was_never_equal_is_not_forgotten_by_later_generations():
    """Seeds 73077, 73425: they took what they began with for sound, and replaced host after host.

    Not even by another process, and when the note has long been closed.
    """
    one = Corrupting()
    (said,) = tell(one, WATCH, 1, {0: 1})
    noted = IncidentOpened(
        incident_id="i1", job_id="j", generation=1, kind=said.kind, action=said.action
    )
    closed = IncidentRecovered(
        incident_id="i1", job_id="j", recovered_at_ms=9, lost_ms=0, lost_steps=0
    )
    watch = reduce(evolve, [noted, closed], WATCH)
    later = replace(watch, generation=2, restore_step=5)
    new = Corrupting()
    assert tell(one, later, 6, {0: 1}) == []
    assert [verdict.kind for verdict in tell(new, later, 6, {0: 1})] == ["never_equal"]
    assert one.take() == new.take() == []


@pytest.mark.parametrize(
    "watch",
    [
        replace(WATCH, corruption=CorruptionRules()),
        replace(WATCH, placed=False),
        replace(WATCH, hosts=HOSTS[:2]),
    ],
    ids=["off", "not placed", "of another size than its layout"],
)
def test_job_that_is_not_compared_says_nothing(watch: Watch):
    """Whatever its ranks show."""
    one = Corrupting()
    tell(one, watch, 1)
    tell(one, watch, 2, ODD)
    assert one.take() == []


def test_finding_of_an_older_generation_is_forgotten():
    """Nobody asks for what its ranks held."""
    one = Corrupting()
    tell(one, WATCH, 1)
    tell(one, WATCH, 2, ODD)
    one.begin(replace(WATCH, generation=2, placed=False))
    assert one.take() == []


# ---- what the decider makes of a second doubt

JOBS = spec(AGGREGATE)
TIE = OpenIncident(
    incident_id="i1",
    job_id="j",
    generation=1,
    kind="silent_corruption",
    hosts=("h0", "h1"),
    action=Action.RESTART,
    reason="inconclusive",
    detected_at_ms=1_000,
    suspect_from_step=7,
)
RULES = CorruptionRules(on_corruption="replace", suspicion_half_life_ms=100_000)
SUBMITTED = JobMarked(job_id="j", generation=0, mark=Mark.SUBMITTED, corruption=RULES)
BEGUN_2 = JobMarked(job_id="j", generation=2, mark=Mark.BEGUN)


def opened(generation: int, *hosts: str, at_ms: int) -> IncidentOpened:
    """A doubt from before."""
    return IncidentOpened(
        incident_id="i0",
        job_id="j",
        generation=generation,
        kind="silent_corruption",
        hosts=hosts,
        action=Action.RESTART,
        detected_at_ms=at_ms,
    )


def decided(at_ms: int, *before: IncidentOpened, **changes) -> IncidentOpened:
    """Return the incident that a tie of h0 and h1 becomes in generation 2."""
    tie = replace(TIE, generation=2, detected_at_ms=at_ms, **changes)
    (event,) = JOBS.given(SUBMITTED, *before, BEGUN_2).when(tie).decision.events
    assert isinstance(event, IncidentOpened)
    return event


def test_second_doubt_names_the_common_host():
    """Within a half-life; the suspect steps stay."""
    event = decided(90_000, opened(1, "h1", "h2", at_ms=1_000))
    assert (event.action, event.hosts) == (Action.REPLACE, ("h1",))
    assert event.suspect_from_step == 7
    assert "h1 was among the suspects before" in event.reason


def test_doubt_of_another_job_counts_as_one_of_this():
    """It is the host's; and fades as any other."""
    elsewhere = (Doubt(hosts=("h1", "h2"), at_ms=1_000),)
    event = decided(90_000, elsewhere=elsewhere)
    assert (event.action, event.hosts) == (Action.REPLACE, ("h1",))
    assert "h1 was among the suspects before in another job" in event.reason
    assert decided(110_000, elsewhere=elsewhere).action is Action.RESTART
    same = (Doubt(hosts=("h0", "h1"), at_ms=1_000),)
    assert decided(90_000, elsewhere=same).action is Action.RESTART


KEPT = Tie(
    step=7,
    layout=Layout(dp_replicate=2),
    suspects=(0, 1),
    claims=(
        Claim(what="over 1", whose=0, rank=0, host_id="h0", value=2**64 - 1),
        Claim(what="over 1", whose=0, rank=1, host_id="h1", value=1),
    ),
)
FOUND = TieFound(job_id="j", generation=1, tie=KEPT, at_ms=1_000)


def test_tie_is_stored_with_its_incident_as_it_was():
    """Also numbers beyond what other readers of JSON take."""
    begun = JobMarked(job_id="j", generation=1, mark=Mark.BEGUN)
    known = JOBS.given(SUBMITTED, begun)
    found, opened_ = known.when(replace(TIE, ties=(KEPT,))).decision.events
    assert (found, opened_.incident_id) == (FOUND, "i1")
    assert known.state.ties == ()
    stored = CODEC.encode(FOUND)
    assert CODEC.decode(*stored) == FOUND
    assert JOBS.given(SUBMITTED, begun, FOUND, opened_).state.ties == (KEPT,)


def test_tie_of_more_ranks_than_fit_into_a_message_is_not_stored():
    """It is none of two."""
    many = replace(KEPT, claims=KEPT.claims * (CLAIMS_STORED_MAX // 2 + 1))
    begun = JobMarked(job_id="j", generation=1, mark=Mark.BEGUN)
    (event,) = JOBS.given(SUBMITTED, begun).when(replace(TIE, ties=(many,))).decision.events
    assert isinstance(event, IncidentOpened)


@pytest.mark.parametrize(("host", "left"), [("h1", ()), ("h2", (KEPT,))])
def test_tie_is_over_once_one_of_its_hosts_was_named(host: str, left: tuple[Tie, ...]):
    """For whatever step; a host that was not in it leaves it open."""
    named = replace(opened(2, host, at_ms=5_000), action=Action.DRAIN)
    assert JOBS.given(SUBMITTED, FOUND, named).state.ties == left


def test_doubt_that_has_faded_names_nobody():
    """Nor does the same pair again."""
    faded = decided(110_000, opened(1, "h1", "h2", at_ms=1_000))
    assert (faded.action, faded.hosts) == (Action.RESTART, ("h0", "h1"))
    same = decided(90_000, opened(1, "h0", "h1", at_ms=1_000))
    assert (same.action, same.hosts) == (Action.RESTART, ("h0", "h1"))
