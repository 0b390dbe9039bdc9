"""Secrets and ports of the three bundled servers: all that a client needs to find and enter them.

Apart from ``servers.py``, whose database driver belongs to the services' extra: the command line
reads a stack's file without it.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Credentials:
    """Random secrets of one stack; keep them in a file of mode 0600."""

    postgres_password: str
    nats_password: str
    nats_system_password: str
    s3_access_key: str
    s3_secret_key: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Ports:
    """Fixed for the life of a stack, so that clients find a restarted server again."""

    postgres: int
    nats: int
    s3: int
    s3_internal: tuple[int, ...]

    @property
    def all(self) -> frozenset[int]:
        """Every port of the three."""
        return frozenset((self.postgres, self.nats, self.s3, *self.s3_internal))
