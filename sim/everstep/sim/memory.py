"""What lies in a host's memory: snapshots of its own ranks, and replicas kept for a peer.

The rules are the worker's (``everstep.memory``, ``everstep.train.snapshots``,
``everstep.agent.store``): two slots a rank, the newest is never overwritten, what is newer than a
restored step is dropped, nothing of an older generation than the fence is written.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Final

from everstep.core.placement import Layout

SLOTS: Final = 2

Key = tuple[str, int, bool]  # job, rank, own


@dataclass(frozen=True, slots=True, kw_only=True)
class Copy:
    """One snapshot. ``state`` names the training state, bit for bit; ``sound`` its checksum."""

    rank: int
    step: int
    generation: int
    state: str
    sound: bool = True


@dataclass(slots=True)
class HostMemory:
    """All jobs' slots and fences of one host; gone with its power."""

    fences: dict[str, int] = field(default_factory=dict)
    retired: dict[str, int] = field(default_factory=dict)
    slots: dict[Key, list[Copy]] = field(default_factory=dict)
    layouts: dict[str, Layout] = field(default_factory=dict)
    old: dict[Key, list[Copy]] = field(default_factory=dict)  # of ranks of other layouts
    dropped: dict[str, int] = field(default_factory=dict)  # the newest step of which one was bad

    def open(self, job_id: str, rank: int) -> None:
        """Begin to overwrite a rank's older slot: it holds nothing until it is written."""
        there = self.slots.get((job_id, rank, True), [])
        there.sort(key=lambda one: (one.generation, one.step))
        del there[: -(SLOTS - 1)]

    def write(self, job_id: str, copy: Copy, *, own: bool, generation: int) -> bool:
        """Put a copy over the older slot; says whether the fence lets ``generation`` do it.

        ``generation`` is the one that runs now; the copy keeps the one that wrote it.
        """
        if generation < self.fences.get(job_id, 0):
            return False
        there = self.slots.setdefault((job_id, copy.rank, own), [])
        kept = [one for one in there if one.step != copy.step]
        kept.sort(key=lambda one: (one.generation, one.step))
        self.slots[job_id, copy.rank, own] = [*kept[-(SLOTS - 1) :], copy]
        return True

    def set_aside(self, job_id: str, layout: Layout) -> None:
        """Make way for ranks of ``layout``, if those of another one have left snapshots."""
        known = self.layouts.setdefault(job_id, layout)
        if known != layout:
            self.layouts[job_id] = layout
            for key in [key for key in self.slots if key[0] == job_id]:
                self.old.setdefault(key, []).extend(self.slots.pop(key))

    def bring_old(self, job_id: str, copy: Copy) -> None:
        """Keep a snapshot of a rank of another layout that came from elsewhere."""
        there = self.old.setdefault((job_id, copy.rank, True), [])
        if copy not in there:
            there.append(copy)

    def drop_old(self, job_id: str) -> None:
        """Forget the snapshots of other layouts."""
        for key in [key for key in self.old if key[0] == job_id]:
            del self.old[key]

    def find(
        self, job_id: str, rank: int, step: int, *, own: bool | None = None, generation: int = 0
    ) -> Copy | None:
        """Return a copy of a rank's step; own before replica when ``own`` is not given.

        ``generation`` is the one that wrote it (0: any), and tells the layout of the rank.
        """
        for kind in (True, False) if own is None else (own,):
            key = (job_id, rank, kind)
            for copy in [*self.slots.get(key, []), *self.old.get(key, [])]:
                if copy.step == step and generation in {0, copy.generation}:
                    return copy
        return None

    def newest(self, job_id: str, rank: int) -> Copy | None:
        """Return a rank's newest own copy."""
        there = self.slots.get((job_id, rank, True), [])
        return max(there, key=lambda copy: (copy.generation, copy.step), default=None)

    def held(self, job_id: str, *, old: bool = True) -> list[tuple[Copy, bool]]:
        """Return every copy of a job, and whether it is the rank's own; sorted.

        Also those of ranks of other layouts, unless ``old`` says not to.
        """
        places = (*self.slots.items(), *(self.old.items() if old else ()))
        return sorted(
            ((copy, own) for (job, _, own), copies in places if job == job_id for copy in copies),
            key=lambda item: (item[0].rank, item[0].step, item[1]),
        )

    def forget_after(self, job_id: str, step: int) -> None:
        """Drop what is newer than the step that a generation goes on from."""
        for place in (self.slots, self.old):
            for key in [key for key in place if key[0] == job_id]:
                place[key] = [copy for copy in place[key] if copy.step <= step]

    def kept(self) -> list[tuple[str, int]]:
        """Return the jobs that have copies here and were not forgotten, with their fences."""
        jobs = {key[0] for place in (self.slots, self.old) for key in place if place[key]}
        fences = [(job_id, self.fences.get(job_id, 0)) for job_id in sorted(jobs)]
        return [
            (one, fence)
            for one, fence in fences
            if one not in self.retired or fence > self.retired[one] + 1
        ]

    def forget(self, job_id: str) -> None:
        """Drop a job."""
        self.layouts.pop(job_id, None)
        for place in (self.slots, self.old):
            for key in [key for key in place if key[0] == job_id]:
                del place[key]

    def drop(self, job_id: str, copy: Copy) -> None:
        """Drop a rank's own copy, which was found to have gone bad."""
        self.slots[job_id, copy.rank, True].remove(copy)
        self.dropped[job_id] = max(copy.step, self.dropped.get(job_id, 0))

    def spoil(self, key: Key, step: int) -> None:
        """Let a copy go bad."""
        self.slots[key] = [
            replace(copy, sound=False) if copy.step == step else copy for copy in self.slots[key]
        ]
