"""Says who has computed wrong, from work that was done twice and did not come out alike.

In a shadow step every data-parallel group makes another one's gradient from the same parameters,
samples and random numbers (``everstep.train.shadow``). A pair of groups that differs has one that
was wrong, and does not say which. Two pairs that differ and have one group in common say it; a
pair alone says nothing until the groups have been paired otherwise, which ranks do in the steps
right after. With two groups there is no other pairing: if neither differs from itself, only another
host in the place of one of them tells, and meanwhile nobody is named.

Within a group a wrong number travels: outputs of a stage go to the later ones, gradients to the
earlier ones, and tensor-parallel ranks share both. So the first stage whose outputs differ is where
it was made or, if no output differs, the last stage whose gradient does.

What differs everywhere is no chip's fault but the program's: its bits do not repeat. That is only
noted, and so is everything of a job that does not claim to repeat its bits.

A group may also make its own gradient once more, and differ from itself: so it does where there is
only one, or where two differ.

A rank whose own recomputed activations are not the first ones (``everstep.train.recomputing``) has
contradicted itself, and needs no majority.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from everstep.core.placement import Layout
from everstep.core.resharding import coordinate_of
from everstep.monitor.ties import Tie

NAMED_MAX: Final = 8  # in a sentence; the finding has all of them


class Why(StrEnum):
    """What was found."""

    NAMED = "named"  # one replica is in every pair that differs
    PAIR = "pair"  # one of two, and no other pair has told which
    NOBODY = "nobody"  # no replica is in every pair that differs
    ITSELF = "itself"  # its own two runs differ


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """What two ranks have made of the same micro-batches; ``forward`` and ``gradient``: alike."""

    step: int
    runner: int
    owner: int
    forward: bool
    gradient: bool

    @property
    def alike(self) -> bool:
        """Whether all bits were the same."""
        return self.forward and self.gradient


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """Who was wrong, or may have been.

    Args:
        why: how it was found.
        ranks: one of them, or all, has computed wrong; sorted.
        first_step: the first one at which something differed.
        last_step: the newest one that was looked at.
        reason: for a person, with the numbers.
        lasting: it was so more than once, and may have been before.
        ties: what each of a pair came to, step by step.
    """

    why: Why
    ranks: tuple[int, ...]
    first_step: int
    last_step: int
    reason: str
    lasting: bool = False
    ties: tuple[Tie, ...] = ()


def judge(
    pairs: Sequence[Pair], layout: Layout, *, final: bool, ever_alike: bool
) -> Finding | None:
    """Conclude from the pairs of one or more shadow steps, the first of which differed somewhere.

    Args:
        pairs: of all ranks and steps that were told of.
        layout: of the job.
        final: no more will come: say what there is.
        ever_alike: everything has come out alike before, so the program repeats its bits.

    Returns:
        None: nothing differs, or more pairs may tell more.
    """
    wrong = [pair for pair in pairs if not pair.alike]
    if not wrong:
        return None
    ties = sorted({_tie(pair, layout) for pair in wrong})
    common = sorted(set(ties[0]).intersection(*ties[1:]))
    repeats = ever_alike or any(pair.alike for pair in pairs)
    if not common or (final and not repeats):
        return _nobody(wrong, pairs, layout)
    if len(common) == 1 and repeats:
        return _named(wrong, pairs, layout, common[0])
    return _pair(wrong, pairs, layout, ties[0]) if final else None


def contradicted(
    told: Iterable[tuple[int, Sequence[str]]], step: int, layout: Layout
) -> Finding | None:
    """Conclude from what ranks tell of their own recomputed activations at one step.

    Args:
        told: by rank, the modules whose second output was not the first one.
        step: at which.
        layout: of the job.
    """
    wrong = sorted((rank, tuple(modules)) for rank, modules in told if modules)
    if not wrong:
        return None
    ranks = tuple(rank for rank, _ in wrong)
    words = "; ".join(f"rank {rank} in {_listed(modules)}" for rank, modules in wrong[:4])
    more = f" and {len(wrong) - 4} ranks more" if len(wrong) > 4 else ""
    shared = len({_place(rank, layout)[:2] for rank in ranks}) == 1 and len(ranks) > 1
    which = ". Tensor-parallel ranks share outputs: it may be one of them" if shared else ""
    return Finding(
        why=Why.ITSELF,
        ranks=ranks,
        first_step=step,
        last_step=step,
        reason=f"in step {step} activations that were computed again were not what they had been "
        f"the first time, bit for bit: {words}{more}{which}",
    )


def _named(wrong: Sequence[Pair], pairs: Sequence[Pair], layout: Layout, replica: int) -> Finding:
    ranks = _origin(wrong, layout, (replica,))
    others = sorted({one for pair in wrong for one in _tie(pair, layout)} - {replica})
    itself = any(pair.runner == pair.owner for pair in wrong)
    whom = " and ".join([*["itself"] * itself, *[_replicas(others)] * bool(others)])
    return Finding(
        why=Why.ITSELF if itself else Why.NAMED,
        ranks=ranks,
        first_step=min(pair.step for pair in wrong),
        last_step=max(pair.step for pair in pairs),
        reason=f"{_what(wrong, layout, ranks)}: replica {replica} differs from "
        f"{whom}, and nobody else from anybody ({_tally(wrong, pairs)})",
        lasting=True,
    )


def _pair(
    wrong: Sequence[Pair], pairs: Sequence[Pair], layout: Layout, tie: tuple[int, ...]
) -> Finding:
    ranks = _origin(wrong, layout, tie)
    alone = layout.dp_replicate * layout.dp_shard == 2
    only = "There is no third replica to tell" if alone else "No other pair has told"
    return Finding(
        why=Why.PAIR,
        ranks=ranks,
        first_step=min(pair.step for pair in wrong),
        last_step=max(pair.step for pair in pairs),
        reason=f"{_what(wrong, layout, ranks)}: one of {_replicas(tie)} was wrong "
        f"({_tally(wrong, pairs)}). {only} which",
        lasting=len({(pair.step, _place(pair.runner, layout)[1]) for pair in wrong}) > 1,
    )


def _nobody(wrong: Sequence[Pair], pairs: Sequence[Pair], layout: Layout) -> Finding:
    replicas = sorted({one for pair in wrong for one in _tie(pair, layout)})
    return Finding(
        why=Why.NOBODY,
        ranks=(),
        first_step=min(pair.step for pair in wrong),
        last_step=max(pair.step for pair in pairs),
        reason=f"{_what(wrong, layout, ())}: nobody can be named among "
        f"{_replicas(replicas)} ({_tally(wrong, pairs)}). Several are wrong or, more likely, the "
        "program does not repeat its bits",
    )


def _origin(wrong: Sequence[Pair], layout: Layout, replicas: tuple[int, ...]) -> tuple[int, ...]:
    """Return the ranks of these replicas where the difference begins."""
    forward = [pair for pair in wrong if not pair.forward]
    stages = [_place(pair.owner, layout)[0] for pair in (forward or wrong)]
    stage = min(stages) if forward else max(stages)
    found = {
        rank
        for pair in (forward or wrong)
        for rank in (pair.runner, pair.owner)
        if _place(rank, layout)[0] == stage and _place(rank, layout)[1] in replicas
    }
    return tuple(sorted(found))


def _tie(pair: Pair, layout: Layout) -> tuple[int, ...]:
    return tuple(sorted({_place(rank, layout)[1] for rank in (pair.runner, pair.owner)}))


def _place(rank: int, layout: Layout) -> tuple[int, int]:
    """Return (stage, data-parallel group)."""
    at = coordinate_of(layout, rank)
    return at.pp, at.replicate * layout.dp_shard + at.shard


def _what(wrong: Sequence[Pair], layout: Layout, ranks: tuple[int, ...]) -> str:
    first = min(pair.step for pair in wrong)
    part = "gradients" if all(pair.forward for pair in wrong) else "outputs"
    where = ""
    if ranks and layout.pp > 1:
        where = f", from stage {_place(ranks[0], layout)[0]} on"
    return f"in step {first} the same micro-batches have come to other {part}{where}"


def _tally(wrong: Sequence[Pair], pairs: Sequence[Pair]) -> str:
    steps = len({pair.step for pair in pairs})
    return (
        f"{len(wrong)} of {len(pairs)} comparisons in {steps} step{'s' if steps > 1 else ''} differ"
    )


def _replicas(numbers: Sequence[int]) -> str:
    return f"replica{'s' if len(numbers) > 1 else ''} {_listed([str(one) for one in numbers])}"


def _listed(items: Sequence[str]) -> str:
    more = f" and {len(items) - NAMED_MAX} more" if len(items) > NAMED_MAX else ""
    return ", ".join(items[:NAMED_MAX]) + more
