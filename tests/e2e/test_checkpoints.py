"""What lies in the object store after a run, read by people who have nothing of ours."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from tests.e2e.lab import STEPS, Lab

from everstep.cli.demo_state import open_store, wait_durable

pytestmark = [pytest.mark.stack, pytest.mark.torch, pytest.mark.timeout(400)]


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
    assert names == [".metadata", "manifest.json", *(f"rank-{n:05d}.shard" for n in range(8))]
    out = tmp_path / "model.pt"
    converter = [sys.executable, "-m", "torch.distributed.checkpoint.format_utils"]
    subprocess.run([*converter, "dcp_to_torch", str(tmp_path), str(out)], check=True, timeout=120)
    state = torch.load(out)
    assert set(state) == {"model", "optimizer"}
    assert len(state["optimizer"]["state"]) == len(state["model"])
    assert {moments["step"].item() for moments in state["optimizer"]["state"].values()} == {STEPS}
    assert all(tensor.isfinite().all() for tensor in state["model"].values())
