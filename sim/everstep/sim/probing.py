"""What an agent answers when its host is to be probed; as ``everstep.agent.examination``."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from everstep.core.ports import Message
from everstep.core.probes import PAIR, Depth, Verdict
from everstep.service.commands import host_subject
from everstep.wire.v1 import probes_pb2 as wire
from everstep.wire.v1.common_pb2 import Outcome

if TYPE_CHECKING:
    from everstep.sim.agent import Agent

QUICK_S: Final = 0.5
LOOK_S: Final = 0.1
DEEPER: Final = (Depth.QUICK, Depth.BURN_IN)  # what runs, and what is asked and cannot wait for it


class Probing:
    """One agent's probes: of the host as it really is (``Host.wrong``), and of its links."""

    def __init__(self, agent: Agent) -> None:
        self._agent = agent
        self._host = agent.host
        self._running: tuple[str, asyncio.Task[wire.ExamineHostReply]] | None = None
        self._newest: wire.ExamineHostReply | None = None

    async def serve(self) -> None:
        """Begin to answer."""

        async def reply(message: Message) -> bytes:
            command = wire.ExamineHost.FromString(message.data)
            return (await self._examine(command)).SerializeToString()

        await self._agent.endpoint.serve(host_subject(self._host.host_id, "cmd.examine"), reply)

    async def _examine(self, command: wire.ExamineHost) -> wire.ExamineHostReply:
        """Answer from the newest examination, from the one that runs, or from another one."""
        newest, running = self._newest, self._running
        if newest is not None and newest.report.examination_id == command.examination_id:
            return newest
        deeper = running is not None and (running[0], command.depth) == DEEPER
        if running is None or running[1].done() or deeper:
            task = self._agent.process.run(self._run(command))
            running = self._running = (command.depth, task)
        return await asyncio.shield(running[1])

    async def _run(self, command: wire.ExamineHost) -> wire.ExamineHostReply:
        """Take the time that probes take, and give way when ranks come."""
        host, loop = self._host, asyncio.get_running_loop()
        at_ms, begun_s = host.now_ms(), loop.time()
        while (left_s := self._ends_s(command, begun_s) - loop.time()) > 0:
            if any(run.alive for run in host.runs.values()):
                return self._reply(Outcome(why="busy", detail=f"ranks run on {host.host_id}"))
            await asyncio.sleep(min(LOOK_S, left_s))
        self._newest = wire.ExamineHostReply(
            outcome=Outcome(accepted=True),
            host_id=host.host_id,
            agent_epoch=self._agent.epoch,
            report=wire.ProbeReport(
                examination_id=command.examination_id,
                depth=command.depth,
                at_ms=at_ms,
                duration_ms=host.now_ms() - at_ms,
                probes=self._results(command),
            ),
        )
        return self._newest

    def _ends_s(self, command: wire.ExamineHost, begun_s: float) -> float:
        return begun_s + (command.burn_in_s or QUICK_S) + self._host.probe_delay_s

    def _reply(self, outcome: Outcome) -> wire.ExamineHostReply:
        return wire.ExamineHostReply(
            outcome=outcome, host_id=self._host.host_id, agent_epoch=self._agent.epoch
        )

    def _results(self, command: wire.ExamineHost) -> list[wire.ProbeResult]:
        host = self._host
        found = [
            wire.ProbeResult(
                name=name,
                verdict=Verdict.FAILED if host.wrong == name else Verdict.PASSED,
                detail="a wrong answer" if host.wrong == name else "",
            )
            for name in ("product_float32", "memory")
        ]
        if command.HasField("partner"):
            other = host.world.hosts[command.partner.host_id]
            carried = host.data_link and other.data_link and other.agent is not None
            verdict = Verdict.PASSED if carried else Verdict.FAILED
            found.append(wire.ProbeResult(name=PAIR, where=other.host_id, verdict=verdict))
        return found
