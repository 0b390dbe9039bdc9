"""Pins, trust, suspicions and the dry plan over HTTP and NATS, on a real database and store."""

from __future__ import annotations

import json

from tests.integration.checkpoint_registry.agents import REPLY_S, reaches
from tests.integration.service_process import FakeService
from tests.waiting import until

from everstep.service.commands import host_subject, send_command
from everstep.wire.v1 import agents_pb2, checkpoints_pb2
from everstep.wire.v1.common_pb2 import CommandReply, HeldSnapshots

SPEC = {
    "name": "test",
    "entry": "module:function",
    "layout": {"tp": 2},
    "steps": 100,
    "checkpoint": {"keep_last": 2, "keep_days": 1},
}
INCIDENT = {"incident_id": "i1", "kind": "loss_spike", "generation": 1, "reason": "2.1 -> 9.4"}


async def begin(bus, job_id) -> None:
    """Let the controller tell of a job."""
    controller = FakeService(bus, "controller")
    await controller.publish("job_submitted", job_id=job_id, spec_json=json.dumps(SPEC))
    await controller.publish("generation_begun", job_id=job_id, generation=1)


async def trusts(registry, job_id) -> dict[int, str]:
    """What each checkpoint is worth, by step."""
    found = (await registry.get("/v1/checkpoints", job_id=job_id))["checkpoints"]
    return {one["step"]: one["trust"] for one in found}


async def test_numerical_incident_of_the_monitor_takes_its_steps_out_of_restores(
    registry, agents, job_id, bus
):
    """Published as the monitor does; a person's word puts one step back; all survives a crash.

    Incidents beside which the run goes on with the state that it has take nothing out.
    """
    await begin(bus, job_id)
    for step in (10, 20):
        await agents.save(step)
        await reaches(registry, job_id, step, "complete")
    monitor = FakeService(bus, "monitor")
    for action in ("NOTE", "DRAIN"):
        beside = {**INCIDENT, "incident_id": action, "kind": "silent_corruption", "action": action}
        await monitor.publish("incident_opened", job_id=job_id, step=21, **beside)
    await monitor.publish("incident_opened", job_id=job_id, step=22, **INCIDENT)

    async def is_suspect() -> bool:
        return await trusts(registry, job_id) == {10: "clean", 20: "suspect"}

    await until(is_suspect)
    await registry.kill()
    await registry.start()
    assert await is_suspect()
    plan = await registry.get(f"/v1/jobs/{job_id}/restore-plan")
    assert (plan["restorable"], plan["step"], plan["object_store"]) == (True, 10, 2)
    why = "step 20: suspect (loss_spike from step 19: 2.1 -> 9.4)"
    assert plan["passed_over"] == [why]
    refused = await agents.plan(2, from_step=20)
    assert refused.outcome.why == "no_such_step"
    assert f"`everstep checkpoints trust {job_id} 20 clean`" in refused.outcome.detail
    word = {"trust": "clean", "why": "looked at the curve", "by": "ann"}
    said = await registry.http.post(f"/v1/checkpoints/{job_id}/20/trust", json=word)
    assert said.is_success, said.text
    shown = await registry.get(f"/v1/checkpoints/{job_id}/20")
    assert (shown["restorable"], shown["trust"]) == (True, "clean")
    assert shown["trust_why"] == "ann said clean: looked at the curve"
    assert (await agents.plan(2, from_step=20)).step == 20
    await monitor.publish("incident_recovered", incident_id="i1", job_id=job_id)

    async def is_resolved() -> bool:
        found = (await registry.get(f"/v1/jobs/{job_id}/suspicions"))["suspicions"]
        return all(one["resolved"] for one in found)

    await until(is_resolved)


async def test_pinned_checkpoint_outlives_retention_until_it_is_unpinned(
    registry, agents, job_id, bus
):
    """And what cannot be pinned is refused in words."""
    await begin(bus, job_id)
    await agents.save(10)
    await reaches(registry, job_id, 10, "complete")
    pin = f"/v1/checkpoints/{job_id}/10/pin"
    assert (await registry.http.put(pin, json={"note": "paper", "by": "ann"})).is_success
    for step in (20, 30, 40, 50):
        await agents.save(step)
        await reaches(registry, job_id, step, "complete")
    await reaches(registry, job_id, 20, "purged")
    shown = await registry.get(f"/v1/checkpoints/{job_id}/10")
    assert (shown["state"], shown["pinned"], shown["pin_note"], shown["pinned_by"]) == (
        "complete",
        True,
        "paper",
        "ann",
    )
    assert shown["layout"] == {"pp": 1, "dp_replicate": 1, "dp_shard": 1, "tp": 2}
    await agents.upload(60, 0)
    await agents.report(60, 0)
    for step, status, words in (
        (20, 409, "was deleted (retention)"),
        (60, 409, "only a complete one"),
        (70, 404, "has no checkpoint of step 70"),
    ):
        refused = await registry.http.put(f"/v1/checkpoints/{job_id}/{step}/pin", json={})
        assert refused.status_code == status, refused.text
        assert words in refused.json()["error"]["message"]
    assert (await registry.http.delete(pin)).is_success
    await reaches(registry, job_id, 10, "purged")


async def test_numbers_beyond_64_bits_are_refused_as_bad_input(registry, job_id):
    """No table and no message can hold them; that is the caller's fault and not ours."""
    for method, path, body in (
        ("GET", f"/v1/checkpoints/{job_id}/{2**63}", None),
        ("GET", f"/v1/checkpoints/{job_id}/1?generation={2**63}", None),
        ("PUT", f"/v1/checkpoints/{job_id}/{2**63}/pin", {}),
        ("POST", f"/v1/jobs/{job_id}/suspicions", {"from_step": 2**63}),
        ("GET", f"/v1/jobs/{job_id}/restore-plan?from_step={2**63}", None),
    ):
        answer = await registry.http.request(method, path, json=body)
        assert answer.status_code == 422, (path, answer.text)
    unknown = await registry.http.get(f"/v1/jobs/{job_id}/restore-plan")
    assert unknown.status_code == 404
    suspect = await registry.http.post(f"/v1/jobs/{job_id}/suspicions", json={"from_step": 1})
    assert suspect.status_code == 404


async def test_dry_plan_says_from_where_each_rank_would_load(registry, agents, job_id, bus):
    """From what the hosts told with their newest step, without deciding anything."""
    await begin(bus, job_id)
    await agents.save(10)
    await reaches(registry, job_id, 10, "complete")
    await agents.upload(20, 0)
    await agents.report(20, 0)
    held = [
        HeldSnapshots(step=15, own=True, generation=1, ranks=[0]),
        HeldSnapshots(step=15, own=False, generation=1, ranks=[1]),
        HeldSnapshots(step=16, own=True, generation=1, ranks=[0]),
    ]
    metrics = agents_pb2.StepMetrics(host_id="h0", job_id=job_id, generation=1, at_ms=5, held=held)
    await bus.publish(host_subject("h0", "metrics"), metrics.SerializeToString())

    async def from_memory() -> dict:
        found = await registry.get(f"/v1/jobs/{job_id}/restore-plan")
        return found if found["step"] == 15 else {}

    plan = await until(from_memory)
    assert (plan["own_memory"], plan["peer_memory"], plan["generation"]) == (1, 1, 2)
    assert [rank["sources"] for rank in plan["ranks"]] == [["own h0"], ["peer h0"]]
    assert plan["passed_over"] == [
        "step 20: of its checkpoint only 1 of 2 objects are stored",
        "step 16: rank 1 has no source",
    ]
    command = checkpoints_pb2.SuspectSteps(
        job_id=job_id, from_step=12, to_step=-1, why="the curve", by="ann", at_ms=1
    )
    reply = await send_command(bus, "checkpoint_registry", command, CommandReply, timeout_s=REPLY_S)
    assert reply.outcome.accepted
    plan = await registry.get(f"/v1/jobs/{job_id}/restore-plan")
    assert (plan["step"], plan["object_store"]) == (10, 2)
    assert "step 15: suspect (by_hand from step 12: the curve)" in plan["passed_over"]
    (found,) = (await registry.get(f"/v1/jobs/{job_id}/suspicions"))["suspicions"]
    end = f"/v1/jobs/{job_id}/suspicions/{found['suspicion_id']}/end"
    assert (await registry.http.post(end, json={"false_alarm": True})).is_success
    assert (await registry.get(f"/v1/jobs/{job_id}/restore-plan"))["step"] == 15
