"""The watch loop: one incident for one failure, whatever order the signs come in."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest
from tests.unit.monitor.hang_looks import waiting

from everstep.core.errors import Unavailable
from everstep.core.ports import Message, StoredEvent
from everstep.core.spec import LayoutSpec
from everstep.core.system import RandomIds, SystemClock
from everstep.eventstore.memory import MemoryStore
from everstep.monitor.codec import AGGREGATE, CODEC
from everstep.monitor.commands import MarkJob, ObserveExit
from everstep.monitor.detectors.hang_stacks import State
from everstep.monitor.detectors.hang_verdict import Look
from everstep.monitor.detectors.links import LinkCheck, LinkLook
from everstep.monitor.detectors.root_cause import Probe
from everstep.monitor.events import (
    ExitClass,
    GenerationProgressed,
    IncidentOpened,
    Mark,
    StrayFound,
    WatchedHost,
)
from everstep.monitor.inputs import on_heartbeat
from everstep.monitor.lookout import Asking
from everstep.monitor.policy import Limits
from everstep.monitor.state import Watch
from everstep.monitor.uncopied import UncopiedRanks
from everstep.monitor.watcher import Watcher
from everstep.service.handler import Handler
from everstep.wire.v1.agents_pb2 import Heartbeat, KeptJob, RunningJob

HOSTS = tuple(WatchedHost(host_id=f"h{i}", ranks=(2 * i, 2 * i + 1)) for i in range(3))


class Store(MemoryStore):
    """A store that may be away."""

    away = False

    async def append(self, *arguments: Any, **options: Any) -> list[StoredEvent]:
        """Append, unless the store is away."""
        if self.away:
            raise Unavailable("the database is away")
        return await super().append(*arguments, **options)


class Stage:
    """A watcher, its clock, and hosts that can be dead."""

    def __init__(self, store: Store | None = None, at_ms: int = 1_000_000) -> None:
        self.at_ms = at_ms
        self.dead: set[str] = set()
        self.mute: set[str] = set()
        self.connected = True
        self.store = store or Store(clock=self)
        handler = Handler(AGGREGATE, self.store, RandomIds())
        self.watcher = Watcher(
            handler,
            self.probe,
            self.look,
            lambda: self.connected,
            self,
            RandomIds(),
            Limits(),
            Asking(try_links=self.try_links),
        )
        self.stopped: set[int] = set()
        self.cut: set[str] = set()
        self.apart = False
        self.tried = 0

    def now_ms(self) -> int:
        return self.at_ms

    def monotonic_ms(self) -> float:
        return float(self.at_ms)

    async def probe(self, host_id: str) -> Probe:
        if host_id in self.mute:
            return Probe.NO_ANSWER
        return Probe.NO_RESPONDERS if host_id in self.dead else Probe.ANSWERED

    async def look(self, watch: Watch) -> Look:
        """All ranks wait for the others, but for those that are stopped."""
        ranks = [rank for host in watch.hosts for rank in host.ranks]
        looks = [
            waiting(rank, state=State.STOPPED if rank in self.stopped else State.SLEEPING)
            for rank in ranks
        ]
        return Look.of(self.at_ms, looks, LayoutSpec(dp_shard=len(ranks)))

    async def try_links(self, watch: Watch) -> LinkLook:
        """All hosts reach one another, but for those that are cut; or nobody anybody."""
        self.tried += 1
        cut = self.cut
        hosts = tuple(host.host_id for host in watch.hosts)
        checks = tuple(
            LinkCheck(
                source=one,
                target=other,
                reached=not self.apart and (one in cut) == (other in cut),
            )
            for one in hosts
            for other in hosts
            if one != other
        )
        return LinkLook(at_ms=self.at_ms, hosts=hosts, checks=checks)

    async def tick(self, passed_ms: int) -> None:
        """Let time pass in small steps, hosts that live speaking all along."""
        for _ in range(passed_ms // 100):
            self.at_ms += 100
            for host in HOSTS:
                if host.host_id not in self.dead and self.connected:
                    self.watcher.heard(host.host_id)
            await self.watcher.tick()
            for _ in range(5):
                await asyncio.sleep(0)

    async def incidents(self) -> list[IncidentOpened]:
        """Every incident opened so far."""
        events = await self.store.read_all(after_position=0, limit=1_000)
        facts = [CODEC.decode(event.type, event.data) for event in events]
        return [fact for fact in facts if isinstance(fact, IncidentOpened)]


@pytest.fixture
async def stage() -> Stage:
    """A job that runs in generation 1, seen for long enough to be judged."""
    stage = Stage()
    for mark, fields in ((Mark.BEGUN, {"cause": "launch"}), (Mark.PLACED, {"hosts": HOSTS})):
        await stage.watcher.mark(MarkJob(job_id="j", generation=1, mark=mark, **fields))
    await stage.tick(7_000)
    for host in HOSTS:
        await stage.watcher.stepped("j", 1, host.host_id, 5)
    return stage


def echo(rank: int, generation: int = 1) -> ObserveExit:
    """A collective error on a rank."""
    return ObserveExit(
        job_id="j",
        generation=generation,
        rank=rank,
        host_id=f"h{rank // 2}",
        exit_class=ExitClass.COLLECTIVE,
        at_ms=1,
    )


def killed(rank: int, generation: int = 1) -> ObserveExit:
    """A rank ended by a signal."""
    return ObserveExit(
        job_id="j",
        generation=generation,
        rank=rank,
        host_id=f"h{rank // 2}",
        exit_class=ExitClass.KILLED,
        signal=9,
        step=5,
        at_ms=1,
    )


async def test_dead_host_among_echoes_is_one_incident(stage):
    """Four ranks cry, one host is gone, one incident names it."""
    stage.dead.add("h2")
    for rank in range(4):
        await stage.watcher.echoed(echo(rank))
    await stage.tick(200)
    (incident,) = await stage.incidents()
    assert (incident.kind, incident.hosts, incident.ranks) == ("host_lost", ("h2",), (4, 5))
    assert (incident.step, incident.own_step) == (5, True)
    await stage.tick(5_000)
    assert len(await stage.incidents()) == 1


async def test_echo_before_the_root_waits_for_it(stage):
    """A killed rank's report may come after its echoes."""
    await stage.watcher.echoed(echo(0))
    await stage.tick(300)
    await stage.watcher.exited(killed(2))
    await stage.tick(200)
    (incident,) = await stage.incidents()
    assert (incident.kind, incident.ranks, incident.hosts) == ("rank_killed", (2,), ("h1",))


async def test_reports_of_an_older_generation_strike_nobody(stage):
    """A detector's state is fenced by generation."""
    await stage.watcher.echoed(echo(0))
    for mark, fields in ((Mark.BEGUN, {"cause": "restart"}), (Mark.PLACED, {"hosts": HOSTS})):
        await stage.watcher.mark(MarkJob(job_id="j", generation=2, mark=mark, **fields))
    await stage.watcher.exited(killed(2, generation=1))
    await stage.watcher.echoed(echo(1, generation=1))
    await stage.tick(3_000)
    assert await stage.incidents() == []


async def test_bus_outage_condemns_nobody(stage):
    """Everybody is silent while the bus is away; afterwards everybody is heard afresh."""
    stage.connected = False
    await stage.tick(10_000)
    assert stage.watcher.blind == "the bus is away"
    stage.connected = True
    await stage.tick(6_000)
    assert stage.watcher.blind == ""
    assert await stage.incidents() == []


async def test_own_pause_condemns_nobody(stage):
    """A monitor that was stopped for 20 s distrusts its own clock."""
    stage.at_ms += 20_000
    await stage.tick(100)
    assert stage.watcher.blind
    await stage.tick(4_000)
    assert await stage.incidents() == []


async def test_idle_host_that_falls_silent_is_an_incident_of_its_own(stage):
    """A dead spare is found before it is needed."""
    stage.watcher.heard("spare")
    stage.dead.add("spare")
    await stage.tick(5_000)
    (incident,) = await stage.incidents()
    assert (incident.job_id, incident.hosts, incident.kind) == ("", ("spare",), "host_lost")


async def test_watch_adopted_by_a_new_monitor_judges_what_comes(stage):
    """A monitor that was killed loses volatile evidence only."""
    second = Stage(stage.store, stage.at_ms)
    await second.watcher.adopt("j", 1, 5)
    await second.tick(7_000)
    second.dead.add("h0")
    await second.watcher.echoed(echo(3))
    await second.tick(300)
    (incident,) = await second.incidents()
    assert incident.hosts == ("h0",)


async def test_script_without_the_sdk_runs_when_every_host_sees_its_ranks():
    """It reports no steps; the job must not stay launching while it trains."""
    stage = Stage()
    for mark, fields in (
        (Mark.SUBMITTED, {"generation": 0, "cause": "script"}),
        (Mark.BEGUN, {"generation": 1, "cause": "launch"}),
        (Mark.PLACED, {"generation": 1, "hosts": HOSTS}),
    ):
        await stage.watcher.mark(MarkJob(job_id="j", mark=mark, **fields))
    await stage.watcher.saw_ranks("j", 1, "h0", frozenset({0, 1}))
    await stage.watcher.saw_ranks("j", 1, "h1", frozenset({2}))
    await stage.watcher.saw_ranks("j", 1, "h2", frozenset({4, 5}))
    assert not await progressed(stage)
    await stage.watcher.saw_ranks("j", 1, "h1", frozenset({2, 3}))
    assert await progressed(stage)


async def test_script_that_has_told_steps_before_is_up_when_it_tells_the_next():
    """What was lost in between is counted from a step, not from the sight of ranks."""
    stage = Stage()
    for mark, fields in (
        (Mark.SUBMITTED, {"generation": 0, "cause": "script"}),
        (Mark.BEGUN, {"generation": 1, "cause": "launch"}),
        (Mark.PLACED, {"generation": 1, "hosts": HOSTS}),
    ):
        await stage.watcher.mark(MarkJob(job_id="j", mark=mark, **fields))
    for host in HOSTS:
        await stage.watcher.saw_ranks("j", 1, host.host_id, frozenset(host.ranks))
    for host in HOSTS:
        await stage.watcher.stepped("j", 1, host.host_id, 1)
    assert await first_steps(stage) == [(1, 0), (1, 1)]
    for mark, fields in ((Mark.BEGUN, {"cause": "recovery"}), (Mark.PLACED, {"hosts": HOSTS})):
        await stage.watcher.mark(MarkJob(job_id="j", generation=2, mark=mark, **fields))
    for host in HOSTS:
        await stage.watcher.saw_ranks("j", 2, host.host_id, frozenset(host.ranks))
    for host in HOSTS:
        await stage.watcher.stepped("j", 2, host.host_id, 8)
    assert await first_steps(stage) == [(1, 0), (1, 1), (2, 8)]


async def first_steps(stage: Stage) -> list[tuple[int, int]]:
    """The generation and step of each sign of progress."""
    events = await stage.store.read_all(after_position=0, limit=1_000)
    facts = [CODEC.decode(event.type, event.data) for event in events]
    return [(f.generation, f.step) for f in facts if isinstance(f, GenerationProgressed)]


async def progressed(stage: Stage) -> bool:
    """Whether the job was seen to make progress."""
    events = await stage.store.read_all(after_position=0, limit=1_000)
    return "generation_progressed.v1" in [event.type for event in events]


@pytest.mark.parametrize("untold", [True, False])
async def test_ranks_whose_end_is_still_to_be_told_have_not_vanished(stage, untold):
    """Their host says that they ended and that it could not report it yet."""
    receive = on_heartbeat(stage.watcher, UncopiedRanks(SystemClock()))
    over = [RunningJob(job_id="j", generation=1, untold=(2, 3))] if untold else []
    for _ in range(6):
        for host in HOSTS:
            alive = [RunningJob(job_id="j", generation=1, ranks=host.ranks)]
            beat = Heartbeat(host_id=host.host_id, jobs=over if host.host_id == "h1" else alive)
            await receive(Message(subject="", data=beat.SerializeToString(), headers={}))
        await stage.tick(1_000)
    found = [(one.kind, one.ranks) for one in await stage.incidents()]
    assert found == ([] if untold else [("ranks_vanished", (2, 3))])


async def test_host_of_a_paused_job_that_dies_is_found_before_the_resume(stage):
    """Its ranks are ended, its memory is wanted: silence is judged as an idle host's is."""
    await stage.watcher.mark(MarkJob(job_id="j", generation=2, mark=Mark.BEGUN, cause="pause"))
    await stage.watcher.mark(MarkJob(job_id="j", generation=2, mark=Mark.PAUSED))
    stage.dead.add("h1")
    await stage.tick(5_000)
    (incident,) = await stage.incidents()
    assert (incident.job_id, incident.hosts, incident.kind) == ("", ("h1",), "host_lost")


async def test_host_that_died_before_the_monitor_began_is_found(stage):
    """It never spoke to this monitor; the inventory says that it should be there."""
    stage.watcher.expect(["h1", "spare"])
    stage.dead.add("spare")
    await stage.tick(5_000)
    (incident,) = await stage.incidents()
    assert (incident.job_id, incident.hosts) == ("", ("spare",))


async def test_ends_that_wait_for_the_database_come_before_a_verdict(stage):
    """Ranks that finished while nothing could be stored have not vanished."""
    stage.store.away = True
    with pytest.raises(Unavailable):
        await stage.watcher.exited(replace(killed(0), exit_class=ExitClass.FINISHED, signal=0))
    for host in HOSTS:
        await stage.watcher.saw_ranks("j", 1, host.host_id, frozenset())
    await stage.tick(5_900)
    stage.store.away = False
    await stage.tick(100)
    for host in HOSTS:
        for rank in host.ranks:
            end = replace(killed(rank), host_id=host.host_id, signal=0)
            await stage.watcher.exited(replace(end, exit_class=ExitClass.FINISHED))
    await stage.tick(10_000)
    assert await stage.incidents() == []


async def test_ranks_that_a_fence_did_not_reach_are_told_of_once_in_a_while(stage):
    """Not at first sight, since a fence may be on its way, and not with every heartbeat."""
    for mark, fields in ((Mark.BEGUN, {"cause": "recovery"}), (Mark.PLACED, {"hosts": HOSTS})):
        await stage.watcher.mark(MarkJob(job_id="j", generation=2, mark=mark, **fields))
    for _ in range(10):
        await stage.watcher.saw_running("j", 1, "h0")
        await stage.watcher.saw_running("j", 2, "h1")
        stage.at_ms += 1_000
    events = await stage.store.read_all(after_position=0, limit=1_000)
    found = [CODEC.decode(event.type, event.data) for event in events]
    strays = [fact for fact in found if isinstance(fact, StrayFound)]
    assert [(one.host_id, one.stray_generation) for one in strays] == [("h0", 1), ("h0", 1)]


async def test_snapshots_of_a_job_that_is_over_are_told_of_and_those_of_a_live_one_are_not(stage):
    """Its hosts were not told to forget it; a live job may have nothing but what lies there."""
    receive = on_heartbeat(stage.watcher, UncopiedRanks(SystemClock()))

    async def beats() -> list[tuple[str, int]]:
        kept = [KeptJob(job_id="j", generation=1)]
        for _ in range(4):
            beat = Heartbeat(host_id="spare", kept=kept)
            await receive(Message(subject="", data=beat.SerializeToString(), headers={}))
            stage.at_ms += 1_000
        events = await stage.store.read_all(after_position=0, limit=1_000)
        found = [CODEC.decode(event.type, event.data) for event in events]
        strays = [fact for fact in found if isinstance(fact, StrayFound)]
        return [(one.host_id, one.stray_generation) for one in strays]

    for mark, fields in ((Mark.BEGUN, {"cause": "recovery"}), (Mark.PLACED, {"hosts": HOSTS})):
        await stage.watcher.mark(MarkJob(job_id="j", generation=2, mark=mark, **fields))
    assert await beats() == []
    await stage.watcher.mark(MarkJob(job_id="j", generation=2, mark=Mark.ENDED, cause="stopped"))
    assert await beats() == [("spare", 1)]
