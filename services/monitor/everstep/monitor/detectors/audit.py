"""Says who has computed wrong, from a step that hosts outside the job did again.

An audit does one replica's share of a step once more: from the same checkpoint, with the same
samples and random numbers, on hosts that have nothing to do with the job. A sound machine comes to
the same bits. Where they differ one of two was wrong, and one re-run does not tell which: a second
one does, by which of the two it agrees with. So somebody is named by two against one only, and the
two have to be different machines: the same one may be wrong twice alike.

Whose two runs of the same work differ has contradicted itself, and needs no majority.

Wrong numbers travel within a data-parallel group: outputs of a stage go to the later ones,
gradients to the earlier ones, and tensor-parallel ranks share both. So it is looked at where the
difference begins, group by group, as in ``recompute.py``. If that is on several hosts, none of them
is named: a wrong parameter that one of them has sent to all looks the same.

Before any audit of a job has come out alike, differences may be the program's doing: its loop may
depend on how many replicas there are, or its bits may not repeat in a process that has just begun.
Then nobody is named, and after ``OPEN_MAX`` times nobody is asked any more.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from everstep.core.placement import Layout
from everstep.core.resharding import coordinate_of, rank_at
from everstep.monitor.events import Finding

OPEN_MAX: Final = 2  # in a row, before any came out alike: two steps and four audits that differ
FORWARD: Final = slice(0, 16)  # of what a rank came to, "outputs:gradient" in hexadecimal digits
NAMED_MAX: Final = 8  # in a sentence


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One run of a replica's share of a step; both in the order of the replica's ranks.

    Args:
        works: what each rank came to, "outputs:gradient".
        hosts: where it ran; "": not known.
    """

    works: tuple[str, ...]
    hosts: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """What is done again: the share of ``replica`` in the step after that of a checkpoint."""

    layout: Layout  # of the job
    step: int  # of the checkpoint
    replica: int

    @property
    def ranks(self) -> tuple[int, ...]:
        """The job's ranks of the replica, in the order of an audit's."""
        return ranks_of(self.layout, self.replica)


@dataclass(frozen=True, slots=True, kw_only=True)
class Conclusion:
    """What is known after the newest audit.

    Args:
        finding: whether anybody is named.
        ranks: of the job, where the newest audit begins to differ from it; none: it does not.
        why: for a person, in one sentence.
        host: that was wrong; "" if nobody is named.
        wrong: the job's ranks on it that were; of a host of the job.
    """

    finding: Finding
    ranks: tuple[int, ...]
    why: str
    host: str = ""
    wrong: tuple[int, ...] = ()


def ranks_of(layout: Layout, replica: int) -> tuple[int, ...]:
    """Return a replica's ranks, along ``dp_replicate``, in the order of an audit's ranks."""
    alone = replace(layout, dp_replicate=1)
    return tuple(
        rank_at(layout, replace(coordinate_of(alone, place), replicate=replica))
        for place in range(alone.world_size)
    )


def conclude(
    first: Run, audits: Sequence[Run], share: Share, *, ever_alike: bool, opens: int
) -> Conclusion:
    """Conclude from one audit of a share, or from two where the first one differed.

    Args:
        first: what the job itself came to.
        audits: what others came to, oldest first; one or two.
        share: of which all this is.
        ever_alike: an earlier audit of the job has come out alike.
        opens: how many in a row have named nobody, before any came out alike.
    """
    newest = audits[-1]
    ranks = _ranks(first, newest, share)
    if not ranks:
        return _alike(first, audits, share)
    if len(audits) == 1:
        places = _begins(first, newest, share.layout)
        why = (
            f"{_what(first, newest, share)} on {_listed(_hosts(newest, places))} than on "
            f"{_listed(_hosts(first, places))}: nobody is named before a second audit has told"
        )
        return Conclusion(finding=Finding.DIFFERS, ranks=ranks, why=why)
    if not ever_alike:
        return Conclusion(finding=Finding.OPEN, ranks=ranks, why=_program(first, share, opens))
    if audits[0].works == newest.works:
        return _two_against_one(first, audits, share)
    return _all_differ(first, audits, share)


def untold(difference: str, share: Share, tries: int, *, ever_alike: bool, opens: int) -> str:
    """Say why a difference stays open that no second audit has told anything about.

    Args:
        difference: what the first audit had said.
        share: of which it was.
        tries: how many second audits have come to nothing.
        ever_alike: an earlier audit of the job has come out alike.
        opens: how many in a row have named nobody, before any came out alike.
    """
    why = (
        f"step {share.step + 1} of replica {share.replica} was to be done again once more, and "
        f"{tries} attempts have told nothing: nobody is named ({difference})"
    )
    return why if ever_alike else why + _last(opens)


def _alike(first: Run, audits: Sequence[Run], share: Share) -> Conclusion:
    """The job's own work was right; who did it otherwise before was not."""
    step = f"step {share.step + 1} of replica {share.replica}"
    if len(audits) == 1:
        why = f"{step} came out with the same bits on {_listed(_hosts(audits[0]))}"
        return Conclusion(finding=Finding.ALIKE, ranks=(), why=why)
    places = _begins(first, audits[0], share.layout)
    where = _hosts(audits[0], places)
    agreed = f"{step} came out the second time as the job had it"
    if len(where) == 1:
        why = f"{agreed}: {where[0]}, which had come to other bits in an audit, was wrong"
        return Conclusion(finding=Finding.SPARE_NAMED, ranks=(), why=why, host=where[0])
    why = f"{agreed}; the first time it began to differ on {_listed(where)} at once: none is named"
    return Conclusion(finding=Finding.OPEN, ranks=(), why=why)


def _two_against_one(first: Run, audits: Sequence[Run], share: Share) -> Conclusion:
    """Two audits agree with one another, and not with the job."""
    places = _begins(first, audits[0], share.layout)
    ranks = tuple(share.ranks[place] for place in places)
    owners = _hosts(first, places)
    once, twice = (_hosts(audit, places) for audit in audits)
    what = f"{_what(first, audits[0], share)} in two audits, alike in both"
    if len(owners) != 1:
        why = f"{what}, than on {_listed(owners)}: that is more than one host, and none is named"
        return Conclusion(finding=Finding.OPEN, ranks=ranks, why=why)
    (owner,) = owners
    if not owner:
        why = f"{what}: where the job had made it is not known any more, so nobody is named"
        return Conclusion(finding=Finding.OPEN, ranks=ranks, why=why)
    if owner in {*once, *twice}:
        why = f"{what}, and {owner} has made it both ways: it was wrong"
    elif set(once) & set(twice):
        why = (
            f"{what}, but both ran on {_listed(sorted(set(once) & set(twice)))}: it is one host "
            f"against {owner}, and nobody is named"
        )
        return Conclusion(finding=Finding.OPEN, ranks=ranks, why=why)
    else:
        why = f"{what}, on {_listed(once)} and on {_listed(twice)}: {owner} was wrong"
    return Conclusion(finding=Finding.NAMED, ranks=ranks, why=why, host=owner, wrong=ranks)


def _all_differ(first: Run, audits: Sequence[Run], share: Share) -> Conclusion:
    """Three runs, three results: only who was there twice is known to be wrong.

    A host that is wrong whatever it does is so in both audits, though they have it at other places:
    each begins to differ on it, elsewhere than the other one, which has the job's bits there. At
    the same places they may agree with one another, and it is the job that is wrong there.
    """
    ranks = _ranks(first, audits[-1], share)
    starts = [_begins(first, audit, share.layout) for audit in audits]
    began = [_hosts(audit, start) for audit, start in zip(audits, starts, strict=True)]
    places = _begins(audits[0], audits[1], share.layout)
    once, twice = (_hosts(audit, places) for audit in audits)
    what = f"{_what(first, audits[-1], share)}, and otherwise once more in a second audit"
    if len(once) == 1 and once == twice:
        why = f"{what}: {once[0]} did the same work in both, and was wrong"
        return Conclusion(finding=Finding.SPARE_NAMED, ranks=ranks, why=why, host=once[0])
    if len(began[0]) == 1 and began[0] == began[1] and starts[0] != starts[1]:
        (host,) = began[0]
        why = f"{what}: both began to differ on {host}, which was wrong"
        return Conclusion(finding=Finding.SPARE_NAMED, ranks=ranks, why=why, host=host)
    why = f"{what}: no two of three agree, and nobody is named"
    return Conclusion(finding=Finding.OPEN, ranks=ranks, why=why)


def _program(first: Run, share: Share, opens: int) -> str:
    return (
        f"step {share.step + 1} of replica {share.replica} came out otherwise in each audit than "
        f"on {_listed(_hosts(first))}, and no audit of this job has ever come out alike: its steps "
        "may depend on the number of replicas, or its bits may not repeat, so nobody is named"
    ) + _last(opens)


def _last(opens: int) -> str:
    if opens + 1 < OPEN_MAX:
        return ""
    return f". That is so {OPEN_MAX} times in a row: no more audits of this job are asked for"


def _ranks(first: Run, other: Run, share: Share) -> tuple[int, ...]:
    """Return the job's ranks where one run begins to differ from another."""
    return tuple(share.ranks[place] for place in _begins(first, other, share.layout))


def _begins(one: Run, other: Run, layout: Layout) -> tuple[int, ...]:
    """Return the places, numbered as an audit's ranks, where two runs begin to differ."""
    alone = replace(layout, dp_replicate=1)
    groups: dict[int, dict[int, int]] = {}  # data-parallel group -> place -> stage
    for place, (work, again) in enumerate(zip(one.works, other.works, strict=True)):
        if work != again:
            at = coordinate_of(alone, place)
            groups.setdefault(at.shard, {})[place] = at.pp
    found: list[int] = []
    for stages in groups.values():
        forward = [
            place for place in stages if one.works[place][FORWARD] != other.works[place][FORWARD]
        ]
        stage = min(stages[place] for place in forward) if forward else max(stages.values())
        found += [place for place in (forward or stages) if stages[place] == stage]
    return tuple(sorted(found))


def _hosts(run: Run, places: Sequence[int] | None = None) -> tuple[str, ...]:
    """Return where a run was made, or these places of it; sorted."""
    wanted = range(len(run.hosts)) if places is None else places
    return tuple(sorted({run.hosts[place] for place in wanted}))


def _what(first: Run, other: Run, share: Share) -> str:
    places = _begins(first, other, share.layout)
    forward = any(first.works[place][FORWARD] != other.works[place][FORWARD] for place in places)
    ranks = [str(share.ranks[place]) for place in places]
    return (
        f"step {share.step + 1} of replica {share.replica} came out with other "
        f"{'outputs' if forward else 'gradients'} (from rank{'s' if len(ranks) > 1 else ''} "
        f"{_listed(ranks)} on)"
    )


def _listed(items: Sequence[str]) -> str:
    known = [item or "a host that is not known any more" for item in items]
    more = f" and {len(known) - NAMED_MAX} more" if len(known) > NAMED_MAX else ""
    return ", ".join(known[:NAMED_MAX]) + more
