"""The options of optimizers (rates, decays) as PyTorch's distributed checkpoints keep them.

Tensors lie in the ranks' own files. Everything else that ``get_state_dict`` makes of an optimizer
is one small file of ``torch.save`` an option, and all of them together are one object beside the
ranks'. PyTorch has two forms, and who loads chooses: by group (``param_groups[0]["lr"]``), and flat
(``param_groups.<parameter>.lr``), which is the only one in which pipeline stages, each with an
optimizer of its own, do not collide. Both are written; equal values are written once.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Sequence
from typing import Any, Final

from everstep.core.record import Record
from everstep.objectstore.torch_archive import archive_of
from everstep.objectstore.torch_checkpoint import Saved

OPTIONS_NAME: Final = "options.distcp"
_GROUPS: Final = "param_groups"


class Group(Record, frozen=True, kw_only=True):
    """Parameters that one optimizer treats alike, by name, and how."""

    parameters: tuple[str, ...]
    options: tuple[tuple[str, Any], ...]


class Optimizer(Record, frozen=True, kw_only=True):
    """An optimizer as one rank has it; ``name`` is its key in the nested state dict."""

    name: str
    groups: tuple[Group, ...]


def options_file(optimizers: Iterable[Optimizer]) -> tuple[bytes, tuple[Saved, ...]]:
    """Return the object's content, and what lies where in it.

    Args:
        optimizers: of all ranks, those that are alike once; of several by one name, as stages have
            them, a parameter belongs to the first that names it. By group only where all of them
            have the same groups but for the parameters.
    """
    by_name: dict[str, list[Optimizer]] = {}
    for one in optimizers:
        by_name.setdefault(one.name, []).append(one)
    file = _File()
    for name, ones in by_name.items():
        if _alike(ones):
            _by_group(file, name, ones)
        _flat(file, name, ones)
    return file.content(), tuple(file.saved)


def _alike(ones: Sequence[Optimizer]) -> bool:
    first = [group.options for group in ones[0].groups]
    return all([group.options for group in one.groups] == first for one in ones)


def _by_group(file: _File, name: str, ones: Sequence[Optimizer]) -> None:
    for index, group in enumerate(ones[0].groups):
        for key, value in group.options:
            file.add((name, _GROUPS, index, key), value)
        everybody = (parameter for one in ones for parameter in one.groups[index].parameters)
        file.add((name, _GROUPS, index, "params"), list(dict.fromkeys(everybody)))


def _flat(file: _File, name: str, ones: Sequence[Optimizer]) -> None:
    done: set[str] = set()
    for group in (group for one in ones for group in one.groups):
        for parameter in group.parameters:
            if parameter not in done:
                for key, value in group.options:
                    file.add((name, f"{_GROUPS}.{parameter}.{key}"), value)
                done.add(parameter)


class _File:
    """Values one behind the other, each as ``torch.save`` would have written it."""

    def __init__(self) -> None:
        self.saved: list[Saved] = []
        self._content = bytearray()
        self._places: dict[bytes, tuple[int, int]] = {}

    def add(self, path: tuple[str | int, ...], value: Any) -> None:
        """Put a value there, or say where the same one is."""
        data = pickle.dumps(value, 2)
        if data not in self._places:
            archive = archive_of(data)
            self._places[data] = len(self._content), len(archive)
            self._content += archive
        offset, size = self._places[data]
        self.saved.append(Saved(path=path, file=OPTIONS_NAME, offset=offset, bytes=size))

    def content(self) -> bytes:
        """Return everything that was put there."""
        return bytes(self._content)
