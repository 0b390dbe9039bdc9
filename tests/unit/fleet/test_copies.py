from everstep.core.placement import HostPlacement, Layout, Placement
from everstep.fleet.cadence import Cadence
from everstep.fleet.copies import Copies

CADENCE = Cadence(step_ms=1_000, memory_every=1, replicate_ms=500, object_every=10, upload_ms=2_000)
PLACEMENT = Placement(
    layout=Layout(dp_shard=2),
    hosts=(
        HostPlacement(host_id="a", ranks=(0,), replica_host_id="b"),
        HostPlacement(host_id="b", ranks=(1,), replica_host_id="a"),
    ),
)
SMALLER = Placement(layout=Layout(dp_shard=1), hosts=(HostPlacement(host_id="b", ranks=(0,)),))


def _told(copies, *hosts):
    return {
        holdings.host_id: [(h.own, h.generation, h.step, h.ranks) for h in holdings.held]
        for holdings in copies.held(hosts)
    }


def _copies():
    """Of a job that runs on its two hosts."""
    copies = Copies(CADENCE, 3)
    copies.placed(1, PLACEMENT)
    return copies


def test_host_tells_its_own_two_steps_and_its_peers():
    """The newest step is not at the peer yet."""
    copies = _copies()
    copies.ended(generation=1, first=0, trained_ms=5_300, at_ms=5_300)
    assert _told(copies, "a") == {
        "a": [
            (True, 1, 4, (0,)), (True, 1, 5, (0,)), (False, 1, 4, (1,)),
        ],
    }  # fmt: skip


def test_wiped_host_tells_only_what_later_generations_wrote():
    """What it held is gone; one that writes again has something to tell."""
    copies = _copies()
    copies.wiped("a", 2)
    copies.ended(generation=1, first=0, trained_ms=5_500, at_ms=5_500)
    assert _told(copies, "a") == {"a": []}
    copies.placed(2, PLACEMENT)
    copies.ended(generation=2, first=5, trained_ms=1_500, at_ms=9_000)
    assert _told(copies, "a") == {"a": [(True, 2, 6, (0,)), (False, 2, 6, (1,))]}
    assert len(_told(copies, "b")["b"]) == 3


def test_what_is_newer_than_the_restored_step_is_dropped():
    """In memory and in the object store."""
    copies = _copies()
    copies.ended(generation=1, first=0, trained_ms=24_000, at_ms=24_000)
    assert [stored.step for stored in copies.stored] == [10, 20]
    copies.resumed(10)
    assert [stored.step for stored in copies.stored] == [10]
    assert _told(copies, "a", "b") == {"a": [], "b": []}


def test_checkpoints_are_kept_by_number_and_by_the_hour():
    """A month of training does not pile up checkpoints."""
    copies = _copies()
    month_ms = 30 * 86_400_000
    copies.ended(generation=1, first=0, trained_ms=month_ms, at_ms=month_ms)
    assert len(copies.stored) <= 3 + 48
    newest = [stored.step for stored in copies.stored[-3:]]
    last = (month_ms - 2_000) // 10_000 * 10
    assert newest == [last - 20, last - 10, last]


def test_ranks_that_a_copy_is_of_are_those_of_the_generation_that_wrote_it():
    """A job that shrinks to one host leaves copies of two ranks behind, and one of them there."""
    copies = _copies()
    copies.ended(generation=1, first=0, trained_ms=5_500, at_ms=5_500)
    copies.placed(2, SMALLER)
    copies.seated([], 2)
    assert _told(copies, "a", "b") == {
        "a": [(True, 1, 4, (0,)), (True, 1, 5, (0,)), (False, 1, 5, (1,))],
        "b": [(True, 1, 4, (1,)), (True, 1, 5, (1,)), (False, 1, 5, (0,))],
    }
    copies.ended(generation=2, first=5, trained_ms=10_000, at_ms=20_000)
    assert _told(copies, "a", "b") == {
        "a": [],
        "b": [(True, 2, 14, (0,)), (True, 2, 15, (0,))],
    }
    assert copies.stored[-1].world_size == 1


def test_new_host_keeps_what_it_writes_from_then_on():
    """Joining takes what was there before the generation that it joins with, not its seat."""
    copies = _copies()
    copies.ended(generation=1, first=0, trained_ms=5_500, at_ms=5_500)
    copies.placed(2, PLACEMENT)
    copies.seated(["a"], 2)
    copies.ended(generation=2, first=5, trained_ms=1_500, at_ms=9_000)
    assert _told(copies, "a") == {"a": [(True, 2, 6, (0,)), (False, 2, 6, (1,))]}
