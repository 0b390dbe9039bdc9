"""What the recovery process asks of others, over the bus: hosts, inventory, registry.

Refusals are values; silence is ``None`` for hosts (they may be dead) and ``Unavailable`` for
services (they will be back).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from google.protobuf.message import Message as ProtoMessage

from everstep.controller import policy
from everstep.controller.fencing import (
    ANSWER_S_MAX,
    start_host,
    stop_hosts,
    until_silent,
)
from everstep.controller.starting import (
    plan_command,
    sources_by_host,
    start_commands,
    turn_of,
)
from everstep.controller.state import Job
from everstep.core.decision import Rejected
from everstep.core.elastic import full_layout, smaller_layouts
from everstep.core.placement import Layout, Placement
from everstep.core.ports import Bus, Message
from everstep.core.spec import parse_spec_json
from everstep.core.system import Clock
from everstep.service.commands import host_subject, request, send_command
from everstep.wire.codec import from_wire, to_wire
from everstep.wire.v1.agents_pb2 import (
    RestoreRanks,
    SaveRanks,
    SetSchedule,
    StepMetrics,
    StopRanks,
)
from everstep.wire.v1.checkpoints_pb2 import (
    CheckpointCompleted,
    CheckStep,
    CheckStepReply,
    HostHoldings,
    PlanRestoreReply,
    RestoreSources,
)
from everstep.wire.v1.common_pb2 import CommandReply, Outcome
from everstep.wire.v1.common_pb2 import Layout as WireLayout
from everstep.wire.v1.common_pb2 import Schedule as WireSchedule
from everstep.wire.v1.envelope_pb2 import EventEnvelope
from everstep.wire.v1.hosts_pb2 import (
    CanPlace,
    CanPlaceReply,
    CanReplace,
    CanReplaceReply,
    PlaceJob,
    PlaceJobReply,
)

log = logging.getLogger(__name__)

Heard = StepMetrics | CheckpointCompleted  # what the ranks' steps are measured by

BRING_S_MAX: Final = 60.0  # some GB, from a host that others ask as well; asked again, it goes on
SERVICE_S_MAX: Final = 5.0
LOOK_S_MAX: Final = 8.0  # the registry reads for 3 s after it has listed; a person waits for 10 s


@dataclass(frozen=True, slots=True, kw_only=True)
class Fenced:
    """A host's answer to the fence; its failure domains are "" if it does not name them."""

    host_id: str
    address: str
    rendezvous_port: int
    holdings: HostHoldings
    pod: str = ""
    power: str = ""


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Looked:
    """The registry's answer about a step to go back to; ``said`` is what it has looked at."""

    refusal: Rejected | None = None
    said: str = ""


class Outside(Protocol):
    """Port of the runner; the bus below, or a fake in tests and the simulator."""

    async def fence(
        self,
        job_id: str,
        generation: int,
        hosts: Sequence[str],
        *,
        graceful: bool,
        forget: bool,
        store: bool = False,
    ) -> Mapping[str, Fenced]:
        """End older ranks of hosts; those that do not answer are missing."""
        ...

    async def place(self, job: Job, lost_hosts: Sequence[str]) -> Placed | Rejected:
        """Ask for hosts without the lost ones, better also without unsound. Raises Unavailable."""
        ...

    async def replaceable(self, job_id: str, hosts: Sequence[str]) -> tuple[str, ...]:
        """Return which of the job's hosts spares could replace now. Raises Unavailable."""
        ...

    async def placeable(self, job_id: str, layouts: Sequence[Layout]) -> bool:
        """Say whether a job could have one of these layouts now. Raises Unavailable."""
        ...

    async def plan(
        self, job: Job, holdings: Sequence[HostHoldings], from_step: int
    ) -> Planned | Rejected:
        """Ask where to go on from. Raises Unavailable."""
        ...

    async def start(self, job: Job, sources: RestoreSources) -> Mapping[str, Rejected | None]:
        """Start the hosts of the job's placement, each with the plan's sources of its ranks.

        Returns:
            None or a refusal; those that do not answer are missing.
        """
        ...

    async def bring(
        self, job_id: str, generation: int, step: int, sources: Mapping[str, RestoreSources]
    ) -> None:
        """Let hosts bring copies of a step to their memory; what does not work is left."""
        ...

    async def save(self, job_id: str, generation: int, hosts: Sequence[str]) -> None:
        """Ask hosts for a durable checkpoint; those that do not answer are passed over."""
        ...

    async def look_at_step(self, job_id: str, step: int) -> Looked:
        """Say whether a job can go back to a step. Raises Unavailable."""
        ...

    async def reschedule(self, job: Job) -> None:
        """Tell the first rank's host how often to snapshot. Raises Unavailable."""
        ...

    async def listen(
        self, job_id: str, hosts: Sequence[str], hear: Callable[[Heard], Awaitable[None]]
    ) -> None:
        """Hand over what these hosts tell of their steps, and complete checkpoints, for ever."""
        ...


class BusOutside:
    """``Outside`` over the real bus."""

    def __init__(self, bus: Bus, clock: Clock) -> None:
        self._bus = bus
        self._clock = clock

    async def fence(
        self,
        job_id: str,
        generation: int,
        hosts: Sequence[str],
        *,
        graceful: bool,
        forget: bool,
        store: bool = False,
    ) -> Mapping[str, Fenced]:
        """Ask each host until it answers or is given up."""
        command = StopRanks(
            job_id=job_id, generation=generation, graceful=graceful, forget=forget, store=store
        )
        replies = await stop_hosts(self._bus, self._clock, hosts, command)
        return {
            host: Fenced(
                host_id=host,
                address=reply.address,
                rendezvous_port=reply.rendezvous_port,
                holdings=HostHoldings(
                    host_id=host,
                    address=reply.address,
                    peer_port=reply.peer_port,
                    held=reply.held,
                ),
                pod=reply.pod,
                power=reply.power,
            )
            for host, reply in replies.items()
        }

    async def place(self, job: Job, lost_hosts: Sequence[str]) -> Placed | Rejected:
        """Ask the inventory; idempotent per generation there."""
        spec = parse_spec_json(job.spec_json)
        # A job begins as it was asked for; later it may go on with less.
        smaller = smaller_layouts(spec, job.dp_min) if job.placement is not None else ()
        command = PlaceJob(
            job_id=job.job_id,
            generation=job.generation,
            layout=to_wire(full_layout(spec), WireLayout()),
            smaller=[to_wire(layout, WireLayout()) for layout in smaller],
            lost_hosts=lost_hosts,
            unsound_hosts=job.unsound_hosts,
            reason=(job.lost_why or "host_lost") if lost_hosts else "",
            unsound_reason=policy.unsound_reason(job),
            incident_id=job.incident_id,
            at_ms=self._clock.now_ms(),
            turn=turn_of(spec),
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

    async def replaceable(self, job_id: str, hosts: Sequence[str]) -> tuple[str, ...]:
        """Ask the inventory."""
        reply = await send_command(
            self._bus,
            "host_inventory",
            CanReplace(job_id=job_id, hosts=hosts),
            CanReplaceReply,
            timeout_s=SERVICE_S_MAX,
        )
        return tuple(reply.hosts)

    async def placeable(self, job_id: str, layouts: Sequence[Layout]) -> bool:
        """Ask the inventory."""
        command = CanPlace(
            job_id=job_id, layouts=[to_wire(layout, WireLayout()) for layout in layouts]
        )
        reply = await send_command(
            self._bus, "host_inventory", command, CanPlaceReply, timeout_s=SERVICE_S_MAX
        )
        return reply.HasField("layout")

    async def plan(
        self, job: Job, holdings: Sequence[HostHoldings], from_step: int
    ) -> Planned | Rejected:
        """Ask the registry; idempotent per generation there."""
        command = plan_command(job, holdings, from_step, self._clock.now_ms())
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

    async def start(self, job: Job, sources: RestoreSources) -> Mapping[str, Rejected | None]:
        """Send each start until it is taken, or its host is silent."""
        assert job.placement is not None
        commands = start_commands(job, sources_by_host(job.placement, sources))
        asked = (start_host(self._bus, self._clock, *one) for one in commands.items())
        got = zip(commands, await asyncio.gather(*asked), strict=True)
        return {
            host: None if reply.outcome.accepted else _refusal(reply.outcome)
            for host, reply in got
            if reply is not None
        }

    async def bring(
        self, job_id: str, generation: int, step: int, sources: Mapping[str, RestoreSources]
    ) -> None:
        """Tell each its part; a refusal is in its log, and what it holds is asked again.

        One that is lost meanwhile keeps nobody waiting: others may have to take its part.
        """
        commands = (
            (host, RestoreRanks(job_id=job_id, generation=generation, step=step, sources=part))
            for host, part in sources.items()
        )
        await asyncio.gather(*(self._bring(host, command) for host, command in commands))

    async def _bring(self, host_id: str, command: RestoreRanks) -> None:
        tasks = (
            asyncio.create_task(self._ask(host_id, "restore", command, BRING_S_MAX)),
            asyncio.create_task(until_silent(self._bus, self._clock, host_id)),
        )
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def save(self, job_id: str, generation: int, hosts: Sequence[str]) -> None:
        """Tell every host; one that hears is enough, because ranks agree on the step."""
        command = SaveRanks(job_id=job_id, generation=generation)
        asked = (self._ask(host, "save", command, ANSWER_S_MAX) for host in hosts)
        await asyncio.gather(*asked, return_exceptions=True)

    async def look_at_step(self, job_id: str, step: int) -> Looked:
        """Ask the registry, which looks at the step's stored objects."""
        reply = await send_command(
            self._bus,
            "checkpoint_registry",
            CheckStep(job_id=job_id, step=step),
            CheckStepReply,
            timeout_s=LOOK_S_MAX,
        )
        if reply.outcome.accepted:
            return Looked(said=reply.checked)
        return Looked(refusal=_refusal(reply.outcome))

    async def reschedule(self, job: Job) -> None:
        """Ask the host; a refusal is for the log, because the job's state is looked at again."""
        assert job.placement is not None
        host_id = job.placement.hosts[0].host_id
        schedule = to_wire(job.interval.schedule, WireSchedule())
        command = SetSchedule(job_id=job.job_id, generation=job.generation, schedule=schedule)
        reply = await self._ask(host_id, "schedule", command, ANSWER_S_MAX)
        if not reply.outcome.accepted:
            log.warning("host %s did not take a schedule: %s", host_id, reply.outcome.detail)

    async def _ask(
        self, host_id: str, name: str, command: ProtoMessage, limit_s: float
    ) -> CommandReply:
        subject = host_subject(host_id, f"cmd.{name}")
        return await request(self._bus, subject, command, CommandReply, timeout_s=limit_s)

    async def listen(
        self, job_id: str, hosts: Sequence[str], hear: Callable[[Heard], Awaitable[None]]
    ) -> None:
        """Subscribe; what is missed while the bus is away is only a measurement."""

        async def on_metrics(message: Message) -> None:
            await hear(StepMetrics.FromString(message.data))

        async def on_event(message: Message) -> None:
            await hear(EventEnvelope.FromString(message.data).checkpoint_completed)

        completed = f"everstep.v1.event.checkpoint_registry.{job_id}.checkpoint_completed"
        subscriptions = [await self._bus.subscribe(completed, on_event)]
        try:
            for host_id in hosts:
                subject = host_subject(host_id, "metrics")
                subscriptions.append(await self._bus.subscribe(subject, on_metrics))
            await asyncio.Event().wait()
        finally:
            for subscription in subscriptions:
                await subscription.close()


def _refusal(outcome: Outcome) -> Rejected:
    return Rejected(outcome.why or "refused", outcome.detail)
