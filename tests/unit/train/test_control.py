"""What follows for all ranks from the sum of their votes."""

import math

import pytest

from everstep.core.errors import InvalidInput
from everstep.core.schedule import Schedule
from everstep.train.control import Agreement, Vote, tally


def agreed(*votes: Vote) -> Agreement:
    """Sum the votes as the collective does."""
    words = [sum(column) for column in zip(*(vote.words() for vote in votes), strict=True)]
    return tally(words, len(votes), votes[0])


def test_votes_add_up_to_norm_mean_loss_and_tokens():
    """Squares add, the loss is the mean over ranks that have one, tokens add."""
    result = agreed(
        Vote(squared_norm=9.0, tokens=100),
        Vote(squared_norm=16.0, loss=2.0),
        Vote(loss=4.0, tokens=50),
    )
    assert result == Agreement(
        grad_norm=5.0,
        loss=3.0,
        tokens=150,
        skip=False,
        save=False,
        stop=False,
        replicated=True,
        durable_free=True,
        schedule=Schedule(memory_every_steps=0),
    )


@pytest.mark.parametrize(
    "vote",
    [
        Vote(squared_norm=math.nan),
        Vote(squared_norm=math.inf),
        Vote(loss=math.nan),
        Vote(loss=-math.inf),
    ],
)
def test_one_non_finite_rank_makes_all_skip(vote):
    """A poisoned gradient or loss anywhere is seen everywhere."""
    assert agreed(Vote(squared_norm=1.0, loss=1.0), vote).skip


def test_finite_squares_that_overflow_together_are_skipped():
    """The sum itself may overflow."""
    assert agreed(Vote(squared_norm=1e308), Vote(squared_norm=1e308)).skip


def test_one_request_counts_for_all_and_one_missing_replica_too():
    """Saving and stopping need one voice; replication needs every rank."""
    result = agreed(Vote(save=True), Vote(stop=True), Vote(replicated=False, durable_busy=True))
    assert (result.save, result.stop) == (True, True)
    assert (result.replicated, result.durable_free) == (False, False)


def test_loss_that_nobody_has_is_nan():
    """No loss is not a loss of zero."""
    assert math.isnan(agreed(Vote(), Vote()).loss)


@pytest.mark.parametrize("first", [False, True])
def test_rank_that_has_returned_while_others_train_ends_the_step_before_it_is_applied(first):
    """Its last vote would be added to their gradients: a wrong norm, and so a wrong update."""
    votes = [Vote(step=7, finishing=True), Vote(step=7), Vote(step=7)]
    with pytest.raises(InvalidInput, match="1 of 3 ranks have returned from the entry point"):
        agreed(*(votes if first else reversed(votes)))
    assert not agreed(*[Vote(step=7, finishing=True)] * 3).skip


def test_ranks_at_different_steps_do_not_agree_on_anything():
    """One has called step() more often than the others."""
    with pytest.raises(InvalidInput, match="this rank has completed 7 steps, all together 15"):
        agreed(Vote(step=7), Vote(step=8))


@pytest.mark.parametrize("speaker", [0, 1, 2])
def test_schedule_that_one_rank_says_holds_for_all(speaker):
    """The others say nothing, so whatever they have heard makes no difference."""
    schedule = Schedule(version=7, memory_every_steps=2, object_every_steps=900)
    votes = [Vote(schedule=schedule if rank == speaker else None) for rank in range(3)]
    assert agreed(*votes).schedule == schedule
