"""A host's agent: joins, beats its heart, answers commands, tells what its ranks do."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, TypeVar

from google.protobuf.message import Message as ProtoMessage

from everstep.core.errors import EverstepError
from everstep.service.commands import host_subject, send_command
from everstep.sim.answers import Answers
from everstep.sim.carrying import Carrier
from everstep.sim.host import Host, HostRun
from everstep.sim.probing import Probing
from everstep.sim.process import Process
from everstep.wire.v1 import agents_pb2 as wire
from everstep.wire.v1.common_pb2 import CommandReply, HeldSnapshots
from everstep.wire.v1.hosts_pb2 import JoinHost

if TYPE_CHECKING:
    from everstep.sim.network import Endpoint

Q = TypeVar("Q", bound=ProtoMessage)

# As in everstep.agent: membership, reports, commands, upload.
HEARTBEAT_S: Final = 1.0
JOIN_S: Final = 10.0
JOIN_RETRY_S: Final = 0.5
REPORT_RETRY_S: Final = 0.5
PING_TIMEOUT_S: Final = 9.0  # as everstep.bus.nats: two unanswered pings, 3 s apart, and a third
REQUEST_S_MAX: Final = 2.0


class Agent:
    """One life of an agent process."""

    def __init__(self, host: Host) -> None:
        self.host = host
        host.boots += 1
        self.epoch = f"epoch-{host.host_id}-{host.boots}"
        self.process = Process(f"agent:{host.host_id}")
        self.endpoint: Endpoint = host.world.network.endpoint(f"agent:{host.host_id}")
        self.started_s = asyncio.get_running_loop().time()
        self._reports = asyncio.Event()
        self.carrier = Carrier(self)

    def start(self) -> None:
        """Begin, and take up what an earlier agent left."""
        host = self.host
        host.agent = self
        answers = (Answers(self).serve(), Probing(self).serve())
        for work in (self._join(), self._beat(), *answers, self._report()):
            self.process.run(work)
        self._take_exits()
        for run in host.runs.values():
            self.process.run(self.carrier.replicate(run))
            run.replicate.set()
        # What was kept while no agent was there lies in the durable slots.
        kept = [run.durable for run in host.runs.values() if run.durable is not None]
        host.uploads += [one for one in kept if one not in host.uploads]
        for durable in host.uploads:
            self.process.run(self.carrier.upload(durable))

    def kill(self) -> None:
        """End the agent alone; ranks and memory stay."""
        self.process.kill()
        self.endpoint.kill()
        self.host.agent = None

    def vanish(self) -> None:
        """Be gone without a word: the bus keeps the connection until its pings go unanswered."""
        self.process.kill()
        self.endpoint.vanish()
        self.host.agent = None
        self.host.world.physics(self._time_out())

    async def _time_out(self) -> None:
        await asyncio.sleep(PING_TIMEOUT_S)
        self.endpoint.kill()

    def see(self, what: str, run: HostRun, rank: int = -1) -> None:
        """Take note of something that the ranks did."""
        match what:
            case "step":
                self._step(run)
            case "upload":
                assert run.durable is not None
                self.host.uploads.append(run.durable)
                self.process.run(self.carrier.upload(run.durable))
            case "exits":
                self._take_exits()
            case "echo":
                self._add(self._echo(run, rank))
            case _:
                raise AssertionError(what)

    # What it tells.

    async def _join(self) -> None:
        host, joined = self.host, False
        while True:
            command = JoinHost(
                host_id=host.host_id,
                pod=host.pod,
                power=host.pod,
                chips=host.chips,
                address=host.host_id,
                peer_port=1,
                agent_epoch=self.epoch,
                at_ms=host.now_ms(),
                probes=True,
            )
            try:
                reply = await send_command(
                    self.endpoint, "host_inventory", command, CommandReply, timeout_s=REQUEST_S_MAX
                )
                joined = reply.outcome.accepted
            except EverstepError:
                pass
            await asyncio.sleep(JOIN_S if joined else JOIN_RETRY_S)

    async def _beat(self) -> None:
        sequence = 0
        while True:
            sequence += 1
            message = wire.Heartbeat(
                host_id=self.host.host_id,
                agent_epoch=self.epoch,
                sequence=sequence,
                at_ms=self.host.now_ms(),
                jobs=self.running(),
                errors=self.host.told_errors(),
                kept=[
                    wire.KeptJob(job_id=job_id, generation=fence)
                    for job_id, fence in self.host.memory.kept()
                ],
            )
            await self._publish("heartbeat", message)
            await asyncio.sleep(HEARTBEAT_S)

    def running(self) -> list[wire.RunningJob]:
        """Return the jobs that have live ranks here, or ends that nobody was told of yet."""
        jobs = [
            wire.RunningJob(
                job_id=job_id,
                generation=run.training.generation,
                ranks=sorted(run.alive),
                last_step=run.last_step,
                untold=self._untold(job_id, run.training.generation),
            )
            for job_id, run in sorted(self.host.runs.items())
        ]
        return [job for job in jobs if job.ranks or job.untold]

    def _untold(self, job_id: str, generation: int) -> list[int]:
        waiting = {
            report.rank
            for report in (*self.host.exits, *self.host.reports)
            if report.kind == wire.RANK_EXITED
            and (report.job_id, report.generation) == (job_id, generation)
        }
        return sorted(waiting)

    def _step(self, run: HostRun) -> None:
        host, training = self.host, run.training
        now_ms, told = host.now_ms(), training.course.told(run.last_step)
        message = wire.StepMetrics(
            host_id=host.host_id,
            job_id=training.job_id,
            generation=training.generation,
            at_ms=now_ms,
            ranks=[
                wire.RankStep(
                    rank=rank,
                    step=run.last_step,
                    step_time_ms=training.pace.step_s * 1e3 + run.shadow_ms,
                    stall_ms=run.stall_ms,
                    shadow_ms=run.shadow_ms,
                    loss=told.loss,
                    position=told.position,
                    grad_norm=1.0,
                    tokens=1_000,
                    health="ok",
                    completed_at_ms=run.made_ms,
                    first=run.last_step == max(training.restore_step, 0) + 1,
                    kept=run.kept,
                    durable=run.kept_durable,
                    schedule_version=run.followed.version if run.followed is not None else 0,
                    fingerprints=training.sharing.fingerprints(run.shown_step, rank),
                    compared_step=max(run.shown_step, 0),
                    verified_step=training.sharing.verified_step,
                    checked=training.remaking.checked(run.last_step, rank),
                )
                for rank in run.ranks
            ],
            held=self.held(training.job_id),
        )
        host.told.append(message)
        del host.told[:-1_024]
        self.process.run(self._publish("metrics", message))

    def held(self, job_id: str) -> list[HeldSnapshots]:
        """Return what lies in the host's memory of a job."""
        groups: dict[tuple[bool, int, int], list[int]] = {}
        for copy, own in self.host.memory.held(job_id):
            groups.setdefault((not own, copy.step, copy.generation), []).append(copy.rank)
        return [
            HeldSnapshots(step=step, generation=generation, own=not copied, ranks=sorted(ranks))
            for (copied, step, generation), ranks in sorted(groups.items())
        ]

    async def _publish(self, what: str, message: ProtoMessage) -> None:
        subject = host_subject(self.host.host_id, what)
        await self.endpoint.publish(subject, message.SerializeToString())

    def _echo(self, run: HostRun, rank: int) -> wire.RankReport:
        return wire.RankReport(
            host_id=self.host.host_id,
            job_id=run.training.job_id,
            generation=run.training.generation,
            rank=rank,
            kind=wire.COLLECTIVE_ERROR,
            exit_class=wire.COLLECTIVE,
            error=f"collective failed: {run.training.broken}",
            step=run.last_step,
            at_ms=self.host.now_ms(),
        )

    def _take_exits(self) -> None:
        for report in self.host.exits:
            self._add(report)
        self.host.exits.clear()

    def _add(self, report: wire.RankReport) -> None:
        report.agent_epoch = self.epoch
        kind = wire.ReportKind.Name(report.kind).lower()
        report.report_id = (
            f"{report.host_id}.{report.job_id}.{report.generation}.{report.rank}.{kind}"
        )
        self.host.reports.append(report)
        self._reports.set()

    async def _report(self) -> None:
        subject = host_subject(self.host.host_id, "report")
        reports = self.host.reports
        while True:
            while reports:
                report = reports[0]
                try:
                    await self.endpoint.publish_durable(
                        subject, report.SerializeToString(), message_id=report.report_id
                    )
                except EverstepError:
                    await asyncio.sleep(REPORT_RETRY_S)
                    continue
                reports.pop(0)
            self._reports.clear()
            await self._reports.wait()
