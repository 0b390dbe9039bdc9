"""A campaign from beginning to end: the job, the faults, the run to compare with, the report."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from everstep.chaos.campaign import Campaign
from everstep.chaos.deadline import Deadline, TimedOut
from everstep.chaos.hand import Hand
from everstep.chaos.kinds import Equal
from everstep.chaos.outcome import (
    States,
    make_report,
    no_like,
    skipped_of,
    wanted_equal,
)
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
from everstep.core.errors import EverstepError, NotFoundError, Unavailable
from everstep.core.system import Clock
from everstep.local.state import StatePaths

POLL_S: Final = 0.3
NAME_MAX: Final = 100  # as core.spec.JobSpec
UNDISTURBED: Final = "-reference"  # at the end of its job's name


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """Where a campaign is performed.

    Args:
        paths: of the stack.
        client: of its services.
        clock: real time.
        say: is told what happens.
        timeout_s: for a campaign, with the undisturbed run and the comparison.
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
        TimedOut: a run does not end in time; it is stopped.
        Unavailable: the undisturbed run that comes first does not succeed. What fails once the job
            has ended is told in the report instead.
    """
    require_chaos(stage.paths)
    deadline = Deadline.after(stage.clock, stage.timeout_s)
    wanted, why = wanted_equal(campaign), ""
    if make_reference and wanted is Equal.NOTHING:
        why = no_like(campaign)
        stage.say(f"no undisturbed run is made: {why}")
    if make_reference and not reference and wanted is Equal.UNDISTURBED:
        stage.say("first the undisturbed run")
        reference = run_reference(stage, spec, deadline)
    marks = marks_of(stage.paths)
    told = with_faults(spec, campaign, marks)
    job_id = str(stage.client.submit(told)["job_id"])
    stage.say(f"job {job_id} is launched")
    with _stopped_at_timeout(stage, job_id):
        performed = _perform(stage, campaign, job_id, marks, deadline)
    if make_reference and wanted is Equal.SKIPPED and performed.job["phase"] == "succeeded":
        try:
            skipped = skipped_of(stage.client.incidents(job_id))
            stage.say(f"then the run that never saw the batches {skipped}")
            reference = run_reference(stage, without(spec, skipped), deadline)
        except EverstepError as error:
            why = str(error)
            performed.problems.append(why)
    return _report(stage, campaign, job_id, performed, reference, deadline, why)


def on_running_job(
    stage: Stage, campaign: Campaign, job_id: str, *, reference: str = ""
) -> dict[str, Any]:
    """Disturb a job that runs, and report; it goes on when the time is up.

    Raises as ``on_new_job``, and InvalidInput.
    """
    require_chaos(stage.paths)
    require_outside(campaign)
    deadline = Deadline.after(stage.clock, stage.timeout_s)
    performed = _perform(stage, campaign, job_id, marks_of(stage.paths), deadline)
    return _report(stage, campaign, job_id, performed, reference, deadline)


def run_reference(stage: Stage, spec: dict[str, Any], deadline: Deadline | None = None) -> str:
    """Run a job undisturbed; returns its id.

    Raises:
        TimedOut: it does not end in time; it is stopped.
        Unavailable: it does not succeed.
    """
    deadline = deadline or Deadline.after(stage.clock, stage.timeout_s)
    name = str(spec["name"])[: NAME_MAX - len(UNDISTURBED)]
    spec = {**spec, "name": f"{name}{UNDISTURBED}"}
    job_id = str(stage.client.submit(spec)["job_id"])
    with _stopped_at_timeout(stage, job_id):
        while (job := stage.client.job(job_id))["phase"] not in ENDED:
            deadline.require(f"the undisturbed job {job_id} is {job['phase']}")
            time.sleep(POLL_S)
    if job["phase"] != "succeeded":
        raise Unavailable(f"the undisturbed job {job_id} {job['phase']}: {job['detail']}")
    return job_id


@contextlib.contextmanager
def _stopped_at_timeout(stage: Stage, job_id: str) -> Iterator[None]:
    """Stop a job of ours that nobody waits for any more: it would keep its hosts and faults."""
    try:
        yield
    except TimedOut as error:
        try:
            stage.client.act(job_id, "stop")
        except EverstepError as trouble:
            raise TimedOut(f"{error}; it could not be stopped: {trouble}") from None
        raise TimedOut(f"{error}; it is stopped") from None


def without(spec: dict[str, Any], skipped: list[list[int]]) -> dict[str, Any]:
    """Return the spec of the run that never sees these batches."""
    data = spec["data"]
    return {**spec, "data": {**data, "skipped": [*data.get("skipped", []), *skipped]}}


def _perform(
    stage: Stage, campaign: Campaign, job_id: str, marks: Path, deadline: Deadline
) -> Performed:
    hand = Hand(paths=stage.paths, client=stage.client, job_id=job_id, clock=stage.clock)
    performance = Performance(hand, campaign, marks, say=stage.say, deadline=deadline)
    return performance.run()


def _report(
    stage: Stage,
    campaign: Campaign,
    job_id: str,
    performed: Performed,
    reference: str,
    deadline: Deadline,
    why: str = "",
) -> dict[str, Any]:
    client = stage.client
    job = client.job(job_id)
    try:
        ledger, refused = client.goodput(job_id), client.refused_sources(job_id)
    except NotFoundError:  # nothing ran: what was asked for and why it failed is told all the same
        ledger, refused = {"wall_ms": 0, "causes": {}}, []
    matching = match(performed.done, client.incidents(job_id), refused)
    states = States(why=why)
    if reference and job["phase"] != "succeeded":
        states = States(why=f"the job {job['phase']}, so that it has no end state")
    elif reference:
        try:
            states = compare(stage, job_id, reference, deadline)
        except (EverstepError, OSError) as error:  # the store is away, or the disk is full
            states = States(why=str(error) or type(error).__name__)
            performed.problems.append(states.why)
    report = make_report(
        campaign=campaign,
        job=job,
        matching=matching,
        missed=performed.missed,
        problems=performed.problems,
        ledger=ledger,
        states=states,
    )
    return {**report, "timed_out": deadline.passed and bool(performed.problems)}


def compare(stage: Stage, job_id: str, reference: str, deadline: Deadline) -> States:
    """Compare the end states of two jobs, bit for bit.

    Raises:
        TimedOut: there is no time left.
        EverstepError: a state is not there, or cannot be had or read.
        OSError: there is no room for what is compared.
    """
    from everstep.cli.demo_state import (
        DURABLE_TIMEOUT_S,
        compare_states,
        open_store,
        wait_durable,
    )

    stage.say("comparing the end states, every tensor of every rank")
    client = stage.client
    doing = "the end states are being compared"
    deadline.require(doing)
    patience_s = min(deadline.left_s, DURABLE_TIMEOUT_S)
    try:
        found = [
            wait_durable(client, one, client.job(one)["step"], timeout_s=patience_s)
            for one in (job_id, reference)
        ]
    except Unavailable:
        deadline.require(doing)
        raise
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

    async def in_time() -> States:
        return await asyncio.wait_for(work(), deadline.left_s)

    try:
        return asyncio.run(in_time())
    except TimeoutError:
        deadline.require(doing)
        raise
