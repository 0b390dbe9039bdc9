from collections import Counter

import pytest

from everstep.core.errors import InvalidInput
from everstep.fleet.hosts import machines
from everstep.fleet.scenario import FleetPart, load, parse
from everstep.fleet.topology import part_of, places, recorded
from everstep.sim.seeds import Seeds

LINGJUN = "lingjun-2023"


def test_recorded_network_has_the_shape_that_its_source_has():
    """One core, three aggregation blocks, 119 access switches, 847 hosts."""
    network = recorded(LINGJUN)
    assert sum(switch.hosts for switch in network) == 847
    assert len({(one.core, one.aggregation, one.access) for one in network}) == len(network) == 119
    blocks = Counter[tuple[str, str]]()
    for switch in network:
        blocks[switch.core, switch.aggregation] += switch.hosts
    assert blocks == {("G6", "P8"): 179, ("G6", "P10"): 362, ("G6", "P12"): 306}
    sizes = Counter(switch.hosts for switch in network)
    assert sizes == {8: 68, 7: 23, 6: 15, 5: 7, 4: 2, 3: 1, 2: 3}


def test_larger_fleet_repeats_the_network_and_adds_a_part_of_one():
    """Two whole copies of 847 hosts, and 395 hosts with the blocks in proportion."""
    found = places(FleetPart(topology=LINGJUN))
    assert len(found) == 2_048 + 41
    pods = Counter(place.pod for place in found)
    for block, hosts in (("P8", 179), ("P10", 362), ("P12", 306)):
        assert (pods[f"pod-0.G6.{block}"], pods[f"pod-1.G6.{block}"]) == (hosts, hosts)
        # To within an access switch.
        assert pods[f"pod-2.G6.{block}"] == pytest.approx(hosts * 395 / 847, abs=8)
    assert max(Counter(place.switch for place in found).values()) == 8


@pytest.mark.parametrize("hosts", [0, 1, 3, 22, 395, 846, 847])
def test_part_of_a_network_has_exactly_its_hosts(hosts):
    """Whole access switches, but for the last one, and no empty one."""
    network = recorded(LINGJUN)
    part = part_of(network, hosts)
    assert sum(switch.hosts for switch in part) == hosts
    assert all(switch.hosts > 0 for switch in part)
    known = {(one.aggregation, one.access): one.hosts for one in network}
    cut = [one for one in part if one.hosts < known[one.aggregation, one.access]]
    assert len(cut) <= 1


def test_small_fleet_hangs_under_every_block():
    """22 hosts: a network cut off at its first switches would be a single pod."""
    pods = Counter(place.pod for place in places(FleetPart(hosts=16, spares=6, topology=LINGJUN)))
    assert sorted(pods.values()) == [7, 7, 8]


def test_no_switch_hangs_under_two_pods():
    """Switches are numbered over all copies, though their names come again."""
    pods: dict[int, set[str]] = {}
    for machine in machines(load("lingjun"), Seeds(1)):
        pods.setdefault(machine.switch, set()).add(machine.pod)
    assert {len(above) for above in pods.values()} == {1}


def test_even_groups_stay_as_they_were():
    """No topology: so many hosts a pod, so many a switch."""
    found = places(FleetPart(hosts=8, spares=2, hosts_per_pod=4, hosts_per_switch=3))
    assert [place.pod for place in found] == ["pod-000"] * 4 + ["pod-001"] * 4 + ["pod-002"] * 2
    assert [place.switch for place in found] == [0, 0, 0, 1, 1, 1, 2, 2, 2, 3]


def test_network_of_ones_own_is_read_from_its_path(tmp_path):
    """The same four columns."""
    path = tmp_path / "ours.csv"
    path.write_text("core,aggregation,access,hosts\nc,a,s1,3\nc,a,s2,1\nc,b,s1,4\n")
    found = places(FleetPart(hosts=7, spares=1, topology=str(path)))
    assert [place.pod for place in found] == ["pod-0.c.a"] * 4 + ["pod-0.c.b"] * 4
    assert [place.switch for place in found] == [0, 0, 0, 1, 2, 2, 2, 2]


def test_unknown_network_names_the_known_ones():
    """A mistyped name is answered with the list."""
    with pytest.raises(InvalidInput, match=r"fleet\.topology 'lingjun': .* lingjun-2023"):
        recorded("lingjun")


@pytest.mark.parametrize("text", ["core,access,hosts\nc,s,3\n", "core,aggregation,access,hosts\n"])
def test_network_that_is_none_is_refused(text, tmp_path):
    """A missing column, or no switch at all."""
    path = tmp_path / "bad.csv"
    path.write_text(text)
    with pytest.raises(InvalidInput, match=r"bad\.csv: expected rows of core, aggregation"):
        recorded(str(path))


def test_even_groups_beside_a_network_are_refused():
    """One of the two would silently say nothing."""
    with pytest.raises(InvalidInput, match=r"leave out fleet\.hosts_per_pod"):
        parse(f"[fleet]\ntopology = '{LINGJUN}'\nhosts_per_switch = 8\n")
