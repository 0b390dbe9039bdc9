"""Answers what the control plane asks of this host.

Every command may come twice, late, or from a controller that has been replaced: all are idempotent,
and one of an older generation than the host is fenced at is refused as ``stale_generation``.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from google.protobuf.message import DecodeError
from google.protobuf.message import Message as ProtoMessage

from everstep.agent.checksums import checksums_of
from everstep.agent.codec import (
    decode_schedule,
    decode_sources,
    decode_start,
    held_messages,
)
from everstep.agent.counters import Counters
from everstep.agent.examination import Examinations
from everstep.agent.forks import ForkServer
from everstep.agent.links import check_links
from everstep.agent.membership import HostFacts, running_jobs
from everstep.agent.ports import PortChooser
from everstep.agent.reports import Reports
from everstep.agent.restore import Restorer
from everstep.agent.runs import Runs, Start
from everstep.agent.stacks import StackLooks
from everstep.agent.steps import StepMessages
from everstep.agent.store import HostMemory
from everstep.agent.supervisor import Supervisor
from everstep.core.errors import InvalidInput, Unavailable
from everstep.core.ids import is_valid_id
from everstep.core.ports import Bus, Message, Subscription
from everstep.core.system import Clock
from everstep.service.commands import host_subject
from everstep.wire.v1.agents_pb2 import (
    CheckLinks,
    CheckLinksReply,
    ProbeHost,
    ProbeHostReply,
    RecomputeRanks,
    RestoreRanks,
    SaveRanks,
    SeekRanks,
    SetSchedule,
    StartRanks,
    StopRanks,
    StopRanksReply,
    TellChecksums,
    TellChecksumsReply,
    TellStacks,
    TellStacksReply,
    TellSteps,
    TellStepsReply,
)
from everstep.wire.v1.common_pb2 import CommandReply, HeldSnapshots, Outcome
from everstep.wire.v1.probes_pb2 import ExamineHost, ExamineHostReply

log = logging.getLogger(__name__)

Q = TypeVar("Q", bound=ProtoMessage)
Answer = (
    CommandReply
    | StopRanksReply
    | ProbeHostReply
    | TellStepsReply
    | TellStacksReply
    | TellChecksumsReply
    | CheckLinksReply
    | ExamineHostReply
)
ACCEPTED: Final = Outcome(accepted=True)


class HostCommands:
    """The command answers of one host."""

    def __init__(
        self,
        *,
        facts: HostFacts,
        runs: Runs,
        supervisor: Supervisor,
        memory: HostMemory,
        restorer: Restorer,
        forks: ForkServer,
        ports: PortChooser,
        steps: StepMessages,
        clock: Clock,
        counters: Counters,
        reports: Reports,
    ) -> None:
        self._counters = counters
        self._reports = reports
        self._clock = clock
        self._facts = facts
        self._runs = runs
        self._supervisor = supervisor
        self._memory = memory
        self._restorer = restorer
        self._forks = forks
        self._ports = ports
        self._steps = steps
        self._stacks = StackLooks()
        self._examinations = Examinations(facts, forks, self._ranks_run)

    async def serve(self, bus: Bus) -> list[Subscription]:
        """Begin to answer; waits for the bus."""
        return [
            await self._serve(bus, "start", StartRanks, self.start, _refused),
            await self._serve(bus, "stop", StopRanks, self.stop, _stop_refused),
            await self._serve(bus, "save", SaveRanks, self.save, _refused),
            await self._serve(bus, "recompute", RecomputeRanks, self.recompute, _refused),
            await self._serve(bus, "schedule", SetSchedule, self.schedule, _refused),
            await self._serve(bus, "restore", RestoreRanks, self.restore, _refused),
            await self._serve(bus, "seek", SeekRanks, self.seek, _refused),
            await self._serve(bus, "probe", ProbeHost, self.probe, _probe_refused),
            await self._serve(bus, "steps", TellSteps, self.tell_steps, _steps_refused),
            await self._serve(bus, "stacks", TellStacks, self.tell_stacks, _stacks_refused),
            await self._serve(bus, "checksums", TellChecksums, self.tell_checksums, _sums_refused),
            await self._serve(bus, "links", CheckLinks, self.check_links, _links_refused),
            await self._serve(bus, "examine", ExamineHost, self.examine, _examine_refused),
        ]

    async def start(self, command: StartRanks) -> CommandReply:
        """Fork this host's ranks; answers as soon as the forks are asked for."""
        try:
            start = decode_start(command, self._facts.host_id)
        except InvalidInput as error:
            return _refused("invalid_command", str(error))
        refusal = self._unfit(start) or self._stale(start.job_id, start.generation)
        if refusal is not None:
            return refusal
        await self._make_way(start)
        refusal = self._stale(start.job_id, start.generation)  # while we waited
        if refusal is not None:
            return refusal
        running = self._runs.get(start.job_id)
        if running is None or running.generation < start.generation:
            self._examinations.give_way()
            try:
                self._memory.begin_again(start.job_id, start.generation)
                seek = self._runs.files.take_seek(start.job_id, start.generation)
                self._supervisor.start(start, seek)
            except Unavailable as error:
                return _refused("no_space", str(error))
        return CommandReply(outcome=ACCEPTED)

    async def stop(self, command: StopRanks) -> StopRanksReply:
        """Fence the host and say what it holds; no memory is written after the answer.

        Ranks of older generations are killed. Those of ``generation`` itself end only when the stop
        is graceful or the job is to be forgotten.
        """
        job_id, generation = command.job_id, command.generation
        if not is_valid_id(job_id):
            return _stop_refused("invalid_command", f"{job_id!r} is not a job id")
        refusal = self._stale(job_id, generation)
        if command.forget and self._memory.is_retired(job_id, generation):
            refusal = None  # asked again
        elif refusal is None and not await self._stop(command):
            refusal = _refused(
                "not_ended", f"a rank or writer of job {job_id} on {self._facts.host_id} hangs"
            )
        if refusal is not None:
            return StopRanksReply(outcome=refusal.outcome, host_id=self._facts.host_id)
        return StopRanksReply(
            outcome=ACCEPTED,
            host_id=self._facts.host_id,
            held=self._held(job_id),
            rendezvous_port=self._ports.choose(),
            address=self._facts.address,
            peer_port=self._facts.peer_port,
            pod=self._facts.pod,
            power=self._facts.power,
            broken=self._supervisor.is_broken(job_id),
        )

    async def _stop(self, command: StopRanks) -> bool:
        job_id, generation = command.job_id, command.generation
        ended = True
        if command.graceful:
            ended = await self._supervisor.stop_gracefully(job_id, generation, store=command.store)
        if not command.forget:
            self._memory.begin_again(job_id, generation)
        below = generation + 1 if command.forget else generation
        go_on = command.forget or command.graceful or command.uploads_go_on  # it is of use
        fenced = await self._supervisor.fence(job_id, below, uploads_go_on=go_on)
        if ended and fenced and command.forget:
            await self._supervisor.forget(job_id, generation)
        return ended and fenced

    async def save(self, command: SaveRanks) -> CommandReply:
        """Ask the ranks for a durable checkpoint."""
        return self._ask(command.job_id, command.generation, "save")

    async def recompute(self, command: RecomputeRanks) -> CommandReply:
        """Ask the ranks to make each other's gradients at the next step."""
        return self._ask(command.job_id, command.generation, "recompute")

    def _ask(self, job_id: str, generation: int, what: str) -> CommandReply:
        refusal = self._stale(job_id, generation)
        if refusal is not None:
            return refusal
        if not self._supervisor.ask(job_id, generation, what):
            return self._not_running(job_id, generation)
        return CommandReply(outcome=ACCEPTED)

    async def schedule(self, command: SetSchedule) -> CommandReply:
        """Let the ranks snapshot by another schedule."""
        job_id, generation = command.job_id, command.generation
        refusal = self._stale(job_id, generation)
        if refusal is not None:
            return refusal
        try:
            schedule = decode_schedule(command.schedule)
        except InvalidInput as error:
            return _refused("invalid_command", str(error))
        if not self._supervisor.reschedule(job_id, generation, schedule):
            return self._not_running(job_id, generation)
        return CommandReply(outcome=ACCEPTED)

    async def restore(self, command: RestoreRanks) -> CommandReply:
        """Bring snapshots here ahead of a start; answers when they are, or cannot be."""
        job_id, generation = command.job_id, command.generation
        refusal = self._stale(job_id, generation)
        if refusal is not None:
            return refusal
        running = self._runs.get(job_id)
        if running is not None and running.alive:
            return _refused(
                "running", f"generation {running.generation} of job {job_id} writes these slots"
            )
        plans = decode_sources(command.sources, self._facts.host_id)
        old = command.sources.HasField("old_layout")
        answers = await asyncio.gather(
            *(
                self._restorer.restore(job_id, generation, command.step, plan, old=old)
                for plan in plans
            )
        )
        problems = [
            text for one in answers if one.kind == "restore_failed" for text in one.problems
        ]
        if problems:
            return _refused("restore_failed", "; ".join(problems))
        return CommandReply(outcome=ACCEPTED)

    async def seek(self, command: SeekRanks) -> CommandReply:
        """Let the next start begin at another data position."""
        refusal = self._stale(command.job_id, command.generation)
        if refusal is not None:
            return refusal
        self._runs.files.save_seek(command.job_id, command.generation, command.position)
        return CommandReply(outcome=ACCEPTED)

    async def tell_steps(self, command: TellSteps) -> TellStepsReply:
        """Tell again what metrics messages said, for who missed them."""
        told = self._steps.told_after(command.job_id, command.after_step)
        return TellStepsReply(outcome=ACCEPTED, metrics=told)

    async def tell_stacks(self, command: TellStacks) -> TellStacksReply:
        """Say what each rank of a generation is doing; takes a third of a second, at most one."""
        run = self._runs.get(command.job_id)
        if run is None or run.generation != command.generation:
            refusal = self._not_running(command.job_id, command.generation)
            return TellStacksReply(outcome=refusal.outcome, host_id=self._facts.host_id)
        looks = await self._stacks.look(run)
        return TellStacksReply(outcome=ACCEPTED, host_id=self._facts.host_id, ranks=looks)

    async def tell_checksums(self, command: TellChecksums) -> TellChecksumsReply:
        """Say what ranks hold of a step that others must hold alike."""
        ranks = await asyncio.to_thread(checksums_of, self._memory.root, command)
        return TellChecksumsReply(outcome=ACCEPTED, host_id=self._facts.host_id, ranks=ranks)

    async def check_links(self, command: CheckLinks) -> CheckLinksReply:
        """Say which of these others can be reached from here; takes a second at most."""
        links = await check_links(command.peers, self._clock)
        return CheckLinksReply(outcome=ACCEPTED, host_id=self._facts.host_id, links=links)

    async def examine(self, command: ExamineHost) -> ExamineHostReply:
        """Run this host's probes; answers when they are done."""
        return await self._examinations.examine(command)

    def _ranks_run(self) -> bool:
        return any(run.alive for run in self._runs.all())

    async def probe(self, command: ProbeHost) -> ProbeHostReply:
        """Say that the host is there and what runs on it."""
        held = [one for job_id in self._memory.jobs() for one in self._held(job_id)]
        return ProbeHostReply(
            outcome=ACCEPTED,
            host_id=self._facts.host_id,
            nonce=command.nonce,
            agent_epoch=self._facts.agent_epoch,
            jobs=running_jobs(self._runs.all(), self._reports),
            held=held,
            fork_server_warm=self._forks.warm,
            errors=await self._counters.fresh(),
        )

    async def _serve(
        self,
        bus: Bus,
        name: str,
        kind: type[Q],
        answer: Callable[[Q], Awaitable[Answer]],
        refuse: Callable[[str, str], ProtoMessage],
    ) -> Subscription:
        async def reply(message: Message) -> bytes:
            try:
                command = kind.FromString(message.data)
            except DecodeError as error:
                return refuse("invalid_command", f"cmd.{name}: {error}").SerializeToString()
            answered = await answer(command)
            outcome = answered.outcome
            if not outcome.accepted:
                log.warning("cmd.%s refused: %s: %s", name, outcome.why, outcome.detail)
            return answered.SerializeToString()

        return await bus.serve(host_subject(self._facts.host_id, f"cmd.{name}"), reply)

    def _held(self, job_id: str) -> list[HeldSnapshots]:
        return held_messages(self._memory.held(job_id))

    async def _make_way(self, start: Start) -> None:
        """End what still runs in the place of the new ranks.

        Older generations that no stop has reached, and other jobs: a host serves one job, so what
        is here of another is left over from before it was given away.
        """
        for run in self._runs.all():
            if run.job_id != start.job_id:
                await self._supervisor.give_up(run)
            elif run.alive and run.generation < start.generation:
                log.warning("generation %d of job %s makes way", run.generation, run.job_id)
                await self._supervisor.fence(run.job_id, start.generation)

    def _unfit(self, start: Start) -> CommandReply | None:
        if len(start.ranks) > self._facts.chips:
            return _refused(
                "too_many_ranks",
                f"{self._facts.host_id} has {self._facts.chips} chips, got ranks {start.ranks}",
            )
        return None

    def _not_running(self, job_id: str, generation: int) -> CommandReply:
        host_id = self._facts.host_id
        return _refused(
            "not_running", f"generation {generation} of job {job_id} does not run on {host_id}"
        )

    def _stale(self, job_id: str, generation: int) -> CommandReply | None:
        running = self._runs.get(job_id)
        lowest = max(self._memory.fence(job_id), running.generation if running else -1)
        if generation >= lowest:
            return None
        return _refused(
            "stale_generation",
            f"{self._facts.host_id} is at generation {lowest} of job {job_id}; "
            f"got generation {generation}",
        )


def _refused(why: str, detail: str) -> CommandReply:
    return CommandReply(outcome=Outcome(accepted=False, why=why, detail=detail))


def _stop_refused(why: str, detail: str) -> StopRanksReply:
    return StopRanksReply(outcome=Outcome(accepted=False, why=why, detail=detail))


def _steps_refused(why: str, detail: str) -> TellStepsReply:
    return TellStepsReply(outcome=Outcome(accepted=False, why=why, detail=detail))


def _stacks_refused(why: str, detail: str) -> TellStacksReply:
    return TellStacksReply(outcome=Outcome(accepted=False, why=why, detail=detail))


def _examine_refused(why: str, detail: str) -> ExamineHostReply:
    return ExamineHostReply(outcome=Outcome(accepted=False, why=why, detail=detail))


def _sums_refused(why: str, detail: str) -> TellChecksumsReply:
    return TellChecksumsReply(outcome=Outcome(accepted=False, why=why, detail=detail))


def _links_refused(why: str, detail: str) -> CheckLinksReply:
    return CheckLinksReply(outcome=Outcome(accepted=False, why=why, detail=detail))


def _probe_refused(why: str, detail: str) -> ProbeHostReply:
    return ProbeHostReply(outcome=Outcome(accepted=False, why=why, detail=detail))
