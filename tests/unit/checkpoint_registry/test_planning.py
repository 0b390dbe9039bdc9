from __future__ import annotations

from dataclasses import replace

import pytest
from tests.spec import Spec
from tests.unit.checkpoint_registry.words import (
    HISTORY,
    ask,
    copy_of,
    facts,
    host,
    own,
    past,
    shard,
    sources,
)

from everstep.checkpoint_registry.codec import plan_restore_reply
from everstep.checkpoint_registry.commands import NoteGeneration, NoteJob
from everstep.checkpoint_registry.events import (
    GenerationNoted,
    JobNoted,
    Removal,
    RemovalsDecided,
    RestoreLaidOut,
)
from everstep.core.placement import Layout
from everstep.service.handler import Handled
from everstep.wire.v1.checkpoints_pb2 import Holder, RestoreSources, Shard

H1 = host("h1", own(0, 16), own(0, 17), copy_of(1, 16), copy_of(1, 17))
H2 = host("h2", own(1, 16), own(1, 17), copy_of(0, 16), copy_of(0, 17))

ABANDONED = (
    "step 17: what generation 1 did there was abandoned when generation 2 went on from step 15"
)


def plan(given: Spec, command) -> RestoreLaidOut:
    """Return the plan in full."""
    return given.when(command).decision.events[0]


def told(given: Spec, command):
    """Return what is published of the plan: step, ranks by source, and what was passed over."""
    event = given.when(command).decision.events[1]
    return event.step, (event.own_memory, event.peer_memory, event.object_store), event.passed_over


def test_all_hosts_alive_restore_from_their_own_memory():
    """The newest step, with the peer's copy as the second source."""
    assert sources(plan(HISTORY, ask(H1, H2))) == [
        ["own h1", "peer h2"],
        ["own h2", "peer h1"],
    ]
    assert told(HISTORY, ask(H1, H2)) == (17, (2, 0, 0), ())


def test_what_a_host_tells_rank_by_rank_is_brought_together():
    """One holder a host and generation, wherever all hosts that have copies have their own too."""
    first = host("h1", own(0, 17), own(1, 17), copy_of(2, 17), copy_of(3, 17))
    second = host("h2", own(2, 17), own(3, 17), copy_of(0, 17), copy_of(1, 17))
    planned = plan(HISTORY, ask(first, second, world_size=4))
    assert [(one.host_id, one.own, one.replicas) for one in planned.holders] == [
        ("h1", (0, 1), (2, 3)),
        ("h2", (2, 3), (0, 1)),
    ]


def test_lost_hosts_rank_restores_from_its_replica():
    """One host gone: its rank comes from the peer, the other from its own memory."""
    assert sources(plan(HISTORY, ask(H2))) == [["peer h2"], ["own h2"]]
    assert told(HISTORY, ask(H2)) == (17, (1, 1, 0), ())


def test_step_that_a_rank_has_no_source_of_is_passed_over_and_said():
    """The newest common step is taken, with the reason for each newer one."""
    behind = host("h2", own(1, 16), own(1, 15))
    step, counts, passed_over = told(HISTORY, ask(host("h1", own(0, 16), own(0, 17)), behind))
    assert (step, counts) == (16, (2, 0, 0))
    assert passed_over == ("step 17: rank 1 has no source",)


def test_many_ranks_without_a_source_are_named_in_part():
    """A sentence stays a sentence at 16,384 ranks."""
    _, _, passed_over = told(
        HISTORY, ask(host("h1", own(0, 17)), world_size=20, checkpoints=[facts(10, world_size=20)])
    )
    assert passed_over == ("step 17: ranks 1, 2, 3, 4, 5, 6, 7, 8 and 11 more have no source",)


def test_owner_and_replica_lost_together_fall_back_to_the_object_store():
    """The newest complete checkpoint serves every rank."""
    command = ask(host("h3", own(2, 17)), world_size=4, checkpoints=[facts(10, world_size=4)])
    assert sources(plan(HISTORY, command)) == [["object"]] * 4
    assert told(HISTORY, command) == (
        10,
        (0, 0, 4),
        ("step 17: ranks 0, 1, 3 have no source",),
    )


def test_sources_are_mixed_at_one_step():
    """A checkpoint of a step that some ranks still hold in memory: each takes the nearest."""
    command = ask(host("h1", own(0, 20)), checkpoints=[facts(20)])
    assert sources(plan(HISTORY, command)) == [["own h1", "object"], ["object"]]
    assert told(HISTORY, command) == (20, (1, 0, 1), ())


def test_newer_memory_beats_an_older_checkpoint():
    """A lost step costs the whole fleet a step; the source costs seconds."""
    assert told(HISTORY, ask(H1, H2, checkpoints=[facts(10)]))[0] == 17


def test_newer_checkpoint_beats_older_memory():
    """The same the other way round."""
    assert told(HISTORY, ask(H1, H2, checkpoints=[facts(20)])) == (20, (0, 0, 2), ())


def test_nothing_anywhere_is_a_fresh_start():
    """A first launch: step -1 and no sources."""
    reply = reply_to(HISTORY, ask(generation=1))
    assert (reply.outcome.accepted, reply.step) == (True, -1)
    assert reply.sources == RestoreSources()


def test_memory_in_pieces_and_no_checkpoint_ever_is_a_fresh_start_that_says_why():
    """Nothing durable was promised yet, so starting over is honest, with the reason."""
    assert told(HISTORY, ask(host("h1", own(0, 3)))) == (
        -1,
        (0, 0, 0),
        ("step 3: rank 1 has no source",),
    )


def test_fresh_start_is_refused_when_a_checkpoint_was_completed():
    """Work that was promised to be kept is never silently thrown away."""
    command = ask(checkpoints=[facts(20, world_size=4)])
    HISTORY.when(command).then_rejected("no_source")
    assert "its checkpoint is of 4 ranks" in HISTORY.when(command).decision.detail


def test_from_step_takes_that_step_and_none_newer():
    """A person goes back on purpose."""
    assert told(HISTORY, ask(H1, H2, from_step=16)) == (16, (2, 0, 0), ())


def test_from_step_that_cannot_be_loaded_takes_the_next_older_one():
    """It exists in part: the plan says what was missing."""
    command = ask(host("h1", own(0, 17)), from_step=17, checkpoints=[facts(10)])
    assert told(HISTORY, command) == (10, (0, 0, 2), ("step 17: rank 1 has no source",))


@pytest.mark.parametrize("step", [0, 15, 18])
def test_from_step_that_does_not_exist_is_refused_with_those_that_do(step):
    """A typo must not go somewhere else."""
    command = ask(H1, H2, from_step=step, checkpoints=[facts(10)])
    HISTORY.when(command).then_rejected("no_such_step")
    assert "steps that exist: 17, 16, 10" in HISTORY.when(command).decision.detail


def test_snapshots_of_an_abandoned_branch_are_not_taken():
    """Generation 2 went on from 15: what generation 1 did at 16 and 17 is another history."""
    given = HISTORY.given(*past((1, -1), (2, 15)))
    new = host("h3", own(0, 16, 2), own(1, 16, 2))
    assert told(given, ask(H1, H2, new, generation=3)) == (
        16,
        (2, 0, 0),
        (ABANDONED,),
    )
    assert sources(plan(given, ask(H1, H2, new, generation=3))) == [["own h3"], ["own h3"]]


def test_generations_are_never_mixed_at_a_redone_step():
    """Rank 1 has step 16 of the old branch only: step 16 is not whole."""
    given = HISTORY.given(*past((1, -1), (2, 15)))
    command = ask(H2, host("h1", own(0, 16, 2), own(0, 15)), host("h3", own(1, 15)), generation=3)
    assert told(given, command)[0] == 15


def test_snapshot_that_a_later_generation_started_from_is_of_both():
    """Step 15 by generation 1 and by generation 2 is one state: they mix."""
    given = HISTORY.given(*past((1, -1), (2, 15)))
    command = ask(host("h1", own(0, 15, 2)), host("h2", own(1, 15, 1)), generation=3)
    assert told(given, command) == (15, (2, 0, 0), ())


def test_checkpoint_of_an_abandoned_branch_is_not_taken():
    """The same rule for the object store, and the refusal explains it."""
    given = HISTORY.given(*past((1, -1), (2, 15)))
    command = ask(generation=3, checkpoints=[facts(10), facts(20)])
    assert told(given, command)[0] == 10
    gone = ask(generation=3, from_step=20, checkpoints=[facts(20)])
    given.when(gone).then_rejected("no_such_step")
    assert "abandoned when generation 2" in given.when(gone).decision.detail


def test_newer_branch_is_preferred_when_both_checkpoints_are_valid():
    """Both generations wrote step 15; the newer one's is taken."""
    given = HISTORY.given(*past((1, -1), (2, 15)))
    command = ask(generation=3, checkpoints=[facts(15, generation=2), facts(15)])
    assert plan(given, command).shards == facts(15, generation=2).shards


def test_plan_asked_for_again_is_the_same_whatever_is_held_now():
    """The first answer was told to hosts already."""
    command = ask(H1, H2)
    given = HISTORY.given(*HISTORY.when(command).decision.events)
    other = ask(H2, checkpoints=[facts(20)])
    given.when(other).then()
    assert reply_to(given, other) == reply_to(HISTORY, command)


def test_plan_for_an_older_generation_is_refused():
    """Planned or begun: what is older is fenced."""
    given = HISTORY.given(*HISTORY.when(ask(H1, H2, generation=3)).decision.events)
    given.when(ask(H1, H2, generation=2)).then_rejected("stale_generation")
    begun = HISTORY.given(GenerationNoted(job_id="job", generation=3, at_ms=1))
    begun.when(ask(H1, H2, generation=2)).then_rejected("stale_generation")


@pytest.mark.parametrize(
    ("command", "why"),
    [
        (ask(job_id="a/b"), "bad_job_id"),
        (ask(generation=0), "bad_request"),
        (ask(world_size=0), "bad_request"),
        (ask(from_step=-2), "bad_request"),
    ],
)
def test_request_with_bad_input_is_refused(command, why):
    """Every mistake has its code."""
    HISTORY.when(command).then_rejected(why)


def test_ranks_outside_the_world_and_snapshots_of_the_future_are_ignored():
    """What cannot belong to the plan does not make a step look whole."""
    command = ask(host("h1", own(0, 17), own(7, 17), own(1, 17, 2)), checkpoints=[facts(10)])
    assert told(HISTORY, command)[0] == 10


def test_reply_says_where_to_reach_every_source():
    """Own memory names its host too: the rank may run elsewhere by now."""
    reply = reply_to(HISTORY, ask(host("h1", own(0, 20), copy_of(1, 20)), checkpoints=[facts(20)]))
    assert reply.sources == RestoreSources(
        holders=[
            Holder(
                host_id="h1",
                address="h1.net",
                peer_port=7000,
                generation=1,
                own=[0],
                replicas=[1],
            )
        ],
        shards=[Shard(rank=rank, uri=shard(rank).uri, checksum="aa", bytes=100) for rank in (0, 1)],
        shards_generation=1,
    )


def test_host_that_holds_a_step_of_two_generations_is_told_which_to_load():
    """The abandoned snapshot lies beside the good one, of the same rank and step."""
    given = HISTORY.given(*past((1, -1), (2, 15)))
    both = host("h1", own(0, 16, 1), own(0, 16, 2))
    (holder,) = reply_to(given, ask(both, generation=3, world_size=1)).sources.holders
    assert holder.generation == 2


def test_generation_is_noted_once_and_never_backwards():
    """Events of the controller may come twice and late."""
    note = NoteGeneration(job_id="job", generation=2, at_ms=5)
    noted = GenerationNoted(job_id="job", generation=2, at_ms=5)
    HISTORY.when(note).then(noted)
    HISTORY.when(replace(note, from_step=7)).then(replace(noted, from_step=7))
    HISTORY.given(noted).when(note).then()
    HISTORY.given(noted).when(NoteGeneration(job_id="job", generation=1, at_ms=9)).then()


def test_job_is_noted_once():
    """What the spec says of retention and layout."""
    note = NoteJob(job_id="job", keep_last=5, layout=Layout(tp=2), at_ms=5, unseen_steps=8)
    noted = JobNoted(job_id="job", keep_last=5, layout=Layout(tp=2), at_ms=5, unseen_steps=8)
    HISTORY.when(note).then(noted)
    HISTORY.given(noted).when(note).then()


def reply_to(given: Spec, command):
    """Answer as the shell does."""
    decision = given.when(command).decision
    return plan_restore_reply(
        Handled(
            state=given.given(*decision.events).state,
            version=1,
            events=decision.events,
            rejected=None,
        )
    )


def test_plan_from_before_a_step_leaves_newer_ones_out_and_says_so():
    """In memory and stored: the state may be bad from there on."""
    command = ask(H1, H2, checkpoints=[facts(10), facts(14)], before_step=14)
    step, counts, passed_over = told(HISTORY, command)
    assert (step, counts) == (10, (0, 0, 2))
    assert passed_over == tuple(
        f"step {step}: what is asked for is from before step 14" for step in (17, 16, 14)
    )


def test_snapshot_from_before_the_step_is_as_good_as_any():
    """What counts is the step, not where it lies."""
    command = ask(H1, H2, checkpoints=[facts(10)], before_step=17)
    assert told(HISTORY, command)[:2] == (16, (2, 0, 0))


def test_run_that_had_kept_nothing_before_the_step_begins_anew():
    """Its beginning is the only state that is sound, and not far."""
    command = ask(H1, H2, checkpoints=[facts(14)], before_step=14)
    assert told(HISTORY, command)[:2] == (-1, (0, 0, 0))


def test_run_whose_older_checkpoint_was_never_complete_begins_anew():
    """What was given up as superseded was no state to go back to; nobody could ever clear one."""
    removed = RemovalsDecided(
        job_id="job", removals=(Removal(step=5, generation=1, why="superseded"),), at_ms=3
    )
    command = ask(H1, H2, checkpoints=[facts(14)], before_step=14)
    assert told(HISTORY.given(removed), command)[:2] == (-1, (0, 0, 0))


def test_run_whose_older_checkpoints_are_gone_does_not_begin_anew():
    """Days of work would be thrown away without a word."""
    removed = RemovalsDecided(
        job_id="job", removals=(Removal(step=5, generation=1, why="keep_last"),), at_ms=3
    )
    command = ask(H1, H2, checkpoints=[facts(14)], before_step=14)
    HISTORY.given(removed).when(command).then_rejected("no_source")
    unusable = ask(H1, H2, checkpoints=[facts(5, world_size=1), facts(14)], before_step=14)
    HISTORY.when(unusable).then_rejected("no_source")
