"""The four services as processes of the simulated world: their own wiring on in-memory adapters."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from everstep.checkpoint_registry.catalog import MemoryCatalog
from everstep.checkpoint_registry.memory_map import MemoryMap
from everstep.checkpoint_registry.sweep import Sweeping
from everstep.checkpoint_registry.wiring import CODECS as REGISTRY_CODECS
from everstep.checkpoint_registry.wiring import NAME as REGISTRY
from everstep.checkpoint_registry.wiring import wire_registry
from everstep.controller.codec import AGGREGATE as JOBS
from everstep.controller.codec import STREAM_PREFIX
from everstep.controller.outside import BusOutside
from everstep.controller.state import TERMINAL, Job
from everstep.controller.wiring import CODECS as CONTROLLER_CODECS
from everstep.controller.wiring import NAME as CONTROLLER
from everstep.controller.wiring import make_runner, wire_controller
from everstep.core.errors import EverstepError
from everstep.core.ports import EventStore, ObjectStore, Projection
from everstep.core.system import Clock
from everstep.eventstore.codec import EventCodec
from everstep.eventstore.memory import MemoryStore
from everstep.host_inventory.care import Care
from everstep.host_inventory.codec import FLEET
from everstep.host_inventory.heartbeats import Heartbeats
from everstep.host_inventory.state import Fleet
from everstep.host_inventory.wiring import CODECS as INVENTORY_CODECS
from everstep.host_inventory.wiring import NAME as INVENTORY
from everstep.host_inventory.wiring import make_keeper, wire_inventory
from everstep.monitor import queries
from everstep.monitor.codec import AGGREGATE as WATCHES
from everstep.monitor.measurements import FLUSH_S, Rollup, flush
from everstep.monitor.state import Watch
from everstep.monitor.uncopied import UncopiedRanks
from everstep.monitor.wiring import CODECS as MONITOR_CODECS
from everstep.monitor.wiring import NAME as MONITOR
from everstep.monitor.wiring import make_watcher, wire_monitor
from everstep.service.handler import Aggregate
from everstep.service.shell import Shell
from everstep.sim.network import Endpoint, Network
from everstep.sim.process import Database, Handle, Process
from everstep.sim.seeds import SeededIds, Seeds
from everstep.sim.tables import Tables

SERVICES: Final = (CONTROLLER, MONITOR, REGISTRY, INVENTORY)
WATCH_PREFIX: Final = "watch-"
EVENTS_MAX: Final = 1_000_000  # of a store; a world of minutes has thousands
CARE: Final = Care(burn_in_s=3)  # the runs of this world last a minute
RESTART_S: Final = 0.5  # a supervisor's pause before it starts a process again
CODECS: Final[dict[str, Sequence[EventCodec[Any]]]] = {
    CONTROLLER: CONTROLLER_CODECS,
    MONITOR: MONITOR_CODECS,
    REGISTRY: REGISTRY_CODECS,
    INVENTORY: INVENTORY_CODECS,
}

OnDrop = Callable[[str], Coroutine[Any, Any, None]]


@dataclass(slots=True, kw_only=True)
class Backing:
    """What outlives the services' processes: databases with read tables, the object store."""

    clock: Clock
    objects: ObjectStore
    databases: dict[str, Database] = field(default_factory=dict)
    care: Care = CARE  # how hosts come back; a story may change it before anything starts
    catalog: MemoryCatalog = field(default_factory=MemoryCatalog)
    tables: Tables = field(default_factory=Tables)
    sweeping: Sweeping | None = None  # that registries sweep; a story may want it

    def __post_init__(self) -> None:
        projections: dict[str, Projection] = {REGISTRY: self.catalog, MONITOR: self.tables}
        for name in SERVICES:
            mine = [projections[name]] if name in projections else []
            self.databases[name] = Database(MemoryStore(clock=self.clock, projections=mine))


class Service:
    """One service, which may be killed and started again."""

    def __init__(
        self, name: str, network: Network, backing: Backing, seeds: Seeds, *, instance: str = ""
    ) -> None:
        """``instance`` tells a second one from the first."""
        self.name = name
        self._instance = f"{name}{instance}"
        self._network = network
        self._backing = backing
        self._seeds = seeds
        self._starts = 0
        self.since_s = 0.0
        self._process: Process | None = None
        self._endpoint: Endpoint | None = None
        self._on_drop: OnDrop | None = None

    @property
    def up(self) -> bool:
        """Whether a process of it runs."""
        return self._process is not None

    @property
    def endpoint(self) -> Endpoint | None:
        """Its connection to the bus while it is up."""
        return self._endpoint

    def start(self) -> None:
        """Start a fresh process."""
        assert self._process is None, f"{self.name} runs already"
        self._starts += 1
        self.since_s = asyncio.get_running_loop().time()
        process = self._process = Process(f"{self._instance}-{self._starts}")
        endpoint = self._endpoint = self._network.endpoint(process.name)
        ids = SeededIds(self._seeds.of("ids", self._instance, self._starts))
        shell = Shell(self.name, self._backing.clock, ids)
        shell.store = Handle(self._backing.databases[self.name], process)
        shell.bus = endpoint
        main = process.run(self._main(shell, endpoint))
        main.add_done_callback(lambda done: self._ended(process, done))

    def _ended(self, process: Process, main: asyncio.Task[None]) -> None:
        """Start again a process whose main failed, as its supervisor would."""
        if main.cancelled() or main.exception() is None or self._process is not process:
            return
        assert isinstance(main.exception(), EverstepError), main.exception()
        self.kill()
        asyncio.get_running_loop().call_later(RESTART_S, self._start_if_down)

    def _start_if_down(self) -> None:
        if self._process is None:
            self.start()

    def kill(self) -> None:
        """End the process without a word."""
        assert self._process is not None, f"{self.name} does not run"
        assert self._endpoint is not None
        self._process.kill()
        self._endpoint.kill()
        self._process = self._endpoint = self._on_drop = None

    def tell_drop(self, host_id: str) -> None:
        """Tell the process that the bus lost an agent's connection (monitor only)."""
        if self._process is not None and self._on_drop is not None and self._connected:
            self._process.run(self._on_drop(host_id))

    @property
    def _connected(self) -> bool:
        return self._endpoint is not None and self._endpoint.connected

    async def _main(self, shell: Shell, endpoint: Endpoint) -> None:
        shell.start_outbox(CODECS[self.name])
        self._on_drop = await WIRE[self.name](shell, endpoint, self._backing)


async def _controller(shell: Shell, endpoint: Endpoint, backing: Backing) -> None:
    del backing
    runner = make_runner(shell, BusOutside(endpoint, shell.clock))

    async def live() -> list[str]:
        streams = await shell.store.streams(prefix=STREAM_PREFIX)
        jobs: list[Job] = [await fold(shell.store, JOBS, stream) for stream in streams]
        return [job.job_id for job in jobs if job.phase not in TERMINAL]

    await wire_controller(shell, runner, live)


async def _monitor(shell: Shell, endpoint: Endpoint, backing: Backing) -> OnDrop:
    watcher = make_watcher(
        shell,
        lambda: endpoint.connected,
        partial(queries.doubts_elsewhere, backing.tables.connection),
        partial(queries.kept_of, backing.tables.connection),
    )
    rollup = Rollup()
    # A look into the store first: a database that is away is away for its tables too.
    stored = await shell.store.read_all(after_position=0, limit=EVENTS_MAX)
    position = stored[-1].position if stored else 0
    watched = await queries.watched_jobs(backing.tables.connection)
    await wire_monitor(shell, watcher, rollup, watched, UncopiedRanks(shell.clock), position)

    async def keep_measurements() -> None:
        while True:
            await asyncio.sleep(FLUSH_S)
            await flush(rollup, lambda: backing.tables.writing(backing.databases[MONITOR]))

    shell.spawn("measurements", keep_measurements)
    return watcher.dropped


async def _registry(shell: Shell, endpoint: Endpoint, backing: Backing) -> None:
    del endpoint
    await wire_registry(shell, backing.catalog, backing.objects, MemoryMap(), backing.sweeping)


async def _inventory(shell: Shell, endpoint: Endpoint, backing: Backing) -> None:
    del endpoint
    heartbeats, care = Heartbeats(shell.clock), backing.care
    await wire_inventory(shell, make_keeper(shell, heartbeats, care), heartbeats, care=care)


Wire = Callable[[Shell, Endpoint, Backing], Awaitable[OnDrop | None]]
WIRE: Final[dict[str, Wire]] = {
    CONTROLLER: _controller,
    MONITOR: _monitor,
    REGISTRY: _registry,
    INVENTORY: _inventory,
}


async def fold(store: EventStore, aggregate: Aggregate[Any, Any, Any], stream: str) -> Any:
    """Return a stream's state."""
    state = aggregate.initial()
    for event in await store.load(stream):
        state = aggregate.evolve(state, aggregate.codec.decode(event.type, event.data))
    return state


async def fleet_of(backing: Backing) -> Fleet:
    """Return the inventory's state, as it is stored."""
    fleet: Fleet = await fold(backing.databases[INVENTORY].store, FLEET, "fleet")
    return fleet


async def jobs_of(backing: Backing) -> dict[str, Job]:
    """Return the controller's jobs, as they are stored."""
    store = backing.databases[CONTROLLER].store
    jobs = [await fold(store, JOBS, stream) for stream in await store.streams(prefix=STREAM_PREFIX)]
    return {job.job_id: job for job in jobs}


async def watches_of(backing: Backing) -> dict[str, Watch]:
    """Return the monitor's watches, as they are stored."""
    store = backing.databases[MONITOR].store
    watches = [await fold(store, WATCHES, s) for s in await store.streams(prefix=WATCH_PREFIX)]
    return {watch.job_id: watch for watch in watches}
