"""What a look at stored objects shows reaches restores, on a real database and object store."""

from __future__ import annotations

from tests.integration.checkpoint_registry.agents import REPLY_S, reaches
from tests.integration.checkpoint_registry.test_judgements import begin

from everstep.service.commands import send_command
from everstep.wire.v1 import checkpoints_pb2


async def test_checkpoint_that_was_found_damaged_is_not_restored_until_it_is_whole_again(
    registry, agents, job_id, bus
):
    """Told over HTTP; the word survives a crash, and a later look takes it back."""
    await begin(bus, job_id)
    for step in (10, 20):
        await agents.save(step)
        await reaches(registry, job_id, step, "complete")
    check = f"/v1/checkpoints/{job_id}/20/check"
    found = {"whole": True, "bad_ranks": [1], "why": "rank 1: gone", "by": "ann"}
    assert (await registry.http.post(check, json=found)).is_success
    await registry.kill()
    await registry.start()
    shown = await registry.get(f"/v1/checkpoints/{job_id}/20")
    assert (shown["restorable"], shown["unusable_why"]) == (False, "spoilt")
    assert (shown["bad_ranks"], shown["checked_by"]) == ([1], "ann")
    assert shown["damage"] == "ann found the object of rank 1 bad (rank 1: gone)"
    assert shown["trust"] == "clean", "the numbers of it are not in question"
    plan = await registry.get(f"/v1/jobs/{job_id}/restore-plan")
    assert plan["step"] == 10
    assert plan["passed_over"] == [f"step 20: its checkpoint is damaged: {shown['damage']}"]
    decided = await agents.plan(2)
    assert (decided.step, list(decided.passed_over)) == (10, plan["passed_over"])
    found = {"whole": True, "bad_ranks": [], "by": "ann"}
    assert (await registry.http.post(check, json=found)).is_success
    shown = await registry.get(f"/v1/checkpoints/{job_id}/20")
    assert (shown["damage"], shown["checked_at_ms"] > 0) == ("", True)


async def test_look_at_what_is_not_there_is_refused(registry, agents, job_id, bus):
    """With what is wrong about it."""
    await begin(bus, job_id)
    await agents.save(10)
    await reaches(registry, job_id, 10, "complete")
    for step, ranks, status, words in (
        (20, [], 404, "has no checkpoint of step 20"),
        (10, [2], 422, "rank 2 of 2 ranks"),
    ):
        answer = await registry.http.post(
            f"/v1/checkpoints/{job_id}/{step}/check", json={"whole": True, "bad_ranks": ranks}
        )
        assert answer.status_code == status, answer.text
        assert words in answer.json()["error"]["message"]


async def test_step_is_looked_at_before_somebody_goes_back_to_it(registry, agents, job_id, bus):
    """As the controller asks; of a bit that has flipped only the checksum tells."""
    await begin(bus, job_id)
    for step in (10, 20):
        await agents.save(step)
        await reaches(registry, job_id, step, "complete")

    async def looked(step: int) -> checkpoints_pb2.CheckStepReply:
        command = checkpoints_pb2.CheckStep(job_id=job_id, step=step)
        return await send_command(
            bus,
            "checkpoint_registry",
            command,
            checkpoints_pb2.CheckStepReply,
            timeout_s=REPLY_S,
        )

    sound = await looked(20)
    assert sound.outcome.accepted, sound
    assert sound.checked.startswith("step 20: all 2 objects are there with the right size; ")
    data = agents.data(20, 1)
    await agents.objects.put(agents.key(20, 1), data[:-1] + bytes([data[-1] ^ 1]))
    damaged = await looked(20)
    assert damaged.outcome.why == "damaged", damaged
    assert damaged.outcome.detail.endswith("steps that may be restored: 10")
    shown = await registry.get(f"/v1/checkpoints/{job_id}/20")
    assert (shown["restorable"], shown["checked_by"]) == (False, "the registry")
    assert (await looked(20)).outcome.why == "no_such_step"
    await agents.objects.delete(agents.key(10, 0))
    assert "rank 0: there is no such object" in (await looked(10)).outcome.detail
