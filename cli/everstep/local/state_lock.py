"""Keeps two starts or stops of one stack apart, and says which of them is at work.

The kernel's lock decides: it goes with its process, however that ends. The file says who holds it,
for people who ask meanwhile; to try the lock instead could make a start fail at that moment.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator

import msgspec

from everstep.core.errors import Unavailable
from everstep.local import processes
from everstep.local.state import ProcessRecord, StatePaths


@contextlib.contextmanager
def only_us(paths: StatePaths, command: str) -> Iterator[None]:
    """Hold the lock of starts and stops. Raises Unavailable when somebody else does.

    Args:
        paths: of the stack.
        command: what holds it, as a person calls it: up, or down.
    """
    with paths.lock.open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise at_work(paths) from None
        file.truncate(0)
        file.write(msgspec.json.encode(processes.record_of(command, os.getpid())).decode())
        file.flush()
        try:
            yield
        finally:
            file.truncate(0)


def holder(paths: StatePaths) -> str:
    """Return the command that starts or stops the stack right now; "" when none does."""
    try:
        record = msgspec.json.decode(paths.lock.read_bytes(), type=ProcessRecord)
    except (FileNotFoundError, msgspec.DecodeError):
        return ""
    return record.name if processes.is_alive(record) else ""


def at_work(paths: StatePaths) -> Unavailable:
    """Return the refusal for whoever comes in between."""
    found = holder(paths)
    name = f"`everstep {found}`" if found else "`everstep up` or `everstep down`"
    return Unavailable(f"another {name} is at work on {paths.root}: wait for it")
