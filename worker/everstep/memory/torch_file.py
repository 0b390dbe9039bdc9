"""What ``torch.save`` would write around a tensor's bytes, without the bytes and without torch.

A file of ``torch.save`` is a ZIP archive (PKWARE's APPNOTE.TXT) of stored records: the tensor's
shape as a pickle, its bytes, a version. Of one dtype and shape all but the bytes is always the
same. A slot that leaves room for it around every tensor is therefore a file of PyTorch's
distributed checkpoints as it lies there, and is uploaded as it is.

The bytes' CRC-32 is left zero: ``torch.load`` does not look at it (``set_crc32_options`` says so),
and every tensor has a stronger checksum in the slot's header.
"""

from __future__ import annotations

import io
import math
import pickle
import struct
import zipfile
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from everstep.memory.slot import ALIGNMENT_BYTES
from everstep.objectstore.torch_archive import record, write_heads

_PAD_ID: Final = b"FB"  # the extra field that torch pads with, too
# What the storage of a dtype was called when storages had types; the pickle still says it so.
_STORAGES: Final = {
    "bfloat16": "BFloat16Storage",
    "bool": "BoolStorage",
    "complex128": "ComplexDoubleStorage",
    "complex64": "ComplexFloatStorage",
    "float16": "HalfStorage",
    "float32": "FloatStorage",
    "float64": "DoubleStorage",
    "int16": "ShortStorage",
    "int32": "IntStorage",
    "int64": "LongStorage",
    "int8": "CharStorage",
    "uint8": "ByteStorage",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Wrapping:
    """What comes before and behind the bytes; before them it is a multiple of the alignment."""

    before: bytes
    behind: bytes


NO_WRAPPING: Final = Wrapping(before=b"", behind=b"")


def is_known(dtype: str) -> bool:
    """Whether tensors of this dtype can be written so; newer ones (float8) have no storage type."""
    return dtype in _STORAGES


@lru_cache(maxsize=4096)
def wrapping(dtype: str, shape: tuple[int, ...], size_bytes: int) -> Wrapping:
    """Return what belongs around a contiguous tensor.

    Args:
        dtype: torch's name without the prefix; ``is_known``.
        shape: of the tensor.
        size_bytes: of its elements.
    """
    file = io.BytesIO()
    archive = zipfile.ZipFile(file, "w", zipfile.ZIP_STORED)
    write_heads(archive, _description(dtype, shape))
    data = record("data/0")
    data.file_size = data.compress_size = size_bytes
    data.CRC, data.header_offset = 0, file.tell()
    is_large = size_bytes > zipfile.ZIP64_LIMIT
    pad_bytes = -(file.tell() + len(data.FileHeader(is_large)) + 4) % ALIGNMENT_BYTES
    data.extra = struct.pack("<2sH", _PAD_ID, pad_bytes) + b"Z" * pad_bytes
    file.write(data.FileHeader(is_large))
    before = file.getvalue()
    # The directory of all records, as if the bytes had been written.
    rest = _Behind(len(before) + size_bytes)
    archive.fp = rest
    archive.filelist.append(data)
    archive.start_dir = rest.tell()
    archive.close()
    return Wrapping(before=before, behind=rest.getvalue())


class _Behind(io.BytesIO):
    """A file of which the first ``skipped`` bytes are somewhere else."""

    def __init__(self, skipped: int) -> None:
        super().__init__()
        self._skipped = skipped

    def tell(self) -> int:
        return super().tell() + self._skipped

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        assert whence == io.SEEK_SET, "the archive seeks from the beginning"
        return super().seek(offset - self._skipped) + self._skipped


def _description(dtype: str, shape: tuple[int, ...]) -> bytes:
    """Return the pickle of a contiguous tensor whose storage is record 0."""
    strides = tuple(math.prod(max(size, 1) for size in shape[i + 1 :]) for i in range(len(shape)))
    return b"".join((
        pickle.PROTO, b"\x02",
        _global("torch._utils", "_rebuild_tensor_v2"),
        pickle.MARK,
        pickle.MARK, _text("storage"), _global("torch", _STORAGES[dtype]), _text("0"), _text("cpu"),
        _integer(math.prod(shape)), pickle.TUPLE, pickle.BINPERSID,
        _integer(0), _integers(shape), _integers(strides),
        pickle.NEWFALSE,  # requires no gradient
        _global("collections", "OrderedDict"), pickle.EMPTY_TUPLE, pickle.REDUCE,  # no hooks
        pickle.TUPLE, pickle.REDUCE, pickle.STOP,
    ))  # fmt: skip


def _global(module: str, name: str) -> bytes:
    return pickle.GLOBAL + f"{module}\n{name}\n".encode()


def _text(text: str) -> bytes:
    data = text.encode()
    return pickle.BINUNICODE + struct.pack("<I", len(data)) + data


def _integer(number: int) -> bytes:
    return pickle.dumps(number, 2)[2:-1]  # without the protocol's mark and the stop


def _integers(numbers: tuple[int, ...]) -> bytes:
    return pickle.MARK + b"".join(map(_integer, numbers)) + pickle.TUPLE
