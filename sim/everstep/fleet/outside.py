"""The controller's view of the outside, simulated: hosts answer, inventory and registry decide.

Only time and silence are made up here. Who gets a seat and where a run goes on from are the real
deciders' answers, asked through their own handlers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import cache, lru_cache
from typing import Final, Protocol

from everstep.checkpoint_registry import commands as registry
from everstep.checkpoint_registry.events import RestoreLaidOut, Shard
from everstep.controller.fencing import UNREACHABLE_AFTER_S
from everstep.controller.outside import (
    Fenced,
    Heard,
    Looked,
    Placed,
    Planned,
)
from everstep.controller.policy import unsound_reason
from everstep.controller.state import Job
from everstep.core.decision import Rejected
from everstep.core.elastic import full_layout, smaller_layouts
from everstep.core.placement import Layout
from everstep.core.spec import parse_spec_json
from everstep.core.system import Clock
from everstep.fleet.copies import PORT
from everstep.fleet.scenario import RestartPart
from everstep.fleet.services import JOB_ID, Services
from everstep.host_inventory import commands as inventory
from everstep.host_inventory.policy import place, placeable, replaceable
from everstep.host_inventory.seats import HostsShort, kept
from everstep.wire.v1.checkpoints_pb2 import HostHoldings, RestoreSources
from everstep.wire.v1.checkpoints_pb2 import Shard as WireShard

# Nearly all plans take none, or all of one layout; of 16,384 they are a megabyte.
STORED_KEPT_MAX: Final = 4
FACTS_KEPT_MAX: Final = 256  # a job keeps some fifty checkpoints, and asks for all at each restart


class Ground(Protocol):
    """What the simulated world tells and is told."""

    def unreachable(self) -> frozenset[str]:
        """Name the hosts that do not answer now."""
        ...

    def fenced(self, hosts: Sequence[str], generation: int) -> None:
        """These hosts have ended ranks that are older than ``generation``."""
        ...

    def held(self, host_ids: Sequence[str]) -> tuple[registry.HostHoldings, ...]:
        """Tell what lies in the memory of fenced hosts."""
        ...

    def complete(self) -> tuple[registry.CompleteFacts, ...]:
        """Tell the complete checkpoints."""
        ...

    def started(self, job: Job, plan: RestoreLaidOut) -> None:
        """Every host has taken its start command."""
        ...

    def stored_ranks(self) -> int:
        """Return how many ranks the newest plan takes from the object store."""
        ...

    async def control_is_there(self) -> None:
        """Return when the control plane is not away."""
        ...


class SimulatedOutside:
    """Implements ``controller.outside.Outside``."""

    def __init__(
        self,
        services: Services,
        ground: Ground,
        clock: Clock,
        times: RestartPart,
        host_ids: Iterable[str],
    ) -> None:
        self._services = services
        self._ground = ground
        self._clock = clock
        self._times = times
        # What hosts hold stays beside the message until the plan is asked for: thousands of wire
        # messages would be written only to be read again in the same process.
        self._fenced = {
            host: Fenced(
                host_id=host,
                address=host,
                rendezvous_port=PORT,
                holdings=HostHoldings(host_id=host),
            )
            for host in host_ids
        }

    async def fence(
        self,
        job_id: str,
        generation: int,
        hosts: Sequence[str],
        *,
        graceful: bool,
        forget: bool,
        store: bool = False,
    ) -> Mapping[str, Fenced]:
        """Let every reachable host answer; who is down keeps the others waiting."""
        del job_id, graceful, forget, store
        await self._ground.control_is_there()
        await asyncio.sleep(self._times.fence_s)
        answers = dict(zip(hosts, map(self._fenced.__getitem__, hosts), strict=True))
        for silent in self._ground.unreachable():
            answers.pop(silent, None)
        self._ground.fenced(tuple(answers), generation)
        if len(answers) < len(hosts):
            await asyncio.sleep(UNREACHABLE_AFTER_S)
        return answers

    async def place(self, job: Job, lost_hosts: Sequence[str]) -> Placed | Rejected:
        """Ask the inventory's decider."""
        await self._ground.control_is_there()
        await asyncio.sleep(self._times.place_s)
        self._services.asks_for_hosts()
        spec = parse_spec_json(job.spec_json)
        layout = full_layout(spec)
        done = await self._services.fleet.handle(
            inventory.PlaceJob(
                job_id=JOB_ID,
                generation=job.generation,
                layout=layout,
                smaller=smaller_layouts(spec, job.dp_min) if job.placement is not None else (),
                lost_hosts=tuple(lost_hosts),
                unsound_hosts=job.unsound_hosts,
                reason="host_lost" if lost_hosts else "",
                unsound_reason=unsound_reason(job),
                incident_id=job.incident_id,
                at_ms=self._clock.now_ms(),
            )
        )
        if done.rejected is not None:
            return done.rejected
        seated = done.state.jobs.get(JOB_ID)
        if seated and seated.held and seated.generation == job.generation and seated.placement:
            return Placed(
                placement=seated.placement,
                replacements=seated.replacements,
                missing=0,
                remark=kept(job.unsound_hosts, seated.placement),
            )
        answer = place(JOB_ID, layout, done.state)
        assert isinstance(answer, HostsShort), f"{JOB_ID} was not placed although {answer}"
        self._services.still_short()
        return Placed(placement=None, replacements=(), missing=answer.missing)

    async def replaceable(self, job_id: str, hosts: Sequence[str]) -> tuple[str, ...]:
        """Ask the inventory's policy."""
        await self._ground.control_is_there()
        return replaceable(job_id, hosts, await self._services.hosts())

    async def placeable(self, job_id: str, layouts: Sequence[Layout]) -> bool:
        """Ask the inventory's policy; until hosts are freed its answer stays the same."""
        await self._ground.control_is_there()
        self._services.asks_for_hosts()
        if placeable(job_id, layouts, await self._services.hosts()) is not None:
            return True
        self._services.still_short()
        return False

    async def plan(
        self, job: Job, holdings: Sequence[HostHoldings], from_step: int
    ) -> Planned | Rejected:
        """Ask the registry's decider."""
        assert job.placement is not None
        layout = job.placement.layout
        # Nearly always all have told: their names need not be read out of as many messages then.
        told = job.placement.host_set.union(job.leftovers)
        if len(holdings) != len(told):
            told = frozenset(holding.host_id for holding in holdings)
        host_ids = [host for host in self._fenced if host in told]  # by id: sorted soon anyway
        await self._ground.control_is_there()
        await asyncio.sleep(self._times.plan_s)
        done = await self._services.histories.handle(
            registry.PlanRestore(
                job_id=JOB_ID,
                generation=job.generation,
                world_size=layout.world_size,
                layout=layout,
                holdings=self._ground.held(host_ids),
                from_step=from_step,
                at_ms=self._clock.now_ms(),
                checkpoints=self._ground.complete(),
            )
        )
        if done.rejected is not None:
            return done.rejected
        plan = done.state.plan
        assert plan is not None, "a plan was accepted and is not in the history"
        return Planned(
            step=plan.step,
            sources=stored_sources(self._ground.stored_ranks()),
            passed_over=done.state.passed_over,
        )

    async def start(self, job: Job, sources: RestoreSources) -> Mapping[str, Rejected | None]:
        """Start the ranks, if every host answers."""
        del sources  # every host would be told its part; the plan itself is in the history
        assert job.placement is not None
        hosts = job.placement.host_ids
        await self._ground.control_is_there()
        await asyncio.sleep(self._times.start_s)
        silent = self._ground.unreachable()
        if not silent.isdisjoint(job.placement.host_set):
            await asyncio.sleep(UNREACHABLE_AFTER_S)
            return dict.fromkeys([host for host in hosts if host not in silent])
        history = await self._services.histories.state(f"restore-{JOB_ID}")
        assert history.plan is not None, "a start without a plan"
        self._ground.started(job, history.plan)
        return dict.fromkeys(hosts)

    async def bring(
        self, job_id: str, generation: int, step: int, sources: Mapping[str, RestoreSources]
    ) -> None:
        """Nobody asks for it: what hosts hold goes another way than through these messages."""
        raise AssertionError((job_id, generation, step, sources))

    async def save(self, job_id: str, generation: int, hosts: Sequence[str]) -> None:
        """Nobody asks for one here."""

    async def reschedule(self, job: Job) -> None:
        """Every start says how often to snapshot; nothing changes between two of them."""

    async def listen(
        self, job_id: str, hosts: Sequence[str], hear: Callable[[Heard], Awaitable[None]]
    ) -> None:
        """No step is told by itself here."""
        del job_id, hosts, hear
        await asyncio.Event().wait()

    async def look_at_step(self, job_id: str, step: int) -> Looked:
        """Nobody goes back to a step here."""
        raise AssertionError((job_id, step))


@lru_cache(maxsize=STORED_KEPT_MAX)
def stored_sources(count: int) -> RestoreSources:
    """Return the sources of a plan that takes so many ranks from the object store; to be read only.

    Which ranks they are makes no difference to anybody; how many, the controller learns from.
    """
    return RestoreSources(shards=[WireShard(rank=rank) for rank in range(count)])


@lru_cache(maxsize=FACTS_KEPT_MAX)
def facts(generation: int, step: int, world_size: int) -> registry.CompleteFacts:
    """Return what the registry knows of a complete checkpoint."""
    return registry.CompleteFacts(step=step, generation=generation, shards=shards(world_size))


@cache
def shards(world_size: int) -> tuple[Shard, ...]:
    """Return what stands for the shards of any complete checkpoint.

    Only their ranks matter: 16,384 of them for every checkpoint would be the simulation's largest
    part by far.
    """
    return tuple(
        Shard(rank=rank, uri=f"rank-{rank}", bytes=0, checksum="") for rank in range(world_size)
    )
