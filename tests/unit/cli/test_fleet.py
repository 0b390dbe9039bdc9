from hypothesis import given
from hypothesis import strategies as st

from everstep.local.fleet import first_fleet, grown


def pods_of(fleet):
    """Return host -> pod."""
    return {host.host_id: host.pod for host in fleet}


def test_four_hosts_and_a_spare_fill_two_pods():
    """Neighbours share a pod, so that a pipeline finds its hosts together."""
    fleet = first_fleet(hosts=4, spares=1, chips=2, pods=2)
    assert pods_of(fleet) == {"h1": "pod1", "h2": "pod1", "h3": "pod2", "h4": "pod2", "h5": "pod1"}
    assert {host.chips for host in fleet} == {2}
    assert [host.power for host in fleet] == [host.pod.replace("pod", "power") for host in fleet]


def test_growing_adds_the_missing_hosts_to_the_smallest_pods():
    """A fleet grows upwards only and stays even."""
    fleet = first_fleet(hosts=4, spares=1, chips=2, pods=2)
    assert pods_of(grown(fleet, count=7)) == {"h6": "pod2", "h7": "pod1"}
    assert grown(fleet, count=5) == ()
    assert grown(fleet, count=2) == ()


def test_growing_by_name_makes_that_host():
    """`everstep start host NAME` may bring a new host with a name of its own."""
    fleet = first_fleet(hosts=2, spares=0, chips=1, pods=1)
    assert [host.host_id for host in grown(fleet, count=3, name="late")] == ["late"]


def test_free_numbers_are_used_again():
    """Names never clash, whatever hosts of their own names joined before."""
    fleet = first_fleet(hosts=1, spares=0, chips=1, pods=1)
    fleet = (*fleet, *grown(fleet, count=2, name="h2"))
    assert [host.host_id for host in grown(fleet, count=3)] == ["h3"]


@given(
    hosts=st.integers(1, 40), spares=st.integers(0, 10), pods=st.integers(1, 12),
    more=st.integers(0, 20),
)  # fmt: skip
def test_any_fleet_has_distinct_names_and_the_asked_size(hosts, spares, pods, more):
    """Whatever is asked for, every host has a name of its own."""
    fleet = first_fleet(hosts=hosts, spares=spares, chips=2, pods=pods)
    every = (*fleet, *grown(fleet, count=hosts + spares + more))
    assert len({host.host_id for host in every}) == len(every) == hosts + spares + more
    assert {host.pod for host in every} <= {f"pod{i + 1}" for i in range(pods)}
