"""What may not go on for long while the control plane is well: waits that nothing is waited for.

A job that waits for hosts that are there, one that stays small although there is room, a host that
a person wants and that nobody moves off, one that may come back and does not, a state that lies in
one host's memory although another could hold it too. Looked at once a second; what holds without a
break for a while is wrong.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator
from typing import Final

from everstep.controller.policy import wanted_layouts
from everstep.controller.second_copies import LOOK_AGAIN_S
from everstep.controller.state import Job, Phase
from everstep.core.elastic import full_layout, smaller_layouts
from everstep.core.spec import parse_spec_json
from everstep.host_inventory.care import may_return
from everstep.host_inventory.policy import place, placeable, replaceable
from everstep.host_inventory.seats import Placed
from everstep.host_inventory.state import Host, HostState
from everstep.sim.host import HostRun
from everstep.sim.invariants import Invariants
from everstep.sim.training import Training
from everstep.sim.world import World

LOOK_S: Final = 1.0
# A look a second; a monitor or controller that starts anew, and what it asks of others then.
PATIENCE_S: Final = 15.0
# Where messages get lost or come late: five times in a row, each tried again after 5 s.
BAD_PATIENCE_S: Final = 40.0
# A host that was busy is asked again after half a minute; then three lost answers, 5 s each, and a
# burn-in, four times over.
PROBING_S: Final = 90.0


class Patience:
    """Looks at one world, through the invariants' folds."""

    def __init__(self, world: World, invariants: Invariants) -> None:
        self._world = world
        self._invariants = invariants
        self._since_s: dict[str, float] = {}
        self._told: set[str] = set()
        conditions = world.network.conditions
        bad = conditions.lost_share > 0 or conditions.late_share > 0
        self._patience_s = BAD_PATIENCE_S if bad else PATIENCE_S

    async def watch(self) -> None:
        """Look once a second, for ever."""
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(LOOK_S)
            now = dict(self._waits())
            self._since_s = {text: self._since_s.get(text, loop.time()) for text in now}
            for text, limit_s in now.items():
                lasts_s = min(loop.time() - self._since_s[text], self._world.control_s())
                if lasts_s > limit_s and text not in self._told:
                    self._told.add(text)
                    self._invariants.fail(f"{text}, for {lasts_s:.0f} s")

    def _waits(self) -> Iterator[tuple[str, float]]:
        """Yield what should be over soon, and within how many seconds."""
        for _, job in sorted(self._invariants.jobs.items()):
            for text in self._of_job(job):
                yield f"{job.job_id} generation {job.generation} {text}", self._patience_s
            if job.phase is Phase.WAITING_FOR_HOSTS and self._could_be_placed(job):
                text = f"{job.job_id} generation {job.generation} waits for hosts that are there"
                yield text, self._patience_s
            if job.phase is Phase.WAITING_FOR_HOSTS and self._keeps_once(job):
                text = f"{job.job_id} generation {job.generation} keeps its newest step once"
                yield text, self._patience_s + LOOK_AGAIN_S
        for _, training in sorted(self._world.trainings.items()):
            for text in self._of_training(training) if training.stepping else ():
                yield text, self._patience_s
        for host_id, host in sorted(self._invariants.fleet.hosts.items()):
            yield from self._of_host(host_id, host)

    def _could_be_placed(self, job: Job) -> bool:
        spec = parse_spec_json(job.spec_json)
        smaller = smaller_layouts(spec, job.dp_min) if job.placement is not None else ()
        layouts = (full_layout(spec), *smaller)
        fleet = self._invariants.fleet
        return any(isinstance(place(job.job_id, one, fleet), Placed) for one in layouts)

    def _of_job(self, job: Job) -> Iterator[str]:
        fleet = self._invariants.fleet
        if job.phase is not Phase.RUNNING:
            return
        if placeable(job.job_id, wanted_layouts(job), fleet) is not None:
            yield "stays small although there is room"
        leaving = replaceable(job.job_id, job.draining, fleet)
        if leaving:
            yield f"stays on {', '.join(leaving)}, which it is to leave"
        wanted = [
            host_id
            for host_id, host in fleet.hosts.items()
            if host.job_id == job.job_id and host.maintenance is not None and host.cordon is None
        ]
        free = replaceable(job.job_id, wanted, fleet)
        if free:
            yield f"stays on {', '.join(free)}, which a person wants"

    def _of_training(self, training: Training) -> Iterator[str]:
        """Yield snapshots that the peer does not have, although both are well."""
        for host_id, run in sorted(training.runs.items()):
            peer_id = run.placement.replica_host_id
            behind = bool(run.alive and peer_id) and run.held_step > run.replicated_step
            if behind and self._well(run, peer_id):
                yield (
                    f"{training.job_id} generation {training.generation} holds on {host_id} what "
                    f"came after step {run.replicated_step}, and {peer_id} does not"
                )

    def _well(self, run: HostRun, peer_id: str) -> bool:
        """Whether both ends of a push have been so, and what is to be pushed is whole."""
        sound = all(self._sound(host_id) for host_id in (run.host.host_id, peer_id))
        held = (run.host.memory.newest(run.training.job_id, rank) for rank in run.ranks)
        return sound and all(copy is not None and copy.sound for copy in held)

    def _sound(self, host_id: str) -> bool:
        return self._world.sound_s(host_id) > self._patience_s

    def _keeps_once(self, job: Job) -> bool:
        """Whether hosts that wait for others have a whole step, and some of it on one host only."""
        if job.placement is None or not job.fenced:
            return False
        sound = [
            host_id
            for host_id in job.hosts_to_fence
            if host_id not in job.unsound_hosts and self._sound(host_id)
        ]
        there = self._places(job.job_id, sound)
        whole = {
            (step, size)
            for step, size, _ in there
            if all((step, size, rank) in there for rank in range(size))
        }
        if not whole or len(sound) < 2:
            return False
        # One that has just come back, or is held out, may have taken some of it. A copy that went
        # bad where it lies counts: nobody knows of it before it is read.
        on = [one for one in self._world.hosts if self._is_on(one)]
        places = self._places(job.job_id, on, also_bad=True)
        step, size = max(whole)
        return min(places[step, size, rank] for rank in range(size)) < 2

    def _is_on(self, host_id: str) -> bool:
        return self._world.hosts[host_id].on

    def _places(
        self, job_id: str, host_ids: list[str], *, also_bad: bool = False
    ) -> Counter[tuple[int, int, int]]:
        """Count the hosts that hold a step of a rank of so many; a bad copy cannot be brought.

        What other ranks have left is as good: a new generation may not have come to a step.
        """
        memories = [self._world.hosts[host_id].memory for host_id in host_ids]
        trainings = self._world.trainings
        return Counter(
            found
            for memory in memories
            for found in {
                (copy.step, trainings[job_id, copy.generation].world_size, copy.rank)
                for copy, _ in memory.held(job_id)
                if copy.sound or also_bad
            }
        )

    def _of_host(self, host_id: str, host: Host) -> Iterator[tuple[str, float]]:
        machine = self._world.hosts[host_id]
        sound = self._sound(host_id) and not machine.wrong
        if not sound or machine.probe_delay_s:
            return
        now_ms = self._world.clock.now_ms()
        if may_return(host, now_ms):
            yield f"{host_id} may come back and does not", self._patience_s
        if host.state is HostState.PROBING and not host.job_id:
            yield f"{host_id} is sound and still to be probed", PROBING_S
