"""Holds the monitor's goodput ledger against what really happened.

The answer is the API's own (``monitor.queries.ledger`` on the read tables); the truth is the
world's. Useful time must be that of the steps in the history that counts, to the millisecond: the
ledger cuts time at the same moments at which the model's steps end. So must be what of these steps
went to work that was done twice, and what fewer ranks were missing. Two things may differ:

* A step that the monitor was never told of. Metrics travel without a receipt, and what a killed
  monitor had not written is gone; such a step may be missing from the useful time.
* Clocks of hosts that are wrong: steps are dated by them, marks by the services' clocks. A world
  with such hosts is held to the sum alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from sqlalchemy import select

from everstep.core.ports import StoredEvent
from everstep.monitor import queries
from everstep.monitor.codec import CODEC
from everstep.monitor.events import IncidentRecovered, Mark
from everstep.monitor.ledger import Cause, Ledger
from everstep.monitor.projections import MARKS, STEP_METRICS
from everstep.monitor.state import BESIDE
from everstep.monitor.wiring import NAME as MONITOR
from everstep.sim.truth import Made
from everstep.sim.world import World

# Beside a step that was not told of, the next one may be taken for the first of its generation: it
# counts with the usual time then, and steps vary by this much.
STEP_SPREAD: Final = 0.1


class Books:
    """Looks into one world's ledgers; ``broken`` names what does not hold."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.broken: list[str] = []
        world.backing.databases[MONITOR].on_append.append(self._appended)

    async def at_end(self) -> list[str]:
        """Return what is wrong with the ledgers of jobs that have ended."""
        for job_id in sorted(self._world.truth.histories):
            ledger = await self._sums(job_id)
            if self._clocks_are_right():
                await self._check_steps(job_id, ledger)
                await self._check_lost(job_id, ledger)
        return self.broken

    def _clocks_are_right(self) -> bool:
        return all(host.skew_ms == 0 for host in self._world.hosts.values())

    def _fail(self, job_id: str, text: str) -> None:
        self.broken.append(f"{self._world.now_ms} ms: the ledger of {job_id} {text}")

    def _appended(self, events: Sequence[StoredEvent]) -> None:
        """Look after every recovery, too."""
        for event in events:
            fact = CODEC.decode(event.type, event.data)
            if isinstance(fact, IncidentRecovered) and fact.job_id:
                self._world.physics(self._look(fact.job_id))

    async def _look(self, job_id: str) -> None:
        await self._sums(job_id)

    async def _sums(self, job_id: str) -> Ledger:
        """Return a job's ledger, whose causes sum to its wall time; none is negative."""
        world = self._world
        ledger = await queries.ledger(world.backing.tables.connection, job_id, world.clock.now_ms())
        assert ledger is not None, f"{job_id} trained and the monitor has no mark of it"
        total_ms = sum(ledger.causes.values())
        if total_ms != ledger.wall_ms:
            self._fail(job_id, f"sums to {total_ms} ms and {ledger.wall_ms} ms have passed")
        if ledger.wall_ms > world.now_ms:
            self._fail(job_id, f"is {ledger.wall_ms} ms long, and the world {world.now_ms} ms old")
        below = sorted(cause for cause, ms in ledger.causes.items() if ms < 0)
        if below:
            self._fail(job_id, f"has causes below 0: {', '.join(below)}")
        return ledger

    async def _check_steps(self, job_id: str, ledger: Ledger) -> None:
        """Training is what the steps in the history took, unless some were never told of."""
        history = self._world.truth.histories[job_id]
        told = await self._told(job_id)
        missing = [made for step, made in history.items() if (made.generation, step) not in told]
        spread_ms = round(len(missing) * STEP_SPREAD * self._step_ms)
        # Without its row, what was done twice in a step is taken for a part of the next one.
        spread_ms += sum(made.shadow_ms for made in missing)
        for cause in (Cause.USEFUL, Cause.VERIFICATION, Cause.DEGRADED):
            expected_ms = sum(self._parts(job_id, made)[cause] for made in history.values())
            untold_ms = spread_ms + sum(self._parts(job_id, made)[cause] for made in missing)
            if not expected_ms - untold_ms <= ledger.causes[cause] <= expected_ms + spread_ms:
                self._fail(
                    job_id,
                    f"has {ledger.causes[cause]} ms of {cause} time; of its {len(history)} steps "
                    f"{expected_ms} ms were, of which {untold_ms} ms were not told of",
                )

    async def _check_lost(self, job_id: str, ledger: Ledger) -> None:
        """Lost work holds what the steps took that are done again; no incident has lost more."""
        truth = self._world.truth
        told = await self._told(job_id)
        begun_ms = await self._begun_ms(job_id)
        # From when another generation has begun, time is the restart's, though steps are made yet.
        # A job that is begun again after its end leaves a number out.
        lost = [
            made
            for step, made in truth.lost[job_id]
            if (made.generation, step) in told
            and made.at_ms <= min(at for later, at in begun_ms.items() if later > made.generation)
        ]
        lost_ms = sum(self._trained_ms(made) for made in lost)
        if ledger.causes[Cause.LOST_WORK] < lost_ms:
            self._fail(
                job_id,
                f"has {ledger.causes[Cause.LOST_WORK]} ms of lost work; the {len(lost)} steps that "
                f"were done again took {lost_ms} ms",
            )
        incidents = await queries.incidents(self._world.backing.tables.connection, job_id)
        said = sum(incident["lost_steps"] or 0 for incident in incidents)
        ends = [incident for incident in incidents if incident["action"] not in BESIDE]
        # What was not heard of when its generation's incident was opened is in none: a step is told
        # when it is kept, by each host for itself, and the verdict may come in between.
        heard = {incident["generation"]: incident["step"] for incident in ends}
        low = sum(step <= heard.get(made.generation, 0) for step, made in truth.lost[job_id])
        known = {incident["generation"] for incident in ends}
        if not {generation - 1 for generation in begun_ms if generation > 1} <= known:
            low = 0  # by a person, a move, or because a host did not answer: no incident began it
        if not low <= said <= len(truth.lost[job_id]):
            self._fail(
                job_id,
                f"lost {len(truth.lost[job_id])} steps, {low} of which were known, and its "
                f"incidents say {said}",
            )

    async def _begun_ms(self, job_id: str) -> dict[int, int]:
        """Return when each generation was begun, in the world's time."""
        marks = await self._world.backing.tables.connection.execute(
            select(MARKS.c.generation, MARKS.c.at_ms).where(
                MARKS.c.job_id == job_id, MARKS.c.mark == Mark.BEGUN.value
            )
        )
        return {row.generation: row.at_ms - self._world.epoch_ms for row in marks}

    async def _told(self, job_id: str) -> set[tuple[int, int]]:
        """Return the (generation, step) that the monitor has a row of."""
        table = STEP_METRICS.c
        rows = await self._world.backing.tables.connection.execute(
            select(table.generation, table.step).where(table.job_id == job_id)
        )
        return {(row.generation, row.step) for row in rows}

    def _parts(self, job_id: str, made: Made) -> dict[Cause, int]:
        """Return what a step's training goes under."""
        full = self._world.specs[job_id].layout.world_size
        own_ms = self._trained_ms(made) - made.shadow_ms
        missing_ms = own_ms * (full - made.ranks) // full
        return {
            Cause.USEFUL: own_ms - missing_ms,
            Cause.VERIFICATION: made.shadow_ms,
            Cause.DEGRADED: missing_ms,
        }

    def _trained_ms(self, made: Made) -> int:
        """Return what of a step is training: the first one's excess belongs to the restart."""
        took_ms = min(self._step_ms, made.took_ms) if made.first else made.took_ms
        return took_ms - made.stall_ms

    @property
    def _step_ms(self) -> int:
        return round(self._world.pace.step_s * 1e3)
