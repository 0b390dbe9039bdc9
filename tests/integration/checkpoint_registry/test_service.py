"""The registry over NATS and HTTP, on a real database and object store."""

from __future__ import annotations

import json

from tests.integration.checkpoint_registry.agents import (
    REPLY_S,
    SHARD_BYTES,
    reaches,
    state_of,
)
from tests.integration.service_process import FakeService, service_process
from tests.waiting import until

from everstep.core.system import RandomIds
from everstep.service.commands import host_subject, send_command
from everstep.wire.v1 import agents_pb2, checkpoints_pb2
from everstep.wire.v1.common_pb2 import (
    CommandReply,
    HeldSnapshots,
)
from everstep.wire.v1.envelope_pb2 import EventEnvelope

SPEC = {
    "name": "test",
    "entry": "module:function",
    "layout": {"tp": 2},
    "steps": 100,
    "checkpoint": {"keep_last": 2},
}


async def test_reported_shards_become_a_checkpoint(registry, agents, job_id, objects):
    """Read back, manifest written, listed with all that the table promises."""
    await agents.upload(20, 0, 1)
    assert (await agents.report(20, 0)).accepted
    assert await state_of(registry, job_id, 20) == "collecting"
    assert (await agents.report(20, 1)).accepted
    await reaches(registry, job_id, 20, "complete")
    (listed,) = (await registry.get("/v1/checkpoints", job_id=job_id))["checkpoints"]
    assert listed["bytes"] == 2 * SHARD_BYTES
    assert listed["data_state"] == {"position": 20}
    assert (listed["complete"], listed["restorable"], listed["unusable_why"]) == (True, True, "")
    manifest = json.loads(await objects.get(listed["manifest_uri"]))
    whole = await registry.get(f"/v1/checkpoints/{job_id}/20")
    assert manifest["shards"] == whole["shards"]
    assert [shard["uri"] for shard in whole["shards"]] == [agents.key(20, r) for r in (0, 1)]
    assert (await agents.report(20, 1)).accepted
    missing = await registry.http.get(f"/v1/checkpoints/{job_id}/21")
    assert missing.status_code == 404


async def test_bad_object_is_refused_and_may_be_uploaded_again(registry, agents, job_id, bus):
    """The published event names the object, what was expected and what was found."""
    refusals: list[EventEnvelope] = []

    async def receive(message) -> None:
        refusals.append(EventEnvelope.FromString(message.data))

    subject = f"everstep.v1.event.checkpoint_registry.{job_id}.shards_refused"
    await bus.consume(subject, receive, durable=RandomIds().new_id("test"))
    await agents.upload(20, 0)
    await agents.objects.put(agents.key(20, 1), b"short")
    for rank in (0, 1):
        await agents.report(20, rank)
    await until(lambda: refusals)
    refused = refusals[0].shards_refused
    assert refused.uri == agents.key(20, 1)
    assert refused.why == f"expected {SHARD_BYTES} bytes, got 5"
    assert await state_of(registry, job_id, 20) == "collecting"
    await agents.upload(20, 1)
    await agents.report(20, 1)
    await reaches(registry, job_id, 20, "complete")


async def test_controllers_events_set_retention_and_fence_late_writers(
    registry, agents, job_id, bus, objects
):
    """keep_last comes from the spec; a begun generation makes older reports stale."""
    controller = FakeService(bus, "controller")
    await controller.publish("job_submitted", job_id=job_id, spec_json=json.dumps(SPEC))
    await controller.publish("generation_begun", job_id=job_id, generation=1)
    for step in (10, 20, 30):
        await agents.save(step)
        await reaches(registry, job_id, step, "complete")
    await reaches(registry, job_id, 10, "purged")
    assert await objects.list(f"jobs/{job_id}/step-00000010/") == []
    assert len(await objects.list(f"jobs/{job_id}/step-00000020/")) == 3
    await controller.publish("generation_begun", job_id=job_id, generation=2)

    async def stale() -> bool:
        return (await agents.report(40, 0)).why == "stale_generation"

    await until(stale)
    reply = await send_command(
        bus,
        "checkpoint_registry",
        checkpoints_pb2.ListSteps(job_id=job_id),
        checkpoints_pb2.ListStepsReply,
        timeout_s=REPLY_S,
    )
    assert list(reply.steps) == [20, 30]


async def test_step_that_a_restart_names_stays_while_it_has_no_plan(registry, agents, job_id, bus):
    """The controller says which when it begins the generation, which may wait for hosts."""
    controller = FakeService(bus, "controller")
    await controller.publish("job_submitted", job_id=job_id, spec_json=json.dumps(SPEC))
    for step in (10, 20):
        await agents.save(step)
        await reaches(registry, job_id, step, "complete")
    await controller.publish("generation_begun", job_id=job_id, generation=2, from_step=10)

    async def stale() -> bool:
        return (await agents.report(25, 0)).why == "stale_generation"

    await until(stale)
    for step in (30, 40):
        await agents.save(step, generation=2)
    await reaches(registry, job_id, 20, "purged")
    assert await state_of(registry, job_id, 10) == "complete"


async def test_plan_mixes_sources_and_is_remembered(registry, agents, job_id):
    """Own memory, a replica, and the checkpoint of the same step; asked again it is the same."""
    fresh = await agents.plan(1)
    assert (fresh.outcome.accepted, fresh.step) == (True, -1)
    await agents.save(20)
    await reaches(registry, job_id, 20, "complete")
    held = [(0, 21, True), (0, 20, True), (1, 20, False)]
    plan = await agents.plan(2, *held)
    assert plan.step == 20
    assert list(plan.passed_over) == ["step 21: rank 1 has no source"]
    holders = [(h.host_id, list(h.own), list(h.replicas)) for h in plan.sources.holders]
    assert holders == [("h0", [0], [1])]
    assert [one.uri for one in plan.sources.shards] == [agents.key(20, rank) for rank in (0, 1)]
    assert await agents.plan(2) == plan
    await registry.kill()
    await registry.start()
    assert await agents.plan(2) == plan
    stale = await agents.plan(1)
    assert (stale.outcome.accepted, stale.outcome.why) == (False, "stale_generation")
    wrong = await agents.plan(3, from_step=7)
    assert wrong.outcome.why == "no_such_step"
    assert "steps that exist: 20" in wrong.outcome.detail


async def test_checkpoint_that_a_restart_went_back_over_is_listed_as_abandoned(
    registry, agents, job_id
):
    """What no restore would take is told before somebody asks for it."""
    for step in (20, 30):
        await agents.save(step)
        await reaches(registry, job_id, step, "complete")
    assert (await agents.plan(2, from_step=20)).step == 20
    found = (await registry.get("/v1/checkpoints", job_id=job_id))["checkpoints"]
    assert [(c["step"], c["state"], c["restorable"], c["unusable_why"]) for c in found] == [
        (30, "complete", False, "abandoned"),
        (20, "complete", True, ""),
    ]
    whole = await registry.get(f"/v1/checkpoints/{job_id}/30")
    assert (whole["restorable"], whole["unusable_why"]) == (False, "abandoned")


async def test_killed_registry_completes_what_it_had_heard_of(registry, agents, job_id):
    """SIGKILL between the last report and the manifest: the next one carries on by itself."""
    await agents.save(20)
    await registry.kill()
    await registry.start()
    await reaches(registry, job_id, 20, "complete")


async def test_two_registries_at_once_complete_each_checkpoint_once(
    registry, agents, job_id, bus, environment, tmp_path
):
    """Both may read and write; every step gets one event and a good manifest."""
    completed: list[int] = []

    async def receive(message) -> None:
        completed.append(EventEnvelope.FromString(message.data).checkpoint_completed.step)

    subject = f"everstep.v1.event.checkpoint_registry.{job_id}.checkpoint_completed"
    await bus.consume(subject, receive, durable=RandomIds().new_id("test"))
    async with service_process("checkpoint_registry", environment, tmp_path):
        for step in (10, 20, 30, 40, 50):
            await agents.save(step)
        await reaches(registry, job_id, 50, "complete")
        await reaches(registry, job_id, 20, "purged")
    await until(lambda: 50 in completed)
    assert sorted(completed) == [10, 20, 30, 40, 50]
    found = (await registry.get("/v1/checkpoints", job_id=job_id))["checkpoints"]
    assert [checkpoint["step"] for checkpoint in found] == [50, 40, 30]


async def test_dropped_job_leaves_no_objects(registry, agents, job_id, bus, objects):
    """Complete or not, everything goes."""
    await agents.save(20)
    await reaches(registry, job_id, 20, "complete")
    await agents.upload(30, 0)
    await agents.report(30, 0)
    reply = await send_command(
        bus,
        "checkpoint_registry",
        checkpoints_pb2.DropJobCheckpoints(job_id=job_id, at_ms=1),
        CommandReply,
        timeout_s=REPLY_S,
    )
    assert reply.outcome.accepted
    for step in (20, 30):
        await reaches(registry, job_id, step, "purged")
    assert await objects.list(f"jobs/{job_id}/") == []
    assert (await registry.get("/v1/checkpoints", job_id=job_id))["checkpoints"] == []


async def test_memory_map_shows_what_hosts_hold(registry, job_id, bus):
    """The newest message of every host counts; what cannot be read is dropped."""
    for host, rank in (("h0", 0), ("h1", 1)):
        metrics = agents_pb2.StepMetrics(
            host_id=host,
            job_id=job_id,
            generation=1,
            at_ms=5,
            held=[
                HeldSnapshots(step=step, own=own, generation=1, ranks=[rank])
                for rank, own in ((rank, True), (1 - rank, False))
                for step in (6, 7 + rank)
            ],
        )
        await bus.publish(host_subject(host, "metrics"), b"\xff\xff not metrics")
        await bus.publish(host_subject(host, "metrics"), metrics.SerializeToString())

    async def told_by_both() -> dict:
        answer = await registry.http.get("/v1/memory", params={"job_id": job_id})
        found = answer.json()
        hosts = {copy["host_id"] for rank in found.get("ranks", ()) for copy in rank["copies"]}
        return found if hosts == {"h0", "h1"} else {}

    found = await until(told_by_both)
    assert found["common_step"] == 6
    assert [rank["rank"] for rank in found["ranks"]] == [0, 1]


async def test_job_that_nobody_has_heard_of_is_told_from_one_that_has_nothing_yet(
    registry, job_id, bus
):
    """A mistyped id would look like an answer."""
    for path in ("/v1/checkpoints", "/v1/memory"):
        unknown = await registry.http.get(path, params={"job_id": job_id})
        assert unknown.status_code == 404
        assert f"no job '{job_id}'" in unknown.json()["error"]["message"]
    suspicions = await registry.http.get(f"/v1/jobs/{job_id}/suspicions")
    assert suspicions.status_code == 404
    controller = FakeService(bus, "controller")
    await controller.publish("job_submitted", job_id=job_id, spec_json=json.dumps(SPEC))

    async def heard() -> bool:
        found = await registry.http.get("/v1/memory", params={"job_id": job_id})
        return found.status_code == 200

    await until(heard)
    assert (await registry.get("/v1/checkpoints", job_id=job_id))["checkpoints"] == []
    assert (await registry.get("/v1/memory", job_id=job_id))["ranks"] == []
    assert "checkpoints" in await registry.get("/v1/checkpoints")
