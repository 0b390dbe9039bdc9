"""Runs this host's probes when the inventory asks, and gives way to ranks at once.

One examination at a time: who asks while one runs gets its answer, if it is as thorough; who asks
again for one that is over, because the answer was lost, gets it once more. Nothing is probed where
ranks run.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from typing import Final

import msgspec

from everstep.agent.forks import ForkServer
from everstep.agent.membership import HostFacts
from everstep.core.ids import is_valid_id
from everstep.core.probes import Depth, ProbeReport
from everstep.wire.codec import to_wire
from everstep.wire.v1 import probes_pb2 as wire
from everstep.wire.v1.common_pb2 import Outcome

log = logging.getLogger(__name__)

# Importing torch takes a fork server some seconds, a minute on a machine that is just booting.
WARM_S_MAX: Final = 60.0
# Beyond its own time: the quick probes take a tenth of a second of processor time
# (benchmarks/probes.py), on a machine whose other processes may want all of it.
PROBES_S_MAX: Final = 60.0
BURN_IN_S_MAX: Final = 3_600
KEPT: Final = "probes.json"  # in the run directory: the newest report, for people

Refusal = tuple[str, str]


class Examinations:
    """The examinations of one host."""

    def __init__(self, facts: HostFacts, forks: ForkServer, ranks_run: Callable[[], bool]) -> None:
        self._facts = facts
        self._forks = forks
        self._ranks_run = ranks_run
        self._running: tuple[Depth, asyncio.Task[ProbeReport | Refusal]] | None = None
        self._newest: ProbeReport | None = None

    async def examine(self, command: wire.ExamineHost) -> wire.ExamineHostReply:
        """Run the probes and tell what they said; refused where ranks run, or come meanwhile."""
        try:
            depth = Depth(command.depth)
        except ValueError:
            return self._reply(("invalid_command", f"no such depth of probes: {command.depth!r}"))
        if not is_valid_id(command.examination_id):
            return self._reply(("invalid_command", f"{command.examination_id!r} is no id"))
        if self._newest is not None and self._newest.examination_id == command.examination_id:
            return self._reply(self._newest)
        if self._ranks_run():
            return self._reply(("busy", f"ranks run on {self._facts.host_id}"))
        if self._running is None or (depth is Depth.BURN_IN and self._running[0] is Depth.QUICK):
            task = asyncio.get_running_loop().create_task(self._run(command, depth))
            self._running = (depth, task)
            task.add_done_callback(self._over)
        # Whoever asked may go away; the others wait on.
        return self._reply(await asyncio.shield(self._running[1]))

    def give_way(self) -> None:
        """End what runs: ranks are to be forked."""
        self._forks.end_probes()

    def _over(self, task: asyncio.Task[ProbeReport | Refusal]) -> None:
        if self._running is not None and self._running[1] is task:
            self._running = None

    async def _run(self, command: wire.ExamineHost, depth: Depth) -> ProbeReport | Refusal:
        burn_in_s = min(command.burn_in_s, BURN_IN_S_MAX) if depth is Depth.BURN_IN else 0
        path = self._facts.run_dir / KEPT
        with contextlib.suppress(FileNotFoundError):
            path.unlink()
        request = {
            "examination_id": command.examination_id,
            "depth": depth,
            "burn_in_s": burn_in_s,
            "answer_path": str(path),
            "shared": self._facts.emulated,
            "loopback": {
                "host_id": self._facts.host_id,
                "address": self._facts.address,
                "port": self._facts.peer_port,
            },
        }
        if command.HasField("partner"):
            partner = command.partner
            request["partner"] = {
                "host_id": partner.host_id,
                "address": partner.address,
                "port": partner.port,
            }
        try:
            async with asyncio.timeout(WARM_S_MAX):
                await self._forks.wait_warm()
        except TimeoutError:
            return ("not_warm", f"the fork server is not warm after {WARM_S_MAX:.0f} s")
        if self._ranks_run():
            return ("busy", f"ranks run on {self._facts.host_id}")
        why = await self._probe(command.examination_id, request, burn_in_s + PROBES_S_MAX)
        if why:
            return ("not_examined", why)
        try:
            self._newest = msgspec.json.decode(path.read_bytes(), type=ProbeReport)
        except (OSError, msgspec.DecodeError) as error:
            return ("not_examined", f"no report: {error}")
        return self._newest

    async def _probe(self, examination_id: str, request: object, limit_s: float) -> str:
        text = msgspec.json.encode(request).decode()
        log_path = str(self._facts.run_dir / "logs" / "probes.log")
        try:
            async with asyncio.timeout(limit_s):
                return await self._forks.probe(examination_id, text, log_path)
        except TimeoutError:
            self._forks.end_probes()
            return f"no answer within {limit_s:.0f} s: see {log_path}"

    def _reply(self, found: ProbeReport | Refusal) -> wire.ExamineHostReply:
        reply = wire.ExamineHostReply(
            host_id=self._facts.host_id, agent_epoch=self._facts.agent_epoch
        )
        if isinstance(found, ProbeReport):
            reply.outcome.CopyFrom(Outcome(accepted=True))
            to_wire(found, reply.report)
        else:
            why, detail = found
            log.info("probes: %s: %s", why, detail)
            reply.outcome.CopyFrom(Outcome(accepted=False, why=why, detail=detail))
        return reply
