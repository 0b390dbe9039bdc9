"""A job with `no_spare: elastic` goes on with fewer replicas, and grows back, on the real stack."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.e2e.lab import STEPS, Lab, wait_for

from everstep.data.loader import BatchPlan
from everstep.data.shards import open_shards

pytestmark = [pytest.mark.stack, pytest.mark.torch, pytest.mark.timeout(400)]

# The samples are the same, and each micro-batch's bits; the sums over them are taken in another
# order. `tests/integration/train/test_resharding.py` says what was seen, and why this bound.
LOSS_BOUND = 1e-5
LOST_AT, BACK_AT = 5, 12

WATCHED = '''
"""The reference model, telling which samples each group trains on."""
import json
import os

import everstep.models.pretrain


def main(run):
    batches = run.batches
    first = run.mesh.get_local_rank("tp") == run.mesh.get_local_rank("pp") == 0

    def telling(dataset=None):
        for batch in batches(dataset):
            if first:
                told = [run.step_index + 1, batch.position, run.data_parallel_index, batch.samples]
                with open(f"{os.environ['TOLD']}-{run.data_parallel_index}", "a") as file:
                    print(json.dumps(told), file=file)
            yield batch

    run.batches = telling
    if "GO_ON" in os.environ:
        import unhurried

        unhurried.main(run)
    else:
        everstep.models.pretrain.main(run)
'''


def watched(lab: Lab, name: str) -> dict[str, Any]:
    """The usual job without dropout: masks would be drawn by other groups."""
    (lab.corpus.parent / "watched.py").write_text(WATCHED)
    args = {**lab.spec(name)["args"], "dropout": 0.0}
    env = {"TOLD": str(lab.corpus.parent / f"told-{name}")}
    return {"entry": "watched:main", "args": args, "env": env}


def samples_by_step(lab: Lab, name: str) -> dict[int, list[int]]:
    """What each step was trained on, all groups in order; of what was done again, the last."""
    told: dict[int, dict[int, list[int]]] = {}
    for path in sorted(lab.corpus.parent.glob(f"told-{name}-*")):
        for line in path.read_text().splitlines():
            step, position, group, samples = json.loads(line)
            assert position == step - 1
            told.setdefault(step, {})[group] = samples
    whole: dict[int, list[int]] = {}
    for step, groups in told.items():
        count = 8 // len(groups[0])  # groups that trained last: those of more are older
        whole[step] = [one for group in range(count) for one in groups[group]]
    return whole


def test_host_lost_without_a_spare_goes_on_with_half_and_grows_back(lab: Lab):
    """Nobody waits: 4 of 8 ranks go on from memory, all 8 as soon as there is a host.

    What the other four would have done is no useful time.
    """
    reference = lab.submit("full", **watched(lab, "full"))
    lab.succeeded(reference)
    lab.heal()
    shape = {**watched(lab, "elastic"), "recovery": {"no_spare": "elastic"}}
    job_id = lab.submit_unhurried("elastic", after=BACK_AT, **shape)  # it is to grow before its end
    lab.wait_step(job_id, 1)
    spares = [h["host_id"] for h in lab.hosts().values() if h["state"] == "spare"]
    for spare in spares:
        lab.client.cordon(spare, "no spare for this test")
    lab.wait_step(job_id, LOST_AT)
    lab.kill_host(lab.hosts_of(job_id)[1]["host_id"])
    wait_for("half of the ranks", lambda: len(lab.hosts_of(job_id)) == 2)
    lab.wait_step(job_id, BACK_AT)
    reduced = lab.client.job(job_id)
    lab.client.uncordon(spares[0])
    wait_for("all ranks", lambda: len(lab.hosts_of(job_id)) == 4)
    lab.let_go("elastic")
    job = lab.succeeded(job_id)

    assert (reduced["ranks"], reduced["world_size"]) == (4, 8)
    assert reduced["reduced_since_ms"] == job["recoveries"][1]["begun_at_ms"]
    assert (job["ranks"], job["reduced_since_ms"]) == (8, None)
    assert reduced["placement"]["layout"] == {"pp": 2, "dp_replicate": 1, "dp_shard": 1, "tp": 2}
    assert [one["cause"] for one in job["recoveries"]] == ["launch", "recovery", "grow"]
    assert "4 of 8 ranks" in job["recoveries"][1]["remark"]
    assert job["recoveries"][2]["restore_step"] >= BACK_AT, "growing has lost steps"
    for recovery in job["recoveries"][1:]:
        assert recovery["sources"]["object_store"] == 0
    assert len(job["placement"]["hosts"]) == 4
    goodput = lab.client.goodput(job_id)
    assert goodput["causes"]["degraded"] > 0
    assert sum(goodput["causes"].values()) == goodput["wall_ms"]
    assert lab.client.goodput(reference)["causes"]["degraded"] == 0

    dataset = open_shards(lab.corpus)
    plan = BatchPlan(seed=20, samples=dataset.samples(32), global_batch=8, micro_batch=2)
    expected = {s: [n for m in plan.batch(s - 1) for n in m] for s in range(1, STEPS + 1)}
    assert samples_by_step(lab, "elastic") == expected
    assert lab.losses(job_id) == pytest.approx(lab.losses(reference), rel=LOSS_BOUND)
