"""How a handler's exception travels back to whoever asked, so that it need not wait for a timeout.

The answer carries the error's code in a header and its message as data. A final error (malformed
input, no such thing) arrives as the same class, because sending it again would not help; everything
else arrives as ``Unavailable``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from everstep.core.errors import (
    CorruptData,
    EverstepError,
    InvalidInput,
    NotFoundError,
    RefusedError,
    Unavailable,
)

HEADER: Final = "Everstep-Error"
_FINAL: Final[dict[str, type[EverstepError]]] = {
    kind.code: kind for kind in (RefusedError, NotFoundError, InvalidInput, CorruptData)
}


def failure(error: Exception) -> tuple[dict[str, str], bytes]:
    """Return the headers and data of the answer that tells of ``error``."""
    code = error.code if isinstance(error, EverstepError) else "internal"
    text = str(error) if isinstance(error, EverstepError) else f"{type(error).__name__}: {error}"
    return {HEADER: code}, text.encode(errors="replace")


def failure_in(subject: str, headers: Mapping[str, str], data: bytes) -> EverstepError | None:
    """Return the exception that an answer tells of, if it does."""
    code = headers.get(HEADER)
    if code is None:
        return None
    text = f"{subject}: {data.decode(errors='replace')}"
    return _FINAL.get(code, Unavailable)(text)
