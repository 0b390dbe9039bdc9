"""A fleet over a recorded network: where its job is placed, and what a switch takes with it."""

import io
from collections import defaultdict

import pytest

from everstep.fleet.hosts import machines
from everstep.fleet.scenario import load, parse
from everstep.fleet.simulate import simulate
from everstep.fleet.world import join
from everstep.host_inventory.commands import JoinHosts
from everstep.host_inventory.decider import decide
from everstep.host_inventory.policy import place
from everstep.host_inventory.seats import pipelines_across_pods
from everstep.host_inventory.state import Fleet, evolve
from everstep.sim.seeds import Seeds

# Only switches fail, now and then.
SWITCHES = """
[fleet]
hosts = 64
spares = 16
topology = "lingjun-2023"
[job]
pp = 4
dp_shard = 16
[checkpoint]
object_every = 30
state_gb = 50.0
store_gb_per_s = 1.0
[failures]
job_mtbf_h = 1e7
switch_per_year = 10.0
pod_power_per_year = {pods}
"""


def _outages(trace):
    """Return the hosts that went out in one moment for one time."""
    found = defaultdict(set)
    for line in trace.splitlines():
        at_ms, host_id, *rest = line.split()
        if rest[:3] == ["is", "out", "for"]:
            found[int(at_ms), rest[3]].add(host_id)
    return list(found.values())


def _groups(scenario, of):
    groups = defaultdict(set)
    for machine in machines(scenario, Seeds(1)):
        groups[of(machine)].add(machine.host_id)
    return groups.values()


def test_switch_that_fails_takes_exactly_its_hosts_and_the_job_survives():
    """All hosts under it and no other, at once; spares take over and nothing waits."""
    scenario, out = parse(SWITCHES.format(pods=0)), io.StringIO()
    outcome = simulate(scenario, seed=1, days=60, trace=out)
    outages, switches = _outages(out.getvalue()), list(_groups(scenario, lambda m: m.switch))
    assert 10 < len(outages) <= outcome.counts["group_failures"]  # some strike one that is out
    assert all(hosts in switches for hosts in outages)
    assert {len(hosts) for hosts in outages} >= {7, 8}
    assert outcome.goodput > 0.99


def test_pod_that_fails_is_waited_for_and_the_job_survives():
    """An aggregation block is more than all spares: its hosts come back."""
    scenario, out = parse(SWITCHES.format(pods=20)), io.StringIO()
    outcome = simulate(scenario, seed=1, days=60, trace=out)
    pods = list(_groups(scenario, lambda m: m.pod))
    assert any(hosts in pods for hosts in _outages(out.getvalue()))
    assert outcome.causes_ms["waiting_for_hosts"] > 0
    assert outcome.goodput > 0.9


@pytest.mark.parametrize(("name", "pods"), [("lingjun", 9), ("llama3", 17)])
def test_pipelines_stay_in_a_pod_and_copies_leave_it(name, pods):
    """On uneven blocks as on even ones: what is left over in each pod spans, and nothing else."""
    scenario, fleet = load(name), Fleet()
    joins = tuple(join(machine, 0) for machine in machines(scenario, Seeds(1)))
    for event in decide(JoinHosts(joins=joins), fleet).events:
        fleet = evolve(fleet, event)
    placement = place("job", scenario.layout, fleet).placement
    pod_of = {host_id: host.pod for host_id, host in fleet.hosts.items()}
    assert len(set(pod_of.values())) == pods
    # Less than a pipeline is left in each, and only such rests together make ones that span.
    assert pipelines_across_pods(placement, fleet.hosts) < pods
    assert all(pod_of[seat.host_id] != pod_of[seat.replica_host_id] for seat in placement.hosts)
