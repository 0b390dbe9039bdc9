"""What must hold after every event, and at the end.

After each append the folds of the services' streams are brought up to date and looked at; at the
end, when all faults are over and everything is repaired, every job must have ended well and every
incident must be closed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from everstep.checkpoint_registry.codec import HISTORIES
from everstep.checkpoint_registry.events import RestoreLaidOut
from everstep.controller.auditing import is_audit
from everstep.controller.codec import AGGREGATE as JOBS
from everstep.controller.events import IntervalInForce
from everstep.controller.state import TERMINAL, Job, Phase
from everstep.core.ports import StoredEvent
from everstep.host_inventory.codec import FLEET
from everstep.host_inventory.state import Fleet, HostState
from everstep.monitor.codec import AGGREGATE as WATCHES
from everstep.monitor.events import IncidentOpened
from everstep.monitor.state import Watch
from everstep.service.handler import Aggregate
from everstep.sim.services import WATCH_PREFIX
from everstep.sim.training import Training
from everstep.sim.world import World

# A host that has come back is asked again within a second, and its heartbeat is due by then; some
# more for a network at its worst (messages a second late, both ways) and a database that was away.
SOUND_S: Final = 10.0
LATE_SHARE_MAX: Final = 0.01


class Invariants:
    """Looks at a world from outside; ``broken`` names what does not hold."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.broken: list[str] = []
        self.fleet = Fleet()
        self.jobs: dict[str, Job] = {}
        self.watches: dict[str, Watch] = {}
        for name, look in (
            ("host_inventory", self._inventory),
            ("controller", self._controller),
            ("monitor", self._monitor),
            ("checkpoint_registry", self._registry),
        ):
            world.backing.databases[name].on_append.append(look)
        world.on_begin.append(self._began)

    def fail(self, text: str) -> None:
        """Note what does not hold, and when."""
        self.broken.append(f"{self._world.now_ms} ms: {text}")

    def _inventory(self, events: Sequence[StoredEvent]) -> None:
        for event in events:
            before, self.fleet = self.fleet, _next(FLEET, self.fleet, event)
            self._check_free(before, self.fleet)
            if event.type.startswith("job_placed."):
                self._check_fit(event.data["job_id"])
        holders: dict[str, str] = {}
        for job in self.fleet.jobs.values():
            if not job.held or job.placement is None:
                continue
            for host_id in job.placement.host_ids:
                if host_id in holders:
                    self.fail(f"{host_id} is in {holders[host_id]} and in {job.job_id}")
                holders[host_id] = job.job_id

    def _check_free(self, before: Fleet, after: Fleet) -> None:
        """Who is new in a job was a spare: had passed its probes, and was not cordoned."""
        for host_id, host in after.hosts.items():
            earlier = before.hosts.get(host_id)
            if earlier is None or earlier.job_id == host.job_id or not host.job_id:
                continue
            if earlier.state is not HostState.SPARE:
                self.fail(f"{host_id} was {earlier.state} and was given to {host.job_id}")

    def _check_fit(self, job_id: str) -> None:
        """Nobody who is out sits in a placement that has just been made, whoever had it before."""
        placement = self.fleet.jobs[job_id].placement
        assert placement is not None
        for host_id in placement.host_ids:
            state = self.fleet.hosts[host_id].state
            if state is not HostState.ACTIVE:
                self.fail(f"{host_id} is {state} and sits in the new placement of {job_id}")

    def _began(self, training: Training) -> None:
        """Ranks run where the inventory has put them, and no older ones of other jobs beside."""
        job = self.fleet.jobs.get(training.job_id)
        if job is None or job.generation != training.generation or job.placement is None:
            return
        if set(job.placement.host_ids) != set(training.runs):
            self.fail(
                f"{training.job_id} generation {training.generation} runs on "
                f"{sorted(training.runs)} and was placed on {sorted(job.placement.host_ids)}"
            )
        for host_id in sorted(training.runs):
            for other, run in sorted(self._world.hosts[host_id].runs.items()):
                if run.alive and other != training.job_id:
                    self.fail(f"{host_id} runs {training.job_id} and {other}")

    def _controller(self, events: Sequence[StoredEvent]) -> None:
        for event in events:
            before = self.jobs.get(event.stream, Job())
            job = _next(JOBS, before, event)
            if before.phase in TERMINAL and job.generation != before.generation:
                self._check_reopened(before, job)
            if job.generation < before.generation:
                self.fail(f"{event.stream} went from generation {before.generation} back")
            seen = job.interval.in_force
            if seen is not None and seen is not before.interval.in_force:
                self._check_in_force(seen)
            self.jobs[event.stream] = job

    def _check_in_force(self, seen: IntervalInForce) -> None:
        """What is told to be in force is what the ranks really did at that step."""
        followed = self._world.truth.followed.get((seen.job_id, seen.generation, seen.step))
        if followed != seen.version:
            self.fail(
                f"{seen.job_id} is told to follow schedule {seen.version} at step {seen.step} of "
                f"generation {seen.generation}, and followed {followed}"
            )

    def _check_reopened(self, before: Job, job: Job) -> None:
        if job.cause != "restart":
            self.fail(f"{job.job_id} was {before.phase} and began again for {job.cause}")

    def _monitor(self, events: Sequence[StoredEvent]) -> None:
        for event in events:
            decoded = WATCHES.codec.decode(event.type, event.data)
            if isinstance(decoded, IncidentOpened):
                self._check_blame(decoded)
            if event.stream.startswith(WATCH_PREFIX):
                before = self.watches.get(event.stream, Watch())
                self.watches[event.stream] = _next(WATCHES, before, event)

    def _check_blame(self, incident: IncidentOpened) -> None:
        """Nobody is called lost who has been sound for a while, on a network that can be believed.

        One that loses messages, or holds every tenth for a second, cannot: a host whose heartbeats
        and answers all come too late is not to be told from one that is gone.
        """
        if incident.kind == "partitioned":
            for host_id in incident.hosts:
                ago_s = self._world.links.cut_s_ago(host_id)
                if ago_s > SOUND_S:
                    self.fail(f"{host_id} was called partitioned, {ago_s:.1f} s after a cut")
        conditions = self._world.network.conditions
        bad = conditions.lost_share > 0 or conditions.late_share > LATE_SHARE_MAX
        if incident.kind != "host_lost" or bad:
            return
        for host_id in incident.hosts:
            sound_s = self._world.sound_s(host_id)
            if sound_s > SOUND_S:
                self.fail(f"{host_id} was called lost, and had been sound for {sound_s:.1f} s")

    def _registry(self, events: Sequence[StoredEvent]) -> None:
        for event in events:
            if event.type.partition(".")[0] != "restore_laid_out":
                continue
            plan = HISTORIES.codec.decode(event.type, event.data)
            assert isinstance(plan, RestoreLaidOut)
            self._check_plan(plan)

    def _check_plan(self, plan: RestoreLaidOut) -> None:
        """No plan names a checkpoint that was never complete."""
        if not plan.shards:
            return
        known = self._world.backing.catalog.every()
        found = [
            one
            for one in known
            if (one.job_id, one.step, one.generation)
            == (plan.job_id, plan.step, plan.shards_generation)
        ]
        if not found or not found[0].manifest_uri:
            self.fail(
                f"{plan.job_id} generation {plan.generation} was planned from the incomplete "
                f"checkpoint of step {plan.step}, generation {plan.shards_generation}"
            )

    def at_end(self) -> list[str]:
        """Return what is wrong when everything should be well again."""
        wrong = [*self._world.failures, *self.broken, *self._world.keeping.broken]
        wrong += [
            f"{job.job_id} ended as {job.phase} at generation {job.generation}"
            for job in self.jobs.values()
            if job.phase is not Phase.SUCCEEDED and not (is_audit(job) and job.phase in TERMINAL)
        ]
        for stream, watch in self.watches.items():
            if watch.open_incidents:
                ids = [one.incident_id for one in watch.open_incidents]
                wrong.append(f"{stream}: incidents that never ended: {ids}")
            if not watch.over:
                wrong.append(f"{stream}: the monitor still watches")
        held = [job.job_id for job in self.fleet.jobs.values() if job.held]
        return [*wrong, *(f"{job_id} still holds hosts" for job_id in held)]


def _next(aggregate: Aggregate[Any, Any, Any], state: Any, event: StoredEvent) -> Any:
    return aggregate.evolve(state, aggregate.codec.decode(event.type, event.data))
