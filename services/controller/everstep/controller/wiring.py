"""Puts the controller together on any shell: the real one, or the simulator's."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Final

from google.protobuf.message import Message as ProtoMessage

from everstep.controller import auditing
from everstep.controller.codec import AGGREGATE, CODEC
from everstep.controller.commands import (
    Command,
    DrainHosts,
    LaunchJob,
    PauseJob,
    RecordFinished,
    RecordProgress,
    RecoverJob,
    RestartJob,
    ResumeJob,
    SaveCheckpoint,
    SetInterval,
    StopJob,
    Verdict,
)
from everstep.controller.outside import Outside
from everstep.controller.runner import Runner
from everstep.core.corrections import PositionRange
from everstep.core.decision import Rejected
from everstep.core.ports import Consumed
from everstep.service.commands import command_name
from everstep.service.shell import Shell
from everstep.wire.codec import from_wire
from everstep.wire.v1 import incidents_pb2, jobs_pb2
from everstep.wire.v1.common_pb2 import CommandReply, Outcome
from everstep.wire.v1.envelope_pb2 import EventEnvelope

NAME: Final = "controller"
CODECS: Final = (CODEC,)
COMMANDS: Final[dict[type[ProtoMessage], type[Any]]] = {
    jobs_pb2.LaunchJob: LaunchJob,
    jobs_pb2.RestartJob: RestartJob,
    jobs_pb2.StopJob: StopJob,
    jobs_pb2.PauseJob: PauseJob,
    jobs_pb2.ResumeJob: ResumeJob,
    jobs_pb2.SaveCheckpoint: SaveCheckpoint,
    jobs_pb2.SetInterval: SetInterval,
    jobs_pb2.DrainHosts: DrainHosts,
}
FREES_HOSTS: Final = frozenset({"host_joined", "host_probed", "host_uncordoned", "job_released"})
# How long a job may be without a driver whose launch another instance has taken and not outlived;
# chosen: a look reads one column of one table.
SIBLINGS_S: Final = 5.0
LiveJobIds = Callable[[], Awaitable[Iterable[str]]]
VERDICTS: Final = {
    incidents_pb2.RESTART: Verdict.RESTART,
    incidents_pb2.REPLACE: Verdict.REPLACE,
    incidents_pb2.REPLACE_IF_SPARE: Verdict.REPLACE_IF_SPARE,
    incidents_pb2.FAIL: Verdict.FAIL,
    incidents_pb2.NOTE: Verdict.NOTE,
    incidents_pb2.ROLL_BACK: Verdict.ROLL_BACK,
    incidents_pb2.HOLD: Verdict.HOLD,
    incidents_pb2.DRAIN: Verdict.DRAIN,
}


def make_runner(shell: Shell, outside: Outside) -> Runner:
    """Return what drives the jobs."""
    return Runner(shell.handler(AGGREGATE), outside, shell.clock)


async def wire_controller(shell: Shell, runner: Runner, live_job_ids: LiveJobIds) -> None:
    """Serve commands, follow events, and carry on with the jobs that have not ended.

    Args:
        shell: the controller's.
        runner: from ``make_runner``.
        live_job_ids: reads which have not ended. Raises Unavailable.
    """
    for request, kind in COMMANDS.items():
        await shell.serve_command(command_name(request), request, _serve(runner, kind))
    audit = jobs_pb2.AuditStep
    await shell.serve_command(command_name(audit), audit, _serve_audit(runner))
    await shell.consume_events("monitor", _on_incident(runner))
    await shell.consume_events("host_inventory", _on_inventory(runner))
    for job_id in await live_job_ids():
        runner.wake(job_id)
    shell.spawn("siblings", _siblings(runner, live_job_ids))


def _siblings(runner: Runner, live_job_ids: LiveJobIds) -> Callable[[], Awaitable[None]]:
    async def follow() -> None:
        """Drive what another instance was told to launch, too: it may be gone."""
        while True:
            await asyncio.sleep(SIBLINGS_S)
            for job_id in await live_job_ids():
                runner.wake(job_id)

    return follow


def _serve(runner: Runner, kind: type[Any]) -> Callable[[Any], Awaitable[ProtoMessage]]:
    async def reply(message: ProtoMessage) -> ProtoMessage:
        command = from_wire(message, kind)
        if isinstance(command, RestartJob):
            refusal = (await runner.look_at_step(command.job_id, command.from_step)).refusal
            if refusal is not None:
                return CommandReply(outcome=Outcome(why=refusal.why, detail=refusal.detail))
        handled = await runner.apply(command)
        if handled.rejected is None:
            if kind is SaveCheckpoint:
                await runner.save(handled.state)
            return CommandReply(outcome=Outcome(accepted=True))
        why, detail = handled.rejected.why, handled.rejected.detail
        return CommandReply(outcome=Outcome(why=why, detail=detail))

    return reply


def _serve_audit(runner: Runner) -> Callable[[jobs_pb2.AuditStep], Awaitable[CommandReply]]:
    async def reply(message: jobs_pb2.AuditStep) -> CommandReply:
        """Launch a job that does a step of another one's again."""
        found = auditing.launch_of(
            await runner.state(message.job_id),
            step=message.step,
            replica=message.replica,
            number=message.number,
            works=message.works,
            at_ms=message.at_ms,
            generation=message.generation,
        )
        if isinstance(found, Rejected):
            return CommandReply(outcome=Outcome(why=found.why, detail=found.detail))
        handled = await runner.apply(found)
        if handled.rejected is None:
            return CommandReply(outcome=Outcome(accepted=True))
        why, detail = handled.rejected.why, handled.rejected.detail
        return CommandReply(outcome=Outcome(why=why, detail=detail))

    return reply


def _on_incident(
    runner: Runner,
) -> Callable[[EventEnvelope, Consumed], Awaitable[None]]:
    async def receive(envelope: EventEnvelope, consumed: Consumed) -> None:
        if envelope.WhichOneof("payload") == "stray_found":
            stray = envelope.stray_found
            runner.end_stray(stray.job_id, stray.host_id, stray.stray_generation)
            return
        command = monitor_command(envelope)
        if command is not None:
            await runner.apply(command, consumed=consumed)

    return receive


def monitor_command(envelope: EventEnvelope) -> Command | None:
    """Translate what the monitor has decided into a command for the job, if it concerns one."""
    match envelope.WhichOneof("payload"):
        case "incident_opened":
            opened = envelope.incident_opened
            if not opened.job_id:
                return None
            return RecoverJob(
                job_id=opened.job_id,
                generation=opened.generation,
                incident_id=opened.incident_id,
                verdict=VERDICTS.get(opened.action, Verdict.RESTART),
                hosts=tuple(opened.hosts),
                ranks=tuple(opened.ranks),
                kind=opened.kind,
                reason=opened.reason,
                detail=opened.detail or opened.reason,
                at_ms=envelope.recorded_at_ms,
                before_step=opened.suspect_from_step,
                skipped=tuple(
                    PositionRange(first=one.first, end=one.end) for one in opened.skipped
                ),
            )
        case "generation_progressed":
            progressed = envelope.generation_progressed
            return RecordProgress(
                job_id=progressed.job_id,
                generation=progressed.generation,
                step=progressed.step,
                at_ms=progressed.at_ms,
            )
        case "run_finished":
            finished = envelope.run_finished
            return RecordFinished(
                job_id=finished.job_id,
                generation=finished.generation,
                step=finished.step,
                at_ms=finished.at_ms,
                detail=finished.detail,
            )
        case _:
            return None


def _on_inventory(
    runner: Runner,
) -> Callable[[EventEnvelope, Consumed], Awaitable[None]]:
    async def receive(envelope: EventEnvelope, _: Consumed) -> None:
        if envelope.WhichOneof("payload") in FREES_HOSTS:
            runner.wake_all()

    return receive
