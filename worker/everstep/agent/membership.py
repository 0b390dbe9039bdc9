"""Says that this host is there: joins the inventory, beats its heart, leaves."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from everstep.agent.counters import Counters
from everstep.agent.replication import Replicator
from everstep.agent.reports import Reports
from everstep.agent.runs import JobRun
from everstep.agent.store import HostMemory
from everstep.core.errors import EverstepError, Unavailable
from everstep.core.ports import Bus
from everstep.core.system import Clock
from everstep.service.commands import host_subject, send_command
from everstep.wire.v1.agents_pb2 import Heartbeat, KeptJob, RunningJob
from everstep.wire.v1.common_pb2 import CommandReply
from everstep.wire.v1.hosts_pb2 import JoinHost, LeaveHost

log = logging.getLogger(__name__)

HEARTBEAT_S: Final = 1.0  # the monitor takes 3 s of silence for a suspicion
# Joining again costs one request and mends whatever the inventory may have lost.
JOIN_S: Final = 10.0
JOIN_RETRY_S: Final = 0.5  # until the first success: a spare is wanted as soon as it is up
REQUEST_S_MAX: Final = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class HostFacts:
    """What is fixed for the life of this agent process."""

    host_id: str
    agent_epoch: str
    pod: str
    power: str
    chips: int
    address: str
    peer_port: int
    interface: str
    emulated: bool
    run_dir: Path
    memory_dir: Path
    agent_socket: Path


async def keep_joined(bus: Bus, facts: HostFacts, clock: Clock) -> None:
    """Join at once and again every ``JOIN_S``, for ever."""
    joined = False
    while True:
        command = JoinHost(
            host_id=facts.host_id,
            pod=facts.pod,
            power=facts.power,
            chips=facts.chips,
            address=facts.address,
            peer_port=facts.peer_port,
            agent_epoch=facts.agent_epoch,
            at_ms=clock.now_ms(),
            probes=True,
        )
        try:
            reply = await send_command(
                bus, "host_inventory", command, CommandReply, timeout_s=REQUEST_S_MAX
            )
        except EverstepError as error:
            log.info("join waits for the inventory: %s", error)
        else:
            if reply.outcome.accepted != joined:
                log.info("join answered: %s %s", reply.outcome.why, reply.outcome.detail)
            joined = reply.outcome.accepted
        await asyncio.sleep(JOIN_S if joined else JOIN_RETRY_S)


async def leave(bus: Bus, facts: HostFacts, clock: Clock) -> None:
    """Tell the inventory that this host goes; it finds out by itself if it does not hear."""
    command = LeaveHost(host_id=facts.host_id, at_ms=clock.now_ms())
    try:
        await send_command(bus, "host_inventory", command, CommandReply, timeout_s=REQUEST_S_MAX)
    except EverstepError as error:
        log.warning("left without telling the inventory: %s", error)


async def beat(
    bus: Bus,
    facts: HostFacts,
    runs: Callable[[], Iterable[JobRun]],
    memory: HostMemory,
    reports: Reports,
    replicator: Replicator,
    counters: Counters,
    clock: Clock,
) -> None:
    """Publish a heartbeat every second, for ever, also when nothing runs."""
    subject = host_subject(facts.host_id, "heartbeat")
    sequence = 0
    while True:
        sequence += 1
        jobs = running_jobs(known := list(runs()), reports)
        _add_uncopied(jobs, known, replicator)
        message = Heartbeat(
            host_id=facts.host_id,
            agent_epoch=facts.agent_epoch,
            sequence=sequence,
            at_ms=clock.now_ms(),
            jobs=jobs,
            errors=counters.told(),
            clock_unsynchronised=counters.clock_unsynchronised,
            kept=[KeptJob(job_id=one, generation=fence) for one, fence in memory.kept()],
        )
        try:
            await bus.publish(subject, message.SerializeToString())
        except Unavailable as error:
            log.debug("heartbeat not sent: %s", error)
        await asyncio.sleep(HEARTBEAT_S)


def running_jobs(runs: Iterable[JobRun], reports: Reports) -> list[RunningJob]:
    """Return the jobs that have live ranks here, or ends that nobody was told of yet, by job."""
    jobs = [
        RunningJob(
            job_id=run.job_id,
            generation=run.generation,
            ranks=[rank.rank for rank in run.alive],
            last_step=run.last_step,
            untold=sorted(reports.untold_ends(run.job_id, run.generation)),
        )
        for run in sorted(runs, key=lambda run: run.job_id)
    ]
    return [job for job in jobs if job.ranks or job.untold]


def _add_uncopied(
    jobs: Iterable[RunningJob], runs: Iterable[JobRun], replicator: Replicator
) -> None:
    peers = {run.job_id: run.start.peer for run in runs}
    for job in jobs:
        peer, found = peers[job.job_id], replicator.uncopied(job.job_id, job.generation)
        if peer is not None and found is not None:
            job.uncopied.peer_host_id = peer.host_id
            job.uncopied.ranks.extend(found.ranks)
            job.uncopied.why, job.uncopied.age_ms = found.why, found.age_ms
