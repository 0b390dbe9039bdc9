"""Which hosts there are in a replay, which of them are up, and which serve.

A host breaks, and is back, when it did in the record, whatever it does in the replay.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from everstep.planner.history import History, IdleLoss, LostHost
from everstep.planner.replay_policy import Policy

GOLDEN: Final = (math.sqrt(5) - 1) / 2  # its multiples fall evenly into a circle, however many


class Hosts:
    """The fleet of one replay."""

    def __init__(self, history: History, policy: Policy) -> None:
        self._whole = history.replicas
        self._full = len(history.hosts)
        self._elastic = policy.no_spare == "elastic"
        self._up = {*history.hosts, *_standby(history, policy)}
        self._seats = set(history.hosts)
        self._seated_replicas = self._whole
        self._wanted: set[str] = set()

    @property
    def capacity(self) -> float:
        """Return the share of the replicas that have hosts."""
        return self._seated_replicas / self._whole

    @property
    def spare(self) -> bool:
        """Say whether one stands by."""
        return bool(self._up - self._seats)

    @property
    def spares_count(self) -> int:
        """Return how many stand by."""
        return len(self._up - self._seats)

    @property
    def may_grow(self) -> bool:
        """Say whether there are hosts for more replicas than train."""
        return self.fitting() > self._seated_replicas

    def serves(self, host_id: str) -> bool:
        """Say whether a host has a seat and is up."""
        return host_id in self._seats and host_id in self._up

    def breaks(self, host_id: str) -> bool:
        """Take a host out; False if there is none, or it is out already."""
        if host_id not in self._up:
            return False
        self._up.discard(host_id)
        return True

    def returns(self, host_id: str) -> None:
        """Take a host in, a new one too."""
        self._up.add(host_id)

    def prefer(self, host_ids: Iterable[str]) -> None:
        """Remember who took over in the record, until hosts are seated."""
        self._wanted.update(host_ids)

    def fitting(self) -> int:
        """Return how many replicas there are hosts for, by the policy."""
        fitting = min(len(self._up) * self._whole // self._full, self._whole)
        return fitting if self._elastic or fitting == self._whole else 0

    def seat(self) -> bool:
        """Give the seats to those that have them, that took over in the record, then by name."""
        replicas = self.fitting()
        if not replicas:
            return False
        count = math.ceil(replicas * self._full / self._whole)
        order = sorted(
            self._up, key=lambda host: (host not in self._seats, host not in self._wanted, host)
        )
        self._seats = set(order[:count])
        self._seated_replicas = replicas
        self._wanted.clear()
        return True

    def take_one_out(self) -> str:
        """Take one of the seated hosts out, which, the record does not say; return its name."""
        host_id = max(self._seats & self._up)
        self._up.discard(host_id)
        return host_id


def _standby(history: History, policy: Policy) -> list[str]:
    """Return who stands by: of the record's spares the first ones, then hosts that it never had."""
    there = list(history.spares)
    if policy.spares is None:
        return there
    return (there + _more(len(there), policy.spares))[: policy.spares]


def _more(there: int, wanted: int) -> list[str]:
    return [f"~spare-{i:05d}" for i in range(wanted - there)]  # the last ones in order of names


def losses_of_more(history: History, policy: Policy) -> list[IdleLoss]:
    """Return how hosts that the record never had break: each as one of the record's did.

    At other times, spread evenly: a spare that never breaks is worth a third more than a real one
    on a fleet of eight (tests/sim/fleet/test_counterfactuals.py).
    """
    broke: dict[str, list[tuple[int, LostHost]]] = {}
    for at_ms, host in [
        *((failure.at_ms, host) for failure in history.failures for host in failure.lost),
        *((loss.at_ms, loss.host) for loss in history.idle_losses),
    ]:
        broke.setdefault(host.host_id, []).append((at_ms, host))
    models = sorted({*history.hosts, *history.spares})
    more = _more(len(history.spares), policy.spares or 0)
    return [
        IdleLoss(
            at_ms=round(at_ms + history.wall_ms * GOLDEN * (i + 1)) % history.wall_ms,
            host=replace(host, host_id=host_id),
        )
        for i, host_id in enumerate(more)
        for at_ms, host in broke.get(models[i % len(models)], ())
    ]
