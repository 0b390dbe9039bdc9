"""What ranks that did not come to the same had, kept until their step has been made again.

It is stored with the incident, because the process that found it may be gone by then: nothing but
these claims tells who was right (``detectors/remade.py``).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from everstep.core.placement import Layout
from everstep.core.record import Record

Key = tuple[str, int]  # what was made, and whose it is: a circle's, or a rank's work
Pair = tuple[int, tuple[str, ...]]  # in which generation hosts differed, and which ones
Claims = Mapping[Key, Mapping[int, int]]  # what ranks came to, each for itself

# A tie ends its generation, and the next one makes its step again; more than one or two stand open
# only where a run goes back behind several of them.
TIES_MAX: Final = 8
# Two ranks that differ in all that they hold make a dozen. An event of so many still fits into a
# message of a megabyte; if more ranks than that differ, it is none of two that was wrong.
CLAIMS_STORED_MAX: Final = 8_192
# The third time that the same hosts differ holds the run; that others do so meanwhile is not usual.
PAIRS_MAX: Final = 64


class Claim(Record, frozen=True, kw_only=True):
    """What a rank, on a host, had come to."""

    what: str
    whose: int
    rank: int
    host_id: str
    value: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Tie:
    """Ranks that did not come to the same at a step, and nothing told who was wrong.

    Args:
        step: at which.
        layout: of the job then.
        suspects: ranks of which one at least was wrong.
        claims: what each came to, of what was not alike.
        work: it is about work that was done twice, and not about what ranks hold.
    """

    step: int
    layout: Layout
    suspects: tuple[int, ...]
    claims: tuple[Claim, ...]
    work: bool = False

    @property
    def hosts(self) -> Mapping[int, str]:
        """Where each of the ranks was."""
        return {one.rank: one.host_id for one in self.claims}

    @property
    def claimed(self) -> Claims:
        """What ranks came to, by what it was."""
        found: dict[Key, dict[int, int]] = {}
        for one in self.claims:
            found.setdefault((one.what, one.whose), {})[one.rank] = one.value
        return found

    @property
    def suspected_hosts(self) -> frozenset[str]:
        """Of which one at least was wrong."""
        hosts = self.hosts
        return frozenset(hosts[rank] for rank in self.suspects if rank in hosts)


def claims_of(claims: Claims, hosts: Sequence[str]) -> tuple[Claim, ...]:
    """Return what ranks came to as it is kept; ``hosts`` by rank."""
    return tuple(
        Claim(what=what, whose=whose, rank=rank, host_id=hosts[rank], value=value)
        for (what, whose), values in sorted(claims.items())
        for rank, value in sorted(values.items())
    )


def with_tie(ties: Iterable[Tie], newest: Tie) -> tuple[Tie, ...]:
    """Return ties with one more; what a step came to the newest time is what counts."""
    others = [one for one in ties if (one.work, one.step) != (newest.work, newest.step)]
    kept = sorted([*others, newest], key=lambda one: (one.step, one.work))
    return tuple(kept[-TIES_MAX:])


def with_pair(pairs: tuple[Pair, ...], newest: Pair) -> tuple[Pair, ...]:
    """Return who has differed with one more; a generation ends with it, however many steps show."""
    return pairs if newest in pairs else (*pairs, newest)[-PAIRS_MAX:]
