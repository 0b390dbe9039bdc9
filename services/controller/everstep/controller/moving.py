"""Moves that a job makes although nothing is broken.

Off hosts that are wanted or work badly, and onto more hosts when it runs with fewer ranks than it
should. It runs on where it is until there is a better place, and then stops after a last common
step, so that none is lost.
"""

from __future__ import annotations

from dataclasses import replace

from everstep.controller import policy
from everstep.controller.commands import BeginDrain, BeginGrow, DrainHosts, RecoverJob
from everstep.controller.events import DrainRequested, Event, GenerationBegun
from everstep.controller.generations import again, next_generation
from everstep.controller.state import TERMINAL, Job, Phase
from everstep.core.decision import Accepted, Rejected

Decision = Accepted[Event] | Rejected
NOTHING: Accepted[Event] = Accepted()


def drain_by_a_person(command: DrainHosts, job: Job) -> Decision:
    """Want to be off hosts because a person needs them."""
    if job.phase in TERMINAL:
        return Rejected("job_ended", f"job {job.job_id!r} has {job.phase}: it holds no hosts")
    mine = job.placement.host_ids if job.placement is not None else ()
    strange = [host for host in command.hosts if host not in mine]
    if strange or not command.hosts:
        return Rejected(
            "not_its_host",
            f"job {job.job_id!r} does not run on {', '.join(strange) or 'no host'}; it runs on "
            f"{', '.join(mine) or 'none yet'}",
        )
    wanted = DrainRequested(
        job_id=job.job_id, hosts=command.hosts, why=command.why, at_ms=command.at_ms
    )
    return _drain(job, wanted)


def drain_by_an_incident(command: RecoverJob, job: Job) -> Decision:
    """Want to be off hosts that the monitor has something against."""
    wanted = DrainRequested(
        job_id=job.job_id,
        hosts=command.hosts,
        why=command.reason,
        incident_id=command.incident_id,
        at_ms=command.at_ms,
        kind=command.kind,
    )
    return _drain(job, wanted)


def _drain(job: Job, wanted: DrainRequested) -> Decision:
    """Until spares are there the job runs on where it is."""
    mine = job.placement.host_ids if job.placement is not None else ()
    new = tuple(host for host in wanted.hosts if host in mine and host not in job.draining)
    return Accepted((replace(wanted, hosts=new),)) if new else NOTHING


def begin(command: BeginDrain | BeginGrow, job: Job) -> Decision:
    """Begin the generation of a move that there is a place for now."""
    if isinstance(command, BeginDrain):
        return _begin_drain(command, job)
    return _begin_grow(command, job)


def _begin_drain(command: BeginDrain, job: Job) -> Decision:
    """Stop after a last common step, so that none is lost, and go on without the hosts."""
    hosts = tuple(host for host in command.hosts if host in job.draining)
    if job.phase is not Phase.RUNNING or not hosts:
        return NOTHING
    begun = next_generation(job, "drain", command.at_ms)
    return Accepted((replace(begun, unsound_hosts=hosts),))


def _begin_grow(command: BeginGrow, job: Job) -> Decision:
    """Stop after a last common step, and go on with more ranks if there is still room then."""
    if job.phase is not Phase.RUNNING or not policy.wanted_layouts(job):
        return NOTHING
    return Accepted((next_generation(job, "grow", command.at_ms),))


def too_small(command: RecoverJob, job: Job) -> Decision:
    """Go on with more groups than these, whose larger shards do not fit, or wait for hosts.

    The hosts are sound, and were large enough for the whole job.
    """
    assert job.placement is not None
    layout = job.placement.layout
    groups = layout.dp_replicate * layout.dp_shard
    why = f"{groups} data-parallel groups do not fit the hosts' memory: {command.reason}"
    begun = again(job, (), command.at_ms, why=why, incident=command.incident_id)
    if isinstance(begun, GenerationBegun):
        begun = replace(begun, dp_min=groups + 1, remark=why)
    return Accepted((begun,))
