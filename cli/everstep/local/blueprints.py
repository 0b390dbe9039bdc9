"""What a stack consists of, as far as the supervisor must know: names, commands, readiness.

The real one is ``everstep.local.catalogue``; tests of the supervisor bring their own, so that they
need neither PostgreSQL nor torch.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from everstep.local.state import HostConfig, Stack
from everstep.local.unit import Launch, Ready


@dataclass(frozen=True, slots=True, kw_only=True)
class Blueprint:
    """One process of the stack. ``kind`` is server, service or agent."""

    name: str
    kind: str
    launch: Launch
    ready: Ready
    leftovers: tuple[Path, ...] = ()  # files elsewhere, to be removed once it has stopped


class Catalogue(Protocol):
    """Says what to run."""

    def prepare(self, stack: Stack) -> None:
        """Write what the servers need before their first start; may block."""
        ...

    def servers(self, stack: Stack) -> list[Blueprint]:
        """Return the database, the bus and the object store."""
        ...

    async def provision(self, stack: Stack) -> None:
        """Create databases and bucket in running servers; already there is fine."""
        ...

    def services(self, stack: Stack) -> list[Blueprint]:
        """Return the control plane."""
        ...

    def agent(self, stack: Stack, host: HostConfig) -> Blueprint:
        """Return the agent of one host."""
        ...

    async def close(self) -> None:
        """Let go of connections."""
        ...
