"""What the recovery process asks of others, over the bus: hosts, inventory, registry.

Refusals are values; silence is ``None`` for hosts (they may be dead) and ``Unavailable`` for
services (they will be back).
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from everstep.controller.starting import start_commands
from everstep.controller.state import Job
from everstep.core.decision import Rejected
from everstep.core.errors import NoResponders, Unavailable
from everstep.core.placement import Placement
from everstep.core.ports import Bus
from everstep.core.spec import parse_spec_json
from everstep.core.system import Clock
from everstep.service.commands import host_subject, request, send_command
from everstep.wire.codec import from_wire, to_wire
from everstep.wire.v1.agents_pb2 import SaveRanks, StartRanks, StopRanks, StopRanksReply
from everstep.wire.v1.checkpoints_pb2 import (
    HostHoldings,
    ListSteps,
    ListStepsReply,
    PlanRestore,
    PlanRestoreReply,
    RestoreSources,
)
from everstep.wire.v1.common_pb2 import CommandReply, Outcome
from everstep.wire.v1.common_pb2 import Layout as WireLayout
from everstep.wire.v1.hosts_pb2 import PlaceJob, PlaceJobReply

# An agent that was killed alone is back within about 2 s (its supervisor restarts it, the ranks it
# left are re-adopted); a host that has not answered for 3 s is taken for lost. DESIGN asks for 5 s.
UNREACHABLE_AFTER_S: Final = 3.0
RETRY_PAUSE_S: Final = 0.1
ANSWER_S_MAX: Final = 2.0  # killing and reaping ranks takes milliseconds; a loaded host may be slow
GRACEFUL_S_MAX: Final = 70.0  # agents give ranks 60 s to agree on a last step
START_S_MAX: Final = 5.0
SERVICE_S_MAX: Final = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Fenced:
    """A host's answer to the fence."""

    host_id: str
    address: str
    rendezvous_port: int
    holdings: HostHoldings


@dataclass(frozen=True, slots=True, kw_only=True)
class Placed:
    """The inventory's answer: a placement, perhaps with a remark, or how many hosts are short."""

    placement: Placement | None
    replacements: tuple[str, ...]
    missing: int
    remark: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """The registry's answer."""

    step: int
    sources: RestoreSources
    passed_over: tuple[str, ...]


class Outside(Protocol):
    """Port of the runner; the bus below, or a fake in tests and the simulator."""

    async def fence(
        self, job_id: str, generation: int, hosts: Sequence[str], *, graceful: bool, forget: bool
    ) -> Mapping[str, Fenced]:
        """End older ranks of hosts; those that do not answer are missing."""
        ...

    async def place(self, job: Job, lost_hosts: Sequence[str]) -> Placed | Rejected:
        """Ask for hosts without the lost ones, better also without unsound. Raises Unavailable."""
        ...

    async def plan(
        self, job: Job, holdings: Sequence[HostHoldings], from_step: int
    ) -> Planned | Rejected:
        """Ask where to go on from. Raises Unavailable."""
        ...

    async def start(
        self, job: Job, sources: Mapping[str, RestoreSources]
    ) -> Mapping[str, Rejected | None]:
        """Start hosts, each with the sources of its ranks.

        Returns:
            None or a refusal; those that do not answer are missing.
        """
        ...

    async def save(self, job_id: str, generation: int, hosts: Sequence[str]) -> None:
        """Ask hosts for a durable checkpoint; those that do not answer are passed over."""
        ...

    async def restorable_steps(self, job_id: str) -> tuple[int, ...]:
        """Return the steps of complete checkpoints. Raises Unavailable."""
        ...


class BusOutside:
    """``Outside`` over the real bus."""

    def __init__(self, bus: Bus, clock: Clock) -> None:
        self._bus = bus
        self._clock = clock

    async def fence(
        self, job_id: str, generation: int, hosts: Sequence[str], *, graceful: bool, forget: bool
    ) -> Mapping[str, Fenced]:
        """Ask each host until it answers or ``UNREACHABLE_AFTER_S`` have passed."""
        command = StopRanks(job_id=job_id, generation=generation, graceful=graceful, forget=forget)
        got = await asyncio.gather(*(self._fence(host, command) for host in hosts))
        return {host: answer for host, answer in zip(hosts, got, strict=True) if answer}

    async def _fence(self, host_id: str, command: StopRanks) -> Fenced | None:
        subject = host_subject(host_id, "cmd.stop")
        limit_s = GRACEFUL_S_MAX if command.graceful else ANSWER_S_MAX
        give_up_ms = self._clock.monotonic_ms() + UNREACHABLE_AFTER_S * 1000
        while True:
            try:
                reply = await request(
                    self._bus, subject, command, StopRanksReply, timeout_s=limit_s
                )
            except Unavailable as error:
                if self._clock.monotonic_ms() >= give_up_ms:
                    return None
                if isinstance(error, NoResponders):
                    await asyncio.sleep(RETRY_PAUSE_S)
                continue
            if reply.outcome.why == "stale_generation":
                # Another controller is ahead: nothing is known against the host.
                raise Unavailable(f"fence of {host_id} came late: {reply.outcome.detail}")
            if not reply.outcome.accepted:  # ranks that cannot be ended: the host is not usable
                if self._clock.monotonic_ms() >= give_up_ms:
                    return None
                await asyncio.sleep(RETRY_PAUSE_S)
                continue
            return Fenced(
                host_id=host_id,
                address=reply.address,
                rendezvous_port=reply.rendezvous_port,
                holdings=HostHoldings(host_id=host_id, address=reply.address, held=reply.held),
            )

    async def place(self, job: Job, lost_hosts: Sequence[str]) -> Placed | Rejected:
        """Ask the inventory; idempotent per generation there."""
        layout = parse_spec_json(job.spec_json).layout
        command = PlaceJob(
            job_id=job.job_id,
            generation=job.generation,
            layout=to_wire(layout.model_dump(), WireLayout()),
            lost_hosts=lost_hosts,
            unsound_hosts=job.unsound_hosts,
            reason="lost" if lost_hosts else "",
            incident_id=job.incident_id,
            at_ms=self._clock.now_ms(),
        )
        reply = await send_command(
            self._bus, "host_inventory", command, PlaceJobReply, timeout_s=SERVICE_S_MAX
        )
        if not reply.outcome.accepted:
            return _refusal(reply.outcome)
        placed = reply.HasField("placement") and len(reply.placement.hosts) > 0
        return Placed(
            placement=from_wire(reply.placement, Placement) if placed else None,
            replacements=tuple(reply.replacements),
            missing=reply.hosts_short,
            remark=reply.outcome.detail,
        )

    async def plan(
        self, job: Job, holdings: Sequence[HostHoldings], from_step: int
    ) -> Planned | Rejected:
        """Ask the registry; idempotent per generation there."""
        command = PlanRestore(
            job_id=job.job_id,
            generation=job.generation,
            world_size=parse_spec_json(job.spec_json).layout.world_size,
            holdings=holdings,
            from_step=from_step,
            at_ms=self._clock.now_ms(),
        )
        reply = await send_command(
            self._bus, "checkpoint_registry", command, PlanRestoreReply, timeout_s=SERVICE_S_MAX
        )
        if not reply.outcome.accepted:
            return _refusal(reply.outcome)
        return Planned(
            step=reply.step,
            sources=reply.sources,
            passed_over=tuple(reply.passed_over),
        )

    async def start(
        self, job: Job, sources: Mapping[str, RestoreSources]
    ) -> Mapping[str, Rejected | None]:
        """Send each start until it is taken or ``UNREACHABLE_AFTER_S`` have passed."""
        commands = start_commands(job, sources)
        got = await asyncio.gather(*(self._start(host, commands[host]) for host in commands))
        answers = dict(zip(commands, got, strict=True))
        return {
            host: answer if isinstance(answer, Rejected) else None
            for host, answer in answers.items()
            if answer is not None
        }

    async def _start(self, host_id: str, command: StartRanks) -> Rejected | bool | None:
        subject = host_subject(host_id, "cmd.start")
        give_up_ms = self._clock.monotonic_ms() + UNREACHABLE_AFTER_S * 1000
        while True:
            try:
                reply = await request(
                    self._bus, subject, command, CommandReply, timeout_s=START_S_MAX
                )
            except Unavailable as error:
                if self._clock.monotonic_ms() >= give_up_ms:
                    return None
                if isinstance(error, NoResponders):
                    await asyncio.sleep(RETRY_PAUSE_S)
                continue
            return True if reply.outcome.accepted else _refusal(reply.outcome)

    async def save(self, job_id: str, generation: int, hosts: Sequence[str]) -> None:
        """Tell every host; one that hears is enough, because ranks agree on the step."""
        command = SaveRanks(job_id=job_id, generation=generation)
        asked = (
            request(
                self._bus,
                host_subject(host, "cmd.save"),
                command,
                CommandReply,
                timeout_s=ANSWER_S_MAX,
            )
            for host in hosts
        )
        await asyncio.gather(*asked, return_exceptions=True)

    async def restorable_steps(self, job_id: str) -> tuple[int, ...]:
        """Ask the registry."""
        reply = await send_command(
            self._bus,
            "checkpoint_registry",
            ListSteps(job_id=job_id),
            ListStepsReply,
            timeout_s=SERVICE_S_MAX,
        )
        return tuple(sorted(reply.steps))


def _refusal(outcome: Outcome) -> Rejected:
    return Rejected(outcome.why or "refused", outcome.detail)
