from everstep.planner.history import Spell
from everstep.planner.history_spells import WINDOW, Timed, spells_in


def steps(*times_ms):
    """Steps one after the other."""
    done, at_ms = [], 0
    for took_ms in times_ms:
        at_ms += took_ms
        done.append(Timed(done_ms=at_ms, took_ms=took_ms))
    return done


def test_spell_is_found_with_its_begin_its_end_and_its_factor():
    """Twenty steps of 1.5 s among steps of 1 s; they took 10 s longer in all."""
    spells, slow_ms = spells_in(steps(*[1_000] * 30, *[1_500] * 20, *[1_000] * 30))
    assert spells == (Spell(begin_ms=30_000, end_ms=60_000, factor=1.5),)
    assert slow_ms == 10_000


def test_single_slow_steps_are_no_spell():
    """A save every tenth step, and five slow ones in a row, are less than half a window."""
    saves = [1_000 if i % 10 else 3_000 for i in range(80)]
    assert spells_in(steps(*saves)) == ((), 0)
    assert spells_in(steps(*[1_000] * 30, *[3_000] * (WINDOW // 2), *[1_000] * 30)) == ((), 0)


def test_pace_within_a_twentieth_of_the_usual_is_no_spell():
    """Sound hosts differ as much."""
    assert spells_in(steps(*[1_000] * 30, *[1_049] * 20, *[1_000] * 30)) == ((), 0)
    assert spells_in(steps(*[1_000] * 30, *[1_050] * 20, *[1_000] * 30))[0]


def test_spells_apart_are_two():
    """Each with its own factor."""
    times = [*[1_000] * 30, *[2_000] * 15, *[1_000] * 30, *[3_000] * 15]
    spells, slow_ms = spells_in(steps(*times))
    assert [spell.factor for spell in spells] == [2.0, 3.0]
    assert slow_ms == 15_000 + 30_000


def test_few_steps_have_no_spells():
    """There is nothing usual to compare with."""
    assert spells_in(steps(*[1_000] * 5, *[9_000] * 5)) == ((), 0)
