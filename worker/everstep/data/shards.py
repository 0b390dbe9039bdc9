"""Flat token files, read through the page cache.

The files people have: headerless ``uint16`` or ``uint32`` tokens (nanoGPT), or the same behind
llm.c's 1,024-byte header. A headerless one is taken for ``uint16``, as most are, unless the job
says otherwise; one that looks like ``uint32`` is refused, because a run on nonsense goes on. A
directory is described by ``index.json``, which ``prepare`` writes; a single ``.bin`` file needs
none. All shards together are one stream of tokens, and sample ``i`` is the ``sequence_tokens + 1``
tokens from ``i * sequence_tokens``: inputs and, one further, targets. A sample may reach over a
shard's end.
"""

from __future__ import annotations

import json
import struct
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from everstep.core.errors import InvalidInput, NotFoundError

INDEX_NAME: Final = "index.json"
INDEX_FORMAT: Final = "everstep-tokens"
DTYPES: Final[dict[str, np.dtype[Any]]] = {"uint16": np.dtype("<u2"), "uint32": np.dtype("<u4")}
AUTO: Final = "auto"  # as header or index say; uint16 where nothing does

# uint32 tokens of the largest vocabularies in use (2^18) read as uint16: every second is below 4.
_HIGH_WORD_MAX: Final = 3
_LOOKED_AT: Final = 8192  # 16-bit words from a file's beginning: a page or two
_LOOKED_AT_MIN: Final = 32  # by chance 16 words of bytes are that small once in 10^28 files

# llm.c, dev/data/data_common.py: magic and version in the first of 256 int32, tokens behind them.
_LLMC_HEADER_BYTES: Final = 1024
_LLMC_HEAD: Final = struct.Struct("<ii")
_LLMC_DTYPES: Final = {(20240520, 1): "uint16", (20240801, 7): "uint32"}

Tokens = npt.NDArray[Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Shard:
    """One token file."""

    path: Path
    dtype: str
    tokens: int
    offset_bytes: int = 0


class TokenShards:
    """An open corpus.

    Raises:
        InvalidInput: shards are missing, cut short, of mixed dtypes, or hold no token at all.
    """

    def __init__(self, shards: Sequence[Shard], *, vocab_size: int | None = None) -> None:
        if not shards or not any(shard.tokens for shard in shards):
            raise InvalidInput("the corpus is empty: no shard holds a token")
        self.shards = tuple(shards)
        self.vocab_size = vocab_size
        self._maps = [
            np.memmap(
                shard.path,
                dtype=DTYPES[shard.dtype],
                mode="r",
                offset=shard.offset_bytes,
                shape=(shard.tokens,),
            )
            for shard in shards
            if shard.tokens
        ]
        ends = np.cumsum([len(tokens) for tokens in self._maps])
        self._ends = [int(end) for end in ends]

    @property
    def tokens(self) -> int:
        """Tokens in all shards."""
        return self._ends[-1]

    def samples(self, sequence_tokens: int) -> int:
        """Return how many samples of ``sequence_tokens`` (and their shifted targets) there are.

        Raises:
            InvalidInput: not even one.
        """
        count = (self.tokens - 1) // sequence_tokens
        if count < 1:
            raise InvalidInput(
                f"the corpus has {self.tokens} tokens, but one sample needs "
                f"{sequence_tokens + 1} (sequence_tokens {sequence_tokens} and the next token)"
            )
        return count

    def window(self, start: int, length: int) -> Tokens:
        """Return tokens ``start`` to ``start + length`` of the stream as int64."""
        result = np.empty(length, dtype=np.int64)
        done = 0
        index = bisect_right(self._ends, start)
        while done < length:
            before = self._ends[index - 1] if index else 0
            part = self._maps[index][start + done - before : start + length - before]
            result[done : done + len(part)] = part
            done += len(part)
            index += 1
        return result

    def read(self, samples: Sequence[int], sequence_tokens: int) -> Tokens:
        """Return samples as int64 rows of ``sequence_tokens + 1`` tokens."""
        rows = np.empty((len(samples), sequence_tokens + 1), dtype=np.int64)
        for row, sample in enumerate(samples):
            rows[row] = self.window(sample * sequence_tokens, sequence_tokens + 1)
        return rows


def open_shards(path: Path, *, dtype: str = AUTO) -> TokenShards:
    """Open a prepared directory or a single token file.

    Args:
        path: a directory with ``index.json``, or a ``.bin`` file.
        dtype: of a headerless ``.bin`` file, ``auto`` for ``uint16``; elsewhere the files say it
            themselves, and it may only repeat that.

    Raises:
        NotFoundError: there is nothing at ``path``, or a directory has no ``index.json``.
        InvalidInput: index or files are unusable, of another dtype, or look like it; says how.
    """
    if path.is_dir():
        return _open_directory(path, dtype)
    if not path.exists():
        raise NotFoundError(f"there is no corpus at {path}")
    return TokenShards([_plain_shard(path, dtype)])


def checked_dtype(name: object, where: str) -> str:
    """Return ``name`` if tokens may have this dtype.

    Raises:
        InvalidInput: they may not.
    """
    if not isinstance(name, str) or name not in DTYPES:
        raise InvalidInput(f"{where}: tokens are {' or '.join(DTYPES)}, not {name!r}")
    return name


def _open_directory(directory: Path, told: str) -> TokenShards:
    index_path = directory / INDEX_NAME
    try:
        index = json.loads(index_path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise NotFoundError(
            f"{directory} has no {INDEX_NAME}: make the corpus with `everstep data prepare`, "
            "or name a single .bin file"
        ) from None
    except ValueError as error:
        raise InvalidInput(f"{index_path} is not JSON: {error}") from None
    if not isinstance(index, dict) or index.get("format") != INDEX_FORMAT:
        raise InvalidInput(f"{index_path} is not an index of format {INDEX_FORMAT!r}")
    dtype = checked_dtype(index.get("dtype"), str(index_path))
    _refuse_contradiction(f"{index_path} says", dtype, told)
    try:
        listed = [(str(item["file"]), int(item["tokens"])) for item in index["shards"]]
        vocab_size = int(index["vocab_size"])
    except (KeyError, TypeError, ValueError) as error:
        raise InvalidInput(f"{index_path} lacks or garbles a field: {error!r}") from None
    shards = [_listed_shard(directory / name, dtype, tokens) for name, tokens in listed]
    return TokenShards(shards, vocab_size=vocab_size)


def _listed_shard(path: Path, dtype: str, tokens: int) -> Shard:
    expected = tokens * DTYPES[dtype].itemsize
    got = path.stat().st_size if path.exists() else None
    if got != expected:
        found = "it is missing" if got is None else f"it has {got}"
        raise InvalidInput(f"shard {path} should have {expected} bytes, but {found}")
    return Shard(path=path, dtype=dtype, tokens=tokens)


def _plain_shard(path: Path, told: str) -> Shard:
    size = path.stat().st_size
    offset = 0
    with path.open("rb") as file:
        head = file.read(_LLMC_HEAD.size)
    if len(head) == _LLMC_HEAD.size and (known := _LLMC_DTYPES.get(_LLMC_HEAD.unpack(head))):
        _refuse_contradiction(f"{path} has a header that says", known, told)
        dtype, offset = known, _LLMC_HEADER_BYTES
    else:
        dtype = "uint16" if told == AUTO else checked_dtype(told, str(path))
    item = DTYPES[dtype].itemsize
    if size == 0:
        raise InvalidInput(f"the corpus is empty: {path} has no bytes")
    if (size - offset) % item:
        raise InvalidInput(
            f"{path} has {size - offset} token bytes, not a multiple of {item} ({dtype}): "
            "is it of another dtype (data.dtype)?"
        )
    if told == AUTO and not offset and _looks_wider(path):
        raise InvalidInput(
            f"{path} looks like uint32, and without a header it is read as uint16: every second "
            f"of its first tokens would be {_HIGH_WORD_MAX} or less. Put into the job spec what it "
            "is: data.dtype: uint32, or data.dtype: uint16"
        )
    return Shard(path=path, dtype=dtype, tokens=(size - offset) // item, offset_bytes=offset)


def _refuse_contradiction(who_says: str, dtype: str, told: str) -> None:
    if told not in (AUTO, dtype):
        raise InvalidInput(
            f"{who_says} {dtype}, and the job spec's data.dtype is {told}: leave that out, or name "
            "the file that was meant"
        )


def _looks_wider(path: Path) -> bool:
    """Whether every second 16-bit word is next to nothing, and not all words are."""
    words = np.fromfile(path, dtype=DTYPES["uint16"], count=_LOOKED_AT)
    if len(words) < _LOOKED_AT_MIN or path.stat().st_size % DTYPES["uint32"].itemsize:
        return False
    return bool(words[1::2].max() <= _HIGH_WORD_MAX < words[::2].max())
