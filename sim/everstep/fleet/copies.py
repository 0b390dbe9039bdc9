"""Which step lies in whose memory and in the object store, without keeping it for every rank.

Training is synchronous: what one host has written, all have. So what a generation wrote is two
short lists, own copies and replicas, and a host that lost its memory, or is new, has nothing that
is older than the generation it came with. Whose they are follows from the seats that a generation
had: ranks change places when a job shrinks or grows. The rules are the agents': two slots a rank,
the newest is never overwritten, and what is newer than a restored step is dropped.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import repeat
from typing import Final

from everstep.checkpoint_registry.commands import HeldSnapshots, HostHoldings
from everstep.core.placement import Placement
from everstep.core.time import HOUR_MS
from everstep.fleet.cadence import Cadence

SLOTS: Final = 2
PORT: Final = 7_000  # of every host's snapshot server
# Which checkpoints are kept is not asked of the registry: the newest as the job's spec says,
# and one an hour for two days, far enough for every roll-back that is modelled.
HOURLY_KEPT: Final = 48


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """A step that a generation wrote."""

    generation: int
    step: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """A complete checkpoint of as many ranks as its generation had."""

    generation: int
    step: int
    completed_ms: int
    world_size: int


class Copies:
    """Everything that one job has saved."""

    def __init__(self, cadence: Cadence, keep_last: int) -> None:
        self.cadence = cadence
        self._keep_last = keep_last
        self.own: list[Written] = []
        self.replicas: list[Written] = []
        self.stored: list[Stored] = []
        # (own, generation) -> by host, the ranks whose copies lie there
        self._ranks: dict[tuple[bool, int], dict[str, tuple[int, ...]]] = {}
        self._world_size = 0  # of the generation that runs

    def wiped(self, host_id: str, generation: int) -> None:
        """The host has lost its memory, or is new to the job, while ``generation`` ran."""
        for (_, written), ranks in self._ranks.items():
            if written < generation:
                ranks.pop(host_id, None)

    def placed(self, generation: int, placement: Placement) -> None:
        """A generation runs on these seats; of older ones only what is still held matters."""
        self._world_size = placement.layout.world_size
        held = {written.generation for written in (*self.own, *self.replicas)}
        self._ranks = {key: ranks for key, ranks in self._ranks.items() if key[1] in held}
        ranks = [seat.ranks for seat in placement.hosts]
        partners = [seat.replica_host_id for seat in placement.hosts]
        self._ranks[True, generation] = dict(zip(placement.host_ids, ranks, strict=True))
        self._ranks[False, generation] = dict(zip(partners, ranks, strict=True))

    def seated(self, host_ids: Iterable[str], generation: int) -> None:
        """These hosts join the job with ``generation``, with nothing in memory."""
        for host_id in host_ids:
            self.wiped(host_id, generation)

    def ended(self, *, generation: int, first: int, trained_ms: int, at_ms: int) -> None:
        """A generation that went on from ``first`` has stopped after ``trained_ms``."""
        cadence = self.cadence
        for steps, slots in (
            (cadence.copied(first, trained_ms, SLOTS), self.own),
            (cadence.replicated(first, trained_ms, SLOTS), self.replicas),
        ):
            slots += [Written(generation=generation, step=step) for step in steps]
            del slots[:-SLOTS]
        self._complete(generation, first, trained_ms, at_ms)

    def resumed(self, step: int) -> None:
        """A generation goes on from ``step``: what is newer is dropped."""
        self.own[:] = [written for written in self.own if written.step <= step]
        self.replicas[:] = [written for written in self.replicas if written.step <= step]
        self.stored[:] = [stored for stored in self.stored if stored.step <= step]

    def held(self, host_ids: Iterable[str]) -> tuple[HostHoldings, ...]:
        """Return what hosts tell when they are fenced.

        The older replica is left out: a host that has lost the newer one has lost both, so only a
        copy that turns out to be bad could bring it into a plan, and none does here.
        """
        hosts = list(host_ids)
        written = [(True, one) for one in self.own] + [(False, one) for one in self.replicas[-1:]]
        theirs = {
            which: list(map(self._ranks[which].get, hosts))
            for which in {(own, one.generation) for own, one in written}
        }
        # Snapshot by snapshot for all hosts, and then host by host: most have all of them.
        snapshots = [
            [
                ranks
                and HeldSnapshots(step=one.step, generation=one.generation, own=own, ranks=ranks)
                for ranks in theirs[own, one.generation]
            ]
            for own, one in written
        ]
        by_host = zip(*snapshots, strict=True) if snapshots else repeat((), len(hosts))
        return tuple(
            [
                HostHoldings(
                    host_id=host_id,
                    address=host_id,
                    peer_port=PORT,
                    held=held if all(held) else tuple(filter(None, held)),
                )
                for host_id, held in zip(hosts, by_host, strict=True)
            ]
        )

    def with_current(
        self, *, generation: int, first: int, trained_ms: int, at_ms: int
    ) -> list[Stored]:
        """Return the complete checkpoints, those of the generation that runs now too."""
        cadence = self.cadence
        done = cadence.durable(first, trained_ms, self._keep_last)
        return self.stored + [
            Stored(
                generation=generation, step=step, completed_ms=at_ms, world_size=self._world_size
            )
            for step in done
        ]

    def _complete(self, generation: int, first: int, trained_ms: int, at_ms: int) -> None:
        cadence = self.cadence
        if not cadence.object_every:
            return
        cycle_ms = cadence.elapsed_ms(0, cadence.object_every)
        reach = self._keep_last + HOURLY_KEPT * max(HOUR_MS // cycle_ms, 1)
        for step in cadence.durable(first, trained_ms, reach):
            done_ms = cadence.elapsed_ms(first, step) + cadence.upload_ms
            self.stored.append(
                Stored(
                    generation=generation,
                    step=step,
                    completed_ms=at_ms - trained_ms + done_ms,
                    world_size=self._world_size,
                )
            )
        hourly: dict[int, Stored] = {}
        for stored in self.stored:
            hourly.setdefault(stored.completed_ms // HOUR_MS, stored)
        kept = {*list(hourly.values())[-HOURLY_KEPT:], *self.stored[-self._keep_last :]}
        self.stored[:] = sorted(kept, key=lambda stored: stored.step)
