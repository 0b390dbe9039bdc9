"""A stack that is taken down: who goes first."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import pytest

from everstep.core.system import SystemClock
from everstep.local import cleanup, hosts
from everstep.local.running import RunningStack


class Part:
    """A unit that notes when it goes."""

    def __init__(self, name: str, kind: str, gone: list[str]) -> None:
        self.name, self.kind, self._gone = name, kind, gone

    async def kill(self, *, keep_down: bool) -> None:
        """Go at once."""
        assert keep_down
        self._gone.append(self.kind)

    async def stop(self) -> None:
        """Go in order: others could see what goes meanwhile."""
        await asyncio.sleep(0)
        self._gone.append(self.kind)


async def test_services_are_gone_before_their_hosts(monkeypatch: pytest.MonkeyPatch, tmp_path):
    """A monitor that is left for a second takes a host that goes for a lost one."""
    gone: list[str] = []
    monkeypatch.setattr(hosts, "lose", lambda *_: gone.append("memory"))
    monkeypatch.setattr(cleanup, "sweep", lambda *_: gone.append("rest"))

    async def close() -> None:
        gone.append("catalogue")

    stack = RunningStack(
        paths=SimpleNamespace(root=tmp_path),
        stack=SimpleNamespace(hosts=[SimpleNamespace(host_id="h1")], chaos=False),
        catalogue=SimpleNamespace(close=close),
        clock=SystemClock(),
    )
    for name, kind in (("h1", "agent"), ("nats", "server"), ("monitor", "service")):
        stack.units[name] = Part(name, kind, gone)
    await stack.take_down()
    assert gone == ["service", "agent", "memory", "server", "catalogue", "rest"]
