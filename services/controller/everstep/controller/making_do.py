"""Says when a job is about to make do with less than it is to have: audits end before that."""

from __future__ import annotations

from collections.abc import Sequence

from everstep.controller.outside import Outside
from everstep.controller.state import Job
from everstep.core.elastic import full_layout
from everstep.core.spec import parse_spec_json


async def makes_do(outside: Outside, job: Job, lost_hosts: Sequence[str]) -> bool:
    """Whether a job that goes on would not get all that it is to have with what is free now.

    It would shrink, or stay on a host that is not sound, where one that is short waits and has the
    audits ended then. A job that is new waits, too. Raises Unavailable.
    """
    if job.placement is None:
        return False
    full = full_layout(parse_spec_json(job.spec_json))
    if not await outside.placeable(job.job_id, (full,)):
        return True
    leaving = job.placement.host_set.intersection((*lost_hosts, *job.unsound_hosts))
    return len(await outside.replaceable(job.job_id, sorted(leaving))) < len(leaving)
