"""Does what ``agenda`` says: asks hosts to run their probes, and records what they said.

Several instances may do so at once: a host runs one examination at a time and tells all who ask,
and what is recorded twice is recorded once.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable
from typing import Final, assert_never

from everstep.core.errors import EverstepError, NoResponders, Unavailable
from everstep.core.ports import Bus
from everstep.core.probes import Depth, ProbeReport, ProbeResult, Verdict, in_words
from everstep.core.system import Clock, IdSource
from everstep.host_inventory.agenda import Drain, Examine, Need, Return, Tried, needs, round_of
from everstep.host_inventory.care import Care
from everstep.host_inventory.commands import RecordProbes, ReturnHost
from everstep.host_inventory.keeper import FleetKeeper
from everstep.service.commands import host_subject, request, send_command
from everstep.wire.codec import from_wire
from everstep.wire.v1.common_pb2 import CommandReply
from everstep.wire.v1.jobs_pb2 import DrainHosts
from everstep.wire.v1.probes_pb2 import ExamineHost, ExamineHostReply, PartnerHost

# Between two looks: a cluster that is switched on commits hundreds of events a second, and a look
# at 2,048 hosts takes 2.5 ms (benchmarks/probes.py).
PAUSE_S: Final = 0.05
LOOK_S: Final = 1.0  # what only time brings about: a hold-out that is over, a spare's turn
# An agent waits a minute for its fork server to be warm and another one for its probes.
EXAMINE_S_MAX: Final = 130.0
# A host tells all who ask the same, so it is asked again meanwhile: what a lost answer costs.
ASK_S_MAX: Final = 5.0
COMMAND_S_MAX: Final = 5.0

SaveReport = Callable[[str, ProbeReport], Awaitable[None]]

_log = logging.getLogger(__name__)


async def no_report(host_id: str, report: ProbeReport) -> None:
    """Note nothing: where nobody looks at reports."""
    del host_id, report


class Caretaker:
    """Looks after hosts that are not at work."""

    def __init__(
        self,
        keeper: FleetKeeper,
        bus: Bus,
        clock: Clock,
        ids: IdSource,
        care: Care,
        save_report: SaveReport,
    ) -> None:
        """``save_report`` notes what probes said, for people; it decides nothing."""
        self._keeper = keeper
        self._bus = bus
        self._clock = clock
        self._ids = ids
        self._care = care
        self._save_report = save_report
        self._woken = asyncio.Event()
        self._tried: dict[str, Tried] = {}
        self._rounds: dict[str, int] = {}
        # Of each agent, so that a new one need not wait for what its predecessor was asked; and a
        # hold-out ends whether or not anybody answers.
        self._busy: set[tuple[str, str, bool]] = set()

    def wake(self) -> None:
        """Look soon: something was committed."""
        self._woken.set()

    async def run(self) -> None:
        """Look after the hosts for ever."""
        async with asyncio.TaskGroup() as group:
            while True:
                self._woken.clear()
                for need in await self._needs():
                    if _which(need) not in self._busy:
                        self._busy.add(_which(need))
                        group.create_task(self._serve(need))
                await asyncio.sleep(PAUSE_S)
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._woken.wait(), LOOK_S)

    async def _needs(self) -> tuple[Need, ...]:
        now_ms, fleet = self._clock.now_ms(), await self._keeper.fleet()
        for host_id in fleet.hosts:
            self._rounds.setdefault(host_id, round_of(host_id, now_ms, self._care))
        heard_ms = self._keeper.heard_ms()
        return needs(fleet, now_ms, self._care, self._tried, self._rounds, heard_ms)

    async def _serve(self, need: Need) -> None:
        """Do it; what fails is told and tried again."""
        host_id, now_ms = need.host_id, self._clock.now_ms()
        why = ""
        try:
            match need:
                case Examine():
                    self._rounds[host_id] = round_of(host_id, now_ms, self._care)
                    why = await self._examine(need)
                case Return():
                    await self._keeper.apply(
                        ReturnHost(host_id=host_id, at_ms=now_ms, heard_ms=need.heard_ms)
                    )
                case Drain():
                    why = await self._drain(need)
                case _:
                    assert_never(need)
        except EverstepError as error:
            why = str(error)
        finally:
            self._busy.discard(_which(need))
        before = self._tried.get(host_id)
        if before is not None and before.agent_epoch != need.agent_epoch and before.at_ms > now_ms:
            return  # a newer agent has been asked meanwhile
        failures = (before.failures + 1 if before else 1) if why else 0
        self._tried[host_id] = Tried(
            at_ms=self._clock.now_ms(), failures=failures, agent_epoch=need.agent_epoch
        )
        if why:
            level = logging.WARNING if failures == 1 else logging.DEBUG
            _log.log(level, "%s of %s: %s", type(need).__name__, host_id, why)

    async def _examine(self, need: Examine) -> str:
        """Return why nothing came of it, "" if something did."""
        burn_in_s = self._care.burn_in_s if need.depth is Depth.BURN_IN else 0
        command = ExamineHost(
            examination_id=self._ids.new_id("x"), depth=need.depth, burn_in_s=burn_in_s
        )
        if need.partner is not None:
            partner = need.partner
            command.partner.CopyFrom(
                PartnerHost(
                    host_id=partner.host_id, address=partner.address, port=partner.peer_port
                )
            )
        reply = await self._ask(need.host_id, command)
        if not reply.outcome.accepted:
            why = f"{reply.outcome.why}: {reply.outcome.detail}"
            if reply.outcome.why != "busy":
                await self._save_report(need.host_id, self._no_report(command, why))
            return why
        report = from_wire(reply.report, ProbeReport)
        await self._keeper.apply(
            RecordProbes(
                host_id=need.host_id,
                agent_epoch=reply.agent_epoch,
                report=report,
                at_ms=self._clock.now_ms(),
            )
        )
        await self._save_report(need.host_id, report)
        wrong = in_words((*report.failed(pair=False), *report.failed(pair=True)))
        return f"probes failed: {wrong}" if wrong else ""

    async def _ask(self, host_id: str, command: ExamineHost) -> ExamineHostReply:
        """Ask until an answer comes. Raises Unavailable."""
        subject = host_subject(host_id, "cmd.examine")
        give_up_ms = self._clock.monotonic_ms() + (command.burn_in_s + EXAMINE_S_MAX) * 1_000
        while True:
            try:
                return await request(
                    self._bus, subject, command, ExamineHostReply, timeout_s=ASK_S_MAX
                )
            except NoResponders:
                raise
            except Unavailable:
                if self._clock.monotonic_ms() >= give_up_ms:
                    raise

    def _no_report(self, command: ExamineHost, why: str) -> ProbeReport:
        """Say for people that there was none."""
        return ProbeReport(
            examination_id=command.examination_id,
            depth=Depth(command.depth),
            at_ms=self._clock.now_ms(),
            duration_ms=0,
            probes=(ProbeResult(name="examination", verdict=Verdict.NOT_RUN, detail=why),),
        )

    async def _drain(self, need: Drain) -> str:
        command = DrainHosts(
            job_id=need.job_id, hosts=[need.host_id], why=need.why, at_ms=self._clock.now_ms()
        )
        reply = await send_command(
            self._bus, "controller", command, CommandReply, timeout_s=COMMAND_S_MAX
        )
        return "" if reply.outcome.accepted else f"{reply.outcome.why}: {reply.outcome.detail}"


def _which(need: Need) -> tuple[str, str, bool]:
    return need.host_id, need.agent_epoch, isinstance(need, Return)
