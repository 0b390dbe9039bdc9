from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.host_inventory.fleet import (
    FLEET_SPEC,
    after,
    fleet_of,
    hosts,
    join,
    joined,
    place,
    placed,
    ranks_of,
    replicas_of,
)
from tests.unit.host_inventory.test_placing import reply_to

from everstep.core.placement import Layout
from everstep.host_inventory.commands import CordonHost, UncordonHost
from everstep.host_inventory.events import HostCordoned, JobPlaced
from everstep.host_inventory.state import HostState

DEMO = Layout(pp=2, dp_shard=2, tp=2)
FIVE = FLEET_SPEC.given(*hosts({"a": ["a1", "a2", "a3"], "b": ["b1", "b2"]}))
RUNNING = after(FIVE, place(layout=DEMO))  # a1 0-1, b1 2-3, a2 4-5, b2 6-7; spare a3


def cordoned(host_id: str, generation: int = 2, relapses: int = 1) -> HostCordoned:
    """Return the cordon that a loss leads to."""
    return HostCordoned(
        host_id=host_id,
        reason="host_lost",
        incident_id="i1",
        at_ms=10,
        job_id="job",
        generation=generation,
        fault="lost",
        relapses=relapses,
        held_ms=600_000 * relapses,
        returns=True,
    )


def test_lost_host_is_cordoned_and_a_spare_takes_its_seat():
    """Survivors keep ranks and partners; the new host takes over the lost one's copies."""
    command = place(generation=2, layout=DEMO, lost=["a1"])
    events = RUNNING.when(command).decision.events
    assert events[0] == cordoned("a1")
    assert events[1].replacements == ("a3",)
    assert ranks_of(events[1].placement) == {
        "a3": (0, 1),
        "b1": (2, 3),
        "a2": (4, 5),
        "b2": (6, 7),
    }
    assert replicas_of(events[1].placement) == {"a3": "b2", "b2": "a3", "a2": "b1", "b1": "a2"}
    states = {h.host_id: h.state for h in fleet_of(after(RUNNING, command)).hosts.values()}
    assert states["a1"] is HostState.CORDONED
    assert states["a3"] is HostState.ACTIVE


def test_both_hosts_of_a_pair_lost_are_replaced_as_a_pair():
    """The new ones keep each other's copies."""
    given = RUNNING.given(*hosts({"b": ["b3"]}))
    event = placed(given, place(generation=2, layout=DEMO, lost=["a1", "b2"]))
    assert ranks_of(event.placement)["a3"] == (0, 1)
    assert ranks_of(event.placement)["b3"] == (6, 7)
    assert replicas_of(event.placement)["a3"] == "b3"
    assert replicas_of(event.placement)["b3"] == "a3"


def test_restart_on_the_same_hosts_keeps_the_placement():
    """Nothing lost: the next generation runs where the last one did, at today's addresses."""
    moved = join("a1", pod="a", address="10.9.9.9", epoch="e2", at_ms=90_000)
    given = after(RUNNING, moved)
    old = placed(FIVE, place(layout=DEMO)).placement
    event = placed(given, place(generation=2, layout=DEMO))
    assert ranks_of(event.placement) == ranks_of(old)
    assert replicas_of(event.placement) == replicas_of(old)
    assert event.placement.hosts[0].address == "10.9.9.9"


def test_spare_of_the_same_pod_comes_before_one_elsewhere():
    """A pipeline stays in its pod while it can, although an earlier name is free elsewhere."""
    given = after(FLEET_SPEC.given(*hosts({"a": ["h5", "h6"], "b": ["h1"]})), place())
    assert fleet_of(given).hosts["h5"].state is HostState.ACTIVE
    assert placed(given, place(generation=2, lost=["h5"])).replacements == ("h6",)


def test_spare_elsewhere_is_taken_when_the_pod_has_none():
    """Crossing pods beats waiting, and the answer says that a pipeline does."""
    given = RUNNING
    command = place(generation=2, layout=DEMO, lost=["b1"])
    assert placed(given, command).replacements == ("a3",)
    assert "1 of 2 pipelines span pods" in reply_to(given, command).outcome.detail


def test_seat_that_had_to_move_comes_home_at_the_next_loss():
    """The pod of the rest of the pipeline counts, not that of the last stand-in."""
    moved = after(RUNNING, place(generation=2, layout=DEMO, lost=["b1"]))
    given = moved.given(*hosts({"a": ["a4"], "b": ["b3"]}))
    event = placed(given, place(generation=3, layout=DEMO, lost=["a3"]))
    assert event.replacements == ("b3",)


def test_spare_elsewhere_avoids_the_pod_that_holds_the_copies():
    """A stand-in beside its own copies would lose both to one switch."""
    given = after(FIVE, place(layout=DEMO)).given(*hosts({"c": ["c1"]}))
    without_a3 = after(given, CordonHost(host_id="a3", reason="x", incident_id="", at_ms=1))
    with_b3 = without_a3.given(*hosts({"b": ["b3"]}))
    event = placed(with_b3, place(generation=2, layout=DEMO, lost=["a1"]))
    assert event.replacements == ("c1",)


def test_host_that_a_job_lost_is_called_so_by_one_word():
    """By whoever says it first: the monitor's incident, or the job that asks for another."""
    command = place(generation=2, layout=DEMO, lost=["a1"], reason="")
    assert RUNNING.when(command).decision.events[0] == cordoned("a1")


def test_spare_with_too_few_chips_is_passed_over():
    """A seat of two ranks needs two chips."""
    given = after(FLEET_SPEC.given(joined(join("h1"))), place())
    given = given.given(joined(join("h2", chips=1)), joined(join("h3", chips=2)))
    assert placed(given, place(generation=2, lost=["h1"])).replacements == ("h3",)


def test_no_spare_cordons_the_lost_and_tells_how_many_are_short():
    """Two lost and one spare: nothing is placed, one host is missing."""
    command = place(generation=2, layout=DEMO, lost=["a1", "b1"])
    RUNNING.when(command).then(cordoned("a1"), cordoned("b1"))
    reply = reply_to(RUNNING, command)
    assert (reply.outcome.accepted, reply.hosts_short) == (True, 1)
    assert "2 of 4 hosts of job job need a replacement" in reply.outcome.detail


def test_short_job_is_placed_when_a_host_joins():
    """The same request, asked again, finds the new host and cordons nobody twice."""
    command = place(generation=2, layout=DEMO, lost=["a1", "b1"])
    given = after(RUNNING, command)
    given.when(command).then()
    more = given.given(*hosts({"b": ["b9"]}))
    (event,) = more.when(command).decision.events
    assert event.replacements == ("a3", "b9")


def test_lost_host_that_was_uncordoned_takes_its_seat_back():
    """A person's uncordon while the job waits is not undone by asking again."""
    command = place(generation=2, layout=DEMO, lost=["a1", "b1"])
    given = after(RUNNING, command, UncordonHost(host_id="b1", at_ms=60))
    (event,) = given.when(command).decision.events
    assert event.replacements == ("a3",)
    assert ranks_of(event.placement)["b1"] == (2, 3)


def test_host_lost_again_in_the_next_generation_is_cordoned_again():
    """Once a generation, even if the controller names the same incident."""
    command = place(generation=2, layout=DEMO, lost=["a1", "b1"])
    given = after(RUNNING, command, UncordonHost(host_id="b1", at_ms=60), command)
    events = given.when(place(generation=3, layout=DEMO, lost=["b1"])).decision.events
    assert events == (cordoned("b1", generation=3, relapses=2),)


def test_cordoned_host_gets_no_rank_in_the_next_generation():
    """A cordon from elsewhere takes effect at the next restart."""
    given = after(RUNNING, CordonHost(host_id="a2", reason="ecc", incident_id="", at_ms=20))
    event = placed(given, place(generation=2, layout=DEMO))
    assert event.replacements == ("a3",)
    assert ranks_of(event.placement)["a3"] == (4, 5)


def test_host_that_came_back_with_fewer_chips_loses_its_seat():
    """A broken chip is found at the next placement; the host is free for smaller work."""
    given = after(RUNNING, join("a2", pod="a", chips=1, epoch="e2", at_ms=30))
    command = place(generation=2, layout=DEMO)
    assert placed(given, command).replacements == ("a3",)
    assert fleet_of(after(given, command)).hosts["a2"].state is HostState.SPARE


def test_lost_host_of_another_job_is_refused():
    """A job cannot cordon what it does not hold."""
    other = after(RUNNING, place(job_id="other"))
    other.when(place(generation=2, layout=DEMO, lost=["a3"])).then_rejected("host_of_other_job")
    assert fleet_of(other).hosts["a3"].job_id == "other"


def test_lost_spare_is_cordoned():
    """Naming a free host as lost takes it out as well."""
    events = RUNNING.when(place(generation=2, layout=DEMO, lost=["a3"])).decision.events
    assert events[0] == cordoned("a3")


def test_host_of_another_job_is_no_spare():
    """With every host taken, the one that lost its host waits."""
    given = FLEET_SPEC.given(*hosts({"a": ["a1", "a2"]}))
    given = after(given, place(job_id="job"), place(job_id="other"))
    given.when(place(generation=2, lost=["a1"])).then(cordoned("a1"))


PODS = st.lists(st.sampled_from("abc"), min_size=3, max_size=8)


@settings(max_examples=150)
@given(pods=PODS, spares=st.lists(st.sampled_from("abc"), max_size=3), data=st.data())
def test_replacement_moves_only_the_copies_of_what_was_lost(pods, spares, data):
    """Who lost neither its host nor the keeper of its copies keeps both, whoever else was lost."""
    running, old = run_on(pods, spares)
    ids = sorted(replicas_of(old))
    lost = data.draw(st.lists(st.sampled_from(ids), min_size=1, max_size=2, unique=True))
    events = running.when(place(generation=2, layout=old.layout, lost=lost)).decision.events
    if not isinstance(events[-1], JobPlaced):
        assert len(spares) < len(lost)
        return
    new = events[-1].placement
    heirs = dict(zip(ranks_of(old), ranks_of(new), strict=True))  # seats keep their order
    before, after_loss = replicas_of(old), replicas_of(new)
    assert after_loss == {heirs[host]: heirs[peer] for host, peer in before.items()}
    assert {host for host, heir in heirs.items() if host != heir} == set(lost)


@settings(max_examples=150)
@given(pods=PODS, spares=st.lists(st.sampled_from("abc"), min_size=1, max_size=4), data=st.data())
def test_heir_shares_no_pod_with_its_copies_if_a_spare_allows_it(pods, spares, data):
    """First the pod of the seat, then any pod but the one in which the copies are."""
    running, old = run_on(pods, spares)
    lost = data.draw(st.sampled_from(sorted(replicas_of(old))))
    event = placed(running, place(generation=2, layout=old.layout, lost=[lost]))
    (heir,) = event.replacements
    known = fleet_of(running).hosts
    copies = known[replicas_of(old)[lost]].pod

    def wish(pod: str) -> tuple[bool, bool]:
        return (pod != known[lost].pod, pod == copies)

    assert wish(known[heir].pod) == min(wish(pod) for pod in spares)


def run_on(pods, spares):
    """Place a job on one host of each of ``pods``, before any spare is there."""
    joins = [joined(join(f"h{i}", pod=pod)) for i, pod in enumerate(pods)]
    begun = after(FLEET_SPEC.given(*joins), place(layout=Layout(dp_shard=len(pods), tp=2)))
    more = [joined(join(f"s{i}", pod=pod)) for i, pod in enumerate(spares)]
    return begun.given(*more), fleet_of(begun).jobs["job"].placement
