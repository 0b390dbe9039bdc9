"""The ZIP archive that ``torch.save`` writes, as far as it is always the same.

Its records are named after the archive; torch finds them whatever the archive's name is.
"""

from __future__ import annotations

import io
import sys
import zipfile
from typing import Final

_ARCHIVE: Final = "archive/"
_EPOCH: Final = (1980, 1, 1, 0, 0, 0)  # the oldest date that ZIP knows: the same bytes each time
_VERSION: Final = "3\n"  # of torch's format, since 1.6


def record(name: str) -> zipfile.ZipInfo:
    """Return the head of a record, without a date."""
    return zipfile.ZipInfo(_ARCHIVE + name, _EPOCH)


def write_heads(archive: zipfile.ZipFile, pickled: bytes) -> None:
    """Write the records that every archive has.

    Args:
        archive: to add to.
        pickled: what was saved, but for the bytes of tensors.
    """
    archive.writestr(record("data.pkl"), pickled)
    archive.writestr(record("byteorder"), sys.byteorder)
    archive.writestr(record("version"), _VERSION)


def archive_of(pickled: bytes) -> bytes:
    """Return the file of something that holds no tensor."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
        write_heads(archive, pickled)
    return file.getvalue()
