"""Where ranks run: the layout of a job and the hosts that carry it.

Field names are those of ``proto/everstep/v1/common.proto``; several services hold placements in
their events, so the words live here.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from everstep.core.record import Record


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """Mesh dimension sizes; a rank is ``((pp_i*R + rep_i)*S + shard_i)*T + tp_i``."""

    pp: int = 1
    dp_replicate: int = 1
    dp_shard: int = 1
    tp: int = 1

    @property
    def world_size(self) -> int:
        """Ranks in all."""
        return self.pp * self.dp_replicate * self.dp_shard * self.tp


class HostPlacement(Record, frozen=True, kw_only=True):
    """The ranks of one host in chip order, and the peer that keeps its snapshots ("" for none)."""

    host_id: str
    ranks: tuple[int, ...]
    address: str = ""
    peer_port: int = 0
    replica_host_id: str = ""


# To find one rank among 2,048 sorted hosts takes as long as to look into so many of them.
LOOKED_UP_COST: Final = 16


@dataclass(frozen=True, kw_only=True)
class Placement:
    """Every rank's host; ``hosts`` sorted by first rank.

    A recovery asks a dozen times who the hosts are, and there may be 2,048: the answers are kept
    beside the fields, which is why there are no slots.
    """

    layout: Layout
    hosts: tuple[HostPlacement, ...]

    @cached_property
    def host_ids(self) -> tuple[str, ...]:
        """The hosts, in the order of their first ranks."""
        return tuple([host.host_id for host in self.hosts])

    @cached_property
    def host_set(self) -> frozenset[str]:
        """The hosts, to look them up."""
        return frozenset(self.host_ids)

    @cached_property
    def seats(self) -> Mapping[str, HostPlacement]:
        """The hosts by id."""
        return dict(zip(self.host_ids, self.hosts, strict=True))

    def host_of(self, rank: int) -> str:
        """Return the host that runs ``rank``; "" if the placement does not hold it."""
        return next((seat.host_id for seat in self.seats_of((rank,))), "")

    def seats_of(self, ranks: Collection[int]) -> list[HostPlacement]:
        """Return the seats that any of ``ranks`` is in, each once; in the order of their ranks."""
        if len(ranks) * LOOKED_UP_COST <= len(self.hosts):
            found: set[int] = set()
            for rank in ranks:
                at = bisect_right(self.hosts, rank, key=_first_rank) - 1
                if at < 0 or rank not in self.hosts[at].ranks:
                    break  # its seat begins further to the left: ranks need not follow one another
                found.add(at)
            else:
                return [self.hosts[at] for at in sorted(found)]
        wanted = frozenset(ranks)
        return [seat for seat in self.hosts if not wanted.isdisjoint(seat.ranks)]


def _first_rank(seat: HostPlacement) -> int:
    return seat.ranks[0]
