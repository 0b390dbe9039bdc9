"""What ranks show, step after step: what is missing, what is late, and what was never equal."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from hypothesis import given, settings
from hypothesis import strategies as st

from everstep.core.placement import Layout
from everstep.monitor.detectors.corruption_course import (
    LATE_STEPS,
    CorruptionCourse,
    Equal,
    Found,
    NeverEqual,
    Said,
)
from everstep.monitor.detectors.remade import Broken

LAYOUT = Layout(dp_replicate=3)
HOSTS = ("h0", "h1", "h2")


@dataclass(frozen=True)
class Print:
    """A fingerprint."""

    value: int
    over: int = 1


@dataclass(frozen=True)
class Rank:
    """What a rank tells."""

    rank: int
    step: int
    fingerprints: tuple[Print, ...]
    compared_step: int
    verified_step: int = 0


def course(*, generation: int = 1, restored: int = 0) -> CorruptionCourse:
    """One that has just begun."""
    found = CorruptionCourse()
    found.begin(generation, LAYOUT, HOSTS)
    found.resumed(generation, restored)
    return found


def tell(
    one: CorruptionCourse,
    step: int,
    odd: Mapping[int, int] | None = None,
    *,
    ranks: tuple[int, ...] = (0, 1, 2),
    compared: int | None = None,
    verified: int = 0,
    generation: int = 1,
) -> list[Said]:
    """Let every host tell of a step, one after the other."""
    said: list[Said] = []
    at = step if compared is None else compared
    for rank in ranks:
        value = (odd or {}).get(rank, 1_000 + at)
        shown = Rank(rank, step, (Print(value),), at, verified)
        said += one.told(generation, [shown])
    return said


def only(said: list[Said]) -> Found:
    """Return the one finding."""
    (found,) = said
    assert isinstance(found, Found)
    return found


def test_equal_steps_say_nothing_and_are_sound():
    """The newest of them is where a run would go back to."""
    one = course()
    assert [tell(one, step) for step in range(1, 5)] == [[]] * 4
    assert one.sound_step == 4


def test_rank_that_differs_is_found_with_the_step_before_as_the_sound_one():
    """As soon as all have told."""
    one = course()
    tell(one, 1)
    found = only(tell(one, 2, {1: 7}))
    assert (found.step, found.sound_step, found.suspect_from_step) == (2, 1, 2)
    assert (found.blame.ranks, found.blame.hosts, found.blame.certain) == ((1,), ("h1",), True)
    assert found.holders == (0, 1, 2)


def test_missing_report_is_waited_for_and_told_again():
    """Ranks hold the step, and say the same with the next one."""
    one = course()
    tell(one, 1)
    assert tell(one, 2, {1: 7}, ranks=(0, 1)) == []
    found = only(tell(one, 3, {1: 7}, ranks=(2,), compared=2))
    assert (found.step, found.blame.hosts, found.blame.certain) == (2, ("h1",), True)


def test_host_that_stays_silent_is_not_waited_for_for_ever():
    """Two of three differ, and nobody can say who is right."""
    one = course()
    tell(one, 1)
    said = [tell(one, step, {1: 7}, ranks=(0, 1), compared=2) for step in range(2, 9)]
    (found,) = [only(some) for some in said if some]
    assert (found.blame.hosts, found.blame.certain) == (("h0", "h1"), False)
    assert said.index([found]) == LATE_STEPS


def test_step_that_was_told_of_in_part_is_no_proof():
    """Those that told agree: that is not all."""
    one = course()
    tell(one, 1)
    for step in range(2, 9):
        tell(one, step, ranks=(0, 2))
    assert one.sound_step == 1


def test_monitor_that_begins_late_hears_it_all_from_the_ranks():
    """The step is long held, and the ranks say which one was sound."""
    one = course(generation=3, restored=2)
    found = only(tell(one, 40, {2: 7}, compared=10, verified=9, generation=3))
    assert (found.step, found.sound_step, found.blame.hosts) == (10, 9, ("h2",))


def test_steps_without_a_snapshot_are_passed_over():
    """Fingerprints of the same step again are no news."""
    one = course()
    assert tell(one, 2) == []
    assert tell(one, 3, {1: 7}, compared=2) == []
    assert only(tell(one, 4, {1: 7})).sound_step == 2


def test_what_was_never_equal_is_said_once_and_blames_nobody():
    """Each rank keeps something of its own there."""
    one = course()
    odd = {0: 1, 1: 2, 2: 3}
    assert tell(one, 1, odd) == [NeverEqual(step=1, over=(1,))]
    assert tell(one, 2, odd) == []
    assert one.sound_step == 2


def test_equal_again_ends_what_was_found():
    """A note is settled by it."""
    one = course()
    tell(one, 1)
    only(tell(one, 2, {1: 7}))
    assert tell(one, 3) == [Equal(step=3)]
    assert tell(one, 4) == []


def test_older_generation_says_nothing():
    """What its ranks held is over."""
    one = course(generation=2)
    assert tell(one, 5, {1: 7}, generation=1) == []


def test_new_generation_goes_on_from_what_was_sound():
    """Its first step differs: the state that it went on from was compared before."""
    one = course()
    for step in range(1, 5):
        tell(one, step)
    one.begin(2, LAYOUT, HOSTS)
    one.resumed(2, 4)
    assert only(tell(one, 5, {0: 7}, generation=2)).sound_step == 4


def test_what_was_sound_after_the_restored_step_is_another_history():
    """Those steps are made again."""
    one = course()
    for step in range(1, 9):
        tell(one, step)
    one.begin(2, LAYOUT, HOSTS)
    one.resumed(2, 4)
    assert one.sound_step == 4
    assert only(tell(one, 5, {0: 7}, generation=2)).sound_step == 4


def test_restored_state_that_nobody_has_compared_is_suspect_too():
    """It may be what is wrong: else the run would go back to it again and again."""
    one = course()
    tell(one, 1)
    one.begin(2, LAYOUT, HOSTS)
    one.resumed(2, 6)
    assert only(tell(one, 7, {0: 7}, generation=2)).sound_step == 1


def test_monitor_and_ranks_that_are_both_new_doubt_what_was_restored():
    """Nobody has seen it equal; nobody has ever said that it is not what must be."""
    one = CorruptionCourse()
    one.begin(2, LAYOUT, HOSTS)
    one.resumed(2, 32, proved=True)
    found = only(tell(one, 33, {0: 7}, generation=2))
    assert (found.blame.hosts, found.sound_step) == (("h0",), 31)


def test_generation_that_is_not_placed_is_not_compared():
    """Nor a job that has switched it off."""
    one = course()
    one.begin(2, LAYOUT, ())
    assert tell(one, 5, {1: 7}, generation=2) == []


@given(st.permutations(range(3)), st.integers(0, 2))
@settings(deadline=None)
def test_order_of_hosts_does_not_matter(order: list[int], wrong: int):
    """Whoever tells last."""
    one = course()
    tell(one, 1)
    found = only(tell(one, 2, {wrong: 7}, ranks=tuple(order)))
    assert found.blame.ranks == (wrong,)


def two(generation: int = 1, hosts: tuple[str, ...] = HOSTS[:2]) -> CorruptionCourse:
    """A course of two replicas."""
    one = CorruptionCourse()
    one.begin(generation, Layout(dp_replicate=2), hosts)
    one.resumed(generation, 0)
    return one


def again(one: CorruptionCourse, step: int, hosts: tuple[str, ...] = HOSTS[:2]) -> None:
    """Go back to a step, in the next generation."""
    one.begin(one.generation + 1, Layout(dp_replicate=2), hosts)
    one.resumed(one.generation, step)


def test_tie_is_told_by_the_step_that_is_made_again():
    """Both agree this time, with what one of them had before."""
    one = two()
    tell(one, 1, ranks=(0, 1))
    found = only(tell(one, 2, {1: 7}, ranks=(0, 1)))
    assert (found.blame.certain, found.blame.hosts) == (False, ("h0", "h1"))
    again(one, 1)
    (broken,) = [s for s in tell(one, 2, ranks=(0, 1), generation=2) if isinstance(s, Broken)]
    assert (broken.step, broken.ranks, broken.host) == (2, (1,), "h1")
    assert tell(one, 3, ranks=(0, 1), generation=2) == []
    assert one.sound_step == 3


def test_tie_that_comes_again_names_who_does_not_repeat_himself():
    """The run goes back once more, without that host."""
    one = two()
    tell(one, 1, ranks=(0, 1))
    tell(one, 2, {1: 7}, ranks=(0, 1))
    again(one, 1)
    found = only(tell(one, 2, {1: 8}, ranks=(0, 1), generation=2))
    assert (found.blame.certain, found.blame.hosts) == (True, ("h1",))
    assert "did not come to the same bits" in found.blame.reason


def test_tie_that_comes_again_alike_stays_one_and_is_looked_at_anew():
    """Wrong each time alike: it is the third time that tells, if it comes out otherwise."""
    one = two()
    tell(one, 1, ranks=(0, 1))
    tell(one, 2, {1: 7}, ranks=(0, 1))
    again(one, 1)
    found = only(tell(one, 2, {1: 7}, ranks=(0, 1), generation=2))
    assert not found.blame.certain
    again(one, 1)
    said = tell(one, 2, ranks=(0, 1), generation=3)
    assert [s.host for s in said if isinstance(s, Broken)] == ["h1"]


def test_majority_needs_no_second_time():
    """What was certain leaves no tie behind."""
    one = course()
    tell(one, 1)
    assert only(tell(one, 2, {1: 7})).blame.certain
    one.begin(2, LAYOUT, HOSTS)
    one.resumed(2, 1)
    assert [s for s in tell(one, 2, generation=2) if isinstance(s, Broken)] == []
