"""The recovery process carries on from wherever a controller was killed."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace

import pytest
from tests.unit.controller.facts import JOB, SPEC, placement
from tests.waiting import until as wait_until

from everstep.controller.codec import AGGREGATE
from everstep.controller.commands import LaunchJob, RecordProgress, RecoverJob, StopJob, Verdict
from everstep.controller.outside import Fenced, Looked, Placed, Planned
from everstep.controller.runner import Runner
from everstep.controller.starting import sources_by_host
from everstep.controller.state import SILENT_CORRUPTION, Job, Phase
from everstep.core.decision import Rejected
from everstep.core.errors import Unavailable
from everstep.core.placement import Layout
from everstep.core.system import RandomIds, SystemClock
from everstep.eventstore.memory import MemoryStore
from everstep.service.handler import Handler
from everstep.wire.v1.checkpoints_pb2 import Holder, HostHoldings, RestoreSources
from everstep.wire.v1.common_pb2 import HeldSnapshots

STEP = 7


class FakeFleet:
    """Hosts, inventory and registry that answer at once and count what they were asked."""

    def __init__(self) -> None:
        self.spares = ["h2", "h3"]
        self.dead: set[str] = set()
        self.cordoned: set[str] = set()
        self.hosts: list[str] = ["h0", "h1"]
        self.calls: list[str] = []
        self.starts: dict[tuple[str, int], tuple[int, list[int]]] = {}
        self.services_away = self.plans_away = 0
        self.refuse_place: Rejected | None = None
        self.full: set[str] = set()

    async def fence(
        self,
        job_id: str,
        generation: int,
        hosts: Sequence[str],
        *,
        graceful: bool,
        forget: bool,
        store: bool = False,
    ) -> dict[str, Fenced]:
        await asyncio.sleep(0)
        word = "forget" if forget else "fence"
        self.calls += [f"{word} {host_id} {generation}" for host_id in hosts]
        return {host: self._fenced(host) for host in hosts if host not in self.dead}

    def _fenced(self, host_id: str) -> Fenced:
        held = [HeldSnapshots(step=STEP, own=True, generation=1, ranks=[0, 1])]
        return Fenced(
            host_id=host_id,
            address="127.0.0.1",
            rendezvous_port=20_000 + len(self.calls),
            holdings=HostHoldings(host_id=host_id, held=held),
        )

    async def place(self, job: Job, lost_hosts: Sequence[str]) -> Placed | Rejected:
        await asyncio.sleep(0)
        self.calls.append(f"place {job.generation}")
        self._maybe_away()
        if self.refuse_place is not None:
            return self.refuse_place
        self.cordoned |= set(lost_hosts)
        for index, host in enumerate(self.hosts):
            if host in self.cordoned:
                if not self.spares:
                    return Placed(placement=None, replacements=(), missing=1)
                self.hosts[index] = self.spares.pop(0)
        return Placed(placement=placement(*self.hosts), replacements=(), missing=0)

    async def replaceable(self, job_id: str, hosts: Sequence[str]) -> tuple[str, ...]:
        await asyncio.sleep(0)
        self.calls.append(f"ask for spares {self.hosts}")
        self._maybe_away()
        return tuple(hosts)[: len(self.spares)]

    async def placeable(self, job_id: str, layouts: Sequence[Layout]) -> bool:
        await asyncio.sleep(0)
        self.calls.append(f"ask for room {self.hosts}")
        self._maybe_away()
        return bool(layouts) and bool(self.spares)

    async def plan(
        self, job: Job, holdings: Sequence[HostHoldings], from_step: int
    ) -> Planned | Rejected:
        await asyncio.sleep(0)
        self.calls.append(f"plan {job.generation}")
        self._maybe_away()
        if self.plans_away:
            self.plans_away -= 1
            raise Unavailable("whatever there is is suspect")
        if job.generation == 1:
            return Planned(step=-1, sources=RestoreSources(), passed_over=())
        holder = Holder(host_id="h0", generation=1, own=range(4))
        return Planned(step=STEP, sources=RestoreSources(holders=[holder]), passed_over=())

    async def start(self, job: Job, sources: RestoreSources) -> dict[str, Rejected | None]:
        await asyncio.sleep(0)
        parts = sources_by_host(job.placement, sources)
        self.calls += [f"start {host_id} {job.generation}" for host_id in parts]
        for host_id in parts.keys() - self.dead:
            ranks = [rank for holder in parts[host_id].holders for rank in holder.own]
            key = (host_id, job.generation)
            self.starts.setdefault(key, (job.rendezvous_port, ranks))
        full = Rejected("no_space", "0 are free")
        return {h: full if h in self.full else None for h in parts if h not in self.dead}

    async def save(self, job_id: str, generation: int, hosts: Sequence[str]) -> None:
        self.calls.append("save")

    async def look_at_step(self, job_id: str, step: int) -> Looked:
        self.calls.append(f"look at {step}")
        return Looked(said=f"looked at {step}")

    def _maybe_away(self) -> None:
        if self.services_away:
            self.services_away -= 1
            raise Unavailable("away")


def controller(store: MemoryStore, fleet: FakeFleet) -> Runner:
    """A freshly started controller process."""
    return Runner(Handler(AGGREGATE, store, RandomIds()), fleet, SystemClock())


async def state_of(store: MemoryStore) -> Job:
    """What the store says, read by nobody who could have cached it."""
    return await Handler(AGGREGATE, store, RandomIds()).state(f"job-{JOB}")


async def until(store: MemoryStore, condition) -> Job:
    """Wait for the job to be in a state."""
    async with asyncio.timeout(20):
        while not condition(state := await state_of(store)):
            await asyncio.sleep(0)
    return state


LAUNCH = LaunchJob(job_id=JOB, spec_json=SPEC, at_ms=0)


async def test_step_to_go_back_to_is_looked_at_but_the_newest_is_not():
    """What the newest is follows from the fence, which has not been made then."""
    fleet = FakeFleet()
    runner = controller(MemoryStore(clock=SystemClock()), fleet)
    assert await runner.look_at_step(JOB, -1) == Looked()
    assert (await runner.look_at_step(JOB, 7)).said == "looked at 7"
    assert fleet.calls == ["look at 7"]


def lost(host: str, generation: int = 1) -> RecoverJob:
    """The monitor's verdict on a host."""
    return RecoverJob(
        job_id=JOB,
        generation=generation,
        incident_id="i",
        verdict=Verdict.REPLACE,
        hosts=(host,),
    )


async def launched(store: MemoryStore, fleet: FakeFleet) -> Runner:
    """A job that runs in generation 1."""
    runner = controller(store, fleet)
    await runner.apply(LAUNCH)
    await until(store, lambda job: job.started)
    await runner.apply(RecordProgress(job_id=JOB, generation=1, step=1, at_ms=0))
    return runner


async def test_launch_starts_every_host_at_one_rendezvous():
    """Place, plan, start; all hosts meet at the same port."""
    store, fleet = MemoryStore(clock=SystemClock()), FakeFleet()
    await launched(store, fleet)
    assert set(fleet.starts) == {("h0", 1), ("h1", 1)}
    assert len({port for port, _ in fleet.starts.values()}) == 1


async def test_recovery_replaces_the_host_and_moves_sources_with_it():
    """Every host gets the sources of its ranks; those that moved count as a peer's."""
    store, fleet = MemoryStore(clock=SystemClock()), FakeFleet()
    runner = await launched(store, fleet)
    await runner.apply(lost("h1"))
    job = await until(store, lambda job: job.started)
    assert (job.generation, job.restore_step) == (2, STEP)
    assert (fleet.starts["h0", 2][1], fleet.starts["h2", 2][1]) == ([0, 1], [2, 3])
    decided = [e.data for e in await store.load(f"job-{JOB}") if e.type == "restore_decided.v1"]
    assert [(one["own_memory"], one["peer_memory"]) for one in decided] == [(0, 0), (2, 2)]
    assert not [call for call in fleet.calls if call == "fence h1 2"]


async def test_host_that_is_only_wrong_is_told_to_end_its_ranks():
    """Seed 41089: it had all ranks of its job, so nothing else broke them; nobody waits for it."""
    store, fleet = MemoryStore(clock=SystemClock()), FakeFleet()
    runner = await launched(store, fleet)
    fleet.dead.add("h1")
    await runner.apply(replace(lost("h1"), kind=SILENT_CORRUPTION))
    await until(store, lambda job: job.started)
    assert (await state_of(store)).generation == 2
    assert "fence h1 2" in fleet.calls


async def test_stray_ranks_are_fenced_where_they_are():
    """A host that no fence reached gets one of its own; nothing happens to the current ranks."""
    store, fleet = MemoryStore(clock=SystemClock()), FakeFleet()
    runner = await launched(store, fleet)
    await runner.apply(lost("h1"))
    await until(store, lambda job: job.started)
    fleet.calls.clear()
    runner.end_stray(JOB, "h1", 1)
    runner.end_stray(JOB, "h1", 1)
    runner.end_stray(JOB, "h0", 2)
    assert fleet.calls == [], "whoever tells of them does not wait"
    await wait_until(lambda: fleet.calls)
    await runner.close()
    assert fleet.calls == ["fence h1 2"]


async def test_stray_ranks_that_cannot_be_ended_hold_nothing_up(caplog):
    """They are told of again; incidents that come behind must not wait for a silent host."""
    store, fleet = MemoryStore(clock=SystemClock()), FakeFleet()
    runner = await launched(store, fleet)
    await runner.apply(lost("h1"))
    await until(store, lambda job: job.started)

    async def late(*_: object, **__: object) -> dict[str, Fenced]:
        raise Unavailable("fence of h1 came late")

    fleet.fence = late  # type: ignore[method-assign]  # a host that never answers
    runner.end_stray(JOB, "h1", 1)
    await wait_until(lambda: "could not be ended" in caplog.text)


@pytest.mark.parametrize("calls_before_kill", range(9))
async def test_controller_killed_after_any_call_carries_on(calls_before_kill):
    """Wherever the first controller dies, the next one finishes, and all ranks meet."""
    store, fleet = MemoryStore(clock=SystemClock()), FakeFleet()
    first = await launched(store, fleet)
    fleet.calls.clear()
    await first.apply(lost("h1"))
    async with asyncio.timeout(20):
        while len(fleet.calls) < calls_before_kill and not (await state_of(store)).started:
            await asyncio.sleep(0)
    await first.close()
    second = controller(store, fleet)
    second.wake(JOB)
    job = await until(store, lambda job: job.started)
    assert job.generation == 2
    ports = {fleet.starts[(host, 2)][0] for host in ("h0", "h2")}
    assert len(ports) == 1
    await second.close()


async def test_two_controllers_at_once_do_no_harm():
    """Both drive the same recovery; the stream's versions let one event of each kind through."""
    store, fleet = MemoryStore(clock=SystemClock()), FakeFleet()
    first = await launched(store, fleet)
    second = controller(store, fleet)
    await first.apply(lost("h1"))
    second.wake(JOB)
    job = await until(store, lambda job: job.started)
    assert job.generation == 2
    events = [event.type for event in await store.load(f"job-{JOB}")]
    assert events.count("restore_decided.v1") == 2
    assert len({fleet.starts[(host, 2)][0] for host in ("h0", "h2")}) == 1
    await first.close()
    await second.close()


async def test_host_lost_while_the_generation_comes_up_begins_the_next():
    """A spare that dies before its start is replaced like any other."""
    store, fleet = MemoryStore(clock=SystemClock()), FakeFleet()
    runner = await launched(store, fleet)
    fleet.dead.add("h2")
    await runner.apply(lost("h1"))
    job = await until(store, lambda job: job.started and job.generation == 3)
    assert job.placement is not None
    assert job.placement.host_ids == ("h0", "h3")


async def test_host_whose_memory_is_full_is_replaced_once_the_job_has_run():
    """The job is known to fit; the spare that was to take over does not, and another one does."""
    store, fleet = MemoryStore(clock=SystemClock()), FakeFleet()
    runner = await launched(store, fleet)
    await runner.apply(RecordProgress(job_id=JOB, generation=1, step=5, at_ms=0))
    fleet.full.add("h2")
    await runner.apply(lost("h1"))
    job = await until(store, lambda job: job.started and job.generation == 3)
    assert job.placement is not None
    assert job.placement.host_ids == ("h0", "h3")


async def test_full_host_fails_a_launch_with_the_numbers():
    """Before the first step nobody knows that it would fit elsewhere."""
    store, fleet = MemoryStore(clock=SystemClock()), FakeFleet()
    fleet.full.add("h1")
    await controller(store, fleet).apply(LAUNCH)
    job = await until(store, lambda job: job.phase is Phase.FAILED)
    assert job.started is False


async def test_no_spare_waits_and_goes_on_when_a_host_joins():
    """The job says that it waits, and needs no person to go on."""
    store, fleet = MemoryStore(clock=SystemClock()), FakeFleet()
    fleet.spares = []
    runner = await launched(store, fleet)
    await runner.apply(lost("h1"))
    await until(store, lambda job: job.phase is Phase.WAITING_FOR_HOSTS)
    fleet.spares = ["h9"]
    runner.wake_all()
    job = await until(store, lambda job: job.started)
    assert job.placement is not None
    assert job.placement.host_ids == ("h0", "h9")
    assert job.phase is Phase.RECOVERING


async def test_host_that_a_person_clears_while_the_job_waits_is_taken_back():
    """A retry of the placement does not cordon what was lost a second time."""
    store, fleet = MemoryStore(clock=SystemClock()), FakeFleet()
    fleet.spares = []
    runner = await launched(store, fleet)
    await runner.apply(lost("h1"))
    await until(store, lambda job: job.phase is Phase.WAITING_FOR_HOSTS)
    fleet.cordoned.clear()
    runner.wake_all()
    job = await until(store, lambda job: job.started)
    assert job.placement is not None
    assert job.placement.host_ids == ("h0", "h1")
    assert job.lost_hosts == ()


async def test_services_that_are_away_are_asked_again():
    """A registry or inventory that restarts delays a recovery, no more."""
    store, fleet = MemoryStore(clock=SystemClock()), FakeFleet()
    runner = await launched(store, fleet)
    fleet.services_away = 3
    await runner.apply(lost("h1"))
    await until(store, lambda job: job.started and job.generation == 2)


async def test_plan_that_is_asked_for_again_asks_no_host_again():
    """A registry may wait for a person: each question to a host is one whose answer may be lost.

    Found by seed 42026: of a job that waited so, sound hosts were cordoned one after the other.
    """
    store, fleet = MemoryStore(clock=SystemClock()), FakeFleet()
    runner = await launched(store, fleet)
    await until(store, lambda job: job.started)
    fleet.plans_away = 3
    await runner.apply(lost("h1"))
    await until(store, lambda job: job.started and job.generation == 2)
    assert fleet.calls.count("plan 2") == 4
    assert fleet.calls.count("fence h0 2") == 2, "for what it holds, and once for its port"


async def test_layout_that_never_fits_fails_the_launch():
    """The inventory's words reach the user."""
    store, fleet = MemoryStore(clock=SystemClock()), FakeFleet()
    fleet.refuse_place = Rejected("does_not_fit", "needs 4 chips, there are 2")
    runner = controller(store, fleet)
    await runner.apply(LAUNCH)
    job = await until(store, lambda job: job.phase is Phase.FAILED)
    assert job.started is False


async def test_stopped_job_is_fenced_gracefully_then_forgotten():
    """Its hosts drop its memory at the end."""
    store, fleet = MemoryStore(clock=SystemClock()), FakeFleet()
    runner = await launched(store, fleet)
    await runner.apply(StopJob(job_id=JOB, at_ms=0))
    await until(store, lambda job: job.phase is Phase.STOPPED)
    async with asyncio.timeout(20):
        while not {"forget h0 3", "forget h1 3"} <= set(fleet.calls):
            await asyncio.sleep(0)
