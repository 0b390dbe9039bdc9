"""Wrong numbers are put right without a person, and the run ends as if it had never met them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.e2e.lab import Lab

pytestmark = [pytest.mark.stack, pytest.mark.torch, pytest.mark.timeout(600)]

STEPS = 24  # room for a window, a spike, what tells it from a hard batch, and another
SPIKE_AT = 15  # the position of the batch whose update wrecks the model
NAN_AT = 11
NAN_RANK = 3
RULES = {"window_steps": 64, "window_steps_min": 8}
CHECKPOINT = {"object_every_steps": 4, "keep_last": 24}

FAULTY = '''
"""Trains, but some batches wreck the model and some give one rank a gradient that is none."""
import torch
from everstep.models import pretrain


def main(run):
    wrecking, poisonous = run.args.pop("wrecking"), run.args.pop("poisonous")
    batches, step = run.batches, run.step
    now, hooked = [], []

    def watched():
        for batch in batches():
            now[:] = [batch.position]
            yield batch

    def wreck(optimizer, *_):
        if now[0] in wrecking:
            with torch.no_grad():
                for group in optimizer.param_groups:
                    for parameter in group["params"]:
                        parameter.mul_(-6.0)

    def faulty(optimizer, **more):
        if not hooked:
            hooked.append(optimizer.register_step_post_hook(wreck))
        if now[0] in poisonous and run.rank == 3:
            gradient = optimizer.param_groups[0]["params"][0].grad
            gradient.to_local().fill_(float("nan"))
        return step(optimizer, **more)

    run.batches, run.step = watched, faulty
    pretrain.main(run)
'''


@pytest.fixture(scope="module")
def entry(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The script."""
    path = tmp_path_factory.mktemp("entry") / "faulty.py"
    path.write_text(FAULTY)
    return path


def submit(
    lab: Lab,
    entry: Path,
    name: str,
    *,
    wrecking: tuple[int, ...] = (),
    poisonous: tuple[int, ...] = (),
    skipped: list[list[int]] | None = None,
    **rules: Any,
) -> str:
    """Launch the small Llama with these batches gone wrong, or left out from the beginning."""
    spec = lab.spec(name)
    return lab.submit(
        name,
        entry="faulty:main",
        cwd=str(entry.parent),
        args={**spec["args"], "wrecking": wrecking, "poisonous": poisonous},
        data={**spec["data"], "skipped": skipped or []},
        steps=STEPS,
        checkpoint=CHECKPOINT,
        numerics={**RULES, **rules},
    )


def test_loss_spike_goes_back_and_leaves_its_batches_out(lab: Lab, entry: Path, tmp_path: Path):
    """Bit for bit as the run that never saw them; no host is blamed, the lower rate as told."""
    job_id = submit(lab, entry, "spike", wrecking=(SPIKE_AT,))
    job = lab.succeeded(job_id)
    (incident,) = lab.incidents(job_id)
    assert (incident["kind"], incident["action"]) == ("loss_spike", "ROLL_BACK")
    assert (incident["suspect_from_step"], incident["hosts"]) == (SPIKE_AT + 1, [])
    assert incident["recovered_at_ms"] is not None
    ((first, end),) = incident["skipped"]
    assert first == SPIKE_AT
    assert end == incident["step"]
    assert 0 < job["recoveries"][-1]["restore_step"] <= SPIKE_AT
    assert "cordoned" not in {host["state"] for host in lab.hosts().values()}

    same = submit(lab, entry, "never", wrecking=(SPIKE_AT,), skipped=incident["skipped"])
    lab.succeeded(same)
    assert lab.incidents(same) == []
    compared, differences = lab.differences(job_id, same, tmp_path, steps=STEPS)
    assert differences == ()
    assert compared > 100
    assert lab.losses(job_id, steps=STEPS) == lab.losses(same, steps=STEPS)


def test_single_gradient_that_is_none_costs_its_step_alone(lab: Lab, entry: Path):
    """No restart; the incident names the rank, and the step is lost work."""
    job_id = submit(lab, entry, "nan", poisonous=(NAN_AT,))
    job = lab.succeeded(job_id)
    (incident,) = lab.incidents(job_id)
    assert (incident["kind"], incident["action"]) == ("step_skipped", "NOTE")
    assert (incident["ranks"], incident["step"]) == ([NAN_RANK], NAN_AT + 1)
    assert (incident["lost_steps"], incident["recovered_at_ms"] is None) == (1, False)
    assert job["generation"] == 1
    ledger = lab.client.goodput(job_id)
    assert ledger["causes"]["lost_work"] > 0
    assert sum(ledger["causes"].values()) == ledger["wall_ms"]


def test_gradients_that_stay_bad_go_back(lab: Lab, entry: Path, tmp_path: Path):
    """Three in a row: their batches are left out, as if they had never been."""
    bad = (NAN_AT, NAN_AT + 1, NAN_AT + 2)
    job_id = submit(lab, entry, "nans", poisonous=bad)
    lab.succeeded(job_id)
    noted, back = lab.incidents(job_id)
    assert (noted["kind"], back["kind"]) == ("step_skipped", "non_finite")
    assert back["skipped"] == [[NAN_AT - 1, NAN_AT + 3]]
    same = submit(lab, entry, "no-nans", poisonous=bad, skipped=back["skipped"])
    lab.succeeded(same)
    assert lab.differences(job_id, same, tmp_path, steps=STEPS)[1] == ()


def test_spike_that_comes_again_is_held_for_a_person(lab: Lab, entry: Path, tmp_path: Path):
    """The job is paused, says why, and goes on from before it, here without its batches."""
    job_id = submit(lab, entry, "again", wrecking=(SPIKE_AT, SPIKE_AT + 5))
    held = lab.wait_phase(job_id, "paused")
    first, second = lab.incidents(job_id)
    assert (first["action"], second["action"]) == ("ROLL_BACK", "HOLD")
    assert "held: the loss has been raised" in held["detail"]
    assert "numerics.repeat_steps" in held["detail"]
    assert "jobs resume --skip-batches" in held["detail"]
    lab.client.act(job_id, "resume", {"skip_batches": True})
    lab.succeeded(job_id)
    resumed = lab.client.job(job_id)["recoveries"][-1]
    assert 0 < resumed["restore_step"] < second["suspect_from_step"]
    assert lab.incidents(job_id)[2:] == []
    skipped = [*first["skipped"], *second["skipped"]]
    never = submit(lab, entry, "never", wrecking=(SPIKE_AT, SPIKE_AT + 5), skipped=skipped)
    lab.succeeded(never)
    assert lab.differences(job_id, never, tmp_path, steps=STEPS)[1] == ()
