"""Holds what the registry decides about checkpoints against what was said and what was made.

Its own reading of the events, one rule after the other and without the registry's functions: which
states are suspect, which checkpoints are good, which are pinned. Who made a state is not taken from
the registry either, but from the world (``truth``).

* No restore plan takes a state that is suspect when it is made.
* Nothing is given up that is pinned, nor the last good checkpoint of a job.
* Nothing is deleted that was not given up before.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from everstep.checkpoint_registry import events as e
from everstep.checkpoint_registry.codec import CHECKPOINT_EVENTS, HISTORY_EVENTS
from everstep.core.ports import StoredEvent

if TYPE_CHECKING:
    from everstep.sim.world import World

DROPPED = "dropped"  # why a whole job's checkpoints go, by a person's order
CLEARING = frozenset({"clean", "verified"})


@dataclass(slots=True)
class Kept:
    """What is known of one job."""

    raised: list[tuple[int, e.CheckpointsSuspected]] = field(default_factory=list)
    words: list[tuple[int, e.TrustDecided]] = field(default_factory=list)
    pins: set[tuple[int, int]] = field(default_factory=set)
    restarts: list[tuple[int, int]] = field(default_factory=list)
    complete: set[tuple[int, int]] = field(default_factory=set)  # step, generation
    given_up: set[tuple[int, int]] = field(default_factory=set)
    bad_uris: list[str] = field(default_factory=list)
    damaged: set[tuple[int, int]] = field(default_factory=set)  # as the newest look found
    count: int = 0  # of what was said so far

    def present(self, step: int, generation: int) -> bool:
        """Say whether no later restart went back behind it."""
        return all(step <= to for later, to in self.restarts if later > generation)

    def suspect(self, step: int, generation: int) -> bool:
        """Say whether a state may not be restored."""
        words = [(at, word.trust) for at, word in self.words if word.step == step]
        at, trust = words[-1] if words else (0, "")
        if trust == "verified":
            return False
        covering = [
            number
            for number, one in self.raised
            if generation <= one.generation
            and one.from_step <= step
            and (one.to_step < 0 or step <= one.to_step)
        ]
        later = [number for number in covering if not (trust in CLEARING and number < at)]
        return trust == "suspect" or bool(later)

    def good(self) -> set[tuple[int, int]]:
        """Return the checkpoints that a restore would take."""
        return {
            (step, generation)
            for step, generation in self.complete - self.given_up - self.damaged
            if self.present(step, generation)
            and not self.suspect(step, generation)
            and not any(f"/step-{step:08d}/gen-{generation}/" in uri for uri in self.bad_uris)
        }


class Keeping:
    """Looks at one world's registry; ``broken`` names what does not hold."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.broken: list[str] = []
        self.jobs: dict[str, Kept] = {}
        world.backing.databases["checkpoint_registry"].on_append.append(self._appended)

    def of(self, job_id: str) -> Kept:
        """Return what is known of a job."""
        return self.jobs.setdefault(job_id, Kept())

    def _fail(self, job_id: str, text: str) -> None:
        self.broken.append(f"{self._world.now_ms} ms: the registry of {job_id} {text}")

    def _appended(self, events: Sequence[StoredEvent]) -> None:
        for event in events:
            if HISTORY_EVENTS.knows(event.type):
                self._history(HISTORY_EVENTS.decode(event.type, event.data))
            elif CHECKPOINT_EVENTS.knows(event.type):
                self._checkpoint(CHECKPOINT_EVENTS.decode(event.type, event.data))

    def _history(self, event: e.HistoryEvent) -> None:
        job = self.of(event.job_id)
        job.count += 1
        match event:
            case e.RestoreLaidOut():
                self._check_plan(event, job)
            case e.RestorePlanned():
                job.restarts.append((event.generation, event.step))
            case e.CheckpointsSuspected():
                job.raised.append((job.count, event))
            case e.SuspicionEnded(outcome="false_alarm"):
                job.raised = [
                    (at, one) for at, one in job.raised if one.suspicion_id != event.suspicion_id
                ]
            case e.TrustDecided():
                job.words.append((job.count, event))
            case e.CheckpointPinned():
                job.pins.add((event.step, event.generation))
            case e.CheckpointUnpinned():
                job.pins.discard((event.step, event.generation))
            case e.SourceDistrusted():
                job.bad_uris.append(event.uri)
            case e.CheckpointChecked():
                self._take_check(event, job)
            case e.RemovalsDecided():
                self._check_removals(event, job)
            case _:
                pass

    def _checkpoint(self, event: e.CheckpointEvent) -> None:
        job = self.of(event.job_id)
        match event:
            case e.CheckpointCompleted():
                job.complete.add((event.step, event.generation))
            case e.CheckpointDeleted():
                which = (event.step, event.generation)
                job.complete.discard(which)
                if event.why != DROPPED and which not in job.given_up:
                    self._fail(event.job_id, f"deleted {which}, which was not given up")
            case _:
                pass

    def _take_check(self, event: e.CheckpointChecked, job: Kept) -> None:
        which, folder = (event.step, event.generation), f"/step-{event.step:08d}/"
        job.damaged.discard(which)
        if event.bad_ranks:
            job.damaged.add(which)
        if event.whole:
            folder += f"gen-{event.generation}/"
            job.bad_uris = [uri for uri in job.bad_uris if folder not in uri]

    def _check_plan(self, plan: e.RestoreLaidOut, job: Kept) -> None:
        if plan.step < 0:
            return
        made = self._world.truth.histories.get(plan.job_id, {}).get(plan.step)
        makers = {holder.generation for holder in plan.holders}
        makers |= {plan.shards_generation} if plan.shards else set()
        makers |= {made.generation} if made is not None else set()
        bad = sorted(generation for generation in makers if job.suspect(plan.step, generation))
        if bad:
            self._fail(
                plan.job_id,
                f"planned generation {plan.generation} from step {plan.step}, which is suspect as "
                f"generations {bad} made it",
            )

    def _check_removals(self, event: e.RemovalsDecided, job: Kept) -> None:
        gone = {(one.step, one.generation) for one in event.removals}
        if gone & job.pins:
            self._fail(event.job_id, f"gave up {sorted(gone & job.pins)}, which are pinned")
        good = job.good()
        if good and not good - gone:
            self._fail(event.job_id, f"gave up {sorted(good)}, the last good ones")
        job.given_up |= gone
