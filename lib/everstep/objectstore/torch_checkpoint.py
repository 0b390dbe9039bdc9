"""The ``.metadata`` of a PyTorch distributed checkpoint, written without torch.

It says of every tensor which parts it has, and where in which file each part lies as ``torch.save``
would have written it. PyTorch keeps it as a pickle of its own classes
(``torch.distributed.checkpoint.metadata``, ``filesystem._StorageInfo``); this writes that pickle
by the names of these classes, because the control plane has no torch. Rejected: having a rank write
it, which knows only of itself, and a format of ours that torch would need us to read.
"""

from __future__ import annotations

import pickle
import struct
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from everstep.core.errors import InvalidInput
from everstep.core.record import Record

METADATA_NAME: Final = ".metadata"
_METADATA: Final = "torch.distributed.checkpoint.metadata"
_FILESYSTEM: Final = "torch.distributed.checkpoint.filesystem"


class Part(Record, frozen=True, kw_only=True):
    """A part of a tensor: its place in the whole, and its place in a file of the checkpoint."""

    path: tuple[str, ...]  # in the nested state dict
    dtype: str  # torch's name without the prefix
    whole: tuple[int, ...]
    offsets: tuple[int, ...]
    shape: tuple[int, ...]
    file: str
    offset: int  # [bytes]
    bytes: int

    @property
    def name(self) -> str:
        """The flat name, as ``torch.distributed.checkpoint`` makes it of the path."""
        return ".".join(self.path)


class Saved(Record, frozen=True, kw_only=True):
    """Something that is no tensor, as ``torch.save`` writes it, and its place in a file."""

    path: tuple[str | int, ...]  # in the nested state dict; numbers are places in lists
    file: str
    offset: int  # [bytes]
    bytes: int

    @property
    def name(self) -> str:
        """The flat name, as ``torch.distributed.checkpoint`` makes it of the path."""
        return ".".join(map(str, self.path))


def metadata_of(parts: Iterable[Part], saved: Sequence[Saved] = ()) -> bytes:
    """Return the content of ``.metadata``.

    Args:
        parts: of all tensors; of parts that several ranks hold, the first one told is taken.
        saved: everything else, each name once.

    Raises:
        InvalidInput: parts of one name do not belong to one tensor.
    """
    tensors: dict[str, dict[tuple[int, ...], Part]] = {}
    for part in parts:
        known = tensors.setdefault(part.name, {})
        first = next(iter(known.values()), part)
        if (first.dtype, first.whole, first.path) != (part.dtype, part.whole, part.path):
            raise InvalidInput(
                f"{part.name} is {first.dtype}{list(first.whole)} in {first.file} and "
                f"{part.dtype}{list(part.whole)} in {part.file}: two tensors have one name"
            )
        known.setdefault(part.offsets, part)
    pickled = _Pickle()
    pickled.metadata({name: tuple(found.values()) for name, found in tensors.items()}, saved)
    return pickled.done()


class _Pickle:
    """Writes protocol 2; classes and repeated texts are written once and then referred to."""

    def __init__(self) -> None:
        self._out = bytearray(pickle.PROTO + b"\x02")
        self._memo: dict[tuple[str, ...], int] = {}

    def done(self) -> bytes:
        """Return what was written."""
        return bytes(self._out + pickle.STOP)

    def metadata(self, tensors: Mapping[str, Sequence[Part]], saved: Sequence[Saved]) -> None:
        """Write a ``Metadata``."""
        self._begin(_METADATA, "Metadata")
        self._text("state_dict_metadata")
        self._out += pickle.EMPTY_DICT + pickle.MARK
        for name, parts in tensors.items():
            self._text(name)
            self._tensor(parts)
        for one in saved:
            self._text(one.name)
            self._global(_METADATA, "BytesStorageMetadata")
            self._out += pickle.EMPTY_TUPLE + pickle.NEWOBJ
        self._out += pickle.SETITEMS
        self._text("planner_data")
        self._out += pickle.EMPTY_DICT + pickle.MARK
        for name, parts in tensors.items():
            self._path(name, parts[0].path)
        for one in saved:
            self._path(one.name, one.path)
        self._out += pickle.SETITEMS
        self._text("storage_data")
        self._out += pickle.EMPTY_DICT + pickle.MARK
        for name, parts in tensors.items():
            for number, part in enumerate(parts):
                self._index(name, part.offsets, number)
                self._storage(part)
        for one in saved:
            self._index(one.name, None, None)
            self._storage(one)
        self._out += pickle.SETITEMS
        for name in ("storage_meta", "version"):
            self._text(name)
            self._out += pickle.NONE
        self._end()

    def _tensor(self, parts: Sequence[Part]) -> None:
        self._begin(_METADATA, "TensorStorageMetadata")
        self._text("properties")
        self._properties(parts[0].dtype)
        self._text("size")
        self._size(parts[0].whole)
        self._text("chunks")
        self._out += pickle.EMPTY_LIST + pickle.MARK
        for part in parts:
            self._begin(_METADATA, "ChunkStorageMetadata")
            self._text("offsets")
            self._size(part.offsets)
            self._text("sizes")
            self._size(part.shape)
            self._end()
        self._out += pickle.APPENDS
        self._end()

    def _properties(self, dtype: str) -> None:
        """Write what torch calls properties; all but the dtype are no longer looked at."""
        self._global(_METADATA, "TensorProperties")
        self._out += pickle.EMPTY_TUPLE + pickle.NEWOBJ + pickle.MARK
        self._global("torch", dtype)
        self._global("torch.serialization", "_get_layout")
        self._text("torch.strided")
        self._out += pickle.TUPLE1 + pickle.REDUCE + pickle.NEWFALSE
        self._global(_METADATA, "_MEM_FORMAT_ENCODING")
        self._integer(0)  # contiguous
        self._out += pickle.TUPLE1 + pickle.REDUCE + pickle.NEWFALSE
        self._out += pickle.TUPLE + pickle.BUILD

    def _path(self, name: str, path: tuple[str | int, ...]) -> None:
        self._text(name)
        self._out += pickle.MARK
        for key in path:
            if isinstance(key, int):
                self._integer(key)
            else:
                self._text(key)
        self._out += pickle.TUPLE

    def _index(self, name: str, offsets: tuple[int, ...] | None, number: int | None) -> None:
        self._begin(_METADATA, "MetadataIndex")
        self._text("fqn")
        self._text(name)
        self._text("offset")
        if offsets is None:
            self._out += pickle.NONE
        else:
            self._size(offsets)
        self._text("index")
        if number is None:
            self._out += pickle.NONE
        else:
            self._integer(number)
        self._end()

    def _storage(self, part: Part | Saved) -> None:
        self._begin(_FILESYSTEM, "_StorageInfo")
        self._text("relative_path")
        self._text(part.file)
        self._text("offset")
        self._integer(part.offset)
        self._text("length")
        self._integer(part.bytes)
        self._end()

    def _begin(self, module: str, name: str) -> None:
        """Begin an object of which the attributes follow; ``_end`` sets them."""
        self._global(module, name)
        self._out += pickle.EMPTY_TUPLE + pickle.NEWOBJ + pickle.EMPTY_DICT + pickle.MARK

    def _end(self) -> None:
        self._out += pickle.SETITEMS + pickle.BUILD

    def _size(self, numbers: tuple[int, ...]) -> None:
        self._global("torch", "Size")
        self._out += pickle.MARK
        for number in numbers:
            self._integer(number)
        self._out += pickle.TUPLE + pickle.TUPLE1 + pickle.REDUCE

    def _global(self, module: str, name: str) -> None:
        if not self._again((module, name)):
            self._out += pickle.GLOBAL + f"{module}\n{name}\n".encode()
            self._remember((module, name))

    def _text(self, text: str) -> None:
        if not self._again((text,)):
            data = text.encode()
            self._out += pickle.BINUNICODE + struct.pack("<I", len(data)) + data
            self._remember((text,))

    def _integer(self, number: int) -> None:
        if 0 <= number < 256:
            self._out += pickle.BININT1 + bytes((number,))
        elif -(2**31) <= number < 2**31:
            self._out += pickle.BININT + struct.pack("<i", number)
        else:
            data = pickle.encode_long(number)
            self._out += pickle.LONG1 + bytes((len(data),)) + data

    def _again(self, key: tuple[str, ...]) -> bool:
        place = self._memo.get(key)
        if place is None:
            return False
        self._out += pickle.LONG_BINGET + struct.pack("<I", place)
        return True

    def _remember(self, key: tuple[str, ...]) -> None:
        self._memo[key] = len(self._memo)
        self._out += pickle.LONG_BINPUT + struct.pack("<I", self._memo[key])
