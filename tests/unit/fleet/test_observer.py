import pytest

from everstep.checkpoint_registry.events import Holder, RestoreLaidOut, Shard
from everstep.controller.events import GenerationBegun
from everstep.core.placement import HostPlacement, Layout, Placement
from everstep.core.ports import StoredEvent
from everstep.fleet.cadence import Cadence
from everstep.fleet.copies import Copies, Stored
from everstep.fleet.ledger import Ledger
from everstep.fleet.observer import BrokenInvariantError, Observer
from everstep.host_inventory.events import HostCordoned, HostUncordoned, JobPlaced


class Looking:
    """An observer, and what it looks at."""

    def __init__(self):
        cadence = Cadence(step_ms=1_000, object_every=10)
        self.copies, self.ledger = Copies(cadence, 3), Ledger(cadence)
        self.observer = Observer(self.ledger, self.copies, lambda: 7, None)

    def see(self, event):
        """Show it an event."""
        self.observer.see(
            StoredEvent(
                position=1, stream="s", version=1, event_id="e", type="x.v1",
                data={"event": event}, metadata={}, recorded_at_ms=0,
            )
        )  # fmt: skip


def _placed(*host_ids):
    seats = tuple(HostPlacement(host_id=host, ranks=(i,)) for i, host in enumerate(host_ids))
    return JobPlaced(
        job_id="sim", generation=1, replacements=(), at_ms=0,
        placement=Placement(layout=Layout(dp_shard=len(seats)), hosts=seats),
    )  # fmt: skip


def _plan(step, *, holders=False, shards=False):
    return RestoreLaidOut(
        job_id="sim", generation=2, step=step, world_size=1, shards_generation=1, at_ms=0,
        holders=(
            (Holder(host_id="a", address="a", peer_port=1, generation=1, own=(0,), replicas=()),)
            if holders
            else ()
        ),
        shards=(Shard(rank=0, uri="u", bytes=0, checksum=""),) if shards else (),
    )  # fmt: skip


def test_generations_follow_one_another():
    """None is left out, none comes twice."""
    looking = Looking()
    looking.see(GenerationBegun(job_id="sim", generation=1, cause="launch"))
    with pytest.raises(BrokenInvariantError, match="7 ms: generation 3 follows 1"):
        looking.see(GenerationBegun(job_id="sim", generation=3, cause="recovery"))


def test_host_with_two_seats_is_noticed():
    """No host is in two places."""
    with pytest.raises(BrokenInvariantError, match="two seats"):
        Looking().see(_placed("a", "b", "a"))


def test_cordoned_host_that_is_placed_is_noticed():
    """Only until it is uncordoned."""
    looking = Looking()
    looking.see(HostCordoned(host_id="b", reason="lost", incident_id="", at_ms=0))
    with pytest.raises(BrokenInvariantError, match=r"cordoned hosts are placed: \['b'\]"):
        looking.see(_placed("a", "b"))
    looking.see(HostUncordoned(host_id="b", at_ms=0))
    looking.see(_placed("a", "b"))


def test_restore_of_what_is_nowhere_is_noticed():
    """From an incomplete checkpoint, or from memory that does not hold the step."""
    looking = Looking()
    looking.copies.stored.append(Stored(generation=1, step=10, completed_ms=0, world_size=1))
    looking.see(_plan(-1))
    looking.see(_plan(10, shards=True))
    for plan in (_plan(20, shards=True), _plan(10, holders=True), _plan(10)):
        with pytest.raises(BrokenInvariantError, match="which is in no"):
            looking.see(plan)


def test_time_without_a_cause_is_noticed():
    """The ledger sums after every event."""
    looking = Looking()
    looking.ledger.at_ms += 1
    with pytest.raises(BrokenInvariantError, match="causes sum to 0 ms and 1 ms have passed"):
        looking.see(GenerationBegun(job_id="sim", generation=1, cause="launch"))
