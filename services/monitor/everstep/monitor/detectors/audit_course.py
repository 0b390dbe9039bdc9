"""Gathers what a job's ranks tell of their own work, until somebody has done a step again.

Ranks tell it of each step right after a durable snapshot. A job's is kept of the newest such
steps, because uploads end long after their step; an audit's is waited for until all of its ranks
have told. Messages may come in any order, twice, or when a later generation has begun.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from everstep.monitor.detectors.audit import Run
from everstep.wire.v1.agents_pb2 import RankStep, Work

# Snapshots whose upload is still under way when the next ones are taken; chosen. A step of 16,384
# ranks is some 2 MB.
STEPS_MAX: Final = 8
GENERATIONS_MAX: Final = 8


class OwnWorks:
    """One job's. Mutable: lost with the process."""

    def __init__(self) -> None:
        self._told: dict[tuple[int, int], dict[int, str]] = {}  # generation, step -> rank -> work
        self._hosts: dict[int, tuple[str, ...]] = {}  # generation -> host by rank
        self._planned = self._restored = 0

    def knows(self, generation: int) -> bool:
        """Whether it is known where a generation's ranks are."""
        return generation in self._hosts

    def begin(self, generation: int, hosts: Sequence[str], restore_step: int | None) -> None:
        """Take up a generation as far as it is known; what it goes back behind is over.

        Args:
            generation: the job's.
            hosts: by rank; none if they are not known yet.
            restore_step: that it goes on from; None: not known yet.
        """
        if hosts and not self.knows(generation):
            self._hosts[generation] = tuple(hosts)
            while len(self._hosts) > GENERATIONS_MAX:
                del self._hosts[min(self._hosts)]
        if restore_step is not None and generation > self._planned:
            self._planned, self._restored = generation, restore_step
            for key in [key for key in self._told if self._is_over(*key)]:
                del self._told[key]

    def told(self, generation: int, steps: Iterable[RankStep]) -> None:
        """Take what ranks of one host have told."""
        for step in steps:
            over = self._is_over(generation, step.step)
            if not over and step.HasField("checked") and step.checked.HasField("own"):
                ranks = self._told.setdefault((generation, step.step), {})
                ranks[step.rank] = written(step.checked.own)
        while len(self._told) > STEPS_MAX:
            del self._told[min(self._told)]

    def run(self, generation: int, step: int) -> Run | None:
        """Return what all ranks of a generation came to at a step, by rank; None: not all told."""
        hosts, told = self._hosts.get(generation, ()), self._told.get((generation, step), {})
        if not hosts or not told.keys() >= set(range(len(hosts))):
            return None
        return Run(works=tuple(told[rank] for rank in range(len(hosts))), hosts=hosts)

    def silent(self, generation: int, step: int) -> tuple[str, ...]:
        """Return the hosts that have not told of all their ranks at a step; sorted."""
        told = self._told.get((generation, step), {})
        hosts = enumerate(self._hosts.get(generation, ()))
        return tuple(sorted({host for rank, host in hosts if rank not in told}))

    def hosts_of(self, step: int, ranks: Sequence[int], works: Sequence[str]) -> tuple[str, ...]:
        """Return where these ranks have come to these works at a step; none if they have not."""
        for generation, number in sorted(self._told, reverse=True):
            hosts, told = self._hosts.get(generation), self._told[generation, number]
            came_to = [told.get(rank) for rank in ranks]
            if number == step and hosts is not None and came_to == list(works):
                return tuple(hosts[rank] for rank in ranks)
        return ()

    def _is_over(self, generation: int, step: int) -> bool:
        return generation < self._planned and step > self._restored


def written(work: Work) -> str:
    """Return what a rank came to as an audit's spec has it."""
    return f"{work.forward:016x}:{work.gradient:016x}"
