"""What an agent answers; the rules are those of ``everstep.agent.commands``."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, TypeVar

from google.protobuf.message import Message as ProtoMessage

from everstep.agent.codec import decode_schedule, decode_sources
from everstep.agent.links import TRIES, TRY_S_MAX
from everstep.core.errors import Unavailable
from everstep.core.placement import HostPlacement
from everstep.core.ports import Message
from everstep.service.commands import host_subject
from everstep.sim.bits import TENSOR
from everstep.sim.host import HostRun
from everstep.wire.v1 import agents_pb2 as wire
from everstep.wire.v1.common_pb2 import CommandReply, Outcome

if TYPE_CHECKING:
    from everstep.sim.agent import Agent

Q = TypeVar("Q", bound=ProtoMessage)

# As everstep.agent.supervisor:
STOP_S_MAX: Final = 60.0
LAST_UPLOAD_S_MAX: Final = 1_500.0
ACCEPTED: Final = Outcome(accepted=True)


def refused(why: str, detail: str) -> Outcome:
    """Return a refusal."""
    return Outcome(why=why, detail=detail)


LOOK_MS: Final = 300  # as everstep.agent.stacks
WAITING: Final = (
    "everstep/train/rank_main.py:run_rank:1",
    "model.py:main:1",
    "site-packages/torch/distributed/distributed_c10d.py:all_reduce:1",
)


class Answers:
    """One agent's command answers."""

    def __init__(self, agent: Agent) -> None:
        self._agent = agent
        self._host = agent.host
        self._ports = 20_000

    async def serve(self) -> None:
        """Begin to answer."""
        for name, kind, answer in (
            ("start", wire.StartRanks, self._on_start),
            ("stop", wire.StopRanks, self._on_stop),
            ("save", wire.SaveRanks, self._on_save),
            ("restore", wire.RestoreRanks, self._on_restore),
            ("schedule", wire.SetSchedule, self._on_schedule),
            ("probe", wire.ProbeHost, self._on_probe),
            ("steps", wire.TellSteps, self._on_steps),
            ("stacks", wire.TellStacks, self._on_stacks),
            ("links", wire.CheckLinks, self._on_links),
            ("checksums", wire.TellChecksums, self._on_checksums),
        ):
            await self._answer(name, kind, answer)

    async def _answer(
        self, name: str, kind: type[Q], answer: Callable[[Any], Awaitable[ProtoMessage]]
    ) -> None:
        async def reply(message: Message) -> bytes:
            return (await answer(kind.FromString(message.data))).SerializeToString()

        await self._agent.endpoint.serve(host_subject(self._host.host_id, f"cmd.{name}"), reply)

    def _stale(self, job_id: str, generation: int) -> Outcome | None:
        run = self._host.runs.get(job_id)
        lowest = max(
            self._host.memory.fences.get(job_id, 0), run.training.generation if run else -1
        )
        if generation >= lowest:
            return None
        return refused("stale_generation", f"{self._host.host_id} is at {lowest}, got {generation}")

    async def _on_start(self, command: wire.StartRanks) -> CommandReply:
        host, job_id = self._host, command.job_id
        stale = self._stale(job_id, command.generation)
        if stale is not None:
            return CommandReply(outcome=stale)
        for other, run in list(host.runs.items()):
            below = command.generation if other == job_id else run.training.generation + 1
            if run.alive and run.training.generation < below:
                self._fence(other, below)
        running = host.runs.get(job_id)
        if running is None or running.training.generation < command.generation:
            mine = command.host
            if mine.host_id != host.host_id or len(mine.ranks) > host.chips:
                return CommandReply(outcome=refused("too_many_ranks", "does not fit"))
            host.memory.fences[job_id] = command.generation
            self._end_uploads(job_id, command.generation)  # new ranks write into the same slots
            host.begin(
                command,
                HostPlacement(
                    host_id=host.host_id,
                    ranks=tuple(mine.ranks),
                    replica_host_id=mine.replica_host_id,
                ),
            )
            self._agent.process.run(self._agent.carrier.replicate(host.runs[job_id]))
        return CommandReply(outcome=ACCEPTED)

    def _fence(self, job_id: str, below: int, *, uploads_go_on: bool = False) -> None:
        """Raise the fence and end what runs below it."""
        host = self._host
        host.memory.fences[job_id] = max(below, host.memory.fences.get(job_id, 0))
        run = host.runs.get(job_id)
        if run is not None and run.training.generation < below:
            run.kill()
            if not uploads_go_on:
                self._end_uploads(job_id, below)

    def _end_uploads(self, job_id: str, below: int) -> None:
        host = self._host
        host.uploads = [
            one
            for one in host.uploads
            if one.job_id != job_id or one.generation >= below or one.stored
        ]

    async def _on_stacks(self, command: wire.TellStacks) -> wire.TellStacksReply:
        """Tell what every rank does: those that are not stopped wait for the others."""
        run = self._host.runs.get(command.job_id)
        if run is None or run.training.generation != command.generation:
            outcome = refused("not_running", f"{self._host.host_id} runs no such generation")
            return wire.TellStacksReply(outcome=outcome, host_id=self._host.host_id)
        return wire.TellStacksReply(
            outcome=ACCEPTED,
            host_id=self._host.host_id,
            ranks=[
                wire.RankStack(
                    rank=rank,
                    step=run.last_step,
                    state=wire.PROCESS_STOPPED if rank in run.stopped else wire.PROCESS_SLEEPING,
                    phase=wire.PHASE_COMPUTING,
                    answered=rank not in run.stopped,
                    look_ms=LOOK_MS,
                    frames=() if rank in run.stopped else WAITING,
                )
                for rank in run.ranks
            ],
        )

    async def _on_stop(self, command: wire.StopRanks) -> wire.StopRanksReply:
        host, job_id, generation = self._host, command.job_id, command.generation
        stale = self._stale(job_id, generation)
        retired = host.memory.retired.get(job_id, -1)
        if command.forget and retired >= generation:
            stale = None
        elif stale is None:
            run = host.runs.get(job_id)
            if command.graceful and run is not None and run.training.generation <= generation:
                run.training.stop_asked = True
                await self._let_go(run, store=command.store)
            below = generation + 1 if command.forget else generation
            go_on = command.graceful or command.forget or command.uploads_go_on  # it is of use
            self._fence(job_id, below, uploads_go_on=go_on)
            if command.forget:
                host.memory.retired[job_id] = generation
                host.memory.forget(job_id)
        if stale is not None:
            return wire.StopRanksReply(outcome=stale, host_id=host.host_id)
        self._ports += 1
        return wire.StopRanksReply(
            outcome=ACCEPTED,
            host_id=host.host_id,
            held=self._agent.held(job_id),
            rendezvous_port=self._ports,
            address=host.host_id,
            pod=host.pod,
            power=host.pod,
            broken=job_id not in host.runs or host.runs[job_id].broken.is_set(),
        )

    async def _let_go(self, run: HostRun, *, store: bool) -> None:
        """Wait until the ranks have left and their last checkpoint is stored, or kill them."""
        try:
            async with asyncio.timeout(STOP_S_MAX):
                await _first(run.gone, run.broken)
                if run.broken.is_set():
                    run.kill()
                    return
                await self._agent.carrier.drained(run.training.job_id)
                return
        except TimeoutError:
            pass
        if store and run.training.ending:
            with suppress(TimeoutError):
                await asyncio.wait_for(run.gone.wait(), LAST_UPLOAD_S_MAX)
        run.kill()

    async def _on_restore(self, command: wire.RestoreRanks) -> CommandReply:
        host, job_id, generation = self._host, command.job_id, command.generation
        stale = self._stale(job_id, generation)
        if stale is not None:
            return CommandReply(outcome=stale)
        for restore in decode_sources(command.sources, host.host_id):
            for source in restore.sources:
                await asyncio.sleep(host.world.pace.replicate_s)
                try:
                    copy = await host.world.read(host, job_id, restore.rank, command.step, source)
                except Unavailable:
                    continue
                if copy is not None and copy.sound:
                    host.memory.write(job_id, copy, own=True, generation=generation)
        return CommandReply(outcome=ACCEPTED)

    async def _on_schedule(self, command: wire.SetSchedule) -> CommandReply:
        stale = self._stale(command.job_id, command.generation)
        run = self._host.runs.get(command.job_id)
        if stale is not None:
            return CommandReply(outcome=stale)
        if run is None or run.training.generation != command.generation or not run.alive:
            return CommandReply(outcome=refused("not_running", "nothing runs here"))
        if run.schedule is None or run.schedule.version < command.schedule.version:
            run.schedule = decode_schedule(command.schedule)
        return CommandReply(outcome=ACCEPTED)

    async def _on_save(self, command: wire.SaveRanks) -> CommandReply:
        stale = self._stale(command.job_id, command.generation)
        run = self._host.runs.get(command.job_id)
        if stale is not None:
            return CommandReply(outcome=stale)
        if run is None or run.training.generation != command.generation or not run.alive:
            return CommandReply(outcome=refused("not_running", "does not run here"))
        run.training.save_asked = True
        return CommandReply(outcome=ACCEPTED)

    async def _on_probe(self, command: wire.ProbeHost) -> wire.ProbeHostReply:
        return wire.ProbeHostReply(
            outcome=ACCEPTED,
            host_id=self._host.host_id,
            nonce=command.nonce,
            agent_epoch=self._agent.epoch,
            jobs=self._agent.running(),
            fork_server_warm=True,
            errors=self._host.told_errors(),
        )

    async def _on_links(self, command: wire.CheckLinks) -> wire.CheckLinksReply:
        host, world = self._host, self._host.world
        links = [
            wire.LinkCheck(
                host_id=peer.host_id,
                reached=world.hosts[peer.host_id].agent is not None
                and world.links.reaches(host.host_id, peer.host_id),
            )
            for peer in command.peers
        ]
        if not all(link.reached for link in links):
            await asyncio.sleep(TRY_S_MAX * TRIES)
        return wire.CheckLinksReply(outcome=ACCEPTED, host_id=host.host_id, links=links)

    async def _on_checksums(self, command: wire.TellChecksums) -> wire.TellChecksumsReply:
        host, run = self._host, self._host.runs.get(command.job_id)
        there = run.training.sharing.checksums(command.step, command.ranks) if run else {}
        ranks = [
            wire.RankChecksums(
                rank=rank,
                tensors=[wire.TensorChecksum(name=TENSOR, checksum=checksum, over=over)],
            )
            for rank, (over, checksum) in there.items()
        ]
        return wire.TellChecksumsReply(outcome=ACCEPTED, host_id=host.host_id, ranks=ranks)

    async def _on_steps(self, command: wire.TellSteps) -> wire.TellStepsReply:
        told = [
            message
            for message in self._host.told
            if message.job_id == command.job_id
            and any(rank.step > command.after_step for rank in message.ranks)
        ]
        return wire.TellStepsReply(outcome=ACCEPTED, metrics=told)


async def _first(*events: asyncio.Event) -> None:
    """Wait for one of them."""
    tasks = [asyncio.create_task(event.wait()) for event in events]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
