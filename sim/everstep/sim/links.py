"""Which hosts reach one another: the network of the collectives and of the peers' snapshots.

The way to the bus is another one (``network.py``): a host that is cut from its peers may answer the
control plane as well as any other.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from everstep.sim.training import Training
    from everstep.sim.world import World

NEVER_S: Final = -1e9


class Links:
    """Directed: a cut way from one host to another lets the way back be."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._cut: set[tuple[str, str]] = set()
        self._mended_s: dict[str, float] = {}
        self._stalled: dict[tuple[str, int], int] = {}  # training -> how many times, so far

    def reaches(self, source: str, target: str) -> bool:
        """Say whether a connection from one host to another comes about."""
        hosts = self._world.hosts
        ends = (hosts[source], hosts[target])
        return all(host.on and host.data_link for host in ends) and (
            (source, target) not in self._cut
        )

    def joined(self, training: Training) -> bool:
        """Say whether all hosts of a training reach one another."""
        return not any((a, b) in self._cut for a in training.runs for b in training.runs)

    def cut_s_ago(self, host_id: str) -> float:
        """Return how long ago a host had a cut way: 0 while it has one."""
        host = self._world.hosts[host_id]
        if not host.data_link or any(host_id in way for way in self._cut):
            return 0.0
        mended_s = max(host.linked_s, self._mended_s.get(host_id, NEVER_S))
        return asyncio.get_running_loop().time() - mended_s

    def cut(self, group: Iterable[str], *, one_way: bool = False, resets: bool = False) -> None:
        """Cut hosts from all others, or only the ways into them.

        Collectives across the cut hang until they time out, or fail at once if connections are
        reset.
        """
        inside = set(group)
        for host_id in sorted(inside):
            for other in sorted(set(self._world.hosts) - inside):
                self._cut.add((other, host_id))
                if not one_way:
                    self._cut.add((host_id, other))
        self._world.note("links", f"{', '.join(sorted(inside))} cut")
        for key, training in sorted(self._world.trainings.items()):
            if training.stepping and not self.joined(training):
                if resets:
                    training.break_up("connections were reset")
                else:
                    self._stall(key, training)

    def mend(self) -> None:
        """Bring every way back; collectives that have not failed yet go on."""
        now_s = asyncio.get_running_loop().time()
        for host_id in {host for way in self._cut for host in way}:
            self._mended_s[host_id] = now_s
        self._cut.clear()
        self._world.note("links", "mended")
        for key in sorted(self._stalled):
            self._world.trainings[key].resume()

    def _stall(self, key: tuple[str, int], training: Training) -> None:
        self._stalled[key] = stall = self._stalled.get(key, 0) + 1
        training.moving.clear()

        async def time_out() -> None:
            await asyncio.sleep(training.spec.recovery.collective_timeout_s)
            if self._stalled[key] == stall and not training.moving.is_set():
                training.break_up("a cut link: timed out")

        self._world.physics(time_out())
