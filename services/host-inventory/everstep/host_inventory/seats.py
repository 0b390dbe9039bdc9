"""What placing and re-placing share: cells, seats and the answers to "is there room?".

A *cell* is the ``tp`` consecutive ranks of one pipeline stage and one data-parallel index; it never
leaves its host. A *seat* is all ranks of one host.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from everstep.core.placement import HostPlacement, Layout, Placement
from everstep.host_inventory.state import Host


@dataclass(frozen=True, slots=True, kw_only=True)
class Placed:
    """Every rank has a host."""

    placement: Placement


@dataclass(frozen=True, slots=True, kw_only=True)
class HostsShort:
    """``missing`` more hosts are needed now; waiting may help."""

    missing: int
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NeverFits:
    """All hosts that are there, busy and cordoned ones included, could not carry the layout."""

    detail: str


def data_parallel(layout: Layout) -> int:
    """Return the number of data-parallel indices, which is the number of pipelines."""
    return layout.dp_replicate * layout.dp_shard


def cells_of(ranks: Sequence[int], layout: Layout) -> list[int]:
    """Return the cells of a seat: cell ``stage * data_parallel + index`` holds ``tp`` ranks."""
    return [rank // layout.tp for rank in ranks[:: layout.tp]]


def host_placement(host: Host, ranks: tuple[int, ...], replica_host_id: str) -> HostPlacement:
    """Seat a host, reachable where it is now."""
    return HostPlacement(
        host_id=host.host_id,
        address=host.address,
        peer_port=host.peer_port,
        ranks=ranks,
        replica_host_id=replica_host_id,
    )


def kept(unsound: Sequence[str], placement: Placement) -> str:
    """Say which unsound hosts serve on although they should not; "" if none does."""
    staying = sorted(placement.host_set.intersection(unsound)) if unsound else []
    if not staying:
        return ""
    return (
        f"no spare host can take the ranks of {', '.join(staying)}: restarted in place; add a host "
        f"or look after {staying[0]}"
    )


def relaxed(placement: Placement, hosts: Mapping[str, Host]) -> str:
    """Say in one sentence which wish the placement does not fulfil; "" if it fulfils all."""
    across = pipelines_across_pods(placement, hosts)
    if not across:
        return ""
    return f"{across} of {data_parallel(placement.layout)} pipelines span pods: no pod had room"


def pipelines_across_pods(placement: Placement, hosts: Mapping[str, Host]) -> int:
    """Count the pipelines (one for each data-parallel index) that are in more than one pod."""
    dp = data_parallel(placement.layout)
    pods: dict[int, set[str]] = defaultdict(set)
    for seat in placement.hosts:
        host = hosts.get(seat.host_id)
        for cell in cells_of(seat.ranks, placement.layout):
            pods[cell % dp].add(host.pod if host else "")
    return sum(len(where) > 1 for where in pods.values())
