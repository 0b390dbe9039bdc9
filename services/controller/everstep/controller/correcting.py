"""Says what a job's course is changed by, as its ranks are told at every start."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from everstep.controller.state import Job
from everstep.core.corrections import BatchSpan, Corrections, PositionRange, RateSpan
from everstep.core.elastic import batch_of, rate_of
from everstep.core.spec import JobSpec, parse_spec_json

FOR_EVER: Final = 2**62  # beyond any run's steps, and an int64


def corrections_of(job: Job) -> Corrections:
    """Return what the job's course is changed by, to be told at every start.

    The lower learning rate begins where the suspect states did: what is made again up to there was
    sound, and comes out with the same bits. An audit reads what the job that it looks at has read;
    its learning rate matters to nobody, because what it updates is not kept.
    """
    audit = parse_spec_json(job.spec_json).audit
    if audit is not None:
        return Corrections(
            skipped=tuple(PositionRange(first=first, end=end) for first, end in audit.skipped),
            batches=tuple(BatchSpan(after_step=at, samples=size) for at, size in audit.batches),
        )
    if not job.rollbacks and len(job.groups) <= 1:  # it has always had as many
        return Corrections(skipped=job.skipped)
    spec = parse_spec_json(job.spec_json)
    rules = spec.numerics
    slower = rules.learning_rate_factor < 1 and rules.learning_rate_steps > 0
    after_rollbacks = (
        RateSpan(
            after_step=step - 1,
            until_step=step - 1 + rules.learning_rate_steps,
            factor=rules.learning_rate_factor,
        )
        for step in (job.rollbacks if slower else ())
    )
    return Corrections(
        skipped=job.skipped,
        rates=(*after_rollbacks, *_scaled_rates(job, spec)),
        batches=_batches(job, spec),
    )


def _batches(job: Job, spec: JobSpec) -> tuple[BatchSpan, ...]:
    """Return the sizes of the batches by step; none if they have never been other than the spec's.

    Groups that change and come back leave their span behind: later batches begin after it.
    """
    spans = [
        BatchSpan(after_step=step, samples=batch_of(spec, groups)) for step, groups in job.groups
    ]
    return tuple(spans) if len({span.samples for span in spans}) > 1 else ()


def _scaled_rates(job: Job, spec: JobSpec) -> Iterator[RateSpan]:
    """Yield the spans in which fewer groups made smaller batches."""
    ends = [*(step for step, _ in job.groups[1:]), FOR_EVER]
    for (step, groups), until_step in zip(job.groups, ends, strict=True):
        factor = rate_of(spec, groups)
        if factor != 1.0:
            yield RateSpan(after_step=step, until_step=until_step, factor=factor)
