"""How often a run snapshots changes while it runs, and changes nothing of what it computes."""

from __future__ import annotations

import asyncio
import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from tests import command
from tests.e2e.lab import Lab, wait_for

from everstep.cli.demo_state import compare_states, open_store, wait_durable
from everstep.core.errors import InvalidInput, Unavailable

pytestmark = [pytest.mark.stack, pytest.mark.torch, pytest.mark.timeout(600)]

STEPS = 64
FIRST_EVERY = 4
# A chip fails every 1,500 hours, and half of the failures go back to the object store: if a stall
# takes a millisecond or ten, the best interval is most of a minute at least: far from four steps,
# also of two seconds. What a durable snapshot stalls is what it stalls more than the others do, and
# on a busy machine that is lost in their scatter: so there are no others, and none that overlap.
FAILURES = {"chip_mtbf_hours": 1_500.0, "memory_lost_share": 0.5}
CHECKPOINT = {
    "overlap": False,
    "memory_every_steps": FIRST_EVERY,
    "object_every_steps": FIRST_EVERY,
    "failures": FAILURES,
    "keep_last": STEPS,
}


@pytest.fixture(scope="module")
def undisturbed(stack: Lab) -> str:
    """The same job with its first interval all along."""
    stack.heal()
    job_id = stack.submit("steps", steps=STEPS, checkpoint={**CHECKPOINT, "interval": "steps"})
    stack.succeeded(job_id)
    return job_id


def in_force(lab: Lab, job_id: str) -> Any:
    """What is told of a schedule that all ranks follow, or None before the first change."""
    try:
        told = lab.client.interval(job_id)
    except Unavailable:  # it was killed, and will be back
        return None
    return told if told["in_force"] and not told["pending"] else None


def other_objects(lab: Lab, job_id: str) -> Any:
    """What is told once the object tier's interval is another one: not before an upload has ended.

    The first change may be the memory tier's alone, where uploads take longer than eight steps.
    """
    told = in_force(lab, job_id)
    return told if told and told["schedule"]["object_every_steps"] != FIRST_EVERY else None


def every_at(history: list[dict[str, Any]], step: int) -> set[int]:
    """The object intervals that a checkpoint of ``step`` may have been taken under.

    When a change came into force is known to the step at which its first message was heard, so the
    one before may have held for another few steps; and a save that is due while an upload is under
    way waits for the next step.
    """
    found = {FIRST_EVERY}
    for one in history:
        since = one["in_force_step"]
        if since is not None and since <= step:
            found = {one["object_every_steps"]} if step > since + 2 else {*found}
            found.add(one["object_every_steps"])
    return found


def everstep(lab: Lab, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a command against the lab's stack."""
    return command.everstep("--state", str(lab.paths.root), *arguments)


def differences(lab: Lab, job_a: str, job_b: str, into: Path) -> tuple[int, tuple[str, ...]]:
    """Compare the final states of two jobs: tensors compared, and what differs."""
    ends = [wait_durable(lab.client, job_id, STEPS) for job_id in (job_a, job_b)]

    async def compare() -> Any:
        async with open_store(lab.stack)() as store:
            return await compare_states(store, ends[0], ends[1], into)

    found = asyncio.run(compare())
    return found.tensors_compared, found.differences


def test_automatic_interval_changes_live_and_survives_controller_and_rank(
    lab: Lab, undisturbed: str, tmp_path: Path
):
    """The controller dies before the change, a rank after it: one schedule, and the same bits."""
    checkpoint = {**CHECKPOINT, "interval": "auto"}
    # It is not to be over before the new controller has heard of eight steps and an upload.
    job_id = lab.submit_unhurried("auto", after=24, steps=STEPS, checkpoint=checkpoint)
    lab.wait_step(job_id, 2)
    lab.kill_service("controller")
    told = wait_for("another interval in force", lambda: other_objects(lab, job_id))
    assert told["auto"]
    version = told["schedule"]["version"]
    assert told["history"][0]["reason"] == "first_measured"
    assert told["history"][0]["waste_after"] < told["history"][0]["waste_before"]
    lab.kill_rank(5, job_id)
    lab.let_go("auto")
    job = lab.succeeded(job_id)
    assert [one["cause"] for one in job["recoveries"]] == ["launch", "recovery"]
    after = lab.client.interval(job_id)
    assert after["schedule"]["version"] >= version
    history = after["history"]
    steps = lab.complete_steps(job_id) - {STEPS}
    odd = {step for step in steps if not any(step % n <= 2 for n in every_at(history, step))}
    assert odd == set(), (sorted(steps), history)
    assert len(steps) < STEPS // FIRST_EVERY - 1, "the interval in force was not followed"
    compared, found = differences(lab, job_id, undisturbed, tmp_path / "compare")
    assert found == ()
    assert compared > 100


def test_interval_set_by_a_person_holds_until_it_is_let_go(lab: Lab):
    """By command, live; what cannot be is refused with what was expected; each is in the story."""
    checkpoint = {**CHECKPOINT, "interval": "steps"}
    job_id = lab.submit("by-hand", steps=5_000, checkpoint=checkpoint)  # it is stopped
    lab.wait_step(job_id, 2)
    bad = everstep(lab, "jobs", "interval", job_id, "--memory-steps", "0")
    assert bad.returncode != 0
    assert "'--memory-steps': Input should be greater than or equal to 1" in bad.stderr
    with pytest.raises(InvalidInput, match="memory_every_steps: expected 1 to"):
        lab.client.set_interval(job_id, auto=False, memory_steps=0, object_steps=None)
    with pytest.raises(InvalidInput, match="nothing to set"):
        lab.client.set_interval(job_id, auto=False, memory_steps=None, object_steps=None)
    done = everstep(
        lab, "jobs", "interval", job_id, "--object-steps", "7", "--memory-steps", "2", "--json"
    )
    told = json.loads(done.stdout)
    assert told["schedule"] == {"version": 1, "memory_every_steps": 2, "object_every_steps": 7}
    assert not told["auto"]
    seen = wait_for("the ranks to follow", lambda: in_force(lab, job_id))
    since = seen["in_force"]["step"]
    assert [one["reason"] for one in seen["history"]] == ["by_request"]
    assert lab.client.interval(job_id)["would_change"][-1].startswith("nothing by itself")
    lab.wait_step(job_id, since + 9)
    saved = wait_for(
        "a checkpoint under it",
        lambda: {step for step in lab.complete_steps(job_id) if step > since},
    )
    assert {step % 7 for step in saved} <= {0, 1, 2}
    shown = everstep(lab, "jobs", "interval", job_id).stdout
    assert "object     every 7 steps" in shown
    assert f"step {since} of generation 1" in shown
    assert "by request" in shown
    lab.client.act(job_id, "stop")
    lab.wait_phase(job_id, "stopped")
    refused = everstep(lab, "jobs", "interval", job_id, "--auto")
    assert refused.returncode != 0
    assert "it takes no more snapshots" in refused.stderr
