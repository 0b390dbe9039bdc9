"""Hosts that are really cut off: the ranks' own collectives, agents, servers, all of it.

Elsewhere partitions are simulated, or held at relays that collectives do not pass.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.e2e.lab import OBJECT_EVERY, Lab, wait_for
from tests.namespaces.fabric import CONTROL, Fabric, ip

pytestmark = [pytest.mark.stack, pytest.mark.torch, pytest.mark.timeout(900)]

CUT_AT = 8  # completed steps


def begin(lab: Lab, name: str) -> tuple[str, list[str]]:
    """Launch a job, wait until it steps, and return it with its hosts in the order of ranks."""
    job_id = lab.submit(name)
    lab.wait_step(job_id, CUT_AT)
    return job_id, [host["host_id"] for host in lab.hosts_of(job_id)]


def processes(fabric: Fabric, host_id: str) -> int:
    """How many processes a host has: agent, fork server, ranks."""
    return len(ip("netns", "pids", fabric.namespace(host_id)).split())


def replaced(lab: Lab, job_id: str) -> dict[str, Any]:
    """Wait until the run goes on after its one incident, and return that."""

    def recovered() -> dict[str, Any] | None:
        found = [one for one in lab.incidents(job_id) if one["recovered_at_ms"] is not None]
        return found[0] if found else None

    incident: dict[str, Any] = wait_for("the run to go on", recovered)
    return incident


def assert_one_outcome(
    lab: Lab, job_id: str, cut: list[str], reference: str, into: Path, *, lost_max: int = 1
) -> None:
    """These hosts are out, by one incident, and nobody else; and nothing is different."""
    job = lab.succeeded(job_id)
    incidents = lab.incidents(job_id)
    assert [sorted(one["hosts"]) for one in incidents] == [sorted(cut)], incidents
    assert incidents[0]["lost_steps"] <= lost_max
    hosts = lab.hosts()
    out = {name for name, one in hosts.items() if one["state"] == "cordoned"}
    assert out == set(cut)
    assert out.isdisjoint(one["host_id"] for one in job["placement"]["hosts"])
    compared, differences = lab.differences(job_id, reference, into)
    assert differences == ()
    assert compared > 100
    assert lab.losses(job_id) == lab.losses(reference)


@pytest.mark.parametrize("both_ways", [True, False])
def test_host_that_reaches_us_and_not_its_peers(
    lab: Lab, fabric: Fabric, reference: str, tmp_path: Path, both_ways: bool
):
    """Its ranks wait, as all do; its links tell whose fault it is. Also if it still hears them."""
    job_id, hosts = begin(lab, "cut-from-peers")
    cut = hosts[1]
    others = [host for host in fabric.hosts if host != cut]
    if both_ways:
        fabric.cut(cut, *others)
    for other in others:
        fabric.drop(cut, other)
    incident = replaced(lab, job_id)
    assert incident["action"] == "REPLACE"
    fabric.mend()
    assert_one_outcome(lab, job_id, [cut], reference, tmp_path)


def test_host_that_reaches_its_peers_and_not_us(
    lab: Lab, fabric: Fabric, reference: str, tmp_path: Path
):
    """It trains on, unseen, until it is replaced; when it is back, its ranks are ended."""
    idle = {host: processes(fabric, host) for host in fabric.hosts}
    job_id, hosts = begin(lab, "cut-from-us")
    cut = hosts[2]
    fabric.cut(cut, CONTROL)
    incident = replaced(lab, job_id)
    assert (incident["kind"], incident["action"]) == ("host_lost", "REPLACE")
    fabric.mend()
    wait_for("its ranks to be ended", lambda: processes(fabric, cut) <= idle[cut])
    assert_one_outcome(lab, job_id, [cut], reference, tmp_path)


def test_host_that_reaches_nobody(lab: Lab, fabric: Fabric, reference: str, tmp_path: Path):
    """What it had in memory lies with its peer, too."""
    job_id, hosts = begin(lab, "cut-from-all")
    cut = hosts[0]  # where the ranks meet
    fabric.cut(cut, CONTROL, *[host for host in fabric.hosts if host != cut])
    incident = replaced(lab, job_id)
    assert (incident["kind"], incident["action"]) == ("host_lost", "REPLACE")
    fabric.mend()
    assert_one_outcome(lab, job_id, [cut], reference, tmp_path)


def test_hosts_that_reach_only_one_another(
    lab: Lab, fabric: Fabric, reference: str, tmp_path: Path
):
    """Half of the job. Hosts without work have the casting vote: who can go on with them, does.

    Of a pair of which both are cut off no copy is within reach, so it may go back to what is
    stored.
    """
    job_id, hosts = begin(lab, "cut-in-two")
    cut = hosts[2:]
    for one in cut:
        fabric.cut(one, *[host for host in fabric.hosts if host not in cut])
    incident = replaced(lab, job_id)
    assert incident["action"] == "REPLACE"
    fabric.mend()
    assert_one_outcome(lab, job_id, cut, reference, tmp_path, lost_max=OBJECT_EVERY + 1)
