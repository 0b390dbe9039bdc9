"""Where a module keeps its tensors, and what code does to these places while a run goes on.

Buffers are assigned as code likes, and looked up anew at each snapshot. A parameter that is
replaced is one that no optimizer knows, and one that is registered late has no name in a snapshot:
both would be missing from every checkpoint without a word, so they are refused by name.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from everstep.train.endings import StateMismatchError

NamedTensors = list[tuple[str, Tensor]]


class Places:
    """The dicts of modules that hold named tensors.

    Args:
        modules: by the name that they are tracked by.
        kept: their tensors that are kept, with their names.
    """

    def __init__(self, modules: Mapping[str, nn.Module], kept: NamedTensors) -> None:
        names = {id(tensor): name for name, tensor in kept}
        index_of = {name: index for index, (name, _) in enumerate(kept)}
        self._names = [name for name, _ in kept]
        self._parameters: list[tuple[dict[str, Tensor | None], str, Tensor, str]] = []
        self._buffers: dict[int, tuple[dict[str, Tensor | None], str]] = {}
        self._parts: list[tuple[str, nn.Module]] = []
        for tracked, module in modules.items():
            for path, part in module.named_modules():
                self._parts.append((f"{tracked}.{path}" if path else tracked, part))
        for _, part in self._parts:
            for key, parameter in _parameters(part).items():
                name = names.get(id(parameter))
                if parameter is not None and name is not None:
                    self._parameters.append((_parameters(part), key, parameter, name))
            for key, buffer in _buffers(part).items():
                name = names.get(id(buffer))
                if name is not None:
                    self._buffers.setdefault(index_of[name], (_buffers(part), key))
        self._counts = self._count()
        self._keys = [frozenset((*_parameters(part), *_buffers(part))) for _, part in self._parts]

    def buffers(self) -> Iterator[tuple[int, Tensor]]:
        """Yield the buffers as they are now, with their places among what is kept.

        Raises:
            StateMismatchError: one is no tensor any more.
        """
        for index, (holder, key) in self._buffers.items():
            buffer = holder.get(key)
            if buffer is None:
                raise StateMismatchError(
                    f"buffer {self._names[index]} was a tensor when run.track() was called and is "
                    "none now: what is tracked stays as long as the run; register what comes and "
                    "goes with persistent=False"
                )
            yield index, buffer

    def require_same(self) -> None:
        """Check that parameters are those that were tracked, and that there are no more.

        Raises:
            StateMismatchError: names what was replaced or has been added.
        """
        for holder, key, parameter, name in self._parameters:
            now = holder.get(key)
            if now is not parameter and not _is_gathered(now, parameter):
                raise StateMismatchError(
                    f"parameter {name} was replaced after run.track(): the optimizer and every "
                    "snapshot still have the old one. Write into it (with torch.no_grad(): "
                    "parameter.copy_(...)) instead of assigning another"
                )
        if self._count() != self._counts:
            self._refuse_added()
            self._counts = self._count()

    def _count(self) -> list[int]:
        return [len(_parameters(part)) + len(_buffers(part)) for _, part in self._parts]

    def _refuse_added(self) -> None:
        tied = {id(parameter) for _, _, parameter, _ in self._parameters}
        for (path, part), known in zip(self._parts, self._keys, strict=True):
            passing = part._non_persistent_buffers_set  # noqa: SLF001 - there is no public way to ask
            named = {**_parameters(part), **_buffers(part)}
            for key, tensor in named.items():
                kept = key not in known and key not in passing
                if kept and tensor is not None and id(tensor) not in tied:
                    raise StateMismatchError(
                        f"{path}.{key} was registered after run.track(): no snapshot would hold "
                        "it. Register it before, or as a buffer with persistent=False if it need "
                        "not be kept"
                    )


def _is_gathered(now: Tensor | None, parameter: Tensor) -> bool:
    """Whether FSDP has put the whole of a sharded parameter in its place for a while."""
    if now is None or not isinstance(parameter, DTensor):
        return False
    if not isinstance(now, DTensor):
        return True
    return (now.device_mesh, now.placements) != (parameter.device_mesh, parameter.placements)


def _parameters(part: nn.Module) -> dict[str, Tensor | None]:
    return part._parameters  # type: ignore[return-value]  # noqa: SLF001 - the public view walks


def _buffers(part: nn.Module) -> dict[str, Tensor | None]:
    return part._buffers  # noqa: SLF001 - the public view walks
