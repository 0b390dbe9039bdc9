"""Memory directories that are full: a small tmpfs where it can be mounted, else a fake of one."""

from __future__ import annotations

import contextlib
import errno
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Protocol

import pytest

PAGE_BYTES = 4096


class Filling(Protocol):
    """A directory that another process fills, and empties again."""

    path: Path

    def fill(self) -> None:
        """Leave no byte free."""

    def empty(self) -> None:
        """Give all of that back."""


class SmallTmpfs:
    """A real one."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._filler = path / "of-another-process"

    def fill(self) -> None:
        with contextlib.suppress(OSError), self._filler.open("wb", buffering=0) as file:
            while file.write(bytes(PAGE_BYTES)) == PAGE_BYTES:
                pass

    def empty(self) -> None:
        self._filler.unlink()


class FakeTmpfs:
    """The system calls by which files get memory, refused for new pages while it is full.

    Only those that the code under test uses: ``os.pwrite`` and ``Path.write_bytes`` for memory,
    ``os.statvfs`` for how much there is.
    """

    def __init__(self, path: Path, size_bytes: int, monkeypatch: pytest.MonkeyPatch) -> None:
        self.path = path
        self._size_bytes = size_bytes
        self._full = False
        self._pwrite, self._statvfs = os.pwrite, os.statvfs
        self._write_bytes = Path.write_bytes
        monkeypatch.setattr(os, "pwrite", self._checked_pwrite)
        monkeypatch.setattr(os, "statvfs", self._told)
        monkeypatch.setattr(Path, "write_bytes", self._checked_bytes())

    def fill(self) -> None:
        self._full = True

    def empty(self) -> None:
        self._full = False

    def _free_bytes(self) -> int:
        used = sum(one.stat().st_blocks * 512 for one in self.path.rglob("*") if one.is_file())
        return 0 if self._full else max(0, self._size_bytes - used)

    def _checked_pwrite(self, descriptor, data, offset):
        status = os.fstat(descriptor)
        path = Path(f"/proc/self/fd/{descriptor}").readlink()
        ends = -(-(offset + len(data)) // PAGE_BYTES) * PAGE_BYTES
        if path.is_relative_to(self.path) and ends - status.st_blocks * 512 > self._free_bytes():
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return self._pwrite(descriptor, data, offset)

    def _checked_bytes(self):
        fake, real = self, self._write_bytes

        def write_bytes(path: Path, data: bytes) -> int:
            if path.is_relative_to(fake.path) and fake._free_bytes() < PAGE_BYTES:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            return real(path, data)

        return write_bytes

    def _told(self, path):
        if Path(path).is_relative_to(self.path):
            free = self._free_bytes() // PAGE_BYTES
            blocks = self._size_bytes // PAGE_BYTES
            return SimpleNamespace(
                f_bavail=free,
                f_bfree=free,
                f_blocks=blocks,
                f_frsize=PAGE_BYTES,
                f_bsize=PAGE_BYTES,
            )
        return self._statvfs(path)


def kinds() -> list[str]:
    """Return what there is here to try with."""
    return ["tmpfs", "fake"] if os.geteuid() == 0 and _can_mount() else ["fake"]


def _can_mount() -> bool:
    probe = ["unshare", "--mount", "mount", "-t", "tmpfs", "-o", "size=64k", "none", "/mnt"]
    return subprocess.run(probe, capture_output=True, check=False).returncode == 0


@contextlib.contextmanager
def small_memory(
    kind: str, path: Path, size_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Filling]:
    """A directory that holds so much and no more; gone afterwards."""
    path.mkdir(parents=True)
    if kind == "fake":
        yield FakeTmpfs(path, size_bytes, monkeypatch)
        return
    mount = ["mount", "-t", "tmpfs", "-o", f"size={size_bytes}", "everstep-test", str(path)]
    subprocess.run(mount, check=True)
    try:
        yield SmallTmpfs(path)
    finally:
        subprocess.run(["umount", "--lazy", str(path)], check=True)
