"""A run survives what breaks under it, and ends bit for bit as if nothing had happened."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.e2e.lab import OBJECT_EVERY, Lab, wait_for

from everstep.core.errors import EverstepError

pytestmark = [pytest.mark.stack, pytest.mark.torch, pytest.mark.timeout(400)]

FAULT_STEP = OBJECT_EVERY + 3  # a durable checkpoint lies behind, and none is being written


@pytest.fixture
def ends_equal(lab: Lab, reference: str, tmp_path: Path) -> Any:
    """Wait for a job's success and compare its final state with the undisturbed run's."""

    def check(job_id: str) -> dict[str, Any]:
        job = lab.succeeded(job_id)
        compared, differences = lab.differences(job_id, reference, tmp_path / "compare")
        assert differences == ()
        assert compared > 100
        assert lab.losses(job_id) == lab.losses(reference)
        goodput = lab.client.goodput(job_id)
        assert sum(goodput["causes"].values()) == goodput["wall_ms"]
        return job

    return check


def recovery_of(job: dict[str, Any]) -> dict[str, Any]:
    """The newest generation."""
    found: dict[str, Any] = job["recoveries"][-1]
    return found


def test_rank_killed_restarts_in_place_and_loses_at_most_one_step(lab: Lab, ends_equal):
    """One process dies by a signal: same hosts, own memory, no host cordoned."""
    job_id = lab.submit_unhurried("rank-killed", after=FAULT_STEP - 1)  # copies keep up
    lab.wait_step(job_id, FAULT_STEP)
    lab.kill_rank(5, job_id)
    lab.let_go("rank-killed")
    job = ends_equal(job_id)
    (incident,) = lab.incidents(job_id)
    assert (incident["kind"], incident["ranks"]) == ("rank_killed", [5])
    assert incident["lost_steps"] <= 1
    assert recovery_of(job)["replacements"] == []
    assert recovery_of(job)["sources"] == {"own_memory": 8, "peer_memory": 0, "object_store": 0}


def test_host_killed_is_replaced_by_a_spare_from_memory(lab: Lab, ends_equal):
    """A whole host dies: a spare takes over with the peer's copies, one incident names it."""
    job_id = lab.submit_unhurried("host-killed", after=FAULT_STEP - 1)  # copies keep up
    lab.wait_step(job_id, FAULT_STEP)
    victim = lab.hosts_of(job_id)[1]["host_id"]
    lab.kill_host(victim)
    lab.let_go("host-killed")
    job = ends_equal(job_id)
    (incident,) = lab.incidents(job_id)
    assert (incident["kind"], incident["hosts"]) == ("host_lost", [victim])
    assert incident["lost_steps"] <= 1
    assert recovery_of(job)["sources"] == {"own_memory": 6, "peer_memory": 2, "object_store": 0}
    assert lab.hosts()[victim]["state"] == "cordoned"
    assert victim not in [host["host_id"] for host in job["placement"]["hosts"]]


def test_host_of_the_first_rank_killed_is_replaced_too(lab: Lab, ends_equal):
    """The rendezvous host can be lost like any other (PEERS 6.10)."""
    job_id = lab.submit_unhurried("first-host-killed", after=FAULT_STEP - 1)  # copies keep up
    lab.wait_step(job_id, FAULT_STEP)
    victim = lab.hosts_of(job_id)[0]["host_id"]
    lab.kill_host(victim)
    lab.let_go("first-host-killed")
    ends_equal(job_id)
    (incident,) = lab.incidents(job_id)
    assert incident["hosts"] == [victim]
    assert incident["lost_steps"] <= 1


def test_owner_and_replica_holder_killed_together_fall_back_to_the_object_store(
    lab: Lab, ends_equal
):
    """Both copies of two hosts' snapshots are gone: the last durable checkpoint serves all."""
    job_id = lab.submit_unhurried("pair-killed", after=FAULT_STEP)
    lab.wait_step(job_id, FAULT_STEP)
    wait_for(
        "a complete checkpoint",
        lambda: any(c["complete"] for c in lab.client.checkpoints(job_id)),
    )
    owner = lab.hosts_of(job_id)[0]
    holder = owner["replica_host_id"]
    assert holder
    lab.kill_host(owner["host_id"])
    lab.kill_host(holder)
    lab.let_go("pair-killed")
    job = ends_equal(job_id)
    last = [g for g in job["recoveries"] if g["restore_step"] is not None][-1]
    assert last["restore_step"] == OBJECT_EVERY
    assert last["sources"]["object_store"] == 8
    lost = {host for incident in lab.incidents(job_id) for host in incident["hosts"]}
    lost |= {host for generation in job["recoveries"] for host in generation["lost_hosts"]}
    assert lost == {owner["host_id"], holder}


def test_host_killed_during_the_recovery_from_another(lab: Lab, ends_equal):
    """The spare that was just reserved dies while the ranks come up: another takes its place."""
    job_id = lab.submit("killed-twice")
    lab.wait_step(job_id, FAULT_STEP)
    victim = lab.hosts_of(job_id)[3]["host_id"]
    lab.kill_host(victim)

    def replacement() -> str | None:
        newest = recovery_of(lab.client.job(job_id))
        if newest["cause"] != "recovery" or not newest["replacements"]:
            return None
        return str(newest["replacements"][0])

    spare = wait_for("a spare to be reserved", replacement)
    lab.kill_host(spare)
    job = ends_equal(job_id)
    names = {host["host_id"] for host in job["placement"]["hosts"]}
    assert not names & {victim, spare}
    assert {lab.hosts()[host]["state"] for host in (victim, spare)} == {"cordoned"}


def test_controller_killed_in_the_middle_of_a_recovery(lab: Lab, ends_equal):
    """A controller that is started again later carries the recovery on from its events."""
    job_id = lab.submit("controller-killed")
    lab.wait_step(job_id, FAULT_STEP)
    victim = lab.hosts_of(job_id)[2]["host_id"]
    lab.kill_host(victim)
    wait_for(
        "the recovery to begin",
        lambda: lab.client.job(job_id)["phase"] in {"recovering", "waiting_for_hosts"},
    )
    lab.kill_service("controller", down=True)
    lab.start_service("controller")
    wait_for("the controller to answer", lambda: _answers(lab))
    job = ends_equal(job_id)
    assert victim not in [host["host_id"] for host in job["placement"]["hosts"]]
    assert len(lab.incidents(job_id)) == 1


def test_controller_away_does_not_disturb_training(lab: Lab, ends_equal):
    """Without a controller the ranks step on (PEERS: survive the control plane)."""
    job_id = lab.submit("controller-away")
    lab.wait_step(job_id, 4)
    lab.kill_service("controller", down=True)
    wait_for("steps without a controller", lambda: lab.step_of(job_id) >= FAULT_STEP)
    lab.start_service("controller")
    wait_for("the controller to answer", lambda: _answers(lab))
    job = ends_equal(job_id)
    assert job["generation"] == 1
    assert lab.incidents(job_id) == []


def test_host_killed_while_the_monitor_is_away_is_found_when_it_is_back(lab: Lab, ends_equal):
    """Nobody judged in the meantime; what matters is told or found again."""
    job_id = lab.submit_unhurried("monitor-away", after=FAULT_STEP)
    lab.wait_step(job_id, FAULT_STEP)
    victim = lab.hosts_of(job_id)[1]["host_id"]
    lab.kill_service("monitor", down=True)
    lab.kill_host(victim)
    lab.let_go("monitor-away")
    lab.start_service("monitor")
    job = ends_equal(job_id)
    (incident,) = lab.incidents(job_id)
    assert (incident["kind"], incident["hosts"]) == ("host_lost", [victim])
    assert victim not in [host["host_id"] for host in job["placement"]["hosts"]]


def test_database_restarted_in_the_middle_of_a_recovery(lab: Lab, ends_equal):
    """Every service loses its store at once, and carries on when it is back."""
    job_id = lab.submit("database-killed")
    lab.wait_step(job_id, FAULT_STEP)
    victim = lab.hosts_of(job_id)[2]["host_id"]
    lab.kill_host(victim)
    lab.kill_service("postgres")
    wait_for("the controller to answer", lambda: _answers(lab))
    ends_equal(job_id)
    assert {host for i in lab.incidents(job_id) for host in i["hosts"]} == {victim}


def test_bus_restarted_during_training_condemns_nobody(lab: Lab, ends_equal):
    """Everybody is silent for a moment; the run does not even restart."""
    job_id = lab.submit("bus-restarted")
    lab.wait_step(job_id, FAULT_STEP)
    lab.kill_service("nats")
    job = ends_equal(job_id)
    assert job["generation"] == 1
    assert lab.incidents(job_id) == []


def test_agent_killed_alone_costs_nothing_and_its_memory_is_still_used(lab: Lab, ends_equal):
    """The agent comes back, adopts its ranks, and their snapshots serve the next recovery."""
    job_id = lab.submit_unhurried("agent-killed", after=FAULT_STEP)
    lab.wait_step(job_id, 5)
    host = lab.hosts_of(job_id)[1]
    killed = lab.kill_agent(host["host_id"])
    lab.wait_step(job_id, FAULT_STEP)
    assert lab.client.job(job_id)["generation"] == 1
    assert lab.incidents(job_id) == []
    wait_for("the agent to be heard again", lambda: _heard_since(lab, host, killed["at_ms"]))
    # While the agent was away its ranks' snapshots were not replicated, so nobody took new ones.
    wait_for(
        "snapshots to catch up",
        lambda: FAULT_STEP < lab.newest_common_snapshot(job_id) >= lab.step_of(job_id) - 1,
    )
    assert lab.client.job(job_id)["generation"] == 1
    assert lab.incidents(job_id) == []
    lab.kill_rank(host["ranks"][0], job_id)
    lab.let_go("agent-killed")
    job = ends_equal(job_id)
    assert recovery_of(job)["sources"] == {"own_memory": 8, "peer_memory": 0, "object_store": 0}
    (incident,) = lab.incidents(job_id)
    assert incident["kind"] == "rank_killed"
    assert incident["lost_steps"] <= 1


def test_no_spare_left_waits_says_so_and_goes_on_when_one_joins(lab: Lab, ends_equal):
    """The spare has died before: the job waits for a host, not for a person."""
    job_id = lab.submit_unhurried("no-spare", after=2)
    lab.wait_step(job_id, 1)
    gone, *others = _spares(lab)
    for spare in others:
        lab.client.cordon(spare, "no spare for this test")
    lab.kill_host(gone)
    wait_for("no spare to be left", lambda: not _spares(lab))
    lab.let_go("no-spare")
    lab.wait_step(job_id, FAULT_STEP)
    victim = lab.hosts_of(job_id)[2]["host_id"]
    lab.kill_host(victim)
    job = lab.wait_phase(job_id, "waiting_for_hosts")
    assert job["hosts_short"] == 1
    waits = lab.client.job(job_id)["waits"]
    assert (waits["stage"], waits["awaited"]) == ("place", "spare")
    assert waits["since_ms"] >= job["recoveries"][-1]["begun_at_ms"]
    lab.start_host(gone)
    lab.client.uncordon(gone, now=True)
    ends_equal(job_id)
    causes = lab.client.goodput(job_id)["causes"]
    assert causes["waiting_for_hosts"] > 0


def test_holder_of_the_only_copies_lost_while_the_job_waits(lab: Lab, ends_equal):
    """The others have brought copies meanwhile: it goes on from memory, not from the store."""
    job_id = lab.submit_unhurried("pair-one-by-one", after=FAULT_STEP)
    lab.wait_step(job_id, 1)
    for spare in _spares(lab):
        lab.client.cordon(spare, "no spare for this test")
    lab.wait_step(job_id, FAULT_STEP)
    owner = lab.hosts_of(job_id)[2]
    holder = owner["replica_host_id"]
    lab.kill_host(owner["host_id"])
    lab.wait_phase(job_id, "waiting_for_hosts")
    wait_for("second copies", lambda: lab.kept_twice(job_id))
    lab.kill_host(holder)
    wait_for("the second loss to be known", lambda: lab.client.job(job_id)["hosts_short"] == 2)
    lab.let_go("pair-one-by-one")
    for host_id in (owner["host_id"], holder):
        lab.start_host(host_id)
        if lab.hosts()[host_id]["state"] == "cordoned":
            lab.client.uncordon(host_id, now=True)
    job = ends_equal(job_id)
    last = [g for g in job["recoveries"] if g["restore_step"] is not None][-1]
    assert last["restore_step"] >= FAULT_STEP
    assert last["sources"]["object_store"] == 0


def _answers(lab: Lab) -> bool:
    try:
        lab.client.jobs()
    except EverstepError:
        return False
    return True


def _heard_since(lab: Lab, host: dict[str, Any], at_ms: int) -> bool:
    heard = lab.hosts()[host["host_id"]]["last_heartbeat_ms"]
    return heard is not None and heard > at_ms + 500


def _spares(lab: Lab) -> list[str]:
    return sorted(h["host_id"] for h in lab.hosts().values() if h["state"] == "spare")
