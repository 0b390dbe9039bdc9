"""Finds the hosts that are cut from the others of their job, from what hosts say of their links.

A host whose network is gone answers us as well as any other: every collective fails, every host is
there, and starting again in the same places fails again. So hosts are asked whether they reach one
another. A pair is sound when every check between the two succeeded, in both directions where both
were made: a one-way cut is a cut. Sound pairs connect hosts into groups, and the larger part of the
job stays. Hosts of no part in the job (referees) are asked too: in a job of two they are the only
ones who can tell which of the two is cut.

Nobody is named on one look: links flap, and a host that is busy answers late. Two looks must name
the same host, a second apart and within five minutes, whatever was seen between them (network
alerts count when two come within 5 minutes; PEERS section 4).

Rejected: every host checks every other (4 million checks at 2,048 hosts; a ring and a few at random
find one cut host as well); blaming one of two hosts that only do not reach each other (nothing
tells which; both reach the others).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from everstep.core.record import Record
from everstep.monitor.detectors.verdict import Verdict
from everstep.monitor.events import Action

# Checks that one host makes. Two go to its neighbours in a ring, so that the graph holds together;
# four to others at random: with those that others make of it, a host is looked at some twelve
# times. Of 2,048 hosts that makes 12,288 checks, six a host.
PEERS_MAX: Final = 6
REFEREES_MAX: Final = 3  # an odd few: two may be of the same bad rack
CONFIRM_MS_MIN: Final = 1_000  # as for a second probe: what is late has come by then
CONFIRM_MS_MAX: Final = 300_000
LOOKS_MAX: Final = 8  # kept; of five minutes, but a tie makes one every few seconds
NAMED_MAX: Final = 8  # hosts or pairs in a sentence


class LinkCheck(Record, frozen=True, kw_only=True):
    """What ``source`` says of its way to ``target``."""

    source: str
    target: str
    reached: bool


class LinkLook(Record, frozen=True, kw_only=True):
    """All checks of one moment; ``hosts`` are the job's, others in ``checks`` are referees."""

    at_ms: int
    hosts: tuple[str, ...]
    checks: tuple[LinkCheck, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sides:
    """Who is cut from the job's larger part, with the counts in words.

    ``partly`` says that the one host still reaches some. ``tie`` says that neither part is larger,
    and nobody is named.
    """

    cut: tuple[str, ...] = ()
    partly: bool = False
    tie: bool = False
    text: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """What all looks say together: hosts for certain, or that another look is wanted."""

    cut: tuple[str, ...] = ()
    partly: bool = False
    tie: bool = False
    look_again: bool = False
    text: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkView:
    """What is known of a job's links now; ``asked_ms`` is when its hosts were asked last."""

    asking: bool = False
    asked_ms: int = 0
    standing: Standing = Standing()


def plan_checks(
    hosts: Iterable[str], referees: Iterable[str], *, salt: str
) -> dict[str, tuple[str, ...]]:
    """Say who checks whom: everybody all others where they are few, else a ring and some more.

    Args:
        hosts: of the job.
        referees: other hosts that answer.
        salt: another one chooses other pairs, so that the next look sees what this one did not.
    """
    order = sorted({*hosts, *referees})
    if len(order) <= PEERS_MAX + 1:
        return {host: tuple(other for other in order if other != host) for host in order}
    plan = {}
    for i, host in enumerate(order):
        chosen = {order[i - 1], order[(i + 1) % len(order)]}
        draw = 0
        while len(chosen) < PEERS_MAX:
            digest = hashlib.sha256(f"{salt}/{host}/{draw}".encode()).digest()
            other = order[int.from_bytes(digest[:8]) % len(order)]
            draw += 1
            if other != host:
                chosen.add(other)
        plan[host] = tuple(sorted(chosen))
    return plan


def sides_of(look: LinkLook) -> Sides:
    """Return what one look shows; the order of its checks changes nothing."""
    pairs = _pairs(look.checks)
    broken = sorted(pair for pair, sound in pairs.items() if not sound)
    if not broken:
        return Sides(text=f"all {len(pairs)} links between them that were checked are sound")
    mine = frozenset(look.hosts)
    groups = _groups(pairs)
    groups = sorted(groups, key=lambda group: (-len(group & mine), -len(group), min(group)))
    apart = [group for group in groups if group & mine]
    if len(apart) == 1:
        return _bad_links(pairs, broken, mine)
    stays, rest = apart[0], apart[1:]
    away = frozenset().union(*rest)
    others = away | (mine - stays)  # who is silent and was checked by nobody may be on their side
    here, there = len(stays & mine), len(others & mine)
    if here < there or (here == there and len(stays) <= len(others)):
        return Sides(
            tie=True,
            text=f"its hosts fall into {len(apart)} parts that do not reach one another "
            f"({', '.join(_named(sorted(group & mine)) for group in apart[:3])}), and none is "
            "larger than the rest",
        )
    cut = tuple(sorted(host for host in away & mine if _fails_with(host, stays, pairs)))
    if not cut:
        return Sides(text=f"{len(broken)} of {len(pairs)} links are broken, but nobody is cut off")
    inside = sum(1 for pair in pairs if set(pair) <= stays and pairs[pair])
    return Sides(
        cut=cut,
        text=f"{_named(cut)} cut from the others: {_counts(cut, stays, look.checks)}, while the "
        f"{here} other hosts of the job reach one another ({inside} sound links"
        f"{_with_referees(stays, mine)})",
    )


def standing_of(now_ms: int, looks: Sequence[LinkLook]) -> Standing:
    """Weigh all looks, oldest first: a host is cut when two of them name it.

    Returns:
        ``look_again`` while the newest look has named somebody whom no earlier one has, or could
        not decide.
    """
    if not looks:
        return Standing(look_again=True)
    newest, now = looks[-1], sides_of(looks[-1])
    if now.tie:
        return Standing(tie=True, look_again=True, text=now.text)
    if not now.cut:
        return Standing(text=f"{now.text}{_before(now_ms, looks)}")
    earlier = [
        sides_of(look)
        for look in looks[:-1]
        if newest.at_ms - look.at_ms >= CONFIRM_MS_MIN and now_ms - look.at_ms <= CONFIRM_MS_MAX
    ]
    confirmed = tuple(host for host in now.cut if any(host in sides.cut for sides in earlier))
    if not confirmed:
        return Standing(look_again=True, text=now.text)
    times = 1 + sum(1 for sides in earlier if set(confirmed) & set(sides.cut))
    return Standing(cut=confirmed, partly=now.partly, text=f"{now.text}; seen {times} times")


def partitioned(
    standing: Standing, ranks: Mapping[str, tuple[int, ...]], *, failed_at_ms: int, seen: str
) -> Verdict:
    """Return the verdict against the hosts that are cut.

    Args:
        standing: that names some.
        ranks: of each host of the job.
        failed_at_ms: when it was first felt.
        seen: what made us look.
    """
    return Verdict(
        kind="partitioned",
        action=Action.REPLACE_IF_SPARE if standing.partly else Action.REPLACE,
        ranks=tuple(sorted(rank for host in standing.cut for rank in ranks.get(host, ()))),
        hosts=standing.cut,
        reason=f"{standing.text}; {seen}",
        failed_at_ms=failed_at_ms,
    )


def undecided(standing: Standing, *, failed_at_ms: int) -> Verdict:
    """Return the note that nobody can be named; the hosts are asked again meanwhile."""
    return Verdict(
        kind="partition_undecided",
        action=Action.NOTE,
        ranks=(),
        hosts=(),
        reason=f"{standing.text}: nobody is evicted, the hosts are asked again",
        failed_at_ms=failed_at_ms,
    )


def _pairs(checks: Iterable[LinkCheck]) -> dict[tuple[str, str], bool]:
    """Return each pair that was checked, and whether all checks of it succeeded."""
    pairs: dict[tuple[str, str], bool] = {}
    for check in checks:
        one, other = sorted((check.source, check.target))
        pairs[one, other] = pairs.get((one, other), True) and check.reached
    return pairs


def _groups(pairs: Mapping[tuple[str, str], bool]) -> list[frozenset[str]]:
    """Return the groups of hosts that sound pairs connect."""
    near: dict[str, set[str]] = {}
    for (one, other), sound in pairs.items():
        near.setdefault(one, set()).update({other} if sound else ())
        near.setdefault(other, set()).update({one} if sound else ())
    groups, left = [], set(near)
    for host in sorted(near):
        if host not in left:
            continue
        group, found = {host}, [host]
        while found:
            new = near[found.pop()] - group
            group |= new
            found += new
        left -= group
        groups.append(frozenset(group))
    return groups


def _bad_links(
    pairs: Mapping[tuple[str, str], bool], broken: Sequence[tuple[str, str]], mine: frozenset[str]
) -> Sides:
    """All reach one another somehow: one host is named if it alone explains every broken link."""
    shared = mine.intersection(*map(set, broken))
    text = f"{len(broken)} of {len(pairs)} links are broken ({_named(broken)})"
    if len(broken) < 2 or len(shared) != 1:
        return Sides(text=f"{text}, and they do not tell whose fault it is")
    [host] = shared
    checked = sum(1 for pair in pairs if host in pair)
    if 2 * len(broken) < checked:
        return Sides(text=f"{text}, all of {host}, which has {checked}")
    return Sides(cut=(host,), partly=True, text=f"{text}, all of {host}, which has {checked}")


def _fails_with(host: str, group: frozenset[str], pairs: Mapping[tuple[str, str], bool]) -> bool:
    return any(
        not sound and host in pair and not {*pair} - {host} - group for pair, sound in pairs.items()
    )


def _counts(cut: Sequence[str], stays: frozenset[str], checks: Iterable[LinkCheck]) -> str:
    """Count what went out of the cut hosts, and into them, from and to those that stay."""
    away = frozenset(cut)
    out = [one.reached for one in checks if one.source in away and one.target in stays]
    into = [one.reached for one in checks if one.target in away and one.source in stays]
    return (
        f"{sum(out)} of {len(out)} checks from there and {sum(into)} of {len(into)} to there "
        "succeeded"
    )


def _with_referees(stays: frozenset[str], mine: frozenset[str]) -> str:
    others = len(stays - mine)
    return f", with {others} hosts outside it" if others else ""


def _before(now_ms: int, looks: Sequence[LinkLook]) -> str:
    """Say what an earlier look has shown that the newest does not."""
    for look in reversed(looks[:-1]):
        sides = sides_of(look)
        if sides.cut and now_ms - look.at_ms <= CONFIRM_MS_MAX:
            return f"; {now_ms - look.at_ms} ms ago {sides.text}"
    return ""


def _named(items: Sequence[str] | Sequence[tuple[str, str]]) -> str:
    words = [item if isinstance(item, str) else "-".join(item) for item in items[:NAMED_MAX]]
    more = len(items) - NAMED_MAX
    return f"{', '.join(words)}{f' and {more} more' if more > 0 else ''}"
