"""The newest snapshot that was equal everywhere stays until somebody has decided."""

from __future__ import annotations

from everstep.memory.gate import HOLD_STEPS_MAX, Gate


def opens(gate: Gate, step: int, equal: bool | None, *, held: int | None = None) -> bool:
    """Ask at a step about the snapshot of the one before."""
    held_step = step - 1 if held is None else held
    return gate.opens(step, held_step=held_step, compared=True, equal=equal)


def test_equal_snapshots_go_on():
    """And the newest one is on record."""
    gate = Gate(hold=True)
    assert all(opens(gate, step, True) for step in range(2, 6))
    assert gate.verified_step == 4


def test_discord_keeps_the_snapshot_before():
    """For as long as it lasts, and no longer than somebody may need."""
    gate = Gate(hold=True)
    assert opens(gate, 5, True)
    assert not opens(gate, 6, False)
    assert not opens(gate, 5 + HOLD_STEPS_MAX, False, held=5)
    assert gate.verified_step == 4
    assert opens(gate, 6 + HOLD_STEPS_MAX, False, held=5)
    assert opens(gate, 7 + HOLD_STEPS_MAX, False)


def test_what_was_never_equal_holds_nothing_up():
    """It is not what must be equal."""
    gate = Gate(hold=True)
    assert all(opens(gate, step, False) for step in range(2, 6))
    assert opens(gate, 7, True)
    assert not opens(gate, 8, False)


def test_snapshot_that_is_not_whole_everywhere_is_waited_for():
    """What it shows is not known yet."""
    gate = Gate(hold=True)
    assert not opens(gate, 5, None)
    assert opens(gate, 6, True, held=4)


def test_snapshot_without_fingerprints_verifies_nothing():
    """Steps that are not compared pass."""
    gate = Gate(hold=True)
    assert gate.opens(5, held_step=4, compared=False, equal=True)
    assert gate.verified_step == -1


def test_who_only_notes_holds_nothing_up():
    """Whatever is found."""
    gate = Gate(hold=False)
    assert all(opens(gate, step, equal) for step, equal in enumerate((True, False, None, False)))
