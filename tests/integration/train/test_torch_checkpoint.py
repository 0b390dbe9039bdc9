"""What ranks store is a checkpoint of PyTorch's own, in any layout, with nothing of ours around."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from tests.integration.train.conftest import MODEL, worlds_in

from everstep.memory.reader import SlotReader
from everstep.memory.torch_parts import described, torch_files
from everstep.models.llama import LlamaConfig, Stage, initialise

pytestmark = pytest.mark.torch

# Weights stay as their names and the seed have made them, so what is loaded is known beforehand;
# moments are those of real gradients.
STILL = {"lr": 0.0, "dropout": 0.1}
ALONE = """
import sys
import torch
from torch.distributed import checkpoint
from torch.distributed.checkpoint.filesystem import FileSystemReader

folder, out = sys.argv[1:]
kept = FileSystemReader(folder).read_metadata().state_dict_metadata
state = {
    name: torch.zeros(one.size, dtype=one.properties.dtype) if hasattr(one, "size") else None
    for name, one in kept.items()
}
checkpoint.load(state, checkpoint_id=folder, no_dist=True)
torch.save(state, out)
assert not any(name.partition(".")[0] == "everstep" for name in sys.modules)
"""
RECIPE = """
import sys
import torch
from torch import nn
from torch.distributed import checkpoint
from torch.distributed.checkpoint.filesystem import FileSystemReader
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_state_dict, set_state_dict

folder, out, flat = sys.argv[1:]
kept = FileSystemReader(folder).read_metadata().state_dict_metadata
model = nn.Module()
for name, one in kept.items():
    if name.startswith("model."):
        *path, last = name.removeprefix("model.").split(".")
        part = model
        for key in path:
            if key not in part._modules:
                part.add_module(key, nn.Module())
            part = part._modules[key]
        part.register_parameter(last, nn.Parameter(torch.zeros(one.size)))
groups = [
    {"params": [one for one in model.parameters() if one.dim() >= 2]},
    {"params": [one for one in model.parameters() if one.dim() < 2]},
]
optimizer = torch.optim.AdamW(groups, lr=123.0, betas=(0.1, 0.2), weight_decay=9.0)
options = StateDictOptions(flatten_optimizer_state_dict=flat == "flat")
weights, moments = get_state_dict(model, optimizer, options=options)
state = {"model": weights, "optimizer": moments}
checkpoint.load(state, checkpoint_id=folder, no_dist=True)
set_state_dict(
    model,
    optimizer,
    model_state_dict=state["model"],
    optim_state_dict=state["optimizer"],
    options=options,
)
moments = {name: optimizer.state[one] for name, one in model.named_parameters()}
kept = [{k: v for k, v in group.items() if k != "params"} for group in optimizer.param_groups]
torch.save({"model": model.state_dict(), "moments": moments, "options": kept}, out)
assert not any(name.partition(".")[0] == "everstep" for name in sys.modules)
"""
ELSEWHERE = """
import torch
from torch.distributed import checkpoint
from torch.distributed.tensor import DTensor
from everstep.models.llama import LlamaConfig
from everstep.models.parallel import build_stage

def main(run):
    config = LlamaConfig(**run.args["model"], sequence_tokens=32)
    wanted = build_stage(config, run.mesh, seed=run.spec.seed, device=run.device)
    stage = build_stage(config, run.mesh, seed=run.spec.seed + 1, device=run.device)
    state = {"model": stage.state_dict()}
    checkpoint.load(state, checkpoint_id=run.args["folder"])
    for name, tensor in wanted.state_dict().items():
        got = state["model"][name]
        pair = [one.to_local() if isinstance(one, DTensor) else one for one in (got, tensor)]
        assert torch.equal(*pair), name
"""


@pytest.fixture(scope="module")
def folder(make_spec, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint of eight ranks, as it lies in the object store; tests only read it."""
    directory = tmp_path_factory.mktemp("stored")
    target = directory / "checkpoint"
    target.mkdir()
    slots = []
    with worlds_in(directory) as make_world:
        layout = {"pp": 2, "dp_shard": 2, "tp": 2}
        world = make_world("stored", make_spec(layout, steps=2, args=STILL))
        world.start()
        world.finish()
        for rank, path in enumerate(world.durable()):
            name = f"rank-{rank:05d}.shard"
            shutil.copyfile(path, target / name)
            with SlotReader(path) as reader:
                slots.append(described(reader.header, name, {}))
    for name, content in torch_files(slots).items():
        (target / name).write_bytes(content)
    return target


def test_torch_alone_reads_weights_and_moments_whole(folder: Path, tmp_path: Path):
    """Each tensor put together from the parts of eight ranks, with the bits that they had."""
    out = tmp_path / "whole.pt"
    subprocess.run([sys.executable, "-c", ALONE, str(folder), str(out)], check=True, timeout=120)
    state = torch.load(out)
    config = LlamaConfig(**MODEL, sequence_tokens=32)
    whole = Stage(config, first_layer=0, layer_count=2, has_embedding=True, has_output=True)
    initialise(whole, seed=7)
    weights = dict(whole.named_parameters())
    assert {name.removeprefix("model.") for name in state if name.startswith("model.")} == set(
        weights
    )
    for name, tensor in weights.items():
        assert torch.equal(state[f"model.{name}"], tensor), name
        moment = state[f"optimizer.state.{name}.exp_avg"]
        assert moment.shape == tensor.shape
        assert moment.abs().sum() > 0
        assert state[f"optimizer.state.{name}.step"].item() == 2
    for path in sorted(folder.glob("*.shard")):
        _same_bits(path, state)


@pytest.mark.parametrize("form", ["by group", "flat"])
def test_pytorchs_own_recipe_goes_on_with_the_optimizer(folder: Path, tmp_path: Path, form: str):
    """``get_state_dict``, ``load``, ``set_state_dict``: weights, moments, counters and rates."""
    out = tmp_path / "resumed.pt"
    command = [sys.executable, "-c", RECIPE, str(folder), str(out), form]
    subprocess.run(command, check=True, timeout=120)
    state = torch.load(out)
    told = [[group[key] for key in ("lr", "betas", "weight_decay")] for group in state["options"]]
    assert told == [[0.0, (0.9, 0.95), 0.1], [0.0, (0.9, 0.95), 0.0]]
    for path in sorted(folder.glob("*.shard")):
        whole = {f"model.{name}": one for name, one in state["model"].items()} | {
            f"optimizer.state.{name}.{key}": one
            for name, moments in state["moments"].items()
            for key, one in moments.items()
        }
        _same_bits(path, whole)


def test_torchs_own_converter_makes_one_file_of_it(folder: Path, tmp_path: Path):
    """Nested as the state dicts are: what people do to publish a model."""
    out = tmp_path / "model.pt"
    module = "torch.distributed.checkpoint.format_utils"
    command = [sys.executable, "-m", module, "dcp_to_torch", str(folder), str(out)]
    subprocess.run(command, check=True, timeout=120)
    state = torch.load(out)
    assert set(state) == {"model", "optimizer"}
    wq = "layers.1.attention.wq.weight"
    assert state["model"][wq].shape == (MODEL["dim"], MODEL["dim"])
    assert set(state["optimizer"]["state"][wq]) == {"exp_avg", "exp_avg_sq", "step"}


def _same_bits(path: Path, state: dict[str, torch.Tensor]) -> None:
    """Compare every part of a rank's file with its place in the whole tensor."""
    with SlotReader(path) as reader:
        for entry in reader.header.entries:
            if entry.torch is None:
                continue
            part = state[".".join(entry.torch.path)]
            for dim, (begin, size) in enumerate(zip(entry.torch.offsets, entry.shape, strict=True)):
                part = part.narrow(dim, begin, size)
            bits = part.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
            assert bits == bytes(reader.tensor(entry)), entry.name


@pytest.mark.parametrize(
    "layout",
    [
        {"pp": 2, "dp_shard": 2, "tp": 2},
        {"dp_shard": 2, "tp": 2},
        {"pp": 2, "dp_replicate": 2},
        {"dp_replicate": 2, "dp_shard": 2},
        {},
    ],
    ids=["same", "one-stage", "replicas", "hybrid", "one-rank"],
)
def test_torch_loads_it_into_any_layout(folder: Path, make_world, make_spec, layout):
    """Every rank finds its parts, however the stored ones were cut."""
    spec = make_spec(layout, entry="user_code:main")
    spec["args"] = {"model": MODEL, "folder": str(folder)}
    world = make_world("elsewhere", spec)
    (world.directory / "user_code.py").write_text(ELSEWHERE)
    world.start()
    world.finish()
