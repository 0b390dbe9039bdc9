"""The same model in every layout, and the same loop without an agent."""

import json
import os
import subprocess
import sys

import pytest
import yaml
from tests.integration.train.conftest import worlds_in
from tests.integration.train.harness import free_port

from everstep.memory.reader import SlotReader

pytestmark = pytest.mark.torch

LAYOUTS = {
    "pp2": {"pp": 2},
    "tp2": {"tp": 2},
    "shard2": {"dp_shard": 2},
    "replicate2": {"dp_replicate": 2},
    "shard2 tp2": {"dp_shard": 2, "tp": 2},
    "replicate2 shard2": {"dp_replicate": 2, "dp_shard": 2},
    "pp2 tp2": {"pp": 2, "tp": 2},
    "pp2 replicate2": {"pp": 2, "dp_replicate": 2},
}
STEPS = 3


def curve(world) -> list[tuple[float, float, int]]:
    """Return loss, gradient norm and tokens of each step."""
    world.start()
    world.finish()
    return [(one["loss"], one["grad_norm"], one["tokens"]) for one in world.ranks[0].steps]


@pytest.fixture(scope="module")
def single(make_spec, tmp_path_factory):
    """Return the curve of the undivided model."""
    with worlds_in(tmp_path_factory.mktemp("single")) as make_world:
        return curve(make_world("single", make_spec({}, steps=STEPS)))


@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS.keys())
def test_every_layout_trains_the_same_model_on_the_same_data(make_world, make_spec, single, layout):
    """Initial weights, batches, mean loss and global gradient norm do not depend on the layout.

    The bits may: sums are split differently. A gradient that is counted twice, or not at all, is
    off by far more than rounding.
    """
    found = curve(make_world("split", make_spec(layout, steps=STEPS)))
    for (loss, norm, tokens), (loss_1, norm_1, tokens_1) in zip(found, single, strict=True):
        assert loss == pytest.approx(loss_1, rel=1e-5)
        assert norm == pytest.approx(norm_1, rel=1e-4)
        assert tokens == tokens_1


def test_tensor_parallel_copies_stay_equal_bit_for_bit(make_world, make_spec):
    """What is replicated over tp or dp_replicate has the same bits on every rank, dropout on."""
    spec = make_spec({"dp_replicate": 2, "tp": 2}, steps=4, args={"dropout": 0.3})
    world = make_world("copies", spec)
    world.start()
    world.finish()
    kept = []
    for path in world.durable():
        with SlotReader(path) as reader:
            kept.append({e.name: e.checksum for e in reader.verify().entries})
    norms = [name for name in kept[0] if "norm" in name]
    assert len(norms) > 10
    for name in norms:
        assert len({rank[name] for rank in kept}) == 1, name
    for name in kept[0]:  # ranks 0, 2 and 1, 3 are copies of each other; dropout masks differ
        if not name.startswith("rng."):
            assert (kept[0][name], kept[1][name]) == (kept[2][name], kept[3][name]), name
    assert kept[0]["rng.torch"] == kept[1]["rng.torch"]
    assert kept[0]["rng.torch"] != kept[2]["rng.torch"]


BARE = """
import json
from everstep.models import pretrain
def main(run):
    pretrain.main(run)
    if run.rank == 0:
        print(json.dumps([run.report.step, run.report.loss, run.report.snapshot_slot]))
"""


def test_bare_run_under_torchruns_variables_equals_the_managed_one(make_world, make_spec, tmp_path):
    """Without an agent the same steps are made, and no snapshots."""
    spec = make_spec({"dp_shard": 2}, steps=STEPS, args={"dropout": 0.1})
    managed = curve(make_world("managed", spec))
    (tmp_path / "bare_entry.py").write_text(BARE)
    (tmp_path / "job.yaml").write_text(yaml.safe_dump({**spec, "entry": "bare_entry:main"}))
    port = free_port()
    ranks = [
        subprocess.Popen(
            [sys.executable, "-m", "everstep.train.bare", "job.yaml"],
            cwd=tmp_path,
            stdout=subprocess.PIPE,
            env={
                **os.environ,
                "RANK": str(rank),
                "WORLD_SIZE": "2",
                "LOCAL_RANK": str(rank),
                "MASTER_ADDR": "127.0.0.1",
                "MASTER_PORT": str(port),
                "GLOO_SOCKET_IFNAME": "lo",
                "OMP_NUM_THREADS": "1",
            },
        )
        for rank in range(2)
    ]
    outputs = [rank.communicate(timeout=120)[0] for rank in ranks]
    assert [rank.returncode for rank in ranks] == [0, 0]
    assert json.loads(outputs[0]) == [STEPS, managed[-1][0], -1]


PLAIN = """
import torch
from everstep.train.session import init
run = init({"layout": {}, "steps": 4})
weight = torch.nn.Parameter(torch.ones(3))
optimizer = torch.optim.SGD([weight], lr=0.1)
run.track(weight=weight, optimizer=optimizer)
while not run.ended:
    weight.square().sum().backward()
    run.step(optimizer, max_grad_norm=1.0)
print(run.step_index, run.report.grad_norm)
"""


def test_plain_python_script_needs_no_launcher(tmp_path):
    """``python script.py`` is a world of one."""
    (tmp_path / "script.py").write_text(PLAIN)
    env = {key: value for key, value in os.environ.items() if not key.startswith("EVERSTEP_")}
    done = subprocess.run(
        [sys.executable, "script.py"],
        cwd=tmp_path,
        env=env,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    step, norm = done.stdout.split()
    assert int(step) == 4
    assert 0 < float(norm) < 2 * 3**0.5
