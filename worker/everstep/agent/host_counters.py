"""Reads what the kernel counts: memory, network, disks.

Formats: Documentation/ABI/testing/sysfs-devices-edac, sysfs-class-net-statistics and
stable/sysfs-class-infiniband of the Linux kernel. What a host does not have is left out.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final

from everstep.agent.counters import Count
from everstep.core.counters import ErrorKind

# Of a file system: below both, the next snapshot's index or log line may not fit any more.
FREE_SHARE_MIN: Final = 0.01
FREE_BYTES_MIN: Final = 64 << 20
# Errors that a fabric's port repairs or drops; congestion (xmit_wait, discards) is none.
FABRIC_ERRORS: Final = (
    "symbol_error",
    "port_rcv_errors",
    "port_rcv_remote_physical_errors",
    "local_link_integrity_errors",
    "excessive_buffer_overrun_errors",
)
STA_UNSYNC: Final = 0x0040  # <sys/timex.h>


class HostCounters:
    """Of the machine.

    Args:
        sysfs: where it is mounted.
        procfs: the same.
        directories: of the agent, looked at for their disks.
        machine: whether to look at the whole machine, or, on one of several hosts that share it,
            at the directories only.
    """

    def __init__(
        self, sysfs: Path, procfs: Path, directories: Sequence[Path], *, machine: bool = True
    ) -> None:
        self._sysfs = sysfs
        self._procfs = procfs
        self._directories = directories
        self._machine = machine

    def read(self) -> Iterable[Count]:
        """Return everything that is there."""
        yield from self._disks_in_use()
        if self._machine:
            yield from self._memory()
            yield from self._nics()
            yield from self._fabric()
            yield from self._disks()

    def _memory(self) -> Iterator[Count]:
        for controller in _entries(self._sysfs / "devices/system/edac/mc", "mc"):
            for name, kind in (
                ("ce_count", ErrorKind.MEMORY_CORRECTED),
                ("ue_count", ErrorKind.MEMORY_UNCORRECTED),
            ):
                yield from _count(kind, controller.name, controller / name)

    def _nics(self) -> Iterator[Count]:
        for nic in _entries(self._sysfs / "class/net"):
            if not (nic / "device").exists():
                continue  # bridges and virtual pairs come and go with containers
            statistics = nic / "statistics"
            errors = _sum(statistics / name for name in ("rx_errors", "tx_errors"))
            drops = _sum(statistics / name for name in ("rx_dropped", "tx_dropped"))
            if errors is not None:
                yield Count(kind=ErrorKind.NIC_ERRORS, part=nic.name, value=errors)
            if drops is not None:
                yield Count(kind=ErrorKind.NIC_DROPS, part=nic.name, value=drops)
            yield from _count(ErrorKind.LINK_FLAPS, nic.name, nic / "carrier_down_count")

    def _fabric(self) -> Iterator[Count]:
        for device in _entries(self._sysfs / "class/infiniband"):
            for port in _entries(device / "ports"):
                part, counters = f"{device.name}/{port.name}", port / "counters"
                errors = _sum(counters / name for name in FABRIC_ERRORS)
                if errors is not None:
                    yield Count(kind=ErrorKind.FABRIC_ERRORS, part=part, value=errors)
                yield from _count(ErrorKind.FABRIC_FLAPS, part, counters / "link_downed")

    def _disks(self) -> Iterator[Count]:
        for disk in _entries(self._sysfs / "block"):
            yield from _count(ErrorKind.DISK_ERRORS, disk.name, disk / "device/ioerr_cnt")

    def _disks_in_use(self) -> Iterator[Count]:
        read_only = self._read_only()
        for directory in self._directories:
            mount = _mount_of(directory, read_only)
            if mount:
                ro = int(read_only[mount])
                yield Count(kind=ErrorKind.DISK_READ_ONLY, part=mount, value=ro, state=True)
            with contextlib.suppress(OSError):
                free = os.statvfs(directory)
                free_bytes = free.f_bavail * free.f_frsize
                full = free.f_blocks and free.f_bavail < FREE_SHARE_MIN * free.f_blocks
                yield Count(
                    kind=ErrorKind.DISK_FULL,
                    part=str(directory),
                    value=int(bool(full) and free_bytes < FREE_BYTES_MIN),
                    state=True,
                )

    def _read_only(self) -> dict[str, bool]:
        """Return for each place where something is mounted whether it is read-only."""
        found = {}
        with contextlib.suppress(OSError):
            for line in (self._procfs / "self/mounts").read_text().splitlines():
                parts = line.split()
                if len(parts) > 3:
                    place = parts[1].encode().decode("unicode_escape")  # blanks are \\040
                    found[place] = "ro" in parts[3].split(",")
        return found


def boot_id(procfs: Path) -> str:
    """Return what names this boot of the machine; "" where it cannot be read."""
    try:
        return (procfs / "sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


def is_clock_synchronised() -> bool:
    """Say whether something keeps this host's clock right, by the kernel's own word (adjtimex(2)).

    True where the kernel does not tell: nothing is made of a guess.
    """
    buffer = (ctypes.c_byte * 512)()  # struct timex with modes = 0: only reads
    libc = ctypes.CDLL(None, use_errno=True)
    if not hasattr(libc, "adjtimex") or libc.adjtimex(ctypes.byref(buffer)) < 0:
        return True
    # int modes, long offset, freq, maxerror, esterror, int status: each long aligned to its size.
    longs = ctypes.sizeof(ctypes.c_long)
    status = ctypes.c_int.from_buffer(buffer, 5 * longs).value
    return not status & STA_UNSYNC


def _entries(folder: Path, prefix: str = "") -> list[Path]:
    try:
        return sorted(path for path in folder.iterdir() if path.name.startswith(prefix))
    except OSError:
        return []


def _number(path: Path) -> int | None:
    try:
        return int(path.read_text().strip(), 0)  # ioerr_cnt is in hexadecimal
    except (OSError, ValueError):
        return None


def _sum(paths: Iterable[Path]) -> int | None:
    """Return the sum of those that are there; None if none is."""
    numbers = [number for path in paths if (number := _number(path)) is not None]
    return sum(numbers) if numbers else None


def _count(kind: ErrorKind, part: str, path: Path) -> Iterator[Count]:
    number = _number(path)
    if number is not None:
        yield Count(kind=kind, part=part, value=number)


def _mount_of(directory: Path, mounts: Iterable[str]) -> str:
    """Return the longest mount that the directory lies under."""
    path = os.fspath(directory)
    above = [one for one in mounts if path == one or path.startswith(one.rstrip("/") + "/")]
    return max(above, key=len, default="")
