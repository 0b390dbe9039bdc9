"""Deletes a stack's data, and nothing else that lies where it was told to be.

A directory is a stack's when it has a ``stack.json``. That goes last, so that a wipe that was cut
short can be done again. What has a name of ours without it is somebody else's: no stack starts
there, as its end could delete it.
"""

from __future__ import annotations

import contextlib
import shutil
from pathlib import Path
from typing import Final

from everstep.core.errors import InvalidInput
from everstep.local.state import STATE_VARIABLE, StatePaths

DIRECTORIES: Final = ("logs", "postgres", "nats", "s3", "hosts", "memory", "chaos", "compare")
# By a ``save_stack`` that was killed: it holds passwords. The name is of ``tempfile.mkstemp``.
HALF_WRITTEN: Final = f"stack-{'[a-z0-9_]' * 8}.json"


def wipe(paths: StatePaths) -> None:
    """Delete all data of the stack; what others keep beside it stays."""
    for name in (*DIRECTORIES, paths.socket.name):
        _remove(paths.root / name)
    for path in paths.root.glob(HALF_WRITTEN):
        path.unlink(missing_ok=True)
    paths.stack_file.unlink(missing_ok=True)


def drop_directory(paths: StatePaths) -> None:
    """Remove the directory of a stack that was wiped, unless somebody keeps other things there."""
    paths.lock.unlink(missing_ok=True)
    with contextlib.suppress(OSError):  # e.g. a demo's report
        paths.root.rmdir()


def refuse_strange(paths: StatePaths) -> None:
    """Refuse a directory where a stack would take what is not its own for its data.

    Raises:
        InvalidInput: naming what is there.
    """
    if paths.stack_file.exists():
        return
    strange = [name for name in DIRECTORIES if _holds_something(paths.root / name)]
    if strange:
        raise InvalidInput(
            f"{paths.root} holds {', '.join(strange)} of no stack, which `everstep down --wipe` "
            f"would delete: name another directory with --state or {STATE_VARIABLE}"
        )


def _holds_something(path: Path) -> bool:
    if path.is_dir():  # an `up` that was cut short at its very begin has left empty ones
        return any(path.iterdir())
    return path.is_symlink() or path.exists()


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
