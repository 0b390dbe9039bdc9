"""Chips that compute wrong in a simulated training, and what ranks find when work is done twice.

A wrong gradient is summed: every state that is made with its help is tainted, alike on all ranks.
Only work that another replica, or an audit, has made again shows it. Which steps are shadowed, and
who is paired with whom, is the SDK's own (``everstep.core.rounds``).
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from everstep.core.placement import Layout
from everstep.core.resharding import Coordinate, coordinate_of, rank_at
from everstep.core.rounds import Rounds
from everstep.core.spec import CorruptionSpec
from everstep.sim.bits import Bits
from everstep.sim.samples import Taken
from everstep.wire.v1.agents_pb2 import Checked, Rerun, Work

if TYPE_CHECKING:
    from everstep.sim.host import HostRun

TOLD_STEPS: Final = 8  # hosts tell of a step as soon as its snapshot is there


@dataclass(frozen=True, slots=True, kw_only=True)
class Flaw:
    """A host's first chip computes wrong in steps ``first`` to ``last``.

    Args:
        first: step whose state is the first to be wrong.
        last: the last one.
        itself: its own recomputed activations show it.
        repeats: it makes the same mistake each time.
        half: only its own work is wrong, and not what it makes of another's.
        generation: in which alone; 0: whenever the host serves.
    """

    first: int
    last: int = 1_000_000
    itself: bool = False
    half: bool = False
    repeats: bool = False
    generation: int = 0

    def is_on(self, generation: int, step: int) -> bool:
        """Whether the step is made wrong."""
        return self.first <= step <= self.last and self.generation in {0, generation}


@dataclass(slots=True)
class Flaws:
    """Of a world: chips by host, and the names of all states that they had a hand in."""

    hosts: dict[str, Flaw] = field(default_factory=dict)
    tainted: set[str] = field(default_factory=set)


class Remaking:
    """What the ranks of one generation find."""

    def __init__(
        self,
        flaws: Flaws,
        bits: Bits,
        generation: int,
        layout: Layout,
        rules: CorruptionSpec,
    ) -> None:
        self._generation = generation
        self._flaws = flaws
        self._bits = bits
        self._layout = layout
        self._replicas = layout.dp_replicate * layout.dp_shard
        on = rules.on_corruption != "off"
        every = rules.recompute_every_steps if on else 0
        self._rounds = Rounds(every=every, replicas=self._replicas, first_shift=0)
        self._told: dict[int, dict[int, Checked]] = {}
        self.differs_since = 0  # the first step at which ranks saw it; 0: none

    def due(self, step: int) -> bool:
        """Whether work is to be done twice in a step."""
        return self._rounds.due(step - 1)

    def made(
        self,
        step: int,
        before: str,
        state: str,
        runs: Mapping[str, HostRun],
        *,
        taken: Taken | None,
        shadowed: bool,
        own: bool,
    ) -> bool:
        """Note a state that was made from another; says whether some work came out otherwise."""
        wrong = self.wrong(step, runs)
        if wrong or before in self._flaws.tainted:
            self._flaws.tainted.add(state)
        work = self._work_of(before, step, taken)
        told = self._exchanged(work, wrong) if shadowed else {}
        for rank in range(self._layout.world_size) if own else ():
            mistake = self._mistake(wrong.get(rank), str(self._generation))
            told.setdefault(rank, Checked()).own.CopyFrom(_work(f"{work} {rank} {mistake}"))
        for rank, flaw in wrong.items():
            if flaw.itself:
                told.setdefault(rank, Checked()).recomputed_wrong.append("layers.0")
        differs = any(
            one.rerun.other != told[one.rerun.of].rerun.own
            for one in told.values()
            if one.HasField("rerun") and told[one.rerun.of].HasField("rerun")
        )
        self._rounds.agreed(shadowed=shadowed, differs=differs, asked=False)
        if (differs or any(one.recomputed_wrong for one in told.values())) and not (
            self.differs_since
        ):
            self.differs_since = step
        self._told[step] = told
        self._told.pop(min(self._told), None) if len(self._told) > TOLD_STEPS else None
        return differs

    def audited(
        self,
        job_id: str,
        step: int,
        before: str,
        runs: Mapping[str, HostRun],
        full: Layout,
        replica: int,
        taken: Taken | None,
    ) -> None:
        """Note what an audit's ranks have come to, each in another one's place.

        Args:
            job_id: the audit's.
            step: that they have made again.
            before: the state that they made it from.
            runs: who they are.
            full: layout of the job that is audited.
            replica: whose ranks' work it is.
            taken: what all groups would read, as the audit's ranks were told.
        """
        work, wrong = self._work_of(before, step, taken), self.wrong(step, runs)
        told = {}
        for rank in range(self._layout.world_size):
            at = coordinate_of(self._layout, rank)
            there = Coordinate(pp=at.pp, replicate=replica, shard=at.shard, tp=at.tp)
            mistake = self._mistake(wrong.get(rank), job_id)
            told[rank] = Checked(own=_work(f"{work} {rank_at(full, there)} {mistake}"))
        self._told[step] = told

    def wrong(self, step: int, runs: Mapping[str, HostRun]) -> dict[int, Flaw]:
        """Return the ranks that make a step wrong."""
        return {
            min(runs[host].ranks): flaw
            for host, flaw in sorted(self._flaws.hosts.items())
            if host in runs and flaw.is_on(self._generation, step)
        }

    def checked(self, step: int, rank: int) -> Checked | None:
        """Return what a rank tells of a step."""
        return self._told.get(step, {}).get(rank)

    def _work_of(self, before: str, step: int, taken: Taken | None) -> str:
        """Name what a step is made from."""
        data = "" if taken is None else f"{taken.first} {len(taken.samples)}"
        return f"{self._bits.like(before)}/{step}/{data}"

    def _exchanged(self, work: str, wrong: Mapping[int, Flaw]) -> dict[int, Checked]:
        shift = self._rounds.next_shift()
        found = {}
        for rank in range(self._layout.world_size):
            of = self._shifted(rank, shift)
            flaw = wrong.get(rank)
            mistake = self._mistake(flaw, str(self._generation))
            own = _work(f"{work} {rank} {mistake}")
            again = mistake if flaw and of == rank and flaw.repeats else f"elsewhere {mistake}"
            other = _work(f"{work} {of} {None if flaw is None or flaw.half else again}")
            found[rank] = Checked(rerun=Rerun(of=of, own=own, other=other))
        return found

    def _mistake(self, flaw: Flaw | None, when: str) -> str | None:
        if flaw is None:
            return None
        return "wrong" if flaw.repeats else f"wrong {when}"

    def _shifted(self, rank: int, shift: int) -> int:
        at, shards = coordinate_of(self._layout, rank), self._layout.dp_shard
        replica = (at.replicate * shards + at.shard + shift) % self._replicas
        replicate, shard = divmod(replica, shards)
        there = Coordinate(pp=at.pp, replicate=replicate, shard=shard, tp=at.tp)
        return rank_at(self._layout, there)


def _work(text: str) -> Work:
    digest = hashlib.sha256(text.encode()).digest()
    return Work(forward=1, gradient=int.from_bytes(digest[:8], "big"))
