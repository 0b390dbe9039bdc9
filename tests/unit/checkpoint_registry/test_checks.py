"""What reading a checkpoint again has shown: bad objects are not restored, whole ones are again."""

from __future__ import annotations

from dataclasses import replace

from tests.unit.checkpoint_registry.words import HISTORY, ask, facts, host, own, shard, sources

from everstep.checkpoint_registry.commands import Known, NoteCheck
from everstep.checkpoint_registry.events import (
    CheckpointChecked,
    Removal,
    RemovalsDecided,
    SourceDistrusted,
)
from everstep.checkpoint_registry.retention import Reason, removals, unusable
from everstep.checkpoint_registry.state import damage_in_words

BAD = CheckpointChecked(
    job_id="job",
    step=20,
    generation=1,
    bad_ranks=(1,),
    whole=True,
    why="rank 1: there is no such object",
    by="ann",
    at_ms=7,
)
SOUND = replace(BAD, bad_ranks=(), why="", at_ms=8)
TOLD = NoteCheck(
    job_id="job",
    step=20,
    generation=1,
    bad_ranks=(1,),
    whole=True,
    why="rank 1: there is no such object",
    by="ann",
    at_ms=7,
    phase="complete",
    world_size=2,
)
REFUSED = SourceDistrusted(
    job_id="job",
    generation=2,
    rank=0,
    step=20,
    host_id="",
    uri=shard(0, step=20).uri,
    detail="checksum expected a, got b",
    at_ms=5,
)


def outlook(*events, **request):
    """Step, sources, and what was passed over, of a plan after these events."""
    decision = HISTORY.given(*events).when(ask(generation=3, **request)).decision
    laid_out, planned = decision.events
    return laid_out.step, sources(laid_out), planned.passed_over


def test_damage_is_noted_once():
    """Told again by a client that did not hear the answer: it is already so."""
    HISTORY.when(TOLD).then(BAD)
    HISTORY.given(BAD).when(TOLD).then()


def test_damaged_checkpoint_is_passed_over_with_who_said_so():
    """An older one serves; the plan says who found what."""
    step, found, passed_over = outlook(BAD, checkpoints=[facts(10), facts(20)])
    assert (step, found) == (10, [["object"], ["object"]])
    assert passed_over == (
        (
            "step 20: its checkpoint is damaged: ann found the object of rank 1 bad "
            "(rank 1: there is no such object)"
        ),
    )


def test_damaged_checkpoint_still_serves_beside_memory():
    """The rank whose object is bad has the step in memory; the other takes its good object."""
    decision = (
        HISTORY.given(BAD)
        .when(ask(host("h1", own(1, 20)), checkpoints=[facts(20)], generation=3))
        .decision
    )
    laid_out, planned = decision.events
    assert sources(laid_out) == [["object"], ["own h1"]]
    assert planned.passed_over == ()


def test_damaged_checkpoint_is_spoilt_until_it_is_found_whole():
    """Also what a host could not use counts no longer: all of it has been read since."""
    known = Known(step=20, generation=1, complete=True)
    assert unusable(known, HISTORY.given(BAD).state) is Reason.SPOILT
    assert unusable(known, HISTORY.given(REFUSED).state) is Reason.SPOILT
    whole = HISTORY.given(REFUSED, BAD, SOUND).state
    assert unusable(known, whole) is None
    assert whole.distrusted == ()
    assert outlook(REFUSED, BAD, SOUND, checkpoints=[facts(10), facts(20)])[0] == 20


def test_damaged_checkpoint_stays_until_it_is_older_than_what_is_kept():
    """The look may have been wrong; it is not counted among the good ones meanwhile."""
    newer = [Known(step=step, generation=1, complete=True) for step in (20, 30, 40, 50)]
    history = HISTORY.given(BAD).state
    assert removals([Known(step=10, generation=1, complete=True), *newer[:3]], history) == ()
    assert removals(newer, history) == (Removal(step=20, generation=1, why="spoilt"),)
    newest = HISTORY.given(replace(BAD, step=50)).state
    assert removals(newer, newest) == ()


def test_looks_alone_give_up_nothing_however_many_there_are():
    """Whoever looked may sit behind a bad disk: all that there is may be whole."""
    steps = (10, 20, 30, 40, 50, 60)
    looks = [replace(BAD, step=step) for step in steps]
    known = [Known(step=step, generation=1, complete=True) for step in steps]
    assert removals(known, replace(HISTORY.given(*looks).state, keep_last=1)) == ()


def test_host_that_could_not_use_an_object_after_the_look_counts():
    """It was found whole, and has gone bad since."""
    assert outlook(SOUND, REFUSED, checkpoints=[facts(10), facts(20)])[0] == 10


def test_look_at_a_part_adds_to_what_is_known_and_clears_nothing():
    """It has not read the others."""
    part = replace(TOLD, whole=False, bad_ranks=(0,), at_ms=9, why="cut")
    both = replace(BAD, whole=False, bad_ranks=(0, 1), at_ms=9, why="cut")
    HISTORY.given(BAD).when(part).then(both)
    HISTORY.given(BAD).when(replace(part, bad_ranks=())).then()
    HISTORY.given(BAD).when(replace(part, bad_ranks=(1,))).then()
    kept = HISTORY.given(REFUSED, replace(both, bad_ranks=(1,))).state
    assert kept.distrusted == (REFUSED,)


def test_older_look_that_comes_late_clears_nothing():
    """Somebody has looked again since, and found damage."""
    late = replace(TOLD, bad_ranks=(), why="", at_ms=6)
    HISTORY.given(BAD).when(late).then()
    HISTORY.given(SOUND).when(TOLD).then(BAD)


def test_look_at_what_is_not_there_is_refused():
    """In the words in which pins and words about it are."""
    HISTORY.when(replace(TOLD, phase="")).then_rejected("no_such_checkpoint")
    HISTORY.when(replace(TOLD, phase="stored")).then_rejected("not_complete")
    HISTORY.when(replace(TOLD, phase="purged")).then_rejected("deleted")
    HISTORY.when(replace(TOLD, bad_ranks=(2,))).then_rejected("bad_rank")


def test_look_at_a_checkpoint_goes_with_it():
    """There is one for each that is there."""
    removal = RemovalsDecided(
        job_id="job", removals=(Removal(step=20, generation=1, why="spoilt"),), at_ms=9
    )
    assert HISTORY.given(BAD, removal).state.checks == ()


def test_many_bad_ranks_are_named_in_one_sentence():
    """Eight of them."""
    many = replace(BAD, bad_ranks=tuple(range(10)), why="")
    assert damage_in_words(many) == (
        "ann found the objects of ranks 0, 1, 2, 3, 4, 5, 6, 7 and 2 more bad"
    )
    assert damage_in_words(SOUND) == ""
