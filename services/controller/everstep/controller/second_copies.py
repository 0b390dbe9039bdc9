"""Gives what only one host holds a second place, while a job waits for hosts.

Of a lost host's state and of its partner's there is one copy each, on the partner. A job that
trains on has new ones with its next snapshot. One that waits for a spare may wait for hours, and
the partner's loss would throw it back to the object store: so the other hosts take copies, those
of another pod where there are some, then those of another power domain, in the order of the
inventory's ``pairing``. What they bring is told with the next fence, like all else that they hold,
and removed when the job has trained on.

A copy that is damaged is found by who reads it: it cannot be brought. What has been asked for and
still lies once only makes its step worth less, so the step before it is kept twice as well.

Rejected: storing the step as a checkpoint. Memory snapshots are not in the durable format, and the
ranks that could write it are gone.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from functools import partial
from typing import Final

from everstep.controller.outside import Fenced, Outside
from everstep.controller.state import Job
from everstep.core.elastic import groups_of
from everstep.wire.v1.checkpoints_pb2 import Holder, HostHoldings, RestoreSources

# A host that dies meanwhile takes copies with it: the others are asked again what they hold. The
# inventory needs as long to miss it.
LOOK_AGAIN_S: Final = 10.0
NO_LIMIT: Final = 2**62  # beyond any run's steps

_Held = dict[str, bool]  # by host: whether it is its rank's own


async def keep_twice(
    outside: Outside,
    job: Job,
    hosts: Sequence[str],
    fenced: MutableMapping[str, Fenced],
    asked_for: set[tuple[int, int]],
) -> None:
    """Let hosts bring what has no second place, once; ends when it is time to look again.

    Args:
        outside: where they are asked.
        job: that waits.
        hosts: that are fenced and may serve it again.
        fenced: what they have answered; what is out of date is taken away.
        asked_for: the (step, rank) that hosts were told to bring so far; what they are told now is
            added.
    """
    assert job.placement is not None
    asked = [host for host in hosts if host not in fenced]
    if asked:
        got = await outside.fence(job.job_id, job.generation, asked, graceful=False, forget=False)
        fenced.update(got)
    told = [fenced[host] for host in hosts if host in fenced]
    step, in_vain = NO_LIMIT, True
    while in_vain:  # as often as there are steps: memory has two of each rank
        step, copies = second_copies(told, partial(ranks_of, job), before_step=step)
        wanted = {(step, rank) for part in copies.values() for rank in _ranks_in(part)}
        in_vain = not asked_for.isdisjoint(wanted)
        asked_for |= wanted
        for host in copies:
            fenced.pop(host, None)
        if copies:
            await outside.bring(job.job_id, job.generation, step, copies)
    await asyncio.sleep(LOOK_AGAIN_S)
    for host in hosts:
        fenced.pop(host, None)


def second_copies(
    fenced: Sequence[Fenced], world_size: Callable[[int], int], *, before_step: int = NO_LIMIT
) -> tuple[int, Mapping[str, RestoreSources]]:
    """Say which host should bring what, of the newest step that every rank has.

    Args:
        fenced: what each host holds, and where it stands.
        world_size: of the ranks that made a step.
        before_step: only an older one will do.

    Returns:
        The step (-1: none), and by host what it should take from where; the ranks are spread over
        the hosts that share least with who holds them.
    """
    places = _places([one.holdings for one in fenced])
    whole = (step for step, ranks in places.items() if len(ranks) >= world_size(step))
    steps = [step for step in whole if step < before_step]
    if not steps or len(fenced) < 2:
        return -1, {}
    step = max(steps)
    once = sorted(rank for rank, (_, there) in places[step].items() if len(there) == 1)
    by_id = {one.host_id: one for one in fenced}
    apart: dict[str, list[str]] = {}
    found: dict[str, dict[tuple[str, int], Holder]] = defaultdict(dict)
    for index, rank in enumerate(once):
        generation, there = places[step][rank]
        [(host_id, own)] = there.items()
        if host_id not in apart:
            apart[host_id] = farthest(by_id[host_id], fenced)
        target = found[apart[host_id][index % len(apart[host_id])]]
        if (host_id, generation) not in target:
            told = by_id[host_id].holdings
            target[host_id, generation] = Holder(
                host_id=host_id,
                address=told.address,
                peer_port=told.peer_port,
                generation=generation,
            )
        holder = target[host_id, generation]
        (holder.own if own else holder.replicas).append(rank)
    return step, {
        host_id: RestoreSources(holders=target.values()) for host_id, target in found.items()
    }


def ranks_of(job: Job, step: int) -> int:
    """Return how many ranks made a step: a job that waits may have been given others since."""
    assert job.placement is not None
    layout = job.placement.layout
    now = groups_of(layout)
    made_by = [groups for since, groups in job.groups if since < step]
    return layout.world_size // now * (made_by[-1] if made_by else now)


def farthest(holder: Fenced, fenced: Sequence[Fenced]) -> list[str]:
    """Return the other hosts that are least likely to be lost together with one, by id."""

    def shared(other: Fenced) -> tuple[bool, bool]:
        return (other.pod == holder.pod, bool(holder.power) and other.power == holder.power)

    others = [one for one in fenced if one.host_id != holder.host_id]
    least = min(map(shared, others))
    return sorted(one.host_id for one in others if shared(one) == least)


def _ranks_in(sources: RestoreSources) -> set[int]:
    return {rank for one in sources.holders for rank in (*one.own, *one.replicas)}


def _places(holdings: Sequence[HostHoldings]) -> dict[int, dict[int, tuple[int, _Held]]]:
    """Return by step and rank who wrote the newest copies of it, and which hosts hold them."""
    places: dict[int, dict[int, tuple[int, _Held]]] = defaultdict(dict)
    for host in holdings:
        for held in host.held:
            ranks = places[held.step]
            for rank in held.ranks:
                generation, there = ranks.get(rank, (-1, {}))
                if held.generation > generation:
                    ranks[rank] = (held.generation, {host.host_id: held.own})
                elif held.generation == generation:
                    there.setdefault(host.host_id, held.own)
    return places
