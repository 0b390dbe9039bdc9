from everstep.core.placement import HostPlacement, Layout, Placement
from everstep.fleet.cadence import Cadence
from everstep.fleet.copies import Copies, keepers

CADENCE = Cadence(step_ms=1_000, memory_every=1, replicate_ms=500, object_every=10, upload_ms=2_000)
PLACEMENT = Placement(
    layout=Layout(dp_shard=2),
    hosts=(
        HostPlacement(host_id="a", ranks=(0,), replica_host_id="b"),
        HostPlacement(host_id="b", ranks=(1,), replica_host_id="a"),
    ),
)
SEATS = {seat.host_id: seat for seat in PLACEMENT.hosts}


def _told(copies, *hosts):
    return {
        holdings.host_id: [(h.own, h.generation, h.step, h.ranks) for h in holdings.held]
        for holdings in copies.held(hosts, SEATS, keepers(PLACEMENT))
    }


def test_host_tells_its_own_two_steps_and_its_peers():
    """The newest step is not at the peer yet."""
    copies = Copies(CADENCE, 3)
    copies.ended(generation=1, first=0, trained_ms=5_300, at_ms=5_300)
    assert _told(copies, "a") == {
        "a": [
            (True, 1, 4, (0,)), (True, 1, 5, (0,)), (False, 1, 4, (1,)),
        ],
    }  # fmt: skip


def test_wiped_host_tells_only_what_later_generations_wrote():
    """What it held is gone; one that writes again has something to tell."""
    copies = Copies(CADENCE, 3)
    copies.wiped("a", 2)
    copies.ended(generation=1, first=0, trained_ms=5_500, at_ms=5_500)
    assert _told(copies, "a") == {"a": []}
    copies.ended(generation=2, first=5, trained_ms=1_500, at_ms=9_000)
    assert _told(copies, "a") == {"a": [(True, 2, 6, (0,)), (False, 2, 6, (1,))]}
    assert len(_told(copies, "b")["b"]) == 3


def test_what_is_newer_than_the_restored_step_is_dropped():
    """In memory and in the object store."""
    copies = Copies(CADENCE, 3)
    copies.ended(generation=1, first=0, trained_ms=24_000, at_ms=24_000)
    assert [stored.step for stored in copies.stored] == [10, 20]
    copies.resumed(10)
    assert [stored.step for stored in copies.stored] == [10]
    assert _told(copies, "a", "b") == {"a": [], "b": []}


def test_checkpoints_are_kept_by_number_and_by_the_hour():
    """A month of training does not pile up checkpoints."""
    copies = Copies(CADENCE, 3)
    month_ms = 30 * 86_400_000
    copies.ended(generation=1, first=0, trained_ms=month_ms, at_ms=month_ms)
    assert len(copies.stored) <= 3 + 48
    newest = [stored.step for stored in copies.stored[-3:]]
    last = (month_ms - 2_000) // 10_000 * 10
    assert newest == [last - 20, last - 10, last]
