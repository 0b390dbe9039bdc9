"""Where ranks go: tensor parallel inside a host, a pipeline inside a pod, pipelines across pods.

Cells (``seats.py``) are handed out in blocks of neighbouring data-parallel indices per pod, so
that shard groups stay in a pod and replicate groups cross pods. Hosts are taken whole. Everything
is sorted before it is chosen from.

Rejected: an optimiser over link costs. The fleet's topology is known as pods only, and a rule that
can be checked by hand is what an operator trusts.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from heapq import heapify, heappop, heappush
from operator import attrgetter
from typing import Final

from everstep.core.placement import Layout, Placement
from everstep.host_inventory.pairing import Seat, pair
from everstep.host_inventory.reseating import reseat
from everstep.host_inventory.seats import (
    HostsShort,
    NeverFits,
    Placed,
    cells_of,
    data_parallel,
    host_placement,
)
from everstep.host_inventory.settling import settle
from everstep.host_inventory.state import Fleet, Host, Job
from everstep.host_inventory.turning import turned

Answer = Placed | HostsShort | NeverFits

_host_id: Final = attrgetter("host_id")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Room:
    """Hosts enough to place a job on anew.

    Args:
        hosts: sorted.
        old: where its state lies; None for a job that had no seats.
    """

    hosts: Sequence[Host]
    old: Placement | None


def why_bad_layout(layout: Layout) -> str:
    """Say what is wrong with a layout; "" for nothing."""
    sizes = {
        "pp": layout.pp,
        "dp_replicate": layout.dp_replicate,
        "dp_shard": layout.dp_shard,
        "tp": layout.tp,
    }
    wrong = [f"{name} is {size}, expected 1 or more" for name, size in sizes.items() if size < 1]
    return "; ".join(wrong)


def place(job_id: str, layout: Layout, fleet: Fleet, turn: int = 0) -> Answer:
    """Place a job on hosts that are its own or free.

    A job that was placed before keeps the seats of hosts that still serve it (and its old seats on
    hosts that are free); every other seat goes to one spare. A job that is new, or whose old seats
    cannot be filled after it had been released, is placed from scratch; so is one whose layout
    changes, on its own hosts as far as they go, because they hold its state. A new one that does
    the work of others before it again has other hosts than those, by the ``turn`` that it is.
    """
    found = _find(job_id, layout, fleet)
    return _launch(layout, found, turn) if isinstance(found, _Room) else found


def replaceable(job_id: str, hosts: Sequence[str], fleet: Fleet) -> tuple[str, ...]:
    """Return as many of ``hosts`` as spares could take the seats of now, the first ones first."""
    job = fleet.jobs.get(job_id)
    if job is None or not job.held or job.placement is None:
        return ()
    mine = sorted(job.placement.host_set.intersection(hosts))
    for count in range(len(mine), 0, -1):
        gone = frozenset(mine[:count])
        others = {name: host for name, host in fleet.hosts.items() if name not in gone}
        answer = reseat(job, job.placement, replace(fleet, hosts=others))
        if isinstance(answer, Placed):
            return tuple(mine[:count])
    return ()


def placeable(job_id: str, layouts: Sequence[Layout], fleet: Fleet) -> Layout | None:
    """Return the first of the layouts that a job could have now; None if none, or if it is over."""
    job = fleet.jobs.get(job_id)
    if job is None or not job.held:
        return None
    for layout in layouts:
        if isinstance(_find(job_id, layout, fleet), Placed | _Room):
            return layout
    return None


def reduced(wanted: Layout, got: Layout) -> str:
    """Say by how much a placement is smaller than the layout that was wanted; "" for not at all."""
    if got == wanted:
        return ""
    sizes = [f"{name} {getattr(got, name)}" for name in ("pp", "dp_replicate", "dp_shard", "tp")]
    return (
        f"hosts are short: {got.world_size} of {wanted.world_size} ranks, as {', '.join(sizes)}, "
        "until there are more"
    )


def new_hosts(job: Job | None, placement: Placement) -> tuple[str, ...]:
    """Return the hosts that take over seats in ``placement``; none at the first one."""
    if job is None or job.placement is None:
        return ()
    return tuple(sorted(placement.host_set - job.placement.host_set))


def _why_never(layout: Layout, fleet: Fleet) -> str:
    known = [host for host in fleet.hosts.values() if host.present]
    if not known:
        return "no host has joined the fleet: start agents first"
    largest = max(host.chips for host in known)
    if layout.tp > largest:
        return (
            f"tensor parallel {layout.tp} needs one host with {layout.tp} chips; the largest of "
            f"{len(known)} hosts has {largest}"
        )
    chips = sum(host.chips // layout.tp * layout.tp for host in known)
    if layout.world_size > chips:
        return (
            f"the layout needs {layout.world_size} chips in groups of {layout.tp}; all "
            f"{len(known)} hosts together, busy and cordoned ones included, have {chips}"
        )
    return ""


def _find(job_id: str, layout: Layout, fleet: Fleet) -> Answer | _Room:
    """Return the job's seats if it keeps them, or on which hosts it can be placed anew."""
    job = fleet.jobs.get(job_id)
    has_fitted = job is not None and job.placement is not None
    held = job is not None and job.held and has_fitted
    if job is not None and job.placement is not None and job.placement.layout == layout:
        answer = reseat(job, job.placement, fleet)
        if held or isinstance(answer, Placed):
            return answer
    # What has fitted once waits, when it is begun again, for hosts that have left meanwhile.
    never = "" if has_fitted else _why_never(layout, fleet)
    if never:
        return NeverFits(detail=never)
    mine, free = _usable(job_id, fleet)
    if not held:
        return _room(layout, free, None)
    old = job.placement if job is not None else None
    found = _room(layout, mine, old)
    return found if isinstance(found, _Room) else _room(layout, [*mine, *free], old)


def _usable(job_id: str, fleet: Fleet) -> tuple[list[Host], list[Host]]:
    """Return the hosts that serve the job, and the spare ones, each by id."""
    wanted = (job_id, "")
    # Its state is active or spare then, which is looked up for all hosts and each layout.
    able = [
        host
        for host in fleet.hosts.values()
        if host.job_id in wanted and host.present and host.cordon is None and host.awaits is None
    ]
    able.sort(key=_host_id)
    return [host for host in able if host.job_id], [host for host in able if not host.job_id]


def _room(layout: Layout, free: Sequence[Host], old: Placement | None) -> _Room | HostsShort:
    needed, tp = layout.world_size // layout.tp, layout.tp
    capacities = [host.chips // tp for host in free]
    there = sum(capacities)
    if there >= needed:
        return _Room(hosts=free, old=old)
    each = max([*capacities, 1])
    return HostsShort(
        missing=-(-(needed - there) // each),
        detail=f"{layout.world_size} chips are needed and {there * tp} are on "
        f"the {len(free)} spare hosts; the others are busy or cordoned",
    )


def _launch(layout: Layout, room: _Room, turn: int) -> Placed:
    """Place ranks on free hosts, each near its state if they had another placement before."""
    pods: dict[str, list[Host]] = defaultdict(list)
    for host in room.hosts:
        pods[host.pod].append(host)
    seats: list[tuple[Host, tuple[int, ...]]] = []
    for pod, cells in _share_out(layout, pods).items():
        seats += _seat(cells, pods[pod], layout.tp)
    seats.sort(key=lambda seat: seat[1])
    if room.old is not None:
        seats = settle(seats, room.old, layout)
    elif turn:
        seats = turned(seats, room.hosts, turn, layout.tp)
    peers = pair(_pairing_seats(seats, layout))
    hosts = [host_placement(host, ranks, peers[host.host_id]) for host, ranks in seats]
    return Placed(placement=Placement(layout=layout, hosts=tuple(hosts)))


def _share_out(layout: Layout, pods: Mapping[str, Sequence[Host]]) -> dict[str, list[int]]:
    """Give every pod its cells: whole shard groups, then whole pipelines, then single cells."""
    left = {
        pod: sum(host.chips // layout.tp for host in hosts) for pod, hosts in sorted(pods.items())
    }
    dp = data_parallel(layout)
    rest = list(range(dp))
    cells: dict[str, list[int]] = {pod: [] for pod in left}
    for size in (layout.dp_shard, 1) if layout.dp_replicate > 1 else (1,):
        for pod, count in _deal(left, cost=size * layout.pp, count_max=len(rest) // size).items():
            mine, rest = rest[: count * size], rest[count * size :]
            cells[pod] += [stage * dp + index for stage in range(layout.pp) for index in mine]
    spanning = [stage * dp + index for index in rest for stage in range(layout.pp)]
    for pod in sorted(left, key=lambda pod: (-left[pod], pod)):
        mine, spanning = spanning[: left[pod]], spanning[left[pod] :]
        cells[pod] += mine
    return {pod: sorted(taken) for pod, taken in cells.items() if taken}


def _deal(left: dict[str, int], *, cost: int, count_max: int) -> dict[str, int]:
    """Deal up to ``count_max`` units of ``cost`` cells evenly, to the roomier pod at a tie.

    Takes what it deals from ``left``. Returns how many units each pod got.
    """
    counts = dict.fromkeys(left, 0)
    open_pods = [(0, -room, pod) for pod, room in left.items() if room >= cost]
    heapify(open_pods)
    for _ in range(count_max):
        if not open_pods:
            break
        count, _, pod = heappop(open_pods)
        counts[pod], left[pod] = count + 1, left[pod] - cost
        if left[pod] >= cost:
            heappush(open_pods, (count + 1, -left[pod], pod))
    return counts


def _seat(
    cells: Sequence[int], hosts: Sequence[Host], tp: int
) -> list[tuple[Host, tuple[int, ...]]]:
    """Put cells on as few of the pod's hosts as will do, neighbours together."""
    seats = []
    for host, room in _choose(len(cells), hosts, tp):
        mine, cells = cells[:room], cells[room:]
        ranks = [rank for cell in mine for rank in range(cell * tp, cell * tp + tp)]
        seats.append((host, tuple(ranks)))
    assert not cells, "the pod was given more cells than it has room for"
    return seats


def _choose(count: int, hosts: Sequence[Host], tp: int) -> list[tuple[Host, int]]:
    """Take the largest hosts whole, then the smallest one that holds the rest.

    Returns:
        Hosts by id, each with how many cells it takes.
    """
    chosen = []
    largest_first = sorted(hosts, key=lambda host: (-(host.chips // tp), host.host_id))
    for i, host in enumerate(largest_first):
        room = host.chips // tp
        if room >= count:
            fits = [other for other in largest_first[i:] if other.chips // tp >= count]
            chosen.append((min(fits, key=lambda fit: (fit.chips, fit.host_id)), count))
            break
        chosen.append((host, room))
        count -= room
    return sorted(chosen, key=lambda taken: taken[0].host_id)


def _pairing_seats(seats: Sequence[tuple[Host, tuple[int, ...]]], layout: Layout) -> list[Seat]:
    dp = data_parallel(layout)
    found: list[Seat] = []
    for host, ranks in seats:
        stages = pipelines = 0
        for cell in cells_of(ranks, layout):
            stages |= 1 << (cell // dp)
            pipelines |= 1 << (cell % dp)
        found.append(
            Seat(
                host_id=host.host_id,
                pod=host.pod,
                power=host.power,
                stages=stages,
                pipelines=pipelines,
            )
        )
    return found
