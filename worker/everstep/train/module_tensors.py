"""Which tensors of a module a snapshot keeps: those of its state dict, if they are its own.

A snapshot copies tensors where they lie, and a restore writes into them. A module may give others
out (FSDP1 gathers, hooks copy): a snapshot would keep what the model was when it was tracked, and
a resume would train on from the fresh initialisation without a word. So these are refused by name.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from everstep.train.gradients import local_part
from everstep.train.places import NamedTensors
from everstep.train.tree import UnsupportedStateError

_GATHERS: Final = "FullyShardedDataParallel"
_FULLY_SHARD: Final = "Shard with torch.distributed.fsdp.fully_shard instead of FSDP1"
_NO_HOOK: Final = "Give out the parameters themselves: track it without the hook that changes them"


def module_tensors(name: str, module: nn.Module) -> NamedTensors:
    """Return a module's parameters and persistent buffers, each once, under ``name.``."""
    found: NamedTensors = []
    seen: set[int] = set()
    for key, value in module.state_dict(keep_vars=True).items():
        if isinstance(value, Tensor) and id(value) not in seen:
            seen.add(id(value))
            found.append((f"{name}.{key}", value))
    return found


def require_own(name: str, module: nn.Module, kept: NamedTensors, trained: set[int]) -> None:
    """Check that what is kept of a module is the memory that it trains in.

    A state dict may leave out what no optimizer trains: a new process makes that anew.

    Args:
        name: the module's.
        module: a tracked one.
        kept: what ``module_tensors`` says of it.
        trained: identities of the parameters of tracked optimizers.

    Raises:
        UnsupportedStateError: names the parameter or buffer of which only a copy would be kept, or
            the trained parameter that would not be kept at all.
    """
    keys = {key for key, _ in kept}
    tensors = {id(tensor) for _, tensor in kept}
    places: set[int] | None = None  # most modules never need it
    gathers = any(type(part).__name__ == _GATHERS for part in module.modules())
    for key, tensor in _own(module):
        path = f"{name}.{key}"
        if id(tensor) in tensors or not (gathers or path in keys or id(tensor) in trained):
            continue
        if places is None:
            places = {place for _, one in kept for place in _place(one)}
        if not places.isdisjoint(_place(tensor)):
            continue
        what = "nothing" if path not in keys and not gathers else "a copy"
        raise UnsupportedStateError(
            f"state_dict() of {name} gives out {what} of {path}, so no snapshot would hold what "
            f"it is trained to. {_FULLY_SHARD if gathers else _NO_HOOK}"
        )


def with_extra_state(module: nn.Module) -> Iterable[tuple[str, nn.Module]]:
    """Yield the parts that keep more than tensors, with their paths."""
    for path, part in module.named_modules():
        if type(part).get_extra_state is not nn.Module.get_extra_state:
            yield path or "root", part


def _own(module: nn.Module) -> Iterator[tuple[str, Tensor]]:
    yield from module.named_parameters()
    yield from module.named_buffers()


def _place(tensor: Tensor) -> Iterator[int]:
    """Yield where a tensor's memory begins, if it has any."""
    if not is_lazy(tensor):
        local = local_part(tensor)
        place = local.untyped_storage().data_ptr() if local.device.type != "meta" else 0
        if place:
            yield place
