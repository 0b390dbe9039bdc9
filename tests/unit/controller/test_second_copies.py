"""While a job waits for hosts, nothing that it has stays on one host only."""

from __future__ import annotations

from functools import reduce

from tests.unit.controller.facts import FENCED_2, JOB, RUNNING, begun, placement

from everstep.controller import second_copies as module
from everstep.controller.events import HostsFenced, HostsShort, PlacementDecided, RestoreDecided
from everstep.controller.outside import Fenced
from everstep.controller.policy import KeepTwice, next_actions
from everstep.controller.second_copies import keep_twice, ranks_of, second_copies
from everstep.controller.state import Job, evolve
from everstep.core.placement import HostPlacement, Layout, Placement
from everstep.wire.v1.checkpoints_pb2 import HostHoldings
from everstep.wire.v1.common_pb2 import HeldSnapshots


def holds(host_id, *held, pod="", power=""):
    """What a host told: (step, generation, own, ranks), and where it stands."""
    holdings = HostHoldings(
        host_id=host_id,
        address=f"at-{host_id}",
        peer_port=9,
        held=[HeldSnapshots(step=s, generation=g, own=o, ranks=r) for s, g, o, r in held],
    )
    return Fenced(
        host_id=host_id, address="", rendezvous_port=1, holdings=holdings, pod=pod, power=power
    )


def of(count):
    """All steps were made by so many ranks."""
    return lambda _: count


def in_words(copies):
    """Who takes which ranks from whom: (target, source, generation, own, replicas)."""
    return [
        (target, one.host_id, one.generation, list(one.own), list(one.replicas))
        for target, sources in sorted(copies.items())
        for one in sources.holders
    ]


def test_partner_of_a_lost_host_holds_two_things_once_and_the_others_share_them():
    """It kept the lost host's copies, and the lost host kept its own ranks'."""
    told = [
        holds("h1", (7, 1, True, [2, 3]), (7, 1, False, [0, 1])),
        holds("h2", (7, 1, True, [4, 5]), (7, 1, False, [6, 7])),
        holds("h3", (7, 1, True, [6, 7]), (7, 1, False, [4, 5])),
    ]
    step, copies = second_copies(told, of(8))
    assert step == 7
    assert in_words(copies) == [
        ("h2", "h1", 1, [2], [0]),
        ("h3", "h1", 1, [3], [1]),
    ]
    assert copies["h2"].holders[0].address == "at-h1"
    assert copies["h2"].holders[0].peer_port == 9


def targets(*hosts):
    """Who brings ranks 0 to 3, which h0 of pod a and power domain x holds alone."""
    alone = holds("h0", (7, 1, True, range(4)), pod="a", power="x")
    _, copies = second_copies([alone, *hosts], of(4))
    return {target: list(sources.holders[0].own) for target, sources in copies.items()}


def test_copies_go_to_another_pod_and_then_to_another_power_domain():
    """One switch, rack or maintenance window would take both places; any host is better than none.

    Hosts that name no power domain share it with nobody.
    """
    beside, powered = holds("h1", pod="a", power="x"), holds("h2", pod="a", power="y")
    away, far = holds("h3", pod="b", power="x"), holds("h4", pod="c")
    other = holds("h5", pod="b", power="y")
    assert targets(beside, powered, away) == {"h3": [0, 1, 2, 3]}
    assert targets(beside, powered, away, far, other) == {"h4": [0, 2], "h5": [1, 3]}
    assert targets(beside, powered) == {"h2": [0, 1, 2, 3]}
    assert targets(beside) == {"h1": [0, 1, 2, 3]}


def test_each_holder_has_hosts_of_its_own_that_are_far_from_it():
    """What is far from one is near to the other."""
    told = [
        holds("h1", (7, 1, True, [0, 1]), pod="a"),
        holds("h2", (7, 1, True, [2, 3]), pod="b"),
        holds("h3", pod="a"),
        holds("h4", pod="b"),
    ]
    assert in_words(second_copies(told, of(4))[1]) == [
        ("h1", "h2", 1, [2], []),
        ("h2", "h1", 1, [0], []),
        ("h3", "h2", 1, [3], []),
        ("h4", "h1", 1, [1], []),
    ]


def test_nothing_is_brought_of_what_lies_twice():
    """Its own and a replica are two places."""
    told = [
        holds("h1", (7, 1, True, [0]), (7, 1, False, [1])),
        holds("h2", (7, 1, True, [1]), (7, 1, False, [0])),
    ]
    assert second_copies(told, of(2)) == (7, {})


def test_newest_step_that_all_ranks_have_is_the_one_that_counts():
    """What is newer at some only is of no use."""
    told = [
        holds("h1", (6, 1, True, [0]), (7, 1, True, [0]), (6, 1, False, [1])),
        holds("h2", (6, 1, True, [1])),
    ]
    step, copies = second_copies(told, of(2))
    assert step == 6
    assert in_words(copies) == [("h2", "h1", 1, [0], [])]


def test_older_writer_is_no_second_copy():
    """After a rollback two may hold the same step, and they are not the same state."""
    told = [
        holds("h1", (7, 2, True, [0])),
        holds("h2", (7, 1, False, [0])),
        holds("h3", (6, 1, True, [0])),
    ]
    assert in_words(second_copies(told, of(1))[1]) == [("h2", "h1", 2, [0], [])]


def test_one_host_alone_has_nowhere_to_put_it():
    """And a step that some rank has nowhere is not worth it."""
    assert second_copies([holds("h1", (7, 1, True, [0, 1]))], of(2)) == (-1, {})
    assert second_copies([holds("h1", (7, 1, True, [0])), holds("h2")], of(2)) == (-1, {})


def after(*events: object) -> Job:
    """Fold events."""
    return reduce(evolve, events, Job())


THREE = placement("h0", "h1", "h2")
WAITING = (
    *RUNNING[:2],
    PlacementDecided(job_id=JOB, generation=1, placement=THREE),
    *RUNNING[3:],
    begun(2, "recovery", lost_hosts=("h1",)),
    HostsShort(job_id=JOB, generation=2, missing=1, at_ms=0),
)
FENCED = HostsFenced(job_id=JOB, generation=2, hosts=("h0", "h2"))


def test_job_that_waits_for_hosts_keeps_what_it_has_twice_once_it_is_fenced():
    """Not before: ranks might still write. Not without a second host, nor on an unsound one."""

    def kept(*events):
        return [one for one in next_actions(after(*events)) if isinstance(one, KeepTwice)]

    assert kept(*WAITING) == []
    assert kept(*WAITING, FENCED) == [KeepTwice(generation=2, hosts=("h0", "h2"))]
    short = HostsShort(job_id=JOB, generation=2, missing=1, at_ms=0)
    assert kept(*RUNNING, begun(2, "recovery", lost_hosts=("h1",)), short, FENCED_2) == []
    unsound = begun(2, "recovery", lost_hosts=("h1",), unsound_hosts=("h2",))
    assert kept(*WAITING[:-2], unsound, short, FENCED) == []


class Hosts:
    """Two hosts that answer; the second one learns what it is told to bring."""

    def __init__(self, generation=2):
        self.generation = generation
        self.held = {"h0": holds("h0", (7, 1, True, range(4))), "h2": holds("h2")}
        self.asked = []

    async def fence(self, job_id, generation, hosts, *, graceful, forget):
        assert (job_id, generation, graceful, forget) == (JOB, self.generation, False, False)
        self.asked.append(tuple(hosts))
        return {host: self.held[host] for host in hosts}

    async def bring(self, job_id, generation, step, sources):
        assert (job_id, generation) == (JOB, self.generation)
        for host, part in sources.items():
            [one] = part.holders
            self.held[host] = holds(host, (step, one.generation, True, one.own))


async def test_hosts_are_asked_again_what_they_hold(monkeypatch):
    """At once who has brought something, all of them after a while: one may have died."""
    monkeypatch.setattr(module, "LOOK_AGAIN_S", 0.0)
    hosts, job = Hosts(), after(*WAITING[:3], WAITING[-2])
    fenced = {"h0": hosts.held["h0"]}
    await keep_twice(hosts, job, ("h0", "h2"), fenced, set())
    assert hosts.asked == [("h2",)]
    assert list(hosts.held["h2"].holdings.held[0].ranks) == [0, 1, 2, 3]
    assert fenced == {}
    await keep_twice(hosts, job, ("h0", "h2"), fenced, set())
    assert hosts.asked == [("h2",), ("h0", "h2")]


async def test_step_before_is_kept_twice_too_where_a_copy_cannot_be_brought(monkeypatch):
    """Seeds 81238, 81392: one was damaged, and what was sound stayed on one host only."""
    monkeypatch.setattr(module, "LOOK_AGAIN_S", 0.0)
    job, told = after(*WAITING[:3], WAITING[-2]), []
    alone = holds("h0", (6, 1, True, range(4)), (7, 1, True, range(4)))

    class Stuck(Hosts):
        async def bring(self, job_id, generation, step, sources):
            told.append((step, list(sources["h2"].holders[0].own)))
            brought = [0, 1, 3] if step == 7 else range(4)
            held = HeldSnapshots(step=step, generation=1, own=True, ranks=brought)
            self.held["h2"].holdings.held.append(held)

    hosts, asked_for = Stuck(), set()
    hosts.held["h0"] = alone
    await keep_twice(hosts, job, ("h0", "h2"), {}, asked_for)
    assert told == [(7, [0, 1, 2, 3])]
    await keep_twice(hosts, job, ("h0", "h2"), {}, asked_for)
    assert told[1:] == [(7, [2]), (6, [0, 1, 2, 3])]
    await keep_twice(hosts, job, ("h0", "h2"), {}, asked_for)
    assert told[3:] == [(7, [2])]


def placed_on(generation, *hosts):
    """A replica on each host, of two ranks."""
    seats = tuple(
        HostPlacement(host_id=host, ranks=(2 * i, 2 * i + 1), address="")
        for i, host in enumerate(hosts)
    )
    layout = Layout(dp_replicate=len(hosts), tp=2)
    return PlacementDecided(
        job_id=JOB, generation=generation, placement=Placement(layout=layout, hosts=seats)
    )


GROWN = (
    *RUNNING[:2],
    placed_on(1, "h0", "h1", "h2"),
    RestoreDecided(job_id=JOB, generation=1, step=-1),
    begun(2, "recovery", lost_hosts=("h2",)),
    placed_on(2, "h0", "h1"),
    RestoreDecided(job_id=JOB, generation=2, step=7),
    begun(3, "grow"),
    placed_on(3, "h0", "h1", "h2"),
    RestoreDecided(job_id=JOB, generation=3, step=20),
)


def test_step_was_made_by_the_ranks_of_its_time():
    """The new ones have loaded it, and made none yet."""
    job = after(*GROWN)
    assert [ranks_of(job, step) for step in (1, 7, 8, 20, 21)] == [6, 6, 4, 4, 6]
    assert ranks_of(after(*GROWN[:3]), 7) == 6


async def test_what_fewer_ranks_have_made_is_kept_twice_when_the_job_has_just_grown(
    monkeypatch,
):
    """It would count as a step that is not whole, and stay on one host only."""
    monkeypatch.setattr(module, "LOOK_AGAIN_S", 0.0)
    short = HostsShort(job_id=JOB, generation=4, missing=1, at_ms=0)
    job, hosts = after(*GROWN, begun(4, "recovery", lost_hosts=("h2",)), short), Hosts(4)
    hosts.held["h0"] = holds("h0", (20, 2, True, range(4)))
    await keep_twice(hosts, job, ("h0", "h2"), {}, set())
    assert list(hosts.held["h2"].holdings.held[0].ranks) == [0, 1, 2, 3]
