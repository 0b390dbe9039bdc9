"""What retention never takes, against a reference that asks each rule of each checkpoint."""

from __future__ import annotations

from dataclasses import replace
from functools import reduce

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.checkpoint_registry.test_trust import said, suspected
from tests.unit.checkpoint_registry.words import HISTORY, ask, facts, planned

from everstep.checkpoint_registry.commands import Known, PinCheckpoint, ThinOut, UnpinCheckpoint
from everstep.checkpoint_registry.events import (
    CheckpointPinned,
    CheckpointUnpinned,
    GenerationNoted,
    Removal,
    RemovalsDecided,
    RestoreLaidOut,
    SuspicionEnded,
    TrustDecided,
)
from everstep.checkpoint_registry.retention import DAY_MS, Reason, removals
from everstep.checkpoint_registry.state import History, evolve_history
from everstep.checkpoint_registry.trust import Trust

NOON = DAY_MS // 2


def done(step: int, *, day: int = 0, generation: int = 1) -> Known:
    """A complete checkpoint of some day."""
    return Known(
        step=step, generation=generation, complete=True, completed_ms=day * DAY_MS + NOON + step
    )


def pinned(step: int, generation: int = 1, note: str = "") -> CheckpointPinned:
    """A pin."""
    return CheckpointPinned(
        job_id="job", step=step, generation=generation, note=note, by="ann", at_ms=3
    )


def laid_out(generation: int, step: int) -> RestoreLaidOut:
    """The sources of a plan."""
    return RestoreLaidOut(
        job_id="job",
        generation=generation,
        step=step,
        world_size=2,
        holders=(),
        shards=(),
        shards_generation=1,
        at_ms=5,
    )


def pin(step: int, *, phase: str = "complete", note: str = "") -> PinCheckpoint:
    """The same as a command."""
    return PinCheckpoint(
        job_id="job", step=step, generation=1, note=note, by="ann", at_ms=3, phase=phase
    )


UNPINNED = CheckpointUnpinned(job_id="job", step=10, generation=1, by="ann", at_ms=4)
UNPIN = UnpinCheckpoint(job_id="job", step=10, generation=1, by="ann", at_ms=4)


def gone(
    known, *events, keep_last: int = 1, keep_days: int = 0, unseen_steps: int = 0
) -> list[int]:
    """The steps that go after these events."""
    history = replace(
        HISTORY.given(*events).state,
        keep_last=keep_last,
        keep_days=keep_days,
        unseen_steps=unseen_steps,
    )
    return [one.step for one in removals(known, history)]


def test_newest_of_each_of_the_last_days_is_kept():
    """Days are UTC days on which one was completed; a pause does not count."""
    known = [done(step, day=day) for step, day in ((1, 0), (2, 0), (3, 1), (4, 9), (5, 9), (6, 9))]
    assert gone(known, keep_days=2) == [1, 2, 4, 5]
    assert gone(known, keep_days=3) == [1, 4, 5]
    assert gone(known, keep_days=0) == [1, 2, 3, 4, 5]


def test_oldest_of_each_of_the_last_stretches_in_which_wrong_work_may_go_unseen_is_kept():
    """Seed 86314: three saves in six steps took the last sound one, just before it was missed."""
    known = [done(step) for step in (8, 10, 20, 24, 25, 30)]
    assert gone(known, keep_last=3) == [8, 10, 20]
    assert gone(known, keep_last=3, unseen_steps=20) == [10]
    later = [done(step) for step in (10, 25, 39, 40, 59, 61, 62, 63)]
    assert gone(later, unseen_steps=20) == [10, 39, 59, 62]


def test_day_ends_at_midnight_utc():
    """A checkpoint a millisecond later is of another day."""
    last = Known(step=1, generation=1, complete=True, completed_ms=DAY_MS - 1)
    first = Known(step=2, generation=1, complete=True, completed_ms=DAY_MS)
    known = [last, first, done(3, day=1)]
    assert gone(known, keep_days=2) == [2]


def test_pinned_one_stays_until_it_is_unpinned():
    """Even if it is of an abandoned branch."""
    known = [done(10), done(20), done(30)]
    assert gone(known, pinned(10)) == [20]
    assert gone(known, pinned(10), UNPINNED) == [10, 20]
    assert gone([done(10), done(40), done(41, generation=2)], pinned(40), planned(2, 20)) == [10]


def test_step_that_a_person_goes_back_to_is_kept_until_there_is_a_plan():
    """The generation may wait for hosts for hours, and newer steps become complete meanwhile."""
    known = [done(step) for step in (50, 60, 70, 80)]
    back = GenerationNoted(job_id="job", generation=2, at_ms=5, from_step=50)
    assert gone(known, back, keep_last=3) == []
    assert gone(known, laid_out(1, 50), laid_out(1, 70), back, keep_last=3) == []
    assert gone(known, back, laid_out(2, 80), keep_last=3) == [50]
    further = GenerationNoted(job_id="job", generation=3, at_ms=6)
    assert gone(known, back, further, keep_last=3) == [50]


def test_one_before_each_open_numerical_incident_is_kept():
    """Until it is resolved, somebody may want to go back there."""
    known = [done(step) for step in (10, 20, 30, 40, 50)]
    events = (suspected(33, 34, number=1), suspected(22, 24, number=2))
    assert gone(known, *events) == [10, 40]
    over = SuspicionEnded(
        job_id="job", suspicion_id="i1", outcome="recovered", why="", by="monitor", at_ms=6
    )
    assert gone(known, *events, over) == [10, 30, 40]


def test_suspect_ones_are_not_counted_and_wait_until_their_incident_is_resolved():
    """A person may clear them; then they are as good as others."""
    known = [done(step) for step in (10, 20, 30, 40, 50, 60)]
    assert gone(known, suspected(25), keep_last=1) == [10, 40, 50]
    assert gone(known, suspected(25), keep_last=2) == []
    over = SuspicionEnded(
        job_id="job", suspicion_id="i1", outcome="recovered", why="", by="monitor", at_ms=6
    )
    assert gone(known, suspected(25), over, keep_last=2) == [30, 40, 50, 60]
    assert gone(known, suspected(25), said("clean", 60), keep_last=2) == [10]


def test_oldest_and_newest_bad_ones_stay_while_nothing_is_good():
    """They may be all that there is, and must not fill the store either."""
    known = [done(step) for step in (10, 20, 30, 40, 50)]
    assert gone(known, suspected(0)) == [20, 30, 40]
    assert gone(known, suspected(0), keep_last=2) == [30]
    assert gone([done(10), done(40), done(41, generation=2)], planned(3, 5)) == [40]


def test_only_a_few_suspects_wait_beside_fewer_good_ones_than_are_kept():
    """A run that trains on after an incident must not fill the store with them."""
    early = [done(10), *(done(step) for step in range(30, 101, 10))]
    assert gone(early, suspected(25), keep_last=3) == [60, 70]
    assert gone([done(5), *early], suspected(25), keep_last=3) == [60, 70]
    assert gone(early, suspected(25), pinned(60), keep_last=3) == [70]


def test_resolved_suspects_wait_only_while_fewer_good_ones_are_there_than_are_kept():
    """They are the next best; those that may still be cleared stay beside them."""
    over = SuspicionEnded(
        job_id="job", suspicion_id="i1", outcome="recovered", why="", by="monitor", at_ms=6
    )
    known = [done(step) for step in range(10, 101, 10)]
    events = (suspected(25, 65, number=1), over, suspected(70, number=2))
    assert gone(known, *events, keep_last=2) == [30, 40, 50, 60]
    assert gone(known[1:], *events, keep_last=2) == [50, 60]


def test_what_was_given_up_is_not_counted_as_kept():
    """Another registry may have read the list before it was deleted."""
    given_up = RemovalsDecided(
        job_id="job", removals=(Removal(step=30, generation=1, why="spoilt"),), at_ms=5
    )
    assert gone([done(10), done(20), done(30)], given_up) == [10]


def test_thinning_out_decides_once():
    """Two registries decide on one history: the second finds that it is so."""
    command = ThinOut(job_id="job", known=tuple(done(step) for step in (1, 2, 3, 4)), at_ms=5)
    going = (Removal(step=1, generation=1, why=Reason.RETENTION.value),)
    event = RemovalsDecided(job_id="job", removals=going, at_ms=5)
    HISTORY.when(command).then(event)
    HISTORY.given(event).when(command).then()


def test_plan_passes_over_what_was_given_up():
    """Its objects may be gone before they are read."""
    given_up = RemovalsDecided(
        job_id="job", removals=(Removal(step=20, generation=1, why="retention"),), at_ms=5
    )
    command = ask(checkpoints=[facts(10), facts(20)])
    laid_out, decided = HISTORY.given(given_up).when(command).decision.events
    assert laid_out.step == 10
    assert decided.passed_over == ("step 20: its checkpoint is being deleted",)


def test_plan_says_what_an_unfinished_upload_lacks():
    """A newer step would have served if all of it were there."""
    missing = Known(step=30, generation=1, complete=False, stored=1, world_size=2)
    unread = Known(step=40, generation=1, complete=False, stored=2, world_size=2)
    command = replace(ask(checkpoints=[facts(10)]), unfinished=(missing, unread))
    _, decided = HISTORY.when(command).decision.events
    assert decided.passed_over == (
        "step 40: its checkpoint is still being read back",
        "step 30: of its checkpoint only 1 of 2 objects are stored",
    )


def test_pin_is_decided_once_and_a_new_note_replaces_the_old_one():
    """The same again is already so, and so is a pin without a note."""
    HISTORY.when(pin(10)).then(pinned(10))
    HISTORY.given(pinned(10)).when(pin(10)).then()
    HISTORY.given(pinned(10)).when(pin(10, note="paper")).then(pinned(10, note="paper"))
    assert HISTORY.given(pinned(10), pinned(10, note="paper")).state.pins == (
        pinned(10, note="paper"),
    )
    HISTORY.given(pinned(10, note="paper")).when(pin(10)).then()
    HISTORY.given(pinned(10)).when(UNPIN).then(UNPINNED)
    HISTORY.when(UNPIN).then()


@pytest.mark.parametrize(
    ("phase", "why"),
    [
        ("", "no_such_checkpoint"),
        ("collecting", "not_complete"),
        ("stored", "not_complete"),
        ("deleted", "deleted"),
        ("purged", "deleted"),
    ],
)
def test_only_a_complete_checkpoint_is_pinned(phase, why):
    """A pin promises that it is there."""
    HISTORY.when(pin(10, phase=phase)).then_rejected(why)


def test_checkpoint_that_was_given_up_is_not_pinned():
    """Retention was first; the pin says so, and why."""
    given_up = RemovalsDecided(
        job_id="job", removals=(Removal(step=10, generation=1, why="retention"),), at_ms=5
    )
    refused = HISTORY.given(given_up).when(pin(10))
    refused.then_rejected("deleted")
    assert "was deleted (retention)" in refused.decision.detail


KNOWN = st.lists(
    st.builds(
        Known,
        step=st.integers(0, 9),
        generation=st.integers(1, 3),
        complete=st.sampled_from([True, True, True, False]),
        completed_ms=st.integers(0, 3 * DAY_MS - 1),
    ),
    unique_by=lambda known: (known.step, known.generation),
    max_size=10,
)
EVENTS = st.lists(
    st.one_of(
        st.builds(pinned, st.integers(0, 9), st.integers(1, 3)),
        st.builds(
            suspected,
            st.integers(0, 9),
            st.just(-1),
            generation=st.integers(1, 3),
            number=st.integers(1, 2),
        ),
        st.just(
            SuspicionEnded(
                job_id="job", suspicion_id="i1", outcome="recovered", why="", by="m", at_ms=1
            )
        ),
        st.builds(said, st.sampled_from(list(Trust)), st.integers(0, 9)),
        st.builds(planned, st.integers(2, 3), st.integers(-1, 9)),
        st.builds(
            GenerationNoted,
            job_id=st.just("job"),
            generation=st.integers(1, 3),
            at_ms=st.just(1),
            from_step=st.integers(-1, 9),
        ),
        st.builds(
            lambda step, generation: RemovalsDecided(
                job_id="job", removals=(Removal(step=step, generation=generation, why=""),), at_ms=1
            ),
            st.integers(0, 9),
            st.integers(1, 3),
        ),
    ),
    max_size=6,
)


def ids(known) -> set[tuple[int, int]]:
    """Steps with generations."""
    return {(one.step, one.generation) for one in known}


def protected(known, history: History, keep_last: int, keep_days: int) -> set[tuple[int, int]]:
    """What must stay, rule by rule."""
    there = [k for k in known if (k.step, k.generation) not in history.removed_ids]
    good = sorted(
        (
            (k.step, k.generation, k.completed_ms)
            for k in there
            if k.complete
            and history.lineage.holds(generation=k.generation, step=k.step)
            and history.judge(generation=k.generation, step=k.step).trust != Trust.SUSPECT
        ),
    )
    stay = {(step, generation) for step, generation, _ in good[-max(keep_last, 1) :]}
    days = sorted({at_ms // DAY_MS for _, _, at_ms in good})
    for day in days[-keep_days:] if keep_days else []:
        stay.add(max(one for one in good if one[2] // DAY_MS == day)[:2])
    for one in history.beliefs.suspicions:
        before = [found for found in good if found[0] < one.from_step]
        if not one.ending and before:
            stay.add(before[-1][:2])
    stay |= {(k.step, k.generation) for k in there if k.step == history.wanted_step}
    return stay | (ids(there) & {(p.step, p.generation) for p in history.pins})


@settings(max_examples=500)
@given(KNOWN, EVENTS, st.integers(0, 3), st.integers(0, 3))
def test_what_a_rule_protects_is_never_removed_and_all_other_good_ones_are(
    known, events, keep_last, keep_days
):
    """The last good one, the pinned, the days', and those before incidents; nothing twice."""
    history = replace(
        reduce(evolve_history, events, History()), keep_last=keep_last, keep_days=keep_days
    )
    stay = protected(known, history, keep_last, keep_days)
    decided = removals(known, history)
    assert not ids(decided) & stay
    assert not ids(decided) & history.removed_ids
    left = [k for k in known if (k.step, k.generation) not in ids(decided)]
    good = [
        k
        for k in left
        if k.complete
        and (k.step, k.generation) not in history.removed_ids
        and history.lineage.holds(generation=k.generation, step=k.step)
        and history.judge(generation=k.generation, step=k.step).trust != Trust.SUSPECT
    ]
    assert ids(good) == ids(good) & stay
    assert removals(left, history) == ()
    again = RemovalsDecided(job_id="job", removals=decided, at_ms=1)
    assert removals(known, evolve_history(history, again)) == ()


@given(KNOWN, EVENTS, st.integers(1, 3), st.integers(0, 3), st.integers(0, 9), st.integers(1, 3))
def test_asking_for_more_to_be_kept_never_removes_more(
    known, events, keep_last, keep_days, step, generation
):
    """A longer rule or a pin only adds."""
    history = replace(
        reduce(evolve_history, events, History()), keep_last=keep_last, keep_days=keep_days
    )
    before = ids(removals(known, history))
    more_days = replace(history, keep_days=keep_days + 1)
    assert ids(removals(known, more_days)) <= before
    with_pin = evolve_history(history, pinned(step, generation))
    assert ids(removals(known, with_pin)) <= before


def test_word_of_a_person_counts_for_what_is_kept():
    """A step that was said to be suspect is no good one to fall back to."""
    word = TrustDecided(
        job_id="job", step=30, generation=1, trust="suspect", why="", by="ann", at_ms=1
    )
    assert gone([done(10), done(20), done(30)], word) == [10, 30]
