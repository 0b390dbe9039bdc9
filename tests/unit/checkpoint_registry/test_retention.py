from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.checkpoint_registry.words import HISTORY, ask, facts

from everstep.checkpoint_registry.commands import Known
from everstep.checkpoint_registry.events import CheckpointPinned
from everstep.checkpoint_registry.lineage import Restart, lineage_of
from everstep.checkpoint_registry.retention import (
    UNSEEN_ROUNDS,
    Reason,
    Removal,
    removals,
    unseen_steps,
    unusable,
)
from everstep.checkpoint_registry.state import History, evolve_history
from everstep.core.spec import parse_spec


def done(step: int, generation: int = 1) -> Known:
    """Return a complete checkpoint."""
    return Known(step=step, generation=generation, complete=True)


def open_(step: int, generation: int = 1) -> Known:
    """Return one that is not complete."""
    return Known(step=step, generation=generation, complete=False)


def test_the_last_few_complete_checkpoints_are_kept():
    """Three unless the job's spec says otherwise; what goes is the oldest."""
    known = [done(40), done(10), done(30), done(20), done(50)]
    assert removals(known, History()) == (
        Removal(step=10, generation=1, why=Reason.RETENTION),
        Removal(step=20, generation=1, why=Reason.RETENTION),
    )
    assert removals(known, History(keep_last=5)) == ()


def test_incomplete_checkpoints_do_not_count():
    """A failed upload must not push a good checkpoint out."""
    assert removals([done(10), open_(20), open_(30), open_(40)], History(keep_last=1)) == ()


def test_the_last_good_one_is_never_deleted():
    """Even if somebody asks for none to be kept."""
    assert removals([done(10)], History(keep_last=0)) == ()


def test_incomplete_checkpoint_older_than_all_that_are_kept_goes():
    """Its missing shards will not come any more."""
    known = [open_(10), done(20), open_(25), done(30)]
    assert removals(known, History(keep_last=2)) == (
        Removal(step=10, generation=1, why=Reason.SUPERSEDED),
    )


def test_incomplete_checkpoint_of_a_dead_generation_goes_when_a_newer_one_is_complete():
    """Nobody may report to it any more."""
    history = History(newest_generation=2, keep_last=2)
    known = [done(10), open_(20), done(30, 2), open_(40, 2)]
    assert removals(known, history) == (Removal(step=20, generation=1, why=Reason.SUPERSEDED),)


def test_checkpoint_that_is_being_read_back_is_not_superseded():
    """All of it is stored: it is judged as the others once it is complete."""
    history = History(newest_generation=2, keep_last=2)
    whole = replace(open_(20), stored=2, world_size=2)
    half = replace(open_(20), stored=1, world_size=2)
    others = [done(10), done(30, 2)]
    assert removals([whole, *others], history) == ()
    assert removals([half, *others], history) == (
        Removal(step=20, generation=1, why=Reason.SUPERSEDED),
    )
    assert removals([replace(whole, complete=True), *others], history) == (
        Removal(step=10, generation=1, why=Reason.RETENTION),
    )


def test_abandoned_branch_goes_once_the_present_history_has_enough():
    """Until then somebody may want to go back to it; it never counts as good."""
    history = History(keep_last=2, lineage=lineage_of([Restart(generation=2, step=15)]))
    branch = [done(10), done(20), done(30)]
    assert removals(branch, history) == ()
    assert removals([*branch, done(20, 2)], history) == (
        Removal(step=20, generation=1, why=Reason.ABANDONED),
        Removal(step=30, generation=1, why=Reason.ABANDONED),
    )


def test_only_a_few_abandoned_ones_wait_beside_fewer_good_ones_than_are_kept():
    """A job that goes back again and again must not fill the store; the ends say most."""
    history = History(keep_last=2, lineage=lineage_of([Restart(generation=2, step=15)]))
    branch = [done(step) for step in (10, 20, 30, 40, 50, 60, 70)]
    assert removals(branch, history) == (
        Removal(step=40, generation=1, why=Reason.ABANDONED),
        Removal(step=50, generation=1, why=Reason.ABANDONED),
    )
    pinned = CheckpointPinned(job_id="job", step=50, generation=1, note="", by="ann", at_ms=1)
    assert removals(branch, evolve_history(history, pinned)) == (
        Removal(step=40, generation=1, why=Reason.ABANDONED),
    )


def test_step_of_an_abandoned_branch_is_unusable_though_complete():
    """The same step of the generation that went back is another state, and usable."""
    history = History(lineage=lineage_of([Restart(generation=2, step=15)]))
    known = [done(10), done(20), open_(30), done(20, 2)]
    assert [unusable(one, history) for one in known] == [
        None,
        Reason.ABANDONED,
        Reason.ABANDONED,
        None,
    ]


def test_checkpoint_that_ranks_are_loading_is_kept():
    """The newest plan goes on from it."""
    command = ask(from_step=10, checkpoints=[facts(10), facts(20)])
    history = HISTORY.given(*HISTORY.when(command).decision.events).state
    history = replace(history, keep_last=1, lineage=lineage_of([]))
    assert removals([done(10), done(20)], history) == ()


@given(
    st.lists(
        st.builds(
            Known,
            step=st.integers(0, 9),
            generation=st.integers(1, 4),
            complete=st.booleans(),
        ),
        unique_by=lambda known: (known.step, known.generation),
    ),
    st.integers(0, 3),
    st.lists(st.tuples(st.integers(2, 4), st.integers(-1, 9)), unique_by=lambda r: r[0]),
)
def test_what_a_restore_would_take_is_never_removed(known, keep_last, restarts):
    """The newest complete checkpoints of the present history stay; doing it twice does nothing."""
    lineage = lineage_of(Restart(generation=g, step=s) for g, s in restarts)
    history = History(keep_last=keep_last, lineage=lineage, newest_generation=4)
    gone = {(r.step, r.generation) for r in removals(known, history)}
    left = [k for k in known if (k.step, k.generation) not in gone]
    good = [k for k in known if k.complete and lineage.holds(generation=k.generation, step=k.step)]
    newest = sorted(good, key=lambda k: (k.step, k.generation))[-max(keep_last, 1) :]
    assert all(k in left for k in newest)
    assert removals(left, history) == ()


@pytest.mark.parametrize(
    ("recompute", "audit", "every"), [(0, 0, 0), (8, 0, 8), (0, 2, 60), (8, 2, 8), (400, 2, 60)]
)
def test_wrong_work_is_found_when_every_rank_has_been_looked_at_again(recompute, audit, every):
    """A shadow step looks at all of them, an audit at one of three replicas, every 20 steps."""
    spec = parse_spec(
        {
            "name": "j",
            "entry": "a:b",
            "layout": {"dp_replicate": 3},
            "steps": 1_000,
            "checkpoint": {"object_every_steps": 10},
            "corruption": {"recompute_every_steps": recompute, "audit_every_checkpoints": audit},
        }
    )
    assert unseen_steps(spec) == UNSEEN_ROUNDS * every
