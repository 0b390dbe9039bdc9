"""Orders that only a stack for chaos takes: stop processes for a while, slow hosts, cut lines.

What was done is answered with the moment [ms] and with whom it met: a campaign's ground truth.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable
from typing import Any, Final

import msgspec

from everstep.core.errors import InvalidInput, RefusedError
from everstep.local import hosts, processes
from everstep.local.relay import Line, Relay, Rule
from everstep.local.running import RunningStack
from everstep.local.state import ProcessRecord

SLICE_S: Final = 0.1  # of a slow host: shorter than any step, long enough to be kept on a busy core
LOOK_EVERY: Final = 20  # slices after which the host's processes are looked for again
_SIGNALS: Final = {"stop": signal.SIGSTOP, "continue": signal.SIGCONT}


class ChaosOrders:
    """Carries them out."""

    def __init__(self, running: RunningStack) -> None:
        self._running = running
        self._slowing: dict[str, asyncio.Task[None]] = {}
        self._stopped: list[ProcessRecord] = []

    async def carry_out(self, request: dict[str, Any]) -> dict[str, Any]:
        """Do what is asked and say what was done.

        Raises:
            RefusedError: the stack is not for chaos, or there is no such thing.
            InvalidInput: a rule contradicts itself.
        """
        if not self._running.stack.chaos:
            raise RefusedError(
                "not_for_chaos",
                "this stack takes no faults: `everstep down` and then `everstep up --chaos`",
            )
        match request:
            case {"what": "line", "host": str(host), "line": str(line), "rule": dict(rule)}:
                return self._set_rule(host, line, rule)
            case {"what": "signal", "name": str(name), "signal": ("stop" | "continue") as number}:
                return await self._signal(name, number, request)
            case {"what": "slow", "host": str(host), "percent": int() | float() as percent}:
                return self._slow(host, float(percent))
            case {"what": "heal"}:
                return await self._heal()
            case _:
                raise RefusedError("unknown_order", f"the supervisor does not understand {request}")

    def _relay(self) -> Relay:
        relays = self._running.relays
        assert relays is not None, "a stack for chaos has one"
        return relays.relay

    def _set_rule(self, host: str, line: str, rule: dict[str, Any]) -> dict[str, Any]:
        self._running.host(host)
        try:
            which, told = Line(line), msgspec.convert(rule, Rule)
        except (ValueError, msgspec.ValidationError) as error:
            raise InvalidInput(f"no rule of a line: {line} {rule}: {error}") from None
        self._relay().set_rule(host, which, told)
        return {"host": host, "line": line, "at_ms": self._now_ms()}

    async def _signal(self, name: str, number: str, request: dict[str, Any]) -> dict[str, Any]:
        """Stop or continue a host (``of: host``), an agent, a server or a rank (its number)."""
        kind = request.get("of")
        match kind:
            case "host":
                self._running.host(name)
                found = await asyncio.to_thread(self._members, name)
            case "agent":
                self._running.host(name)
                agent = hosts.read_agent(self._running.paths, name)
                found = [agent] if agent is not None else []
            case "service":
                record = self._running.service(name).record
                found = [record, *processes.descendants(record)] if record is not None else []
            case "rank":
                found, name = await asyncio.to_thread(self._rank, name, str(request.get("job", "")))
            case _:
                raise RefusedError("unknown_order", f"nothing is called a {kind} here")
        if not found:
            raise RefusedError("not_running", f"{kind} {name} does not run")
        at_ms = self._now_ms()
        processes.send_signal(found, _SIGNALS[number])
        if number == "stop":
            self._stopped += found
        return {"of": kind, "name": name, "pids": [one.pid for one in found], "at_ms": at_ms}

    def _rank(self, rank: str, job: str) -> tuple[list[ProcessRecord], str]:
        """Return a rank's process and its host."""
        for host in self._running.stack.hosts:
            for found in hosts.ranks(self._running.paths, host.host_id):
                if str(found.rank) == rank and job in ("", found.job_id):
                    return [found.record], host.host_id
        return [], rank

    def _slow(self, host: str, percent: float) -> dict[str, Any]:
        self._running.host(host)
        at_ms = self._now_ms()
        task = self._slowing.pop(host, None)
        if task is not None:
            task.cancel()
        if percent > 0:
            share = percent / (100 + percent)
            work = self._hold_back(lambda: self._members(host), share)
            self._slowing[host] = asyncio.create_task(work, name=f"slow {host}")
        return {"host": host, "percent": percent, "at_ms": at_ms}

    async def _hold_back(self, members: Callable[[], list[ProcessRecord]], share: float) -> None:
        """Stop a host's processes for a share of each slice."""
        slices, found = 0, []
        try:
            while True:
                if slices % LOOK_EVERY == 0:
                    found = await asyncio.to_thread(members)
                slices += 1
                processes.send_signal(found, signal.SIGSTOP)
                await asyncio.sleep(SLICE_S * share)
                processes.send_signal(found, signal.SIGCONT)
                await asyncio.sleep(SLICE_S * (1 - share))
        finally:
            processes.send_signal(found, signal.SIGCONT)

    async def _heal(self) -> dict[str, Any]:
        """End everything that lasts."""
        self._relay().heal()
        slowed = sorted(self._slowing)
        for task in self._slowing.values():
            task.cancel()
        await asyncio.gather(*self._slowing.values(), return_exceptions=True)
        self._slowing.clear()
        processes.send_signal(self._stopped, signal.SIGCONT)
        self._stopped.clear()
        return {"slowed": slowed, "counts": self._relay().counts, "at_ms": self._now_ms()}

    def _members(self, host: str) -> list[ProcessRecord]:
        return hosts.members(self._running.paths, self._running.stack, host)

    def _now_ms(self) -> int:
        return self._running.clock.now_ms()
