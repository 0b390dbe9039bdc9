"""Turns a detector's verdict into the command that records it."""

from __future__ import annotations

from everstep.monitor.commands import OpenIncident
from everstep.monitor.detectors.verdict import Verdict
from everstep.monitor.doubts import Doubt


def open_incident(
    verdict: Verdict,
    incident_id: str,
    job_id: str,
    generation: int,
    step: int,
    now_ms: int,
    elsewhere: tuple[Doubt, ...] = (),
    *,
    own_step: bool | None = None,
) -> OpenIncident:
    """Return the command; ``step`` is the newest completed one, ``now_ms`` when it was found.

    ``own_step`` says whether it was this generation that made the step, where that is known.
    """
    return OpenIncident(
        incident_id=incident_id,
        job_id=job_id,
        generation=generation,
        kind=verdict.kind,
        ranks=verdict.ranks,
        hosts=verdict.hosts,
        step=step,
        own_step=own_step,
        action=verdict.action,
        reason=verdict.reason,
        detail=verdict.detail,
        failed_at_ms=min(verdict.failed_at_ms, now_ms),
        detected_at_ms=now_ms,
        suspect_from_step=verdict.suspect_from_step,
        skipped=verdict.skipped,
        ties=verdict.ties,
        elsewhere=elsewhere,
    )
