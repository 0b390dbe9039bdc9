"""What lies in the object store after a run, read by people who have nothing of ours."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from tests import command
from tests.e2e.lab import OBJECT_EVERY, STEPS, Lab

from everstep.cli.demo_state import open_store, wait_durable

pytestmark = [pytest.mark.stack, pytest.mark.torch, pytest.mark.timeout(400)]


def everstep(lab: Lab, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a command against the lab's stack."""
    return command.everstep("--state", str(lab.paths.root), *arguments)


def test_checkpoint_is_checked_and_its_model_exported(lab: Lab, reference: str, tmp_path: Path):
    """By command, from the real store; then a bit of an object is flipped there."""
    checkpoint = wait_durable(lab.client, reference, 2 * OBJECT_EVERY)
    which = (reference, str(checkpoint["step"]))
    shown = everstep(lab, "checkpoints", "show", *which).stdout
    assert "of 8 ranks" in shown
    assert everstep(lab, "checkpoints", "verify", *which).stdout.startswith("all 8 objects are so")
    out = tmp_path / "model.safetensors"
    done = everstep(lab, "checkpoints", "export", *which, "--out", str(out), "--json")
    model = load_file(out)
    assert json.loads(done.stdout)["tensors"] == len(model)
    assert model["embedding.weight"].shape[1] == 32
    assert all(tensor.isfinite().all() for tensor in model.values())

    async def flip() -> None:
        async with open_store(lab.stack)() as store:
            uri = str(Path(checkpoint["manifest_uri"]).parent / "rank-00003.shard")
            data = bytearray(await store.get(uri))
            data[len(data) // 3] ^= 1
            await store.put(uri, bytes(data))

    asyncio.run(flip())
    bad = everstep(lab, "checkpoints", "verify", *which)
    assert bad.returncode == 1
    assert "rank 3, " in bad.stdout
    assert "1 of 8 objects are bad" in bad.stdout
    assert "the registry knows" in bad.stderr
    shown = everstep(lab, "checkpoints", "show", *which).stdout
    assert "found the object of rank 3 bad (rank 3: " in shown
    plan = ("checkpoints", "plan", *which[:1], "--from-step", which[1], "--json")
    left = json.loads(everstep(lab, *plan).stdout)
    assert left["step"] < int(which[1]), left
    refused = everstep(lab, "checkpoints", "export", *which, "--out", str(tmp_path / "no"))
    assert refused.returncode == 1
    assert "expected xxh3-128" in refused.stderr
    assert not (tmp_path / "no").exists()


def test_stored_checkpoint_is_one_of_torchs_own(lab: Lab, reference: str, tmp_path: Path):
    """The registry has described the folder before it wrote the manifest."""
    manifest = Path(wait_durable(lab.client, reference, STEPS)["manifest_uri"])

    async def download() -> list[str]:
        async with open_store(lab.stack)() as store:
            found = await store.list(f"{manifest.parent}/")
            for info in found:
                (tmp_path / Path(info.key).name).write_bytes(await store.get(info.key))
        return [Path(info.key).name for info in found]

    names = asyncio.run(download())
    ranks = [f"rank-{n:05d}.shard" for n in range(8)]
    assert names == [".metadata", "manifest.json", "options.distcp", *ranks]
    out = tmp_path / "model.pt"
    converter = [sys.executable, "-m", "torch.distributed.checkpoint.format_utils"]
    subprocess.run([*converter, "dcp_to_torch", str(tmp_path), str(out)], check=True, timeout=120)
    state = torch.load(out)
    assert set(state) == {"model", "optimizer"}
    assert len(state["optimizer"]["state"]) == len(state["model"])
    matrices, vectors = state["optimizer"]["param_groups"]
    assert {*matrices["params"], *vectors["params"]} == set(state["model"])
    assert matrices["lr"] == state["optimizer"]["param_groups.embedding.weight.lr"]
    assert vectors["weight_decay"] == 0
    assert {moments["step"].item() for moments in state["optimizer"]["state"].values()} == {STEPS}
    assert all(tensor.isfinite().all() for tensor in state["model"].values())
