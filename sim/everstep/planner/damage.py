"""What reading a damaged history runs into, in a person's words."""

from __future__ import annotations

from typing import Final

DAMAGE: Final = (LookupError, TypeError, ValueError, AttributeError, OverflowError)


def told_of(error: BaseException) -> str:
    """Return what one of ``DAMAGE`` says of the document: what is missing, or that it is wrong."""
    if isinstance(error, KeyError) and error.args:
        return f"{error.args[0]!r} is missing"
    return "a value is cut off or of another kind than it was exported with"
