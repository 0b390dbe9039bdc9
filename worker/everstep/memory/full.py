"""What is said, and what still works, when the memory directory is full.

Other processes may fill the file system that snapshots lie on. Snapshots that have their files go
on: those are as large as they will be, and touched. The few small files beside them must be written
even then, or a host whose memory is all that is left of a step could not be fenced any more.
"""

from __future__ import annotations

import os
from pathlib import Path

from everstep.core.errors import Unavailable


def no_room(path: Path, needed_bytes: int, error: OSError) -> Unavailable:
    """Say which directory has no room, for how much, and how much there is.

    Args:
        path: of the file; its directory is there.
        needed_bytes: what the file still needs.
        error: what the system said; a quota leaves bytes free that are for others.
    """
    status = os.statvfs(path.parent)
    return Unavailable(
        f"no room for {path.name} in {path.parent}: it needs {needed_bytes} more bytes, "
        f"{status.f_bavail * status.f_frsize} are free ({error.strerror}). Give the host's memory "
        "directory more room, or the job less state a rank"
    )


def replace_file(path: Path, data: bytes) -> None:
    """Replace a small file by one rename; without room for a second file, in place.

    Raises:
        Unavailable: there is none for the first one either.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_name(f"{path.name}.{os.getpid()}")
    try:
        fresh.write_bytes(data)
    except OSError as error:
        fresh.unlink(missing_ok=True)
        if not path.exists():
            raise no_room(path, len(data), error) from None
        with path.open("r+b", buffering=0) as file:
            file.write(data)  # in one call, into a page that is there
            file.truncate()
    else:
        fresh.replace(path)
