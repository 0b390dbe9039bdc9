"""What a stored slot says of itself as a file of a PyTorch checkpoint.

Its header, at the end, says where each tensor lies. The registry reads every object back anyway,
and takes the header off while it streams past.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import msgspec

from everstep.core.errors import CorruptData
from everstep.core.record import Record
from everstep.memory.slot import PREAMBLE_BYTES, SlotHeader, decode_header, parse_preamble
from everstep.objectstore.torch_checkpoint import METADATA_NAME, Part, metadata_of
from everstep.objectstore.torch_options import OPTIONS_NAME, Group, Optimizer, options_file

_LAYOUT: Final = ".layout"  # behind an optimizer's name: its parameters and what states they have


class OptimizerWords(Record, frozen=True, kw_only=True):
    """What a slot says of one optimizer, as it says it; many ranks say the same."""

    name: str
    options: bytes
    layout: bytes


class HeaderCatcher:
    """Keeps the preamble and the header of an object and lets everything else go."""

    def __init__(self) -> None:
        self._seen = 0
        self._preamble = b""
        self._header = bytearray()
        self._header_offset: int | None = None

    def take(self, chunk: bytes) -> None:
        """Look at the next bytes of the object."""
        if len(self._preamble) < PREAMBLE_BYTES:
            self._preamble += chunk[: PREAMBLE_BYTES - len(self._preamble)]
            found = parse_preamble(self._preamble)
            self._header_offset = found.header_offset if found is not None else None
        if self._header_offset is not None:
            self._header += chunk[max(0, self._header_offset - self._seen) :]
        self._seen += len(chunk)

    def header(self, where: str) -> SlotHeader | None:
        """Return the header; None when the object is no slot (of this version)."""
        preamble = parse_preamble(self._preamble)
        if preamble is None:
            return None
        try:
            return decode_header(bytes(self._header), preamble, where)
        except CorruptData:
            return None


def parts_of(header: SlotHeader, file: str) -> tuple[Part, ...]:
    """Return the tensors of a slot that are parts of a PyTorch checkpoint.

    Args:
        header: of the slot.
        file: the object's name within the checkpoint's folder.
    """
    return tuple(
        Part(
            path=entry.torch.path,
            dtype=entry.dtype,
            whole=entry.torch.whole,
            offsets=entry.torch.offsets,
            shape=entry.shape,
            file=file,
            offset=entry.torch.offset,
            bytes=entry.torch.bytes,
        )
        for entry in header.entries
        if entry.torch is not None
    )


class Described(Record, frozen=True, kw_only=True):
    """What one stored slot is to a PyTorch checkpoint."""

    parts: tuple[Part, ...] = ()
    optimizers: tuple[OptimizerWords, ...] = ()


def described(
    header: SlotHeader, file: str, alike: dict[OptimizerWords, OptimizerWords]
) -> Described:
    """Return what a slot says of itself.

    Args:
        header: of the slot.
        file: the object's name within the checkpoint's folder.
        alike: words of other ranks: the same ones are kept once.
    """
    words = tuple(alike.setdefault(one, one) for one in _words_of(header))
    return Described(parts=parts_of(header, file), optimizers=words)


def torch_files(slots: Iterable[Described]) -> dict[str, bytes]:
    """Return what makes a folder of slots a PyTorch checkpoint: content by name, in order.

    Args:
        slots: sorted by rank, so that the same checkpoint gives the same bytes.

    Returns:
        Nothing when no slot holds anything for PyTorch.

    Raises:
        InvalidInput: parts of one name do not belong to one tensor.
    """
    parts: list[Part] = []
    words: dict[OptimizerWords, None] = {}
    for slot in slots:
        parts += slot.parts
        words |= dict.fromkeys(slot.optimizers)
    if not parts:
        return {}
    options, saved = options_file(optimizer_of(one) for one in words)
    files = {OPTIONS_NAME: options} if saved else {}
    return files | {METADATA_NAME: metadata_of(parts, saved)}


def _words_of(header: SlotHeader) -> tuple[OptimizerWords, ...]:
    """Return what a slot says of its optimizers, by name."""
    names = [name for name in header.objects if name + _LAYOUT in header.objects]
    return tuple(
        OptimizerWords(
            name=name,
            options=header.objects[name].data,
            layout=header.objects[name + _LAYOUT].data,
        )
        for name in sorted(names)
    )


def optimizer_of(words: OptimizerWords) -> Optimizer:
    """Return the optimizer; an option that only a tensor could say is left out."""
    options = msgspec.msgpack.decode(words.options)
    layout = msgspec.msgpack.decode(words.layout)
    parameters = iter(layout["parameters"])
    groups = [
        Group(
            parameters=tuple(next(parameters) for _ in range(size)),
            options=tuple((key, _plain(item)) for key, item in group.items() if _is_plain(item)),
        )
        for size, group in zip(layout["group_sizes"], options, strict=True)
    ]
    return Optimizer(name=words.name, groups=tuple(groups))


def _is_plain(tree: Any) -> bool:
    if isinstance(tree, dict):
        return not {"!tensor", "!array", "!dict", "!set"} & tree.keys() and all(
            map(_is_plain, tree.values())
        )
    return all(map(_is_plain, tree)) if isinstance(tree, list) else True


def _plain(tree: Any) -> Any:
    """Undo what ``train.tree`` wraps, as far as ``_is_plain`` lets it pass."""
    if isinstance(tree, list):
        return [_plain(item) for item in tree]
    if not isinstance(tree, dict):
        return tree
    if "!tuple" in tree:
        return tuple(_plain(item) for item in tree["!tuple"])
    if "!int" in tree:
        return int(tree["!int"])
    return {key: _plain(item) for key, item in tree.items()}
