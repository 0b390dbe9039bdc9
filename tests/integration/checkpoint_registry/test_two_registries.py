"""Two registries on one database, bus and store, one of them killed: as if there were one."""

from __future__ import annotations

import asyncio
import json
from contextlib import AsyncExitStack

import httpx
import pytest
from tests.integration.checkpoint_registry.agents import Agents, state_of
from tests.integration.checkpoint_registry.test_judgements import INCIDENT, SPEC
from tests.integration.service_process import FakeService, ServiceProcess, service_process
from tests.waiting import until

from everstep.core.errors import Unavailable

LIMIT_S = 120.0


class Registries:
    """One registry or two, asked in turns; whoever is down is asked again elsewhere."""

    def __init__(self, every: list[ServiceProcess], job_id: str) -> None:
        self.every = every
        self.job_id = job_id

    async def each(self, method: str, path: str, body: dict | None = None) -> None:
        """Send the same to all that are up, at once."""
        answers = await asyncio.gather(
            *(one.http.request(method, path, json=body) for one in self.every),
            return_exceptions=True,
        )
        good = [a for a in answers if isinstance(a, httpx.Response) and a.is_success]
        down = [a for a in answers if isinstance(a, httpx.HTTPError)]
        assert good, answers
        assert len(good) + len(down) == len(answers), answers

    async def reach(self, states: dict[int, str]) -> None:
        """Wait until the first one shows these checkpoints that far."""
        for step, state in states.items():

            async def is_there(step=step, state=state) -> bool:
                return await state_of(self.every[0], self.job_id, step) == state

            await until(is_there, what=f"step {step} is {state}", limit_s=LIMIT_S)


async def told(agents: Agents, *steps: int, generation: int = 1) -> None:
    """Upload and report steps, all at once; a registry that dies meanwhile is asked again."""

    async def one(step: int, rank: int) -> None:
        await agents.upload(step, rank, generation=generation)

        async def taken() -> bool:
            try:
                return (await agents.report(step, rank, generation)).accepted
            except Unavailable:
                return False

        await until(taken, limit_s=LIMIT_S)

    await asyncio.gather(*(one(step, rank) for step in steps for rank in (0, 1)))


@pytest.mark.parametrize("count", [1, 2])
async def test_many_registries_end_where_one_does(
    count, environment, tmp_path, agents, job_id, bus, objects
):
    """Reports, completions, pins, words, suspicions, removals and plans, all at once."""
    agents.shard_bytes = 20_000
    controller, monitor = FakeService(bus, "controller"), FakeService(bus, "monitor")
    async with AsyncExitStack() as stack:
        every = [
            await stack.enter_async_context(
                service_process("checkpoint_registry", environment, tmp_path)
            )
            for _ in range(count)
        ]
        all_of_them = Registries(every, job_id)
        await controller.publish("job_submitted", job_id=job_id, spec_json=json.dumps(SPEC))
        await controller.publish("generation_begun", job_id=job_id, generation=1)
        for step in (1, 2, 3):  # one that is complete gives up older ones that are not
            await told(agents, step)
            await all_of_them.reach({step: "complete"})
        await all_of_them.reach({1: "purged"})
        pin = f"/v1/checkpoints/{job_id}/3/pin"
        await asyncio.gather(told(agents, 4), all_of_them.each("PUT", pin, {"note": "kept"}))
        await told(agents, 5)
        await every[-1].kill()  # whatever it was in the middle of
        if count == 1:
            await every[0].start()
        await all_of_them.reach({4: "complete", 5: "complete", 2: "purged", 3: "complete"})
        if count == 2:
            await every[-1].start()
        await monitor.publish("incident_opened", job_id=job_id, step=8, **INCIDENT)
        await asyncio.gather(
            told(agents, 6, 7, 8),
            *(all_of_them.each("GET", f"/v1/jobs/{job_id}/restore-plan") for _ in range(5)),
        )
        await all_of_them.reach({6: "complete", 7: "complete", 8: "complete", 4: "complete"})
        word = {"trust": "clean", "by": "ann"}
        await all_of_them.each("POST", f"/v1/checkpoints/{job_id}/7/trust", word)
        first, second = await asyncio.gather(agents.plan(2), agents.plan(2))
        assert first == second
        assert first.step == 7
        await monitor.publish("incident_recovered", incident_id="i1", job_id=job_id)
        await all_of_them.each("DELETE", pin)
        for step in (8, 9):
            await told(agents, step, generation=2)
        gone = {3: "purged", 4: "purged", 5: "purged", 6: "purged"}
        await all_of_them.reach({9: "complete", **gone})
        await until(lambda: _kept_objects(objects, job_id), limit_s=LIMIT_S)
        listed = [await one.get("/v1/checkpoints", job_id=job_id) for one in every]
        assert all(one == listed[0] for one in listed)
        kept = [(c["step"], c["generation"], c["state"]) for c in listed[0]["checkpoints"]]
        assert kept == [(9, 2, "complete"), (8, 2, "complete"), (7, 1, "complete")]


async def _kept_objects(objects, job_id) -> bool:
    """Whether exactly the objects of what is kept are there: no orphan, nothing lost."""
    found = {
        one.key.removeprefix(f"jobs/{job_id}/") for one in await objects.list(f"jobs/{job_id}/")
    }
    return found == {
        f"step-{step:08d}/gen-{generation}/{name}"
        for step, generation in ((7, 1), (8, 2), (9, 2))
        for name in ("rank-00000.shard", "rank-00001.shard", "manifest.json")
    }
