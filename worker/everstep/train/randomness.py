"""The random states of a rank: Python, numpy, torch and its accelerator.

They are part of every snapshot, because a resumed run must draw the dropout masks that the
undisturbed one would have drawn.
"""

from __future__ import annotations

import random
from array import array
from collections.abc import Callable
from typing import Any, Final

import msgspec
import numpy as np
import torch
import xxhash
from torch import Tensor

from everstep.train import tree

TORCH_NAME: Final = "rng.torch"
DEVICE_NAME: Final = "rng.device"


def seed_all(seed: int, *stream: int) -> None:
    """Seed every generator from the run's seed and the coordinates of a stream.

    Ranks that are to draw the same numbers pass the same coordinates.
    """
    text = "/".join(str(part) for part in (seed, *stream))
    number = xxhash.xxh3_64_intdigest(text.encode()) >> 1
    random.seed(number)
    np.random.seed(number % 2**32)  # noqa: NPY002 - the global generator is the one users draw from
    torch.manual_seed(number)


def fix_kernels(device: torch.device) -> None:
    """Allow only kernels that give the same bits each time; where PyTorch has none, it raises.

    Without this the backward pass of fused attention adds up in the order in which its blocks
    happen to end. Only warning is no middle way: attention then stays as it was (seen with cuDNN's
    on an H200). On CPUs a rank has one thread and one order anyway.
    """
    if device.type == "cpu":
        return
    torch.use_deterministic_algorithms(True)
    # Filling what nobody has written yet finds bugs, at the price of a pass over each new tensor.
    torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]  # set through its module's class
    torch.backends.cudnn.benchmark = False  # chooses kernels by the clock


def tensor_states(device: torch.device) -> list[tuple[str, Tensor]]:
    """Return the states that are tensors, by name; new copies at each call."""
    states = [(TORCH_NAME, torch.get_rng_state())]
    if device.type == "cuda":
        states.append((DEVICE_NAME, torch.cuda.get_rng_state(device)))
    return states


def object_states() -> dict[str, Any]:
    """Return the other states as trees."""
    version, words, gauss = random.getstate()
    # 625 words of 32 bits: as bytes, because this is done at every snapshot.
    return {
        "rng.python": [version, array("I", words).tobytes(), gauss],
        "rng.numpy": np.random.get_state(legacy=True),  # noqa: NPY002 - as above
    }


def restore(
    device: torch.device, tensor_of: Callable[[str], Tensor], objects: dict[str, Any]
) -> None:
    """Put all states back."""
    torch.set_rng_state(tensor_of(TORCH_NAME))
    if device.type == "cuda":
        torch.cuda.set_rng_state(tensor_of(DEVICE_NAME), device)
    version, words, gauss = objects["rng.python"]
    random.setstate((version, tuple(array("I", words)), gauss))
    np.random.set_state(objects["rng.numpy"])  # noqa: NPY002 - as above


def packed(device: torch.device) -> bytes:
    """Return all states as bytes, for another rank or for later."""
    tensors = tensor_states(device)
    objects = {name: tree.encode(value, name, []) for name, value in object_states().items()}
    states = {name: one.cpu().numpy().tobytes() for name, one in tensors}
    return msgspec.msgpack.encode([states, objects])


def unpack(device: torch.device, data: bytes) -> None:
    """Put back what ``packed`` returned."""
    states, encoded = msgspec.msgpack.decode(data)

    def tensor_of(name: str) -> Tensor:
        return torch.frombuffer(bytearray(states[name]), dtype=torch.uint8)

    objects = {name: tree.decode(one, tensor_of) for name, one in encoded.items()}
    restore(device, tensor_of, objects)
