"""Runs a command as an unprivileged user: PostgreSQL refuses to run as root.

Started as a script with the bare interpreter (``python -I -S demote.py UID GID -- ARGV``), so it
imports the standard library only. One capability is kept, CAP_DAC_OVERRIDE: the server must reach
its binaries and its data under whatever private directory (``/root/...``) root works in. Rejected:
opening those directories to everyone with chmod, and adding a system user, which is what the
wheel's own start-up does: both outlive us. Where the capability cannot be kept, the server starts
without it, and works wherever the directories can be searched by others.
"""

from __future__ import annotations

import ctypes
import os
import sys
from typing import Final

PR_SET_KEEPCAPS: Final = 8
PR_SET_SECUREBITS: Final = 28
SECBIT_NO_SETUID_FIXUP: Final = 1 << 2
PR_CAP_AMBIENT: Final = 47
PR_CAP_AMBIENT_RAISE: Final = 2
CAP_DAC_OVERRIDE: Final = 1
CAPABILITY_VERSION_3: Final = 0x20080522


class _Header(ctypes.Structure):
    _fields_ = (("version", ctypes.c_uint32), ("pid", ctypes.c_int))


class _Data(ctypes.Structure):
    _fields_ = (
        ("effective", ctypes.c_uint32),
        ("permitted", ctypes.c_uint32),
        ("inheritable", ctypes.c_uint32),
    )


def become(uid: int, gid: int) -> None:
    """Change to an unprivileged user, keeping only CAP_DAC_OVERRIDE (across ``exec`` too)."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(PR_SET_KEEPCAPS, 1, 0, 0, 0)
    # Without it access(2), by which initdb looks for its binaries, forgets the capability.
    libc.prctl(PR_SET_SECUREBITS, SECBIT_NO_SETUID_FIXUP, 0, 0, 0)
    os.setgroups([])
    os.setresgid(gid, gid, gid)
    os.setresuid(uid, uid, uid)
    kept = 1 << CAP_DAC_OVERRIDE
    header = _Header(CAPABILITY_VERSION_3, 0)
    data = (_Data * 2)(_Data(kept, kept, kept), _Data(0, 0, 0))
    if libc.capset(ctypes.byref(header), data) == 0:
        libc.prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, CAP_DAC_OVERRIDE, 0, 0)


def main(arguments: list[str]) -> None:
    """Change user, then become the command."""
    uid, gid, separator, *argv = arguments
    assert separator == "--", arguments
    become(int(uid), int(gid))
    os.execv(argv[0], argv)  # noqa: S606 - no shell is wanted: this becomes the server


if __name__ == "__main__":
    main(sys.argv[1:])
