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
    broken, moved = _not_as_before(job.job_id, old, fleet)
    lost = {seat.host_id for seat in broken}
    spares = sorted(
        [
            host
            for host_id, host in fleet.hosts.items()
            # Most have a job: to look at that first is the quicker way to say that they are none.
            if not host.job_id and host.state is HostState.SPARE
            if host_id not in old.host_set or host_id in lost
        ],
        key=lambda host: host.host_id,
    )
    homes = _homes(broken, old, lost, fleet)
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
    if not heirs and not moved:
        return Placed(placement=old)
    changed = moved | heirs.keys()
    hosts = [
        _heir_seat(seat, heirs, fleet)
        if seat.host_id in changed or seat.replica_host_id in heirs
        else seat
        for seat in old.hosts
    ]
    return Placed(placement=Placement(layout=old.layout, hosts=tuple(hosts)))


def _not_as_before(
    job_id: str, old: Placement, fleet: Fleet
) -> tuple[list[HostPlacement], set[str]]:
    """Return the seats whose hosts do not serve any more, and who serves at another address."""
    broken: list[HostPlacement] = []
    moved: set[str] = set()
    known = fleet.hosts.get
    for seat in old.hosts:  # all of them, at every failure: in one pass
        host = known(seat.host_id)
        if (
            host is None
            or not host.present
            or host.cordon is not None
            or host.awaits is not None
            or (host.job_id != job_id and host.job_id)
            or host.chips < len(seat.ranks)
        ):
            broken.append(seat)
        elif host.address != seat.address or host.peer_port != seat.peer_port:
            moved.add(seat.host_id)
    return broken, moved


def _homes(
    broken: Sequence[HostPlacement], old: Placement, lost: set[str], fleet: Fleet
) -> dict[str, str]:
    """Name the pod where each broken seat belongs: where most of its pipeline is, else its own.

    The pipeline outweighs the lost host's own pod, so that a seat that once had to go elsewhere
    comes back.
    """
    dp = data_parallel(old.layout)
    wanted = {cell % dp for seat in broken for cell in cells_of(seat.ranks, old.layout)}
    around_rank = [  # the first ranks of all cells of these pipelines
        (stage * dp + index) * old.layout.tp for stage in range(old.layout.pp) for index in wanted
    ]
    pods: dict[int, list[str]] = defaultdict(list)
    for seat in old.seats_of(around_rank):
        if seat.host_id not in lost:
            for cell in cells_of(seat.ranks, old.layout):
                pods[cell % dp].append(fleet.hosts[seat.host_id].pod)
    homes = {}
    for seat in broken:
        host = fleet.hosts.get(seat.host_id)
        own = host.pod if host else ""
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
    return host_placement(host, seat.ranks, peer.host_id if peer else seat.replica_host_id)
