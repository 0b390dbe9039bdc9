"""The 64 bytes that a rank and its host's agent share.

Polled once a step by the rank and written by the agent at any time, so a lock or a message would
cost more than it says: each word is one aligned 64-bit store.

::

    0   magic
    8   replicated_step   agent writes: the newest step whose snapshot the peer has acknowledged
    16  replication_off   agent writes: 1 when the placement has no peer
    24  durable_busy      rank sets 1 with a new durable snapshot, agent sets 0 when it is stored
    32  phase             rank writes: where in a step it is
"""

from __future__ import annotations

import mmap
import os
from enum import IntEnum
from pathlib import Path
from typing import Final

from everstep.core.errors import CorruptData
from everstep.memory.full import no_room

CONTROL_BYTES: Final = 64
NO_STEP: Final = -1

_MAGIC: Final = int.from_bytes(b"EVCTRL01", "little")
_REPLICATED_STEP: Final = 1
_REPLICATION_OFF: Final = 2
_DURABLE_BUSY: Final = 3
_PHASE: Final = 4


class Phase(IntEnum):
    """Where in a step a rank is; numbered as ``RankPhase`` in agents.proto.

    What may take long without anything being wrong lies at the start and between two steps.
    """

    STARTING = 0
    LOADING = 1
    COMPUTING = 2
    AGREEING = 3
    SNAPSHOTTING = 4
    BETWEEN = 5


class Control:
    """An open control file; created with nothing replicated when it does not exist.

    Raises:
        Unavailable: there is no room for it.
        CorruptData: what lies there is none.
    """

    def __init__(self, path: Path) -> None:
        _create_if_missing(path)
        descriptor = os.open(path, os.O_RDWR)
        try:
            if os.fstat(descriptor).st_size < CONTROL_BYTES:
                raise CorruptData(f"control file {path} is shorter than {CONTROL_BYTES} bytes")
            self._map = mmap.mmap(descriptor, CONTROL_BYTES)
        finally:
            os.close(descriptor)
        self._words = memoryview(self._map).cast("q")
        if self._words[0] != _MAGIC:
            self.close()
            raise CorruptData(f"{path} is not a control file: delete it and start the rank again")

    @property
    def replicated_step(self) -> int:
        """Newest step that the peer has acknowledged, ``NO_STEP`` for none."""
        return self._words[_REPLICATED_STEP]

    @replicated_step.setter
    def replicated_step(self, step: int) -> None:
        self._words[_REPLICATED_STEP] = step

    @property
    def replication_off(self) -> bool:
        """Whether no peer keeps copies, so that there is nothing to wait for."""
        return self._words[_REPLICATION_OFF] != 0

    @replication_off.setter
    def replication_off(self, off: bool) -> None:
        self._words[_REPLICATION_OFF] = int(off)

    @property
    def durable_busy(self) -> bool:
        """Whether the durable snapshot is not stored yet and must not be overwritten."""
        return self._words[_DURABLE_BUSY] != 0

    @durable_busy.setter
    def durable_busy(self, busy: bool) -> None:
        self._words[_DURABLE_BUSY] = int(busy)

    @property
    def phase(self) -> Phase:
        """Where in a step the rank is."""
        return Phase(self._words[_PHASE])

    @phase.setter
    def phase(self, phase: Phase) -> None:
        self._words[_PHASE] = phase

    def reset(self, *, replication_off: bool) -> None:
        """Forget what an earlier generation's peer held; the agent calls this before a start."""
        self.phase = Phase.STARTING
        self.replicated_step = NO_STEP
        self.replication_off = replication_off
        self.durable_busy = False

    def close(self) -> None:
        """Let go of the mapping."""
        self._words.release()
        self._map.close()


def _create_if_missing(path: Path) -> None:
    """Create the file whole or not at all: rank and agent may both be first."""
    if path.exists():
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f"{path.name}.{os.getpid()}")
    words = [_MAGIC, NO_STEP, 0, 0, 0, 0, 0, 0]
    try:
        temporary.write_bytes(b"".join(word.to_bytes(8, "little", signed=True) for word in words))
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise no_room(path, CONTROL_BYTES, error) from None
    try:
        path.hardlink_to(temporary)
    except FileExistsError:
        pass  # the other side was first; its file is whole
    finally:
        temporary.unlink()
