"""Says who holds other bits than everybody else, where all must hold the same.

What several ranks hold alike (``core.circles``) is compared as fingerprints, or tensor by tensor
where the checksums are at hand. Who is wrong is a matter of votes, and of who can be wrong:

* Over data-parallel dimensions gradients are summed before they are stepped on. Whatever went wrong
  in somebody's forward or backward pass reaches all replicas alike; what differs between replicas
  is what one of them holds, or has added up, itself. So a majority names each of the others.
* Tensor-parallel ranks need not share such a sum: where a gradient comes down a residual path, as
  that of a bias behind a row-wise linear does, a wrong weight on one rank bends what its column
  holds, in all replicas. So columns are only compared where replicas agree with one another, and a
  column that stands out names one of its ranks.
* Two replicas are a tie. Tensor-parallel ranks that hold the same may break it: more than half of
  all who hold a tensor agree with one of the two. A second computation may, too (``refuted``).

A tie between ranks of one host names the host. Where nothing decides, all who may have been it are
suspects. More than ``HOSTS_AT_ONCE_MAX`` hosts wrong at one step are no chance: then it is code.

Rejected: one vote over all who hold a tensor, which would name every replica of a bent column.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from everstep.core.circles import DATA, Over, circle_numbers, circle_of
from everstep.core.placement import Layout

Item = tuple[int, str]  # over which dimensions, and the tensor's name; "" for all of them
Values = Mapping[Item, str | int]

# Chosen: hosts go wrong once in 10,000 days; two within one step are a coincidence already.
HOSTS_AT_ONCE_MAX: Final = 2
NAMED_MAX: Final = 8  # ranks or tensors in a sentence


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """Ranks that do not hold what they must hold alike.

    Args:
        item: what.
        holders: who must hold the same, as far as they were compared.
        suspects: among whom the wrong ones are.
        certain: each of the suspects is wrong; else at least one.
    """

    item: Item
    holders: tuple[int, ...]
    suspects: tuple[int, ...]
    certain: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Blame:
    """What all differences of a step come to: ``hosts`` are wrong if ``certain``, else suspect."""

    ranks: tuple[int, ...]
    hosts: tuple[str, ...]
    certain: bool
    reason: str


def differences(told: Mapping[int, Values], layout: Layout) -> tuple[Difference, ...]:
    """Compare what ranks hold.

    Args:
        told: by rank; a rank that has not told is in no circle.
        layout: of the job.
    """
    circles: dict[tuple[Item, int], dict[int, str | int]] = {}
    for rank in sorted(told):
        for item in sorted(told[rank]):
            number = circle_numbers(layout, item[0])[rank]
            circles.setdefault((item, number), {})[rank] = told[rank][item]
    found: list[Difference] = []
    for (item, first), held in circles.items():
        if len(set(held.values())) > 1:
            found += _differ(item, circle_of(layout, first, item[0]), held, layout)
    return tuple(found)


def blame(
    found: Sequence[Difference], hosts: Sequence[str], refuted: Collection[int] = ()
) -> Blame:
    """Say who was it.

    Args:
        found: at least one difference.
        hosts: by rank.
        refuted: ranks whose work another one has made again, with other bits, more often than that
            happened to anybody else.
    """
    certain = sorted({rank for one in found if one.certain for rank in one.suspects})
    if certain:
        return _blamed(certain, hosts, certain=True, why=_voted(found))
    ties = [frozenset(one.suspects) for one in found]
    among = frozenset.intersection(*ties) or frozenset.union(*ties)
    remade = sorted(among & frozenset(refuted))
    if remade and len({hosts[rank] for rank in remade}) == 1:
        why = "its own work came out otherwise when it was made again elsewhere"
        return _blamed(remade, hosts, certain=True, why=why)
    suspects = sorted(among)
    one_host = len({hosts[rank] for rank in suspects}) == 1
    why = f"one of {_named(suspects)} is wrong"
    return _blamed(suspects, hosts, certain=one_host, why=why)


def _blamed(ranks: Sequence[int], hosts: Sequence[str], *, certain: bool, why: str) -> Blame:
    there = tuple(sorted({hosts[rank] for rank in ranks}))
    if certain and len(there) > HOSTS_AT_ONCE_MAX:
        certain = False
        why += f"; {len(there)} hosts at once are not by chance: code is likelier"
    return Blame(ranks=tuple(ranks), hosts=there, certain=certain, reason=why)


def tensors_of(found: Iterable[Difference]) -> tuple[str, ...]:
    """Return the names of what differs, sorted."""
    return tuple(sorted({one.item[1] for one in found if one.item[1]}))


def described(tensors: Sequence[str]) -> str:
    """Name tensors in a sentence."""
    more = len(tensors) - NAMED_MAX
    return ", ".join(tensors[:NAMED_MAX]) + (f" and {more} more" if more > 0 else "")


def _differ(
    item: Item, circle: tuple[int, ...], held: Mapping[int, str | int], layout: Layout
) -> list[Difference]:
    """Look at one circle whose ranks do not all hold the same."""
    numbers = circle_numbers(layout, item[0] & DATA)
    replicas: dict[int, list[int]] = {}
    for rank in circle:
        replicas.setdefault(numbers[rank], []).append(rank)
    found: list[Difference] = []
    for all_of_them in replicas.values():
        group = [rank for rank in all_of_them if rank in held]
        if len({held[rank] for rank in group}) > 1:
            suspects, certain = _vote(group, all_of_them, held)
            found.append(
                Difference(item=item, holders=tuple(group), suspects=suspects, certain=certain)
            )
    if not found:
        return [_columns(item, circle, held, alone=all(len(one) == 1 for one in replicas.values()))]
    return [one if one.certain else _broken(one, circle, held) for one in found]


def _vote(
    group: Sequence[int], holders: Sequence[int], held: Mapping[int, str | int]
) -> tuple[tuple[int, ...], bool]:
    """Return who is not of the majority of all holders; everybody where there is none."""
    value, count = _most(held[rank] for rank in group)
    if 2 * count > len(holders):
        return tuple(rank for rank in group if held[rank] != value), True
    return tuple(group), False


def _broken(tie: Difference, circle: Sequence[int], held: Mapping[int, str | int]) -> Difference:
    """Ask all who hold the same whom of a tie they agree with."""
    value, count = _most(held.values())
    sound = [rank for rank in tie.suspects if held[rank] == value]
    if 2 * count <= len(circle) or not sound:
        return tie
    odd = tuple(rank for rank in tie.suspects if held[rank] != value)
    return Difference(item=tie.item, holders=tuple(sorted(held)), suspects=odd, certain=True)


def _columns(
    item: Item, circle: tuple[int, ...], held: Mapping[int, str | int], *, alone: bool
) -> Difference:
    """Compare tensor-parallel columns; ``alone``: each is one rank, and not several replicas."""
    assert item[0] & Over.TP, "nothing else is left to differ over"
    odd, majority = _vote(sorted(held), circle, held)
    return Difference(
        item=item, holders=tuple(sorted(held)), suspects=odd, certain=majority and alone
    )


def _most(values: Iterable[str | int]) -> tuple[str | int, int]:
    """Return the most frequent value and how often it is there; of several the smallest."""
    counted = Counter(values)
    return min(counted.items(), key=lambda pair: (-pair[1], str(pair[0])))


def _voted(found: Sequence[Difference]) -> str:
    first = next(one for one in found if one.certain)
    agreeing = len(first.holders) - len(first.suspects)
    return (
        f"{agreeing} of {len(first.holders)} ranks that hold the same agree with one another, and "
        f"{_named(first.suspects)} with none of them"
    )


def _named(ranks: Sequence[int]) -> str:
    some = ", ".join(str(rank) for rank in ranks[:NAMED_MAX])
    more = f" and {len(ranks) - NAMED_MAX} more" if len(ranks) > NAMED_MAX else ""
    return f"{'ranks' if len(ranks) > 1 else 'rank'} {some}{more}"
