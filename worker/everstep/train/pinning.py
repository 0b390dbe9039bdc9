"""Locks slot files in memory for an accelerator's copy engine.

A copy into memory that the system may move goes through a buffer of the driver's, with the host's
help; into locked memory the device writes by itself, beside its own work (CUDA C++ Programming
Guide, "Page-Locked Host Memory").
"""

from __future__ import annotations

import logging
from typing import Any, Final

import torch

log = logging.getLogger(__name__)

_SUCCESS: Final = 0  # cudaSuccess


class Pinned:
    """Memory that is registered with CUDA while it is open; on other devices nothing at all.

    Args:
        memory: mapped and touched.
        device: that copies into it.
    """

    def __init__(self, memory: memoryview, device: torch.device) -> None:
        self._address = 0
        if device.type != "cuda" or not memory.nbytes:
            return
        address = torch.frombuffer(memory, dtype=torch.uint8).data_ptr()
        with torch.cuda.device(device):
            code = int(_runtime().cudaHostRegister(address, memory.nbytes, 0))
        if code == _SUCCESS:
            self._address = address
        else:
            log.warning(
                "%d bytes of snapshot memory could not be locked (CUDA error %d): snapshots will "
                "be slower; raise the limit of locked memory (ulimit -l) of the agent",
                memory.nbytes,
                code,
            )

    def close(self) -> None:
        """Let go, before the mapping goes."""
        if self._address:
            _runtime().cudaHostUnregister(self._address)
            self._address = 0


def _runtime() -> Any:
    return torch.cuda.cudart()  # type: ignore[no-untyped-call]  # torch has no types for it
