"""Translates what comes over the bus into what the watcher takes."""

from __future__ import annotations

import logging
import math
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any, Final

from google.protobuf.message import DecodeError

from everstep.core.elastic import full_layout
from everstep.core.errors import InvalidInput
from everstep.core.placement import Layout
from everstep.core.ports import Consumed, Message, Receive
from everstep.core.spec import AuditSpec, parse_spec_json
from everstep.core.system import Clock
from everstep.core.time import HOUR_MS
from everstep.monitor.auditing import Auditing
from everstep.monitor.commands import MarkJob, ObserveExit, ObserveRefusal
from everstep.monitor.events import (
    NO_CORRUPTION_RULES,
    NO_RULES,
    AuditOf,
    CorruptionRules,
    ExitClass,
    Mark,
    NumericsRules,
    WatchedHost,
)
from everstep.monitor.repair import Repairer
from everstep.monitor.uncopied import UncopiedRanks
from everstep.monitor.watcher import Watcher
from everstep.wire.codec import from_wire
from everstep.wire.v1 import agents_pb2
from everstep.wire.v1.agents_pb2 import Heartbeat, RankReport, RefusedSource, StepMetrics
from everstep.wire.v1.common_pb2 import SourceKind
from everstep.wire.v1.envelope_pb2 import EventEnvelope
from everstep.wire.v1.jobs_pb2 import JobSubmitted

log = logging.getLogger(__name__)

PROBE_S_MAX: Final = 0.4  # DESIGN's time budget; a healthy agent answers within milliseconds

OnEvent = Callable[[EventEnvelope, Consumed], Awaitable[None]]

_CLASSES: Final = {
    agents_pb2.FINISHED: ExitClass.FINISHED,
    agents_pb2.STOPPED: ExitClass.STOPPED,
    agents_pb2.KILLED: ExitClass.KILLED,
    agents_pb2.USER_ERROR: ExitClass.USER_ERROR,
    agents_pb2.COLLECTIVE: ExitClass.COLLECTIVE,
    agents_pb2.BAD_ENTRY_POINT: ExitClass.BAD_ENTRY_POINT,
    agents_pb2.RESTORE_FAILED: ExitClass.RESTORE_FAILED,
    agents_pb2.HOST_TOO_SMALL: ExitClass.HOST_TOO_SMALL,
}


def controller_mark(envelope: EventEnvelope) -> MarkJob | None:
    """Return the mark that a controller's event sets, if it sets one."""
    kind = envelope.WhichOneof("payload")
    match kind:
        case "generation_begun":
            begun = envelope.generation_begun
            return MarkJob(
                job_id=begun.job_id,
                generation=begun.generation,
                mark=Mark.BEGUN,
                cause=begun.cause,
                at_ms=begun.at_ms,
            )
        case "placement_decided":
            placed = envelope.placement_decided
            return MarkJob(
                job_id=placed.job_id,
                generation=placed.generation,
                mark=Mark.PLACED,
                hosts=tuple(
                    WatchedHost(host_id=host.host_id, ranks=tuple(host.ranks))
                    for host in placed.placement.hosts
                ),
                layout=from_wire(placed.placement.layout, Layout),
                at_ms=placed.at_ms,
            )
        case "job_submitted":
            return _submitted(envelope.job_submitted)
        case "hosts_short":
            return _plain(envelope.hosts_short, Mark.SHORT)
        case "restore_decided":
            return _plain(
                envelope.restore_decided, Mark.PLANNED, step=envelope.restore_decided.step
            )
        case "job_running":
            return _plain(envelope.job_running, Mark.RUNNING, step=envelope.job_running.step)
        case "job_paused":
            return _plain(envelope.job_paused, Mark.PAUSED)
        case "job_succeeded":
            succeeded = envelope.job_succeeded
            return _plain(succeeded, Mark.ENDED, cause="succeeded", step=succeeded.step)
        case "job_failed":
            return _plain(envelope.job_failed, Mark.ENDED, cause="failed")
        case "job_stopped":
            return _plain(envelope.job_stopped, Mark.ENDED, cause="stopped")
        case _:
            return None


def _submitted(submitted: JobSubmitted) -> MarkJob:
    mark = MarkJob(
        job_id=submitted.job_id, generation=0, mark=Mark.SUBMITTED, at_ms=submitted.at_ms
    )
    try:
        spec = parse_spec_json(submitted.spec_json)
    except InvalidInput:  # of another version: the controller has taken it
        return mark
    rules = {name: getattr(spec.numerics, name) for name in NumericsRules.__struct_fields__}
    corruption = CorruptionRules(
        on_corruption=spec.corruption.on_corruption,
        suspicion_half_life_ms=round(HOUR_MS * spec.corruption.suspicion_half_life_hours),
        bits_vary=not spec.deterministic,
        audit_every_checkpoints=spec.corruption.audit_every_checkpoints,
    )
    # One step shows nothing about numbers or pace, and what its bits are worth the audit says.
    audits = spec.audit is not None
    return replace(
        mark,
        cause="script" if spec.is_script else "",
        numerics=NO_RULES if audits else NumericsRules(**rules),
        layout=full_layout(spec),
        collective_timeout_ms=1_000 * spec.recovery.collective_timeout_s,
        slow_hosts="off" if audits else spec.recovery.slow_hosts,
        steps=spec.last_step,
        corruption=NO_CORRUPTION_RULES if audits else corruption,
        audit=_audit_of(spec.audit, Layout(**spec.layout.model_dump())),
    )


def _audit_of(audit: AuditSpec | None, layout: Layout) -> AuditOf | None:
    if audit is None:
        return None
    return AuditOf(
        job_id=audit.job_id,
        step=audit.step,
        replica=audit.replica,
        number=audit.number,
        works=tuple(audit.works),
        layout=layout,
        generation=audit.generation,
    )


def _plain(message: Any, mark: Mark, *, cause: str = "", step: int = 0) -> MarkJob:
    """Mark from any event that has job_id, generation and at_ms."""
    return MarkJob(
        job_id=message.job_id,
        generation=message.generation,
        mark=mark,
        cause=cause,
        step=step,
        at_ms=message.at_ms,
    )


def on_controller(watcher: Watcher, repairer: Repairer) -> OnEvent:
    """Follow the controller's jobs."""

    async def receive(envelope: EventEnvelope, consumed: Consumed) -> None:
        mark = controller_mark(envelope)
        if mark is None:
            return
        await watcher.mark(mark, consumed)
        if mark.mark is Mark.PLANNED:
            repairer.resumed(mark.job_id, mark.generation, mark.step)
        if mark.mark is Mark.ENDED:
            repairer.ended(mark.job_id, mark.step)

    return receive


def on_inventory(watcher: Watcher) -> OnEvent:
    """Follow which hosts there are."""

    async def receive(envelope: EventEnvelope, _: Consumed) -> None:
        match envelope.WhichOneof("payload"):
            case "host_joined":
                watcher.expect((envelope.host_joined.host_id,))
                watcher.heard(envelope.host_joined.host_id)
            case "host_uncordoned":
                watcher.heard(envelope.host_uncordoned.host_id)
                await watcher.not_missed(envelope.host_uncordoned.host_id, left=False)
            case "host_cordoned":
                watcher.forget_host(envelope.host_cordoned.host_id)
            case "host_left":
                watcher.forget_host(envelope.host_left.host_id, left=True)
                # It may have been taken for lost before this was told.
                await watcher.not_missed(envelope.host_left.host_id, left=True)
            case _:
                pass

    return receive


def on_registry(auditing: Auditing) -> OnEvent:
    """Follow which checkpoints can be loaded."""

    async def receive(envelope: EventEnvelope, _: Consumed) -> None:
        if envelope.WhichOneof("payload") == "checkpoint_completed":
            auditing.completed(envelope.checkpoint_completed)

    return receive


def on_heartbeat(watcher: Watcher, uncopied: UncopiedRanks) -> Receive:
    """Take a host's sign of life."""

    async def receive(message: Message) -> None:
        try:
            heartbeat = Heartbeat.FromString(message.data)
        except DecodeError:
            log.warning("not a heartbeat on %s: %d bytes", message.subject, len(message.data))
            return
        watcher.heard(heartbeat.host_id)
        watcher.counting.heard(heartbeat)
        uncopied.heard(heartbeat)
        watcher.untold.told(heartbeat.host_id, heartbeat.jobs)
        running = {job.job_id: job for job in heartbeat.jobs}
        for job in heartbeat.jobs:
            if job.ranks:
                await watcher.saw_running(job.job_id, job.generation, heartbeat.host_id)
        for kept in heartbeat.kept:
            if watcher.watched(kept.job_id) is None:  # a live job's may be all that is left of it
                await watcher.saw_running(kept.job_id, kept.generation, heartbeat.host_id)
        for job_id in watcher.jobs_on(heartbeat.host_id):
            run = running.get(job_id)
            # What has ended is not missing while the word of it is on its way.
            seen = frozenset((*run.ranks, *run.untold)) if run is not None else frozenset()
            generation = run.generation if run is not None else -1
            await watcher.saw_ranks(job_id, generation, heartbeat.host_id, seen)

    return receive


def on_metrics(watcher: Watcher, repairer: Repairer, auditing: Auditing) -> Receive:
    """Take a host's step metrics."""

    async def receive(message: Message) -> None:
        try:
            metrics = StepMetrics.FromString(message.data)
        except DecodeError:
            log.warning("no step metrics on %s: %d bytes", message.subject, len(message.data))
            return
        repairer.take(metrics)
        auditing.told(metrics)
        watcher.heard(metrics.host_id)
        if metrics.ranks:
            # The first step of a message is what "first step of a generation" needs.
            took_ms: dict[int, int] = {}
            for rank in metrics.ranks:
                told_ms = round(rank.step_time_ms) if math.isfinite(rank.step_time_ms) else 0
                took_ms[rank.step] = max(took_ms.get(rank.step, 0), told_ms)
            run = (metrics.job_id, metrics.generation, metrics.host_id)
            for step in sorted({min(took_ms), max(took_ms)}):
                await watcher.stepped(*run, step, took_ms[step])
            await watcher.told(metrics)

    return receive


def on_report(watcher: Watcher, clock: Clock) -> Receive:
    """Take an agent's report about a rank; nothing happens after it was told of."""

    async def receive(message: Message) -> None:
        try:
            report = RankReport.FromString(message.data)
        except DecodeError:
            log.warning("no rank report on %s: %d bytes", message.subject, len(message.data))
            return
        report.at_ms = min(report.at_ms, clock.now_ms())
        watcher.heard(report.host_id)
        for refused in report.refused_sources:
            await watcher.refused(_refusal(report, refused))
        if report.kind == agents_pb2.RANK_READY:
            return
        command = _exit(report)
        if command.exit_class is ExitClass.COLLECTIVE:
            await watcher.echoed(command)
        else:
            await watcher.exited(command)

    return receive


def _refusal(report: RankReport, refused: RefusedSource) -> ObserveRefusal:
    return ObserveRefusal(
        job_id=report.job_id,
        generation=report.generation,
        rank=refused.rank if refused.HasField("rank") else report.rank,
        step=refused.step,
        kind=SourceKind.Name(refused.kind).lower(),
        host_id=refused.host_id,
        uri=refused.uri,
        detail=refused.detail,
        at_ms=report.at_ms,
    )


def _exit(report: RankReport) -> ObserveExit:
    exit_class = _CLASSES.get(report.exit_class, ExitClass.USER_ERROR)
    if report.kind == agents_pb2.COLLECTIVE_ERROR:
        exit_class = ExitClass.COLLECTIVE
    elif report.kind == agents_pb2.START_FAILED and exit_class is ExitClass.USER_ERROR:
        exit_class = ExitClass.RESTORE_FAILED
    problems = "\n".join(report.restore_problems)
    return ObserveExit(
        job_id=report.job_id,
        generation=report.generation,
        rank=report.rank,
        host_id=report.host_id,
        exit_class=exit_class,
        signal=report.signal,
        error=report.error,
        detail=report.traceback or problems,
        step=report.step,
        at_ms=report.at_ms,
    )
