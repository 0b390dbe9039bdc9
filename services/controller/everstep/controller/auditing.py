"""Audits: a step of a job that spare hosts do once more, as a job of its own.

An audit has one replica's ranks, begins from a complete checkpoint of the other job, makes one
step and ends; what its ranks came to is compared by the monitor, which has asked for it. Nothing
depends on it, so nothing is done for it: it waits for no hosts, is not begun again when something
goes wrong, and ends as soon as another job wants hosts that are not there.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Final

from everstep.controller.commands import EndAudit, LaunchJob
from everstep.controller.correcting import corrections_of
from everstep.controller.events import Event, JobStopped
from everstep.controller.state import TERMINAL, Job, Phase
from everstep.core.decision import Accepted, Rejected
from everstep.core.elastic import full_layout
from everstep.core.errors import InvalidInput
from everstep.core.ids import ID_LENGTH_MAX
from everstep.core.spec import AuditSpec, CheckpointSpec, JobSpec, parse_spec_json, require_size

NO_SPARES: Final = "no spare hosts are free for it"
WANTED: Final = "job {job_id} wants the hosts that it has"
# A spec that was copied from an audit's says what ranks came to long ago: who is right now would be
# named by it.
BY_HAND: Final = "audit: nobody writes this section; leave it out to launch the job that it is of"
NAME_CHARS_MAX: Final = 100  # as the job spec has it
HASH_DIGITS: Final = 8


class Audits:
    """The audits that are under way, as far as a controller drives them."""

    def __init__(self) -> None:
        self._ids: set[str] = set()

    def note(self, job: Job) -> None:
        """Take a job as it is now."""
        if job.phase in TERMINAL:
            self._ids.discard(job.job_id)
        elif is_audit(job):
            self._ids.add(job.job_id)

    def ended_for(self, job: Job, at_ms: int) -> list[EndAudit]:
        """Return what ends them all, because a job lacks hosts; nothing if that is one itself."""
        if is_audit(job):
            return []
        why = WANTED.format(job_id=job.job_id)
        return [EndAudit(job_id=one, why=why, at_ms=at_ms) for one in sorted(self._ids)]


def is_audit(job: Job) -> bool:
    """Whether a job is one."""
    return bool(job.spec_json) and parse_spec_json(job.spec_json).audit is not None


def launch_of(
    job: Job,
    *,
    step: int,
    replica: int,
    number: int,
    works: Sequence[str],
    at_ms: int,
    generation: int = 0,
) -> LaunchJob | Rejected:
    """Return what begins an audit of a job's step, or why there can be none.

    Args:
        job: whose.
        step: of the checkpoint that it begins from.
        replica: along ``dp_replicate``.
        number: of the audits of this step and replica.
        works: what its ranks came to, see ``AuditSpec``.
        at_ms: when [ms since epoch].
        generation: of the job, as who asks knows it; 0: not told. In a newer one the works may be
            of a step that has been undone, and the checkpoint one that was made anew.

    Returns:
        ``Rejected`` with ``unknown_job``, ``job_ended``, ``stale_generation``, ``other_layout`` or
        ``invalid_spec``.
    """
    if job.phase is Phase.ABSENT:
        return Rejected("unknown_job", "there is no such job")
    if job.phase in TERMINAL:
        return Rejected("job_ended", f"job {job.job_id!r} has ended")
    if generation not in {0, job.generation}:
        at = f"job {job.job_id!r} is at generation {job.generation}"
        return Rejected("stale_generation", f"{at}; {generation} was asked about")
    spec = parse_spec_json(job.spec_json)
    if job.placement is None or job.placement.layout != full_layout(spec):
        return Rejected("other_layout", f"job {job.job_id!r} has not all of its ranks")
    try:
        course = corrections_of(job)
        section = AuditSpec(
            job_id=job.job_id,
            step=step,
            replica=replica,
            number=number,
            generation=job.generation,
            works=tuple(works),
            skipped=tuple((one.first, one.end) for one in course.skipped),
            batches=tuple((one.after_step, one.samples) for one in course.batches),
        )
        spec_json = _spec(spec, section).model_dump_json()
        require_size(parse_spec_json(spec_json))
    except (InvalidInput, ValueError) as error:
        return Rejected("invalid_spec", str(error))
    return LaunchJob(job_id=_id(job, section), spec_json=spec_json, at_ms=at_ms, audits=True)


def end(command: EndAudit, job: Job) -> Accepted[Event] | Rejected:
    """End an audit, whatever it is about; it has not told anything yet, or nobody needs it."""
    if job.phase in TERMINAL:
        return Accepted()
    if not is_audit(job):
        return Rejected("no_audit", f"job {job.job_id!r} is none that may be ended like this")
    return Accepted((stopped(job, command.why, command.at_ms),))


def stopped(job: Job, why: str, at_ms: int) -> JobStopped:
    """Return the end of an audit that was not made."""
    return JobStopped(job_id=job.job_id, generation=job.generation, at_ms=at_ms, detail=why)


def _spec(spec: JobSpec, section: AuditSpec) -> JobSpec:
    """Return the audit's spec: the job's, without all that judges or keeps more than a step."""
    of = f"audit of {section.job_id}: step {section.step + 1}, replica {section.replica}"
    return spec.model_copy(
        update={
            "name": of[:NAME_CHARS_MAX],
            "audit": section,
            "checkpoint": CheckpointSpec(object_every_steps=0, overlap=spec.checkpoint.overlap),
            "recovery": spec.recovery.model_copy(
                update={
                    "restarts_per_hour_max": 0,
                    "no_spare": "wait",
                    "dp_min": 1,
                    "slow_hosts": "off",
                }
            ),
            "numerics": spec.numerics.model_copy(update={"on_spike": "off"}),
            "corruption": spec.corruption.model_copy(
                update={
                    "recompute_every_steps": 0,
                    "gradient_norms": False,
                    "audit_every_checkpoints": 0,
                }
            ),
        }
    )


def _id(job: Job, section: AuditSpec) -> str:
    """Return the audit's id: the same however often it is asked for."""
    end_ = f"-audit-g{job.generation}-s{section.step}-r{section.replica}-{section.number}"
    if len(job.job_id) + len(end_) <= ID_LENGTH_MAX:
        return job.job_id + end_
    digest = hashlib.sha256(job.job_id.encode()).hexdigest()[:HASH_DIGITS]
    return f"{job.job_id[: ID_LENGTH_MAX - len(end_) - HASH_DIGITS - 1]}-{digest}{end_}"
