"""Which steps are shadowed, and who is paired with whom in them."""

from __future__ import annotations

import pytest

from everstep.core.rounds import AGAIN_STEPS, Rounds


def shadowed(rounds: Rounds, steps: int, *, differs=frozenset(), asked=frozenset()) -> list[int]:
    """Return the steps that are shadowed, as numbers of completed ones."""
    found = []
    for step in range(steps):
        due = rounds.due(step)
        if due:
            found.append(step + 1)
            rounds.next_shift()
        rounds.agreed(shadowed=due, differs=step + 1 in differs, asked=step + 1 in asked)
    return found


def rounds_of(every: int, replicas: int = 4) -> Rounds:
    """Rounds that begin with neighbours."""
    return Rounds(every=every, replicas=replicas, first_shift=0)


def test_every_so_many_steps():
    """0: never."""
    assert shadowed(rounds_of(5), 16) == [5, 10, 15]
    assert shadowed(rounds_of(0), 16) == []


def test_difference_has_the_next_steps_shadowed_and_no_more_than_those():
    """One that stays would double the run's time."""
    for_ever = set(range(30))
    once = [5, *(5 + n for n in range(1, AGAIN_STEPS + 1)), 10, 15]
    assert shadowed(rounds_of(5), 16, differs={5}) == once
    assert shadowed(rounds_of(20), 30, differs=for_ever) == [20, 21, 22]


def test_whoever_asks_has_the_next_step_shadowed():
    """Also where none is due by itself."""
    assert shadowed(rounds_of(0), 16, asked={7}) == [8]
    assert shadowed(rounds_of(5), 11, asked={4}) == [5, 10]
    assert shadowed(rounds_of(5), 11, asked={5}) == [5, 6, 10]


def test_group_that_is_alone_makes_its_own_work_again():
    """There is nobody else to compare with."""
    rounds = rounds_of(5, replicas=1)
    assert [rounds.next_shift() for _ in range(3)] == [0, 0, 0]
    assert shadowed(rounds, 11) == [5, 10]


def test_two_that_differ_each_make_their_own_work_again():
    """And are paired as before when the next one is due."""
    rounds = rounds_of(5, replicas=2)
    assert rounds.next_shift() == 1
    rounds.agreed(shadowed=True, differs=True, asked=False)
    for _ in range(AGAIN_STEPS):
        assert rounds.due(0)
        assert rounds.next_shift() == 0
        rounds.agreed(shadowed=True, differs=True, asked=False)
    assert rounds.next_shift() == 1


@pytest.mark.parametrize("replicas", [2, 3, 5])
def test_pairings_are_rotated_through_all_others(replicas: int):
    """And never with oneself."""
    rounds = rounds_of(1, replicas)
    shifts = [rounds.next_shift() for _ in range(2 * (replicas - 1))]
    assert shifts == 2 * list(range(1, replicas))
