"""Makes token shards out of text: ids 0 to 255 are bytes, 256 separates documents.

Byte level because it needs no vocabulary file, covers every text and loses nothing; anyone with a
tokenizer of their own brings their own ``.bin`` files. The order is that of the sorted paths, so
the same sources make the same shards everywhere.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from everstep.core.errors import InvalidInput, NotFoundError, Unavailable
from everstep.data.shards import INDEX_FORMAT, INDEX_NAME, Tokens

DOCUMENT_END: Final = 256
VOCAB_SIZE: Final = 257
# 64 Mi tokens, 128 MiB a file: few files for large corpora, small enough to copy in seconds.
SHARD_TOKENS: Final = 64 * 1024 * 1024
UNFINISHED: Final = ".unfinished"  # behind a shard's name until all are there: surely ours

Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """What ``prepare`` made."""

    directory: Path
    documents: int
    tokens: int
    shards: int


def prepare(
    sources: Sequence[Path],
    out_dir: Path,
    *,
    suffixes: Sequence[str] = (),
    exclude: Sequence[str] = ("__pycache__",),
    shard_tokens: int = SHARD_TOKENS,
    progress: Progress | None = None,
) -> Prepared:
    """Tokenize files into shards and write their index last.

    Args:
        sources: files, and directories that are searched through.
        out_dir: gets ``shard-<n>.bin`` and ``index.json``; an older corpus of ours is replaced.
            What lies in it is no document, so that a repeat makes the same.
        suffixes: of files in directories, e.g. ``(".py", ".md")``; none: all files.
        exclude: names of directories that are not entered, e.g. ``site-packages``.
        shard_tokens: tokens a shard.
        progress: called with (documents done, documents in all) after each document.

    Raises:
        NotFoundError: a source does not exist.
        InvalidInput: there is no document, every document is empty, or ``out_dir`` has shards that
            or an index that are not ours.
        Unavailable: a shard cannot be written.
    """
    inside = out_dir.resolve()
    documents = [
        path
        for path in _documents(sources, suffixes, frozenset(exclude))
        if inside not in path.resolve().parents
    ]
    if not documents:
        wanted = f" ending in {', '.join(suffixes)}" if suffixes else ""
        raise InvalidInput(
            f"no files{wanted} in {', '.join(str(source) for source in sources) or 'no sources'}"
        )
    out_dir.mkdir(parents=True, exist_ok=True)
    older = sorted(out_dir.glob("shard-*.bin"))
    if older and not (out_dir / INDEX_NAME).exists():
        raise InvalidInput(
            f"{older[0]} is there, without the {INDEX_NAME} of a corpus that was made here: take "
            "another --out, or remove it"
        )
    _refuse_foreign_index(out_dir / INDEX_NAME)
    for unfinished in out_dir.glob(f"shard-*.bin{UNFINISHED}"):
        unfinished.unlink()
    written = _write_shards(documents, out_dir, shard_tokens, progress)
    tokens = sum(count for _, count in written)
    if tokens == 0:
        raise InvalidInput(f"the {len(documents)} documents hold no text: the corpus is empty")
    (out_dir / INDEX_NAME).unlink(missing_ok=True)
    for old in older:  # not before: a job may need them if the new ones cannot be made
        old.unlink()
    for name, _ in written:
        (out_dir / f"{name}{UNFINISHED}").rename(out_dir / name)
    index = {
        "format": INDEX_FORMAT,
        "version": 1,
        "dtype": "uint16",
        "vocab_size": VOCAB_SIZE,
        "tokens": tokens,
        "documents": len(documents),
        "shards": [{"file": name, "tokens": count} for name, count in written],
    }
    (out_dir / INDEX_NAME).write_text(json.dumps(index, indent=1), encoding="utf-8")
    return Prepared(directory=out_dir, documents=len(documents), tokens=tokens, shards=len(written))


def _refuse_foreign_index(path: Path) -> None:
    """Raise InvalidInput for an index of something else, which would be replaced."""
    if not path.exists():
        return
    try:
        index = json.loads(path.read_text(encoding="utf-8"))
    except ValueError:
        index = None
    if not isinstance(index, dict) or index.get("format") != INDEX_FORMAT:
        raise InvalidInput(f"{path} is not of a corpus that was made here: take another --out")


def tokenize(text: bytes) -> Tokens:
    """Return a document's tokens, its end mark included; an empty one has none."""
    tokens = np.empty(len(text) + 1, dtype=np.uint16)
    tokens[:-1] = np.frombuffer(text, dtype=np.uint8)
    tokens[-1] = DOCUMENT_END
    return tokens if text else tokens[:0]


def _documents(
    sources: Sequence[Path], suffixes: Sequence[str], exclude: frozenset[str]
) -> Iterator[Path]:
    for source in sources:
        if source.is_dir():
            yield from sorted(
                path
                for path in source.rglob("*")
                if (not suffixes or path.suffix in suffixes)
                and exclude.isdisjoint(path.relative_to(source).parts[:-1])
                and path.is_file()
            )
        elif source.is_file():
            yield source
        else:
            raise NotFoundError(f"there is no file or directory {source}")


def _write_shards(
    documents: Sequence[Path], out_dir: Path, shard_tokens: int, progress: Progress | None
) -> list[tuple[str, int]]:
    written: list[tuple[str, int]] = []
    pending: list[Tokens] = []
    pending_tokens = 0

    def flush(limit: int) -> None:
        nonlocal pending, pending_tokens
        tokens = np.concatenate(pending) if pending else np.empty(0, np.uint16)
        while len(tokens) >= limit and len(tokens):
            name = f"shard-{len(written):05d}.bin"
            part = tokens[:shard_tokens]
            _write_shard(out_dir / f"{name}{UNFINISHED}", part)
            written.append((name, len(part)))
            tokens = tokens[shard_tokens:]
        pending, pending_tokens = [tokens], len(tokens)

    for number, path in enumerate(documents, start=1):
        tokens = tokenize(path.read_bytes())
        pending.append(tokens)
        pending_tokens += len(tokens)
        if pending_tokens >= shard_tokens:
            flush(shard_tokens)
        if progress is not None:
            progress(number, len(documents))
    flush(1)
    return written


def _write_shard(path: Path, tokens: Tokens) -> None:
    try:
        path.write_bytes(tokens.astype("<u2", copy=False).data)  # tofile loses a buffer's error
    except OSError as error:
        path.unlink(missing_ok=True)
        raise Unavailable(f"cannot write {path}: {error}") from error
