"""One generation of one job, as physics: ranks that come up, step together, and fail together.

Synchronous training has one fate. Its ranks meet in a rendezvous, complete every step at one
moment, and when one of them is gone the others' collectives fail. What they do about snapshots is
what the SDK does (``everstep.train.saving``), decided from the same agreement.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING, Any, Final

from everstep.core.spec import JobSpec
from everstep.sim.memory import Copy

if TYPE_CHECKING:
    from everstep.sim.host import HostRun

FRESH: Final = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """How long things take [s]; chosen near what ``benchmarks/results/recovery.json`` shows."""

    load_s: float = 0.3
    first_step_s: float = 1.5
    step_s: float = 1.0
    copy_s: float = 0.3  # beside the next pass, of which it takes half at most
    echo_s: float = 0.07
    replicate_s: float = 0.1
    upload_s: float = 3.0


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
    physics: Callable[[Coroutine[Any, Any, Any]], None]
    runs: dict[str, HostRun] = field(default_factory=dict)
    ready: dict[int, str] = field(default_factory=dict)  # rank -> state it restored
    step: int = 0
    state: str = ""
    broken: str = ""
    finished: bool = False
    moving: asyncio.Event = field(default_factory=asyncio.Event)  # not set: collectives hang
    stop_asked: bool = False
    save_asked: bool = False
    durable_due: bool = False
    on_begin: Callable[[Training], None] | None = None
    on_commit: Callable[[Training], None] | None = None

    @property
    def stepping(self) -> bool:
        """Whether it has come up and neither ended nor broken."""
        return len(self.ready) == self.world_size and not self.broken and not self.finished

    def __post_init__(self) -> None:
        """Nothing hangs at first."""
        self.moving.set()

    def join(self, run: HostRun) -> None:
        """A host has forked its ranks."""
        self.runs[run.host.host_id] = run

    def restored(self, rank: int, state: str) -> None:
        """A rank has loaded its state and waits for the others."""
        self.ready[rank] = state
        if len(self.ready) == self.world_size and not self.broken:
            self.step = max(self.restore_step, 0)
            self.state = self.ready[0]
            if self.on_begin is not None:
                self.on_begin(self)
            self.physics(self._run())

    def hang(self, why: str) -> None:
        """A rank is gone and nobody was told: collectives hang until they time out."""
        self.moving.clear()
        self.physics(self._time_out(why))

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

    async def _run(self) -> None:
        pause_s = self.pace.first_step_s
        while self.step < self.spec.steps:
            await asyncio.sleep(pause_s * (0.9 + 0.2 * self.random.random()))
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
        text = f"{self.state}/{self.step}/{self.generation}"
        self.state = hashlib.sha256(text.encode()).hexdigest()[:16]
        if self.on_commit is not None:
            self.on_commit(self)
        runs = [self.runs[host_id] for host_id in sorted(self.runs)]
        replicated = all(run.replicated for run in runs)
        durable_free = not any(run.durable_busy for run in runs)
        checkpoint = self.spec.checkpoint
        every = checkpoint.object_every_steps
        self.durable_due |= self.save_asked or bool(every and self.step % every == 0)
        self.save_asked = False
        snapshot = self.step % checkpoint.memory_every_steps == 0 and replicated
        durable = self.durable_due and durable_free
        self.durable_due &= not durable
        for run in runs:
            if durable:
                run.keep_durable(self.step, self.state)
            if snapshot:
                copy_s = self.pace.copy_s * (0.3 + 1.4 * self.random.random())
                run.begin_snapshot(self.step, self.state, copy_s)
            else:
                run.stepped(self.step, run.host.now_ms())

    async def _end(self) -> None:
        """Take the last snapshots as soon as they are allowed, and leave."""
        for _ in range(1_000):
            runs = [self.runs[host_id] for host_id in sorted(self.runs)]
            if self.broken:
                return
            busy = any(run.copying or run.durable_busy for run in runs)
            if all(run.replicated for run in runs) and not busy:
                for run in runs:
                    run.snapshot(self.step, self.state)
                    run.keep_durable(self.step, self.state)
                break
            await asyncio.sleep(0.2)
        self.finished = True
        for host_id in sorted(self.runs):
            self.runs[host_id].leave(stopped=self.stop_asked)


def snapshot_of(rank: int, generation: int, step: int, state: str) -> Copy:
    """Return a sound copy."""
    return Copy(rank=rank, step=step, generation=generation, state=state)
