"""Who takes over the seats of hosts that no longer serve a job.

A seat is the ranks of one host. Survivors keep theirs, their chips and their snapshot partners, so
that everything in their memory stays where the next restore looks for it; only broken seats move.
Rejected: placing afresh at every failure, which would shuffle ranks away from their snapshots.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

from everstep.core.placement import HostPlacement, Placement
from everstep.host_inventory.seats import (
    HostsShort,
    Placed,
    cells_of,
    data_parallel,
    host_placement,
)
from everstep.host_inventory.state import Fleet, Host, HostState, Job


def reseat(job: Job, old: Placement, fleet: Fleet) -> Placed | HostsShort:
    """Keep every seat whose host still serves; give each other seat to the nearest spare."""
    broken = [seat for seat in old.hosts if not _serves(job.job_id, seat, fleet)]
    kept = set(old.host_ids).difference([seat.host_id for seat in broken])
    spares = sorted(
        [
            host
            for host_id, host in fleet.hosts.items()
            # Most have a job: to look at that first is the quicker way to say that they are none.
            if not host.job_id and host.state is HostState.SPARE and host_id not in kept
        ],
        key=lambda host: host.host_id,
    )
    homes = _homes(broken, old, kept, fleet)
    heirs: dict[str, Host] = {}
    for seat in sorted(broken, key=lambda seat: (-len(seat.ranks), seat.ranks)):
        fits = [host for host in spares if host.chips >= len(seat.ranks)]
        if fits:
            home, partner = homes[seat.host_id], fleet.hosts.get(seat.replica_host_id)
            heir = min(fits, key=lambda host: _distance(host, home, partner))
            spares.remove(heir)
            heirs[seat.host_id] = heir
    missing = len(broken) - len(heirs)
    if missing:
        return HostsShort(
            missing=missing,
            detail=f"{len(broken)} of {len(old.hosts)} hosts of job {job.job_id} need a "
            f"replacement and {len(heirs)} spare hosts have the chips for it",
        )
    hosts = tuple([_heir_seat(seat, heirs, fleet) for seat in old.hosts])
    return Placed(placement=Placement(layout=old.layout, hosts=hosts))


def _serves(job_id: str, seat: HostPlacement, fleet: Fleet) -> bool:
    host = fleet.hosts.get(seat.host_id)
    return (
        host is not None
        and host.present
        and host.cordon is None
        and host.awaits is None
        and host.job_id in ("", job_id)
        and host.chips >= len(seat.ranks)
    )


def _homes(
    broken: Sequence[HostPlacement], old: Placement, kept: set[str], fleet: Fleet
) -> dict[str, str]:
    """Name the pod where each broken seat belongs: where most of its pipeline is, else its own.

    The pipeline outweighs the lost host's own pod, so that a seat that once had to go elsewhere
    comes back.
    """
    dp = data_parallel(old.layout)
    wanted = {cell % dp for seat in broken for cell in cells_of(seat.ranks, old.layout)}
    around_rank = {  # the first ranks of all cells of these pipelines
        (stage * dp + index) * old.layout.tp for stage in range(old.layout.pp) for index in wanted
    }
    pods: dict[int, list[str]] = defaultdict(list)
    for seat in old.hosts if broken else ():
        if not around_rank.isdisjoint(seat.ranks) and seat.host_id in kept:
            for cell in cells_of(seat.ranks, old.layout):
                pods[cell % dp].append(fleet.hosts[seat.host_id].pod)
    homes = {}
    for seat in broken:
        lost = fleet.hosts.get(seat.host_id)
        own = lost.pod if lost else ""
        around = [pod for cell in cells_of(seat.ranks, old.layout) for pod in pods[cell % dp]]
        homes[seat.host_id] = min(
            {*around, own}, key=lambda pod: (-around.count(pod), pod != own, pod)
        )
    return homes


def _distance(host: Host, home: str, partner: Host | None) -> tuple[bool, bool, int, str]:
    """Prefer the pipeline's pod, then not the pod that holds the seat's replicas, then small."""
    beside_replica = partner is not None and host.pod == partner.pod
    return (host.pod != home, beside_replica, host.chips, host.host_id)


def _heir_seat(seat: HostPlacement, heirs: Mapping[str, Host], fleet: Fleet) -> HostPlacement:
    """Hand a seat on; who kept its copies goes on, and so does who now holds that one's seat."""
    heir, peer = heirs.get(seat.host_id), heirs.get(seat.replica_host_id)
    host = heir or fleet.hosts[seat.host_id]
    stays = heir is None and host.address == seat.address and host.peer_port == seat.peer_port
    if stays and peer is None:
        return seat
    return host_placement(host, seat.ranks, peer.host_id if peer else seat.replica_host_id)
