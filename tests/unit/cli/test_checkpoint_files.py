"""Checking a checkpoint's objects, and putting its tensors together."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
import torch
import xxhash
from safetensors.torch import load_file
from torch import Tensor

from everstep.cli import checkpoint_files
from everstep.core.errors import CorruptData, InvalidInput, NotFoundError
from everstep.memory.reader import SlotReader
from everstep.memory.slot import PREAMBLE_BYTES, read_preamble
from everstep.memory.torch_parts import described, torch_files
from everstep.memory.writer import Owner, Part, SlotWriter, TensorSpec
from everstep.objectstore.memory import MemoryObjects

WEIGHT = torch.arange(24, dtype=torch.float32).view(6, 4)
BIAS = torch.arange(6).to(torch.bfloat16)
SCALE = torch.tensor(3, dtype=torch.int64)


OPTIMIZER = {
    "optimizer": msgspec.msgpack.encode([{"lr": 0.5, "betas": {"!tuple": [0.9, 0.99]}}]),
    "optimizer.layout": msgspec.msgpack.encode(
        {"parameters": ["weight", "bias"], "group_sizes": [2], "states": {}}
    ),
}


def slot(path: Path, rank: int, tensors: list[tuple[Part, Tensor]]) -> bytes:
    """A rank's object."""
    specs = [
        TensorSpec(
            name=".".join(part.path),
            dtype=str(tensor.dtype).removeprefix("torch."),
            shape=tuple(tensor.shape),
            bytes=tensor.numel() * tensor.element_size(),
            part=part,
        )
        for part, tensor in tensors
    ]
    writer = SlotWriter(path, Owner(job_id="j", rank=rank, world_size=2, generation=1), specs)
    writer.begin()
    for spec, (_, tensor) in zip(specs, tensors, strict=True):
        raw = tensor.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
        writer.buffers[spec.name][:] = raw
    writer.commit(step=8, data_state={}, objects=OPTIMIZER)
    writer.close()
    preamble = read_preamble(path)
    assert preamble is not None
    return path.read_bytes()[: preamble.slot_bytes]  # as it is uploaded


def part(name: str, whole: Tensor, *offsets: int, of: str = "model") -> Part:
    """A part that begins at ``offsets``."""
    return Part(path=(of, name), whole=tuple(whole.shape), offsets=offsets)


@pytest.fixture
async def stored(tmp_path: Path):
    """Two ranks: a matrix cut by columns, a vector cut in two, a number that both hold."""
    store = MemoryObjects()
    shards = []
    slots = []
    for rank in (0, 1):
        tensors = [
            (part("weight", WEIGHT, 0, 2 * rank), WEIGHT[:, 2 * rank : 2 * rank + 2]),
            (part("bias", BIAS, 3 * rank), BIAS[3 * rank : 3 * rank + 3]),
            (part("scale", SCALE), SCALE),
            (part("weight", WEIGHT, 0, 2 * rank, of="ema"), WEIGHT[:, 2 * rank : 2 * rank + 2]),
        ]
        data = slot(tmp_path / f"slot-{rank}", rank, tensors)
        uri = f"jobs/j/step-00000008/gen-1/rank-0000{rank}.shard"
        await store.put(uri, data)
        checksum = xxhash.xxh3_128_hexdigest(data)
        shards.append({"rank": rank, "uri": uri, "bytes": len(data), "checksum": checksum})
        with SlotReader(tmp_path / f"slot-{rank}") as reader:
            slots.append(described(reader.header, f"rank-0000{rank}.shard", {}))
    for name, content in torch_files(slots).items():
        await store.put(f"jobs/j/step-00000008/gen-1/{name}", content)
    return store, {"job_id": "j", "step": 8, "generation": 1, "shards": shards}


def leftovers(folder: Path) -> list[Path]:
    """What an export has not cleaned up."""
    return list(folder.glob(".everstep-export-*"))


def quiet(done: int, total: int) -> None:
    """No progress."""


async def test_model_is_put_together_with_its_bits(stored, tmp_path: Path):
    """As the library of the format reads it: names, shapes, dtypes, values."""
    out = tmp_path / "model.safetensors"
    assert await checkpoint_files.export(*stored, "model", out, quiet) == 3
    loaded = load_file(out)
    assert set(loaded) == {"weight", "bias", "scale"}
    for name, tensor in (("weight", WEIGHT), ("bias", BIAS), ("scale", SCALE)):
        assert loaded[name].dtype == tensor.dtype
        assert torch.equal(loaded[name], tensor)
    assert leftovers(tmp_path) == []


@pytest.fixture(params=[signal.SIGTERM, signal.SIGHUP])
def ending(request: pytest.FixtureRequest) -> Iterator[signal.Signals]:
    """A signal that is not ignored, however the tests were started (``nohup``)."""
    before = signal.signal(request.param, signal.SIG_DFL)
    yield request.param
    signal.signal(request.param, before)


def test_export_that_is_ended_leaves_nothing_behind(tmp_path: Path, ending: signal.Signals):
    """Between two objects: the process ends as programs do that the signal ends."""

    class Ending(MemoryObjects):
        async def chunks(self, key, *, chunk_bytes):
            del key, chunk_bytes
            os.kill(os.getpid(), ending)
            await asyncio.sleep(60)
            yield b""

    manifest = {"shards": [{"rank": 0, "uri": "x", "bytes": 1, "checksum": ""}]}
    before = signal.getsignal(ending)
    with pytest.raises(SystemExit) as ended, checkpoint_files.cleaned_up():
        asyncio.run(checkpoint_files.export(Ending(), manifest, "m", tmp_path / "out", quiet))
    assert ended.value.code == 128 + ending
    assert leftovers(tmp_path) == []
    assert signal.getsignal(ending) is before


def test_signal_that_is_sent_again_while_files_are_removed_is_ignored():
    """An impatient supervisor would else leave half of them."""
    removed = []

    def removing() -> None:
        try:
            os.kill(os.getpid(), signal.SIGTERM)
        finally:
            os.kill(os.getpid(), signal.SIGTERM)
            os.kill(os.getpid(), signal.SIGHUP)
            removed.append("all")

    with pytest.raises(SystemExit), checkpoint_files.cleaned_up():
        removing()
    assert removed == ["all"]


async def test_what_was_tracked_by_another_name_is_named(stored, tmp_path: Path):
    """A wrong ``--part`` is answered with those that there are, and leaves no file."""
    with pytest.raises(NotFoundError, match="as 'modell'; there is ema, model"):
        await checkpoint_files.export(*stored, "modell", tmp_path / "out", quiet)
    assert not (tmp_path / "out").exists()


async def test_tensor_of_which_a_part_is_missing_is_refused(stored, tmp_path: Path):
    """A file with holes would load without a word."""
    store, manifest = stored
    half = {**manifest, "shards": manifest["shards"][:1]}
    with pytest.raises(InvalidInput, match=r"bias: 3 of 6 elements"):
        await checkpoint_files.export(store, half, "model", tmp_path / "out", quiet)


async def test_sound_objects_have_no_faults(stored):
    """And are counted."""
    seen: list[tuple[int, int]] = []
    checked = await checkpoint_files.verify(*stored, lambda *done: seen.append(done))
    found = [(one.rank, one.tensors, one.faults) for one in checked.objects]
    assert (found, checked.torch_fault) == ([(0, 4, ()), (1, 4, ())], "")
    assert seen == [(1, 2), (2, 2)]


async def test_flipped_bit_is_named_by_its_tensor(stored, tmp_path: Path):
    """With the object's checksum and the tensor's; and nothing is made of such a checkpoint."""
    store, manifest = stored
    uri = manifest["shards"][1]["uri"]
    data = bytearray(await store.get(uri))
    at = data.index(WEIGHT[:, 2:].contiguous().numpy().tobytes(), PREAMBLE_BYTES)
    data[at + 5] ^= 1
    await store.put(uri, bytes(data))
    good, bad = (await checkpoint_files.verify(store, manifest, quiet)).objects
    assert good.faults == ()
    assert bad.faults[0].startswith("expected xxh3-128 ")
    assert bad.faults[1].startswith("model.weight: checksum expected ")
    assert len(bad.faults) == 2
    with pytest.raises(CorruptData, match=f"{uri}: expected xxh3-128"):
        await checkpoint_files.export(store, manifest, "model", tmp_path / "out", quiet)


async def test_what_torch_is_told_is_checked_too(stored):
    """Sound objects are of no use to plain torch without it."""
    store, manifest = stored
    for name in (".metadata", "options.distcp"):
        uri = f"jobs/j/step-00000008/gen-1/{name}"
        sound = await store.get(uri)
        for damage, said in (
            (store.put(uri, b"xx"), f"{uri} does not describe these objects"),
            (store.delete(uri), f"{uri}: there is no such object"),
        ):
            await damage
            assert (await checkpoint_files.verify(store, manifest, quiet)).torch_fault == said
        await store.put(uri, sound)
    assert not (await checkpoint_files.verify(store, manifest, quiet)).torch_fault


async def test_what_is_gone_cut_short_or_another_ranks_is_told(stored):
    """Each in its own words."""
    store, manifest = stored
    first, second = (shard["uri"] for shard in manifest["shards"])
    data = await store.get(second)
    await store.delete(second)
    *_, gone = (await checkpoint_files.verify(store, manifest, quiet)).objects
    assert gone.faults == ("there is no such object",)
    await store.put(second, data[:-10])
    *_, short = (await checkpoint_files.verify(store, manifest, quiet)).objects
    assert short.faults[0] == f"expected {len(data)} bytes, got {len(data) - 10}"
    assert short.faults[1] == "it is no complete snapshot"
    await store.put(second, await store.get(first))
    *_, other = (await checkpoint_files.verify(store, manifest, quiet)).objects
    assert other.faults[-1] == "it is step 8 of rank 0 of job j"


SHARD = {"rank": 0, "uri": "x", "bytes": 1, "checksum": "00"}
MANIFEST = {"shards": [SHARD], "job_id": "j", "step": 1, "generation": 1}
KNOWN = {**MANIFEST, "manifest_uri": "jobs/j/manifest.json", "state": "complete"}


def test_object_that_is_no_manifest_is_refused():
    """Somebody else's file under that key."""
    assert checkpoint_files.manifest_of(json.dumps(MANIFEST).encode(), KNOWN) == MANIFEST
    bent = {**MANIFEST, "shards": [{**SHARD, "checksvm": SHARD["checksum"]} | {"checksum": None}]}
    empty = {**MANIFEST, "shards": []}
    for data in (b"", b"[]", b"{}", *(json.dumps(one).encode() for one in (bent, empty))):
        with pytest.raises(CorruptData, match=r"jobs/j/manifest\.json is damaged"):
            checkpoint_files.manifest_of(data, KNOWN)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"job_id": "k"}, "is of step 1 of job k, made by generation 1: somebody has put another"),
        ({"step": 2}, "is of step 2 of job j, made by generation 1"),
        ({"generation": 2}, "is of step 1 of job j, made by generation 2"),
        ({"shards": [{**SHARD, "checksum": "01"}]}, r"checksums of ranks \[0\] than the registry"),
        ({"shards": [SHARD, {**SHARD, "rank": 1}]}, r"checksums of ranks \[1\] than the registry"),
    ],
)
def test_manifest_of_another_checkpoint_is_refused(change, said):
    """Whoever copies folders about: another model must not come out under this name."""
    data = json.dumps(MANIFEST | change).encode()
    with pytest.raises(CorruptData, match=said):
        checkpoint_files.manifest_of(data, KNOWN)
