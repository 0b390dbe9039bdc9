"""Names of what is counted on hosts: agents count it, the monitor knows what it means.

An ``ErrorKind`` is a counter that grows with each error, or a state that counts once when it
begins. XIDs (what NVIDIA's driver reports as a number) have kinds of their own: ``gpu_xid_79``.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

XID_PREFIX: Final = "gpu_xid_"


class ErrorKind(StrEnum):
    """Counted on any host, and on its accelerators; ``_ms`` counts milliseconds."""

    MEMORY_CORRECTED = "memory_corrected"
    MEMORY_UNCORRECTED = "memory_uncorrected"
    NIC_ERRORS = "nic_errors"
    NIC_DROPS = "nic_drops"
    LINK_FLAPS = "link_flaps"
    FABRIC_ERRORS = "fabric_errors"
    FABRIC_FLAPS = "fabric_flaps"
    DISK_ERRORS = "disk_errors"
    DISK_READ_ONLY = "disk_read_only"
    DISK_FULL = "disk_full"
    GPU_CORRECTED = "gpu_corrected"
    GPU_UNCORRECTED = "gpu_uncorrected"
    GPU_ROW_REMAP_PENDING = "gpu_row_remap_pending"
    GPU_ROW_REMAP_FAILED = "gpu_row_remap_failed"
    GPU_LOST = "gpu_lost"
    GPU_THERMAL_MS = "gpu_thermal_ms"
    GPU_POWER_BRAKE_MS = "gpu_power_brake_ms"
    NVLINK_ERRORS = "nvlink_errors"


def xid_kind(number: int) -> str:
    """Return the kind of an XID."""
    return f"{XID_PREFIX}{number}"
