"""One generation of one job, as physics: ranks that come up, step together, and fail together.

Synchronous training has one fate. Its ranks meet in a rendezvous, complete every step at one
moment, and when one of them is gone the others' collectives fail. What they do about snapshots is
what the SDK does (``everstep.train.saving``), decided from the same agreement.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING, Any, Final

from everstep.core.placement import Layout
from everstep.core.rounds import DOUBTED_STEPS
from everstep.core.schedule import Schedule, first_schedule
from everstep.core.spec import JobSpec
from everstep.sim.bits import LINGER_S, Sharing
from everstep.sim.memory import Copy
from everstep.sim.numbers import Course
from everstep.sim.remaking import Remaking
from everstep.sim.samples import Samples, Taken

if TYPE_CHECKING:
    from everstep.sim.host import HostRun

FRESH: Final = -1
MEET_AGAIN_S: Final = 0.5
END_LOOK_S: Final = 0.2
# As everstep.train.saving: 25 minutes, and two until the last snapshots no longer wait for a judge.
END_LOOKS_MAX: Final = 7_500
HELD_LOOKS_MAX: Final = 600


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """How long things take [s]; chosen near what ``benchmarks/results/recovery.json`` shows."""

    load_s: float = 0.3
    first_step_s: float = 1.5
    step_s: float = 1.0
    shadow_s: float = 0.7  # a step has this on top when work is done twice: all but its update
    copy_s: float = 0.3  # beside the next pass, of which it takes half at most
    echo_s: float = 0.07
    replicate_s: float = 0.1
    upload_s: float = 3.0
    memory_stall_s: float = 0.005  # as told: a part of the step
    object_stall_s: float = 0.05


@dataclass(slots=True, kw_only=True)
class Training:
    """The ranks of one generation, wherever they run."""

    job_id: str
    generation: int
    spec: JobSpec
    world_size: int
    restore_step: int
    pace: Pace
    random: Random
    course: Course
    sharing: Sharing
    remaking: Remaking
    samples: Samples
    layout: Layout
    physics: Callable[[Coroutine[Any, Any, Any]], None]
    runs: dict[str, HostRun] = field(default_factory=dict)
    ready: dict[int, str] = field(default_factory=dict)  # rank -> state it restored
    wrong: set[int] = field(default_factory=set)  # ranks that restored a wrong bit
    step: int = 0
    state: str = ""
    broken: str = ""
    ending: bool = False  # all steps are made: only the last snapshots are left
    finished: bool = False
    moving: asyncio.Event = field(default_factory=asyncio.Event)  # not set: collectives hang
    stop_asked: bool = False
    save_asked: bool = False
    durable_due: bool = False
    doubted_until: int = 0
    tells_own: bool = False  # what its ranks' own work comes to, in the next step
    taken: Taken | None = None  # what the newest step was made from
    joined: Callable[[Training], bool] = lambda _: True  # its hosts reach one another
    on_begin: Callable[[Training], None] | None = None
    on_commit: Callable[[Training], None] | None = None

    @property
    def stepping(self) -> bool:
        """Whether it has come up and neither ended nor broken."""
        return len(self.ready) == self.world_size and not self.broken and not self.finished

    def __post_init__(self) -> None:
        """Nothing hangs at first."""
        self.moving.set()

    def schedule(self) -> Schedule:
        """Return what the first rank says in the step's collective: it holds for all."""
        for run in self.runs.values():
            if 0 in run.ranks and run.schedule is not None:
                return run.schedule
        return first_schedule(self.spec.checkpoint)

    def join(self, run: HostRun) -> None:
        """A host has forked its ranks."""
        self.runs[run.host.host_id] = run

    def restored(self, rank: int, state: str, *, wrong: bool = False) -> None:
        """A rank has loaded its state and waits for the others."""
        self.ready[rank] = state
        if wrong:
            self.wrong.add(rank)
        if len(self.ready) == self.world_size and not self.broken:
            if self.joined(self):
                self._begin()
            else:
                self.physics(self._meet())

    def _begin(self) -> None:
        self.step = max(self.restore_step, 0)
        self.state = self.ready[0]
        if self.step:
            self.sharing.restored(self.step, self.state, self.wrong)
        if self.on_begin is not None:
            self.on_begin(self)
        self.physics(self._run())

    async def _meet(self) -> None:
        """Wait for one another, until the rendezvous times out."""
        loop = asyncio.get_running_loop()
        until_s = loop.time() + self.spec.recovery.collective_timeout_s
        while loop.time() < until_s:
            await asyncio.sleep(MEET_AGAIN_S)
            if self.broken:
                return
            if self.joined(self):
                self._begin()
                return
        self.break_up("the rendezvous timed out")

    def hang(self, why: str) -> None:
        """A rank is gone and nobody was told: collectives hang until they time out."""
        self.moving.clear()
        self.physics(self._time_out(why))

    def resume(self) -> None:
        """A link is back: collectives go on, unless a rank is gone or stands still.

        Nobody may be there to break it: all its hosts have vanished, and it never steps again.
        """
        if all(not run.stopped and len(run.alive) == len(run.ranks) for run in self.runs.values()):
            self.moving.set()

    async def _time_out(self, why: str) -> None:
        await asyncio.sleep(self.spec.recovery.collective_timeout_s)
        self.break_up(f"{why}: timed out")

    def break_up(self, why: str) -> None:
        """A rank is gone: every other one's collectives fail, soon."""
        if self.broken or self.finished:
            return
        self.broken = why
        self.moving.set()
        for host_id in sorted(self.runs):
            self.runs[host_id].echo(why, self.pace.echo_s * (0.5 + self.random.random()))

    async def _audit(self) -> None:
        """Make the one step again, say what it has come to, and leave: nothing of it is kept."""
        assert self.spec.audit is not None
        await asyncio.sleep(self.pace.first_step_s * (0.9 + 0.2 * self.random.random()))
        await self.moving.wait()
        if self.broken:
            return
        self.step += 1
        full = Layout(**self.spec.layout.model_dump())
        replica, before = self.spec.audit.replica, self.state
        position = self.course.made(self.job_id, self.step, before, f"{self.job_id}/{before}")
        taken = self.samples.taken(position)
        self.remaking.audited(self.job_id, self.step, before, self.runs, full, replica, taken)
        self.finished = True
        for host_id in sorted(self.runs):
            run = self.runs[host_id]
            run.stepped(self.step, run.host.now_ms())
            run.leave(stopped=False)

    async def _run(self) -> None:
        if self.spec.audit is not None:
            await self._audit()
            return
        pause_s = self.pace.first_step_s
        while self.step < self.spec.steps:
            shadow_s = self.pace.shadow_s * self._is_shadowed(self.step + 1)
            await asyncio.sleep(pause_s * (0.9 + 0.2 * self.random.random()) + shadow_s)
            await self.moving.wait()
            if self.broken:
                return
            self._commit()
            if self.stop_asked:
                break
            pause_s = self.pace.step_s
        await self._end()

    def _commit(self) -> None:
        self.step += 1
        # With the job: what befalls one job's states is no other's.
        before = self.state
        text = f"{self.job_id}/{self.state}/{self.step}/{self.generation}"
        self.state = hashlib.sha256(text.encode()).hexdigest()[:16]
        position = self.course.made(self.job_id, self.step, before, self.state)
        self.taken = self.samples.taken(position)
        bent = self.remaking.wrong(self.step, self.runs)
        self.sharing.made(self.step, before, self.state, self.runs, bent=bent)
        shadowed = self._is_shadowed(self.step)
        differs = self.remaking.made(
            self.step,
            before,
            self.state,
            self.runs,
            taken=self.taken,
            shadowed=shadowed,
            own=self.tells_own,
        )
        if differs and self.spec.corruption.on_corruption == "replace":
            self.doubted_until = self.step + DOUBTED_STEPS
        may_keep = self.sharing.may_keep(self.step) and self.step > self.doubted_until
        runs = [self.runs[host_id] for host_id in sorted(self.runs)]
        schedule = self.schedule()
        replicated = all(run.replicated for run in runs)
        durable_free = not any(run.durable_busy for run in runs)
        every = schedule.object_every_steps
        self.durable_due |= self.save_asked or bool(every and self.step % every == 0)
        self.save_asked = False
        snapshot = self.step % schedule.memory_every_steps == 0 and replicated and may_keep
        durable = self.durable_due and durable_free and may_keep
        if snapshot or durable:
            self.sharing.kept(self.step, self.state)
        self.durable_due &= not durable
        self.tells_own = durable and self.spec.corruption.audit_every_checkpoints > 0
        stall_s = snapshot * self.pace.memory_stall_s + durable * self.pace.object_stall_s
        for run in runs:
            run.followed, run.kept, run.kept_durable = schedule, snapshot, durable
            run.stall_ms = round(1e3 * stall_s)
            run.shadow_ms = round(1e3 * self.pace.shadow_s * shadowed)
        if self.on_commit is not None:
            self.on_commit(self)
        for run in runs:
            if durable:
                run.keep_durable(self.step, self.state)
            if snapshot:
                copy_s = self.pace.copy_s * (0.3 + 1.4 * self.random.random())
                run.begin_snapshot(self.step, self.state, copy_s)
            else:
                run.stepped(self.step, run.host.now_ms())

    def _is_shadowed(self, step: int) -> bool:
        """Whether work is done twice in a step; it is not in a generation's first one."""
        return step > max(self.restore_step, 0) + 1 and self.remaking.due(step)

    async def _end(self) -> None:
        """Take the last snapshots as soon as they are allowed, and leave."""
        self.ending, allowed = True, False
        for look in range(END_LOOKS_MAX):
            runs = [self.runs[host_id] for host_id in sorted(self.runs)]
            if self.broken:
                return
            busy = any(run.copying or run.durable_busy for run in runs)
            allowed = allowed or look >= HELD_LOOKS_MAX or self.sharing.may_keep(self.step)
            if all(run.replicated for run in runs) and not busy and allowed:
                self._keep_last(runs)
                break
            await asyncio.sleep(END_LOOK_S)
        if not self.sharing.may_keep(self.step) or self.step <= self.doubted_until:
            await asyncio.sleep(LINGER_S)
            if self.broken:
                return
        self.finished = True
        for host_id in sorted(self.runs):
            self.runs[host_id].leave(stopped=self.stop_asked)

    def _keep_last(self, runs: Sequence[HostRun]) -> None:
        """Take the last snapshots; nobody leaves before these have been compared, too."""
        compared = self.sharing.shows(self.step)
        if not compared:
            self.sharing.kept(self.step, self.state)
        for run in runs:
            run.snapshot(self.step, self.state)
            run.keep_durable(self.step, self.state)
            if not compared:
                run.stepped(self.step, run.made_ms)  # told before; when it was made stays


def snapshot_of(rank: int, generation: int, step: int, state: str) -> Copy:
    """Return a sound copy."""
    return Copy(rank=rank, step=step, generation=generation, state=state)
