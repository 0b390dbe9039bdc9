"""A monitor that follows a job whose steps are done again, on stored events and told steps.

Two replicas of two ranks, each rank on a host of its own; the second rank of a replica is its
second stage.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from everstep.core.placement import Layout
from everstep.core.ports import NewEvent, StoredEvent
from everstep.core.system import RandomIds
from everstep.eventstore.memory import MemoryStore
from everstep.monitor.audit_asking import AuditAsking
from everstep.monitor.auditing import Auditing
from everstep.monitor.codec import AGGREGATE, CODEC, watch_stream
from everstep.monitor.commands import Command, MarkJob
from everstep.monitor.detectors.audit import ranks_of
from everstep.monitor.detectors.audit_course import written
from everstep.monitor.detectors.hang_verdict import Look
from everstep.monitor.detectors.root_cause import Probe
from everstep.monitor.events import (
    AuditOf,
    CorruptionRules,
    Event,
    IncidentOpened,
    Mark,
    StepAudited,
    WatchedHost,
)
from everstep.monitor.policy import Limits
from everstep.monitor.state import Watch
from everstep.monitor.watcher import Watcher
from everstep.service.handler import Handler
from everstep.wire.v1.agents_pb2 import Checked, RankStep, StepMetrics, Work
from everstep.wire.v1.checkpoints_pb2 import CheckpointCompleted
from everstep.wire.v1.jobs_pb2 import AuditStep

LAYOUT = Layout(pp=2, dp_replicate=2)
ALONE = Layout(pp=2)
RULES = CorruptionRules(on_corruption="replace", audit_every_checkpoints=2)
JOB_HOSTS = ("h0", "h1", "h2", "h3")
EVERY = RULES.audit_every_checkpoints


def work(rank: int, step: int, wrong: int = 0) -> Work:
    """What a rank of the job comes to at a step; wrong by some number, or right."""
    return Work(forward=100 * step + rank + wrong, gradient=200 * step + rank + wrong)


class Store(MemoryStore):
    """One that another process may write to just before us."""

    intrude: tuple[str, Event] | None = None  # before the next append to this stream

    async def append(
        self, stream: str, expected_version: int, events: Sequence[NewEvent], **options: Any
    ) -> list[StoredEvent]:
        """Append, and be too late if another one was faster."""
        if self.intrude is not None and self.intrude[0] == stream:
            name, data = CODEC.encode(self.intrude[1])
            self.intrude = None
            other = NewEvent(event_id="other", type=name, data=data)
            await super().append(stream, expected_version, [other])
        return await super().append(stream, expected_version, events, **options)


class AuditStage:
    """The monitor's shell around audits, with a clock of its own and a controller that obeys."""

    def __init__(self, store: Store | None = None) -> None:
        self.at_ms = 1_000_000
        self.store = store or Store(clock=self)
        self.handler: Handler[Command, Watch, Event] = Handler(AGGREGATE, self.store, RandomIds())
        self.watcher = Watcher(
            self.handler, self.probe, self.look, lambda: True, self, RandomIds(), Limits()
        )
        self.asked: list[AuditStep] = []
        self.refuses = ""
        self.recomputed: list[tuple[str, int]] = []
        self.remembered: list[StepMetrics] = []  # by hosts, for who asks
        self.auditing = Auditing(
            handler=self.handler,
            watcher=self.watcher,
            asking=AuditAsking(self.ask_audit),
            ask_recompute=self.ask_recompute,
            ask_steps=self.ask_steps,
            clock=self,
            ids=RandomIds(),
        )

    def now_ms(self) -> int:
        return self.at_ms

    def monotonic_ms(self) -> float:
        return float(self.at_ms)

    async def probe(self, _: str) -> Probe:
        return Probe.ANSWERED

    async def look(self, watch: Watch) -> Look:
        raise AssertionError(f"{watch.job_id} does not hang")

    async def ask_audit(self, command: AuditStep) -> str:
        self.asked.append(command)
        return self.refuses

    async def ask_recompute(self, watch: Watch, rank: int) -> None:
        self.recomputed.append((watch.job_id, rank))

    async def ask_steps(self, host_id: str, job_id: str, after_step: int) -> Sequence[StepMetrics]:
        return [
            one
            for one in self.remembered
            if (one.host_id, one.job_id) == (host_id, job_id) and one.ranks[0].step > after_step
        ]

    async def mark(self, job_id: str, generation: int, mark: Mark, **fields) -> None:
        """The controller's word, a moment after what was before."""
        self.at_ms += 100
        fields = {"at_ms": self.at_ms, **fields}
        await self.watcher.mark(MarkJob(job_id=job_id, generation=generation, mark=mark, **fields))

    async def run(
        self,
        job_id: str,
        hosts: Sequence[str],
        layout: Layout,
        *,
        generation: int = 1,
        cause: str = "launch",
        restore_step: int = -1,
    ) -> None:
        """A generation comes up, one rank a host, and has made its first step."""
        placed = tuple(WatchedHost(host_id=host, ranks=(n,)) for n, host in enumerate(hosts))
        await self.mark(job_id, generation, Mark.BEGUN, cause=cause)
        await self.mark(job_id, generation, Mark.PLACED, hosts=placed, layout=layout)
        await self.mark(job_id, generation, Mark.PLANNED, step=restore_step)
        for host in hosts:
            await self.watcher.stepped(job_id, generation, host, max(restore_step, 0) + 1)

    async def launch(
        self, rules: CorruptionRules = RULES, layout: Layout = LAYOUT, job_id: str = "j"
    ) -> None:
        """The job runs."""
        await self.mark(job_id, 0, Mark.SUBMITTED, layout=layout, corruption=rules, steps=10_000)
        await self.run(job_id, [f"h{n}" for n in range(layout.world_size)], layout)

    async def step(
        self,
        step: int,
        *,
        wrong: dict[int, int] | None = None,
        silent: set[int] = frozenset(),
        job_id: str = "j",
    ) -> None:
        """The job's ranks tell of a step after a durable snapshot, some having been wrong."""
        watch = self.watcher.watches[job_id]
        for host in watch.hosts:
            for rank in set(host.ranks) - silent:
                own = work(rank, step, (wrong or {}).get(rank, 0))
                await self.tell(job_id, watch.generation, host.host_id, rank, step, own)

    async def tell(
        self, job_id: str, generation: int, host_id: str, rank: int, step: int, own: Work
    ) -> None:
        """One rank tells of its own work."""
        metrics = message(job_id, generation, host_id, rank, step, own)
        self.auditing.told(metrics)
        await self.watcher.told(metrics)

    async def complete(self, step: int, *, generation: int = 1, count: int = 1) -> None:
        """Checkpoints become complete; the newest is that of ``step``."""
        for before in reversed(range(count)):
            self.auditing.completed(
                CheckpointCompleted(job_id="j", generation=generation, step=step - before)
            )
        await self.auditing.look()

    async def begin_audit(self, hosts: Sequence[str], asked: AuditStep | None = None) -> str:
        """The controller launches what was asked for last; returns the audit's id."""
        asked = asked or self.asked[-1]
        audit_id = f"j-audit-{asked.step}-{asked.replica}-{asked.number}"
        of = AuditOf(
            job_id=asked.job_id,
            step=asked.step,
            replica=asked.replica,
            number=asked.number,
            works=tuple(asked.works),
            layout=LAYOUT,
            generation=asked.generation,
        )
        submitted = {"layout": ALONE, "audit": of, "steps": asked.step + 1, "at_ms": asked.at_ms}
        await self.mark(audit_id, 0, Mark.SUBMITTED, **submitted)
        await self.run(audit_id, hosts, ALONE, restore_step=asked.step)
        await self.auditing.look()
        return audit_id

    async def audit(
        self, hosts: Sequence[str], *, wrong: dict[int, int] | None = None, ends: bool = True
    ) -> str:
        """An audit is made; its ranks come to what the job's do, but for those that are wrong."""
        audit_id = await self.begin_audit(hosts)
        of = self.watcher.watches[audit_id].audit
        assert of is not None
        for place, rank in enumerate(ranks_of(LAYOUT, of.replica)):
            own = work(rank, of.step + 1, (wrong or {}).get(place, 0))
            await self.tell(audit_id, 1, hosts[place], place, of.step + 1, own)
        await self.auditing.look()
        if ends:
            await self.end(audit_id)
        return audit_id

    async def end(self, audit_id: str, looks: int = 1) -> None:
        """An audit's job ends."""
        await self.mark(audit_id, 1, Mark.ENDED, cause="succeeded")
        for _ in range(looks):
            await self.auditing.look()

    async def state(self, job_id: str = "j") -> Watch:
        """What is stored of a job."""
        return await self.handler.state(watch_stream(job_id))

    async def facts(self) -> list[Event]:
        """Everything that is stored."""
        events = await self.store.read_all(after_position=0, limit=10_000)
        return [CODEC.decode(event.type, event.data) for event in events]

    async def found(self) -> list[StepAudited]:
        """What audits have come to."""
        return [fact for fact in await self.facts() if isinstance(fact, StepAudited)]

    async def incidents(self) -> list[IncidentOpened]:
        """Every incident so far."""
        return [fact for fact in await self.facts() if isinstance(fact, IncidentOpened)]


def message(
    job_id: str, generation: int, host_id: str, rank: int, step: int, own: Work
) -> StepMetrics:
    """A host's word of one rank's step."""
    told = RankStep(rank=rank, step=step, checked=Checked(own=own))
    return StepMetrics(job_id=job_id, generation=generation, host_id=host_id, ranks=[told])


def works_of(replica: int, step: int, wrong: dict[int, int] | None = None) -> list[str]:
    """What a replica's ranks come to, as a spec has it."""
    return [
        written(work(rank, step, (wrong or {}).get(rank, 0))) for rank in ranks_of(LAYOUT, replica)
    ]
