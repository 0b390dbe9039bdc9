"""Work that is placed once more, to be compared, is given to other hosts."""

from __future__ import annotations

from dataclasses import replace

from tests.unit.host_inventory.fleet import FLEET_SPEC, hosts, join, joined, place, placed, ranks_of

from everstep.core.placement import Layout

PIPELINE = Layout(pp=2, tp=2)


def turned(given, turn: int, layout: Layout = PIPELINE) -> dict[str, tuple[int, ...]]:
    """Return who gets which ranks."""
    return ranks_of(placed(given, replace(place(layout=layout), turn=turn)).placement)


def test_two_hosts_change_places():
    """Each stage is made by the one that did not make it before; in two pods as in one."""
    for pods in ({"a": ["a1", "a2"]}, {"a": ["a1"], "b": ["a2"]}):
        given = FLEET_SPEC.given(*hosts(pods))
        assert turned(given, 0) == {"a1": (0, 1), "a2": (2, 3)}
        assert turned(given, 1) == {"a2": (0, 1), "a1": (2, 3)}


def test_spare_hosts_that_were_not_there_before_are_taken_next():
    """A group that fits one host goes to another; with one host only it stays."""
    given = FLEET_SPEC.given(*hosts({"a": ["a1", "a2", "a3"]}))
    assert [turned(given, turn, Layout(tp=2)) for turn in range(4)] == [
        {"a1": (0, 1)},
        {"a2": (0, 1)},
        {"a3": (0, 1)},
        {"a1": (0, 1)},
    ]
    assert turned(given, 1) == {"a2": (0, 1), "a3": (2, 3)}
    alone = FLEET_SPEC.given(*hosts({"a": ["a1"]}))
    assert turned(alone, 1, Layout(tp=2)) == {"a1": (0, 1)}


def test_host_that_is_too_small_for_a_seat_is_passed_over():
    """And where the seats themselves differ they stay as they are."""
    small = joined(join("a0", pod="a", chips=1))
    given = FLEET_SPEC.given(*hosts({"a": ["a1", "a2"]}), small)
    assert turned(given, 1) == {"a2": (0, 1), "a1": (2, 3)}
    mixed = FLEET_SPEC.given(joined(join("big", chips=4)), joined(join("small", chips=2)))
    wide = Layout(pp=3, tp=2)
    assert turned(mixed, 1, wide) == turned(mixed, 0, wide)


def test_copies_go_to_the_hosts_of_the_new_order():
    """The seat's address is its host's."""
    given = FLEET_SPEC.given(*hosts({"a": ["a1", "a2"]}))
    placement = placed(given, replace(place(layout=PIPELINE), turn=1)).placement
    assert [(one.host_id, one.address) for one in placement.hosts] == [
        ("a2", "a2.net"),
        ("a1", "a1.net"),
    ]
    assert [one.replica_host_id for one in placement.hosts] == ["a1", "a2"]
