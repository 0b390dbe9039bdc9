"""One root seed, split by name, so that no actor's draws depend on another's.

``random.Random`` seeded with a string hashes it with SHA-512: the same on every machine and in
every process (unlike ``hash``). An actor that is added or draws once more changes nobody else.
"""

from __future__ import annotations

from random import Random


class Seeds:
    """Hands out a generator a name."""

    def __init__(self, root: int) -> None:
        self.root = root

    def of(self, *names: str | int) -> Random:
        """Return a fresh generator for the actor ``names``, always in the same state."""
        return Random("/".join(str(name) for name in (self.root, *names)))  # noqa: S311  # no secrets


class SeededIds:
    """Implements ``core.system.IdSource``."""

    def __init__(self, random: Random) -> None:
        self._random = random

    def new_id(self, prefix: str) -> str:
        """Return ``prefix-<16 hex digits>``, or the digits alone for an empty prefix."""
        digits = f"{self._random.getrandbits(64):016x}"
        return f"{prefix}-{digits}" if prefix else digits
