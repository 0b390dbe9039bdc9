"""A campaign from beginning to end: the job, the faults, the run to compare with, the report."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from everstep.chaos.campaign import Campaign
from everstep.chaos.hand import Hand
from everstep.chaos.kinds import Equal
from everstep.chaos.outcome import States, make_report, skipped_of, wanted_equal
from everstep.chaos.run import (
    Performance,
    Performed,
    Say,
    marks_of,
    require_chaos,
    require_outside,
    with_faults,
)
from everstep.chaos.truth import match
from everstep.cli.client import Client
from everstep.cli.position import ENDED
from everstep.core.errors import Unavailable
from everstep.core.system import Clock
from everstep.local.state import StatePaths

POLL_S: Final = 0.3


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """Where a campaign is performed.

    Args:
        paths: of the stack.
        client: of its services.
        clock: real time.
        say: is told what happens.
        timeout_s: for one run.
    """

    paths: StatePaths
    client: Client
    clock: Clock
    say: Say
    timeout_s: float


def on_new_job(
    stage: Stage,
    campaign: Campaign,
    spec: dict[str, Any],
    *,
    reference: str = "",
    make_reference: bool = False,
) -> dict[str, Any]:
    """Launch a job, disturb it, and report.

    Args:
        stage: where.
        campaign: what.
        spec: of the job.
        reference: an undisturbed job of the same spec to compare with; "": none.
        make_reference: run what the end state must be equal to, if there is such a run.

    Raises:
        RefusedError: the stack is not for chaos.
        Unavailable: a run does not end in time.
    """
    require_chaos(stage.paths)
    wanted = wanted_equal(campaign)
    if make_reference and not reference and wanted is Equal.UNDISTURBED:
        stage.say("first the undisturbed run")
        reference = run_reference(stage, spec)
    marks = marks_of(stage.paths)
    told = with_faults(spec, campaign, marks)
    job_id = str(stage.client.submit(told)["job_id"])
    stage.say(f"job {job_id} is launched")
    performed = _perform(stage, campaign, job_id, marks)
    if make_reference and wanted is Equal.SKIPPED:
        skipped = skipped_of(stage.client.incidents(job_id))
        stage.say(f"then the run that never saw the batches {skipped}")
        reference = run_reference(stage, without(spec, skipped))
    return _report(stage, campaign, job_id, performed, reference)


def on_running_job(
    stage: Stage, campaign: Campaign, job_id: str, *, reference: str = ""
) -> dict[str, Any]:
    """Disturb a job that runs, and report. Raises as ``on_new_job``, and InvalidInput."""
    require_chaos(stage.paths)
    require_outside(campaign)
    performed = _perform(stage, campaign, job_id, marks_of(stage.paths))
    return _report(stage, campaign, job_id, performed, reference)


def run_reference(stage: Stage, spec: dict[str, Any]) -> str:
    """Run a job undisturbed; returns its id.

    Raises:
        Unavailable: it does not succeed in time.
    """
    spec = {**spec, "name": f"{spec['name']}-reference"}
    job_id = str(stage.client.submit(spec)["job_id"])
    deadline_ms = stage.clock.monotonic_ms() + stage.timeout_s * 1_000
    while (job := stage.client.job(job_id))["phase"] not in ENDED:
        if stage.clock.monotonic_ms() > deadline_ms:
            raise Unavailable(f"the undisturbed job {job_id} did not end in time")
        time.sleep(POLL_S)
    if job["phase"] != "succeeded":
        raise Unavailable(f"the undisturbed job {job_id} {job['phase']}: {job['detail']}")
    return job_id


def without(spec: dict[str, Any], skipped: list[list[int]]) -> dict[str, Any]:
    """Return the spec of the run that never sees these batches."""
    data = spec["data"]
    return {**spec, "data": {**data, "skipped": [*data.get("skipped", []), *skipped]}}


def _perform(stage: Stage, campaign: Campaign, job_id: str, marks: Path) -> Performed:
    hand = Hand(paths=stage.paths, client=stage.client, job_id=job_id, clock=stage.clock)
    performance = Performance(hand, campaign, marks, say=stage.say, timeout_s=stage.timeout_s)
    return performance.run()


def _report(
    stage: Stage, campaign: Campaign, job_id: str, performed: Performed, reference: str
) -> dict[str, Any]:
    client = stage.client
    job = client.job(job_id)
    matching = match(performed.done, client.incidents(job_id), client.refused_sources(job_id))
    comparable = reference and job["phase"] == "succeeded"
    return make_report(
        campaign=campaign,
        job=job,
        matching=matching,
        missed=performed.missed,
        problems=performed.problems,
        ledger=client.goodput(job_id),
        states=compare(stage, job_id, reference) if comparable else States(),
    )


def compare(stage: Stage, job_id: str, reference: str) -> States:
    """Compare the end states of two jobs, bit for bit."""
    from everstep.cli.demo_state import compare_states, open_store, wait_durable

    stage.say("comparing the end states, every tensor of every rank")
    client = stage.client
    found = [wait_durable(client, one, client.job(one)["step"]) for one in (job_id, reference)]
    into = stage.paths.root / "compare"

    async def work() -> States:
        async with open_store(require_chaos(stage.paths))() as store:
            result = await compare_states(store, found[0], found[1], into)
        return States(
            equal=result.equal,
            against=reference,
            tensors_compared=result.tensors_compared,
            differences=result.differences,
        )

    return asyncio.run(work())
