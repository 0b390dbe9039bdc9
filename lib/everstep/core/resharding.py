"""Says whose snapshots a rank needs when a job goes on under another layout.

A data-parallel degree that changes cuts every sharded tensor elsewhere, so a new rank puts its part
together from several old ranks'. Which ones is arithmetic on the two layouts: the control plane
fetches what is named here and no more, and the rank refuses when that does not cover its state.

What is no part of anything (random states, objects of the user's) a rank takes from one old rank,
its *elder*: that of the same data-parallel group, stage and tensor-parallel place. A group that was
not there before shares the elders of group ``group % groups``, counted among those that are left;
it *is new*, and begins random streams of its own.

Stages keep their layers: another ``pp`` is refused, because which tensors move then is the model's
secret. Rejected: fetching a stage's whole data-parallel dimension, which at 512 shards is 256 times
what a rank needs.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass

from everstep.core.errors import InvalidInput
from everstep.core.placement import Layout


@dataclass(frozen=True, slots=True, kw_only=True)
class Coordinate:
    """A rank's place in a layout."""

    pp: int
    replicate: int
    shard: int
    tp: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Elder:
    """The old rank whose own state a new rank goes on from.

    Args:
        rank: of the old layout.
        group: the new rank's data-parallel group.
        is_new: the group was not there before, and its elder is another group's.
    """

    rank: int
    group: int
    is_new: bool


def coordinate_of(layout: Layout, rank: int) -> Coordinate:
    """Return a rank's place.

    Raises:
        InvalidInput: the layout has no such rank.
    """
    _check_rank(layout, rank)
    rest, tp = divmod(rank, layout.tp)
    rest, shard = divmod(rest, layout.dp_shard)
    pp, replicate = divmod(rest, layout.dp_replicate)
    return Coordinate(pp=pp, replicate=replicate, shard=shard, tp=tp)


def rank_at(layout: Layout, at: Coordinate) -> int:
    """Return the rank at a place."""
    group = (at.pp * layout.dp_replicate + at.replicate) * layout.dp_shard + at.shard
    return group * layout.tp + at.tp


def elder_of(old: Layout, new: Layout, rank: int, *, lost: Collection[int] = ()) -> Elder:
    """Return whose own state the rank of the new layout goes on from.

    A group of which any rank is lost is as one that was never there: its random streams would go
    on in some of its ranks only.

    Args:
        old: the layout that the snapshots were taken under.
        new: the layout of the job from now on.
        rank: of the new layout.
        lost: old ranks of which there is no snapshot; the same for all ranks of the new layout.

    Raises:
        InvalidInput: no group is left, the stages differ, or there is no such rank.
    """
    return _elder(old, new, _place(old, new, rank), _whole_groups(old, lost))[0]


def sources_needed(
    old: Layout,
    new: Layout,
    rank: int,
    *,
    lengths: Iterable[int] | None = None,
    lost: Collection[int] = (),
) -> tuple[int, ...]:
    """Return the old ranks whose snapshots a rank of the new layout needs, sorted.

    Tensors come from the elder's replica as far as that has them. Shards are cut as ``torch.chunk``
    cuts: into pieces of ``ceil(length / shards)``, of which the last ones may be short or empty.

    Args:
        old: the layout that the snapshots were taken under.
        new: the layout of the job from now on.
        rank: of the new layout.
        lengths: of the dimensions that shards cut (``memory.parts.lengths_in`` reads them off one
            snapshot of the same stage); None: any, which names more ranks than a model needs,
            because tensors shorter than the shards are many lie in the first ones only.
        lost: old ranks of which there is no snapshot; the same for all ranks of the new layout.

    Raises:
        InvalidInput: what is lost is in no other snapshot, the stages differ, or there is no such
            rank.
    """
    at = _place(old, new, rank)
    found = _sources(old, new, at, lengths, _whole_groups(old, lost))
    return tuple(sorted({_kept(old, one, lost) for one in found})) if lost else found


class Sources:
    """Says of one rank after another what ``sources_needed`` does, for a whole job.

    Stages are alike: what the ranks of the first one need is worked out once, and moved to the
    others. A control plane asks for 16,384 ranks while their job waits.
    """

    def __init__(self, old: Layout, new: Layout, *, lost: Collection[int] = ()) -> None:
        """Take what ``sources_needed`` takes, but for lengths: they differ between stages.

        Raises:
            InvalidInput: every group has lost ranks.
        """
        self._old = old
        self._new = new
        self._lost = frozenset(lost)
        self._left = _whole_groups(old, self._lost)
        self._stage_size = new.world_size // new.pp
        self._old_stage_size = old.world_size // old.pp
        self._of_first_stage: dict[int, tuple[int, ...]] = {}

    def of(self, rank: int) -> tuple[int, ...]:
        """Return the old ranks whose snapshots a rank of the new layout needs, sorted.

        Raises:
            InvalidInput: as ``sources_needed`` does.
        """
        _check_rank(self._new, rank)
        stage, like = divmod(rank, self._stage_size)
        found = self._of_first_stage.get(like)
        if found is None:
            at = _place(self._old, self._new, like)
            found = _sources(self._old, self._new, at, None, self._left)
            self._of_first_stage[like] = found
        further = stage * self._old_stage_size
        moved = [one + further for one in found]
        if self._lost.isdisjoint(moved):
            return tuple(moved)
        return tuple(sorted({_kept(self._old, one, self._lost) for one in moved}))


def why_unreachable(old: Layout, new: Layout, lost: Collection[int]) -> str:
    """Say why the ranks of one layout cannot be put together from another's; "" if they can.

    For all ranks at once: what ``sources_needed`` would refuse some rank of the new layout.

    Args:
        old: the layout that the snapshots were taken under.
        new: the layout of the job from now on.
        lost: old ranks of which there is no snapshot.
    """
    if old.pp != new.pp:
        return f"its stages are {old.pp}, and {new.pp} are to go on"
    gone = frozenset(lost)
    if not gone:
        return ""
    if len({_group_of(old, one) for one in gone}) == old.dp_replicate * old.dp_shard:
        return "no data-parallel group of its ranks is whole"
    alone = next((one for one in sorted(gone) if gone.issuperset(stand_ins(old, one))), None)
    return "" if alone is None else f"old rank {alone} and its like have no source"


def stand_ins(old: Layout, rank: int) -> tuple[int, ...]:
    """Return the other old ranks that hold the same parts of all tensors, sorted."""
    at = coordinate_of(old, rank)
    copies = (
        Coordinate(pp=at.pp, replicate=replicate, shard=at.shard, tp=at.tp)
        for replicate in range(old.dp_replicate)
    )
    return tuple(other for other in (rank_at(old, copy) for copy in copies) if other != rank)


def _sources(
    old: Layout, new: Layout, at: Coordinate, lengths: Iterable[int] | None, left: Sequence[int]
) -> tuple[int, ...]:
    """Return what the rank at a place needs, sorted, lost ranks among them."""
    elder, elder_at = _elder(old, new, at, left)
    if old.tp == new.tp:
        columns: Iterable[int] = (at.tp,)
        shards = _shards(old.dp_shard, new.dp_shard, at.shard, lengths)
    else:  # a dimension may be cut by both: no part of the stage can be excluded
        columns = range(old.tp)
        shards = set(range(old.dp_shard))
    # As ``rank_at``, in plain numbers: there may be thousands of them.
    stage = (at.pp * old.dp_replicate + elder_at.replicate) * old.dp_shard
    found = {(stage + shard) * old.tp + tp for shard in shards for tp in columns}
    return tuple(sorted(found | {elder.rank}))


def _whole_groups(old: Layout, lost: Collection[int]) -> Sequence[int]:
    """Return the data-parallel groups of which no rank is lost."""
    every = range(old.dp_replicate * old.dp_shard)
    if not lost:
        return every
    gone = {_group_of(old, one) for one in lost}
    left = [one for one in every if one not in gone]
    if not left:
        raise InvalidInput(f"every data-parallel group of {old} has lost ranks: {sorted(lost)}")
    return left


def _elder(
    old: Layout, new: Layout, at: Coordinate, left: Sequence[int]
) -> tuple[Elder, Coordinate]:
    """Return the elder of the rank at a place, one of the groups left, and its own place."""
    group = at.replicate * new.dp_shard + at.shard
    is_new = group not in left
    replicate, shard = divmod(left[group % len(left)] if is_new else group, old.dp_shard)
    elder = Coordinate(pp=at.pp, replicate=replicate, shard=shard, tp=at.tp % old.tp)
    return Elder(rank=rank_at(old, elder), group=group, is_new=is_new), elder


def _kept(old: Layout, rank: int, lost: Collection[int]) -> int:
    if rank not in lost:
        return rank
    left = [one for one in stand_ins(old, rank) if one not in lost]
    if not left:
        raise InvalidInput(
            f"old rank {rank} is lost, and with it the only parts of its tensors: "
            f"those of ranks {stand_ins(old, rank)} would have served"
        )
    return left[0]


def _group_of(layout: Layout, rank: int) -> int:
    at = coordinate_of(layout, rank)
    return at.replicate * layout.dp_shard + at.shard


def _check_rank(layout: Layout, rank: int) -> None:
    if not 0 <= rank < layout.world_size:
        raise InvalidInput(f"rank {rank} is not one of the {layout.world_size} ranks of {layout}")


def _place(old: Layout, new: Layout, rank: int) -> Coordinate:
    if old.pp != new.pp:
        raise InvalidInput(
            f"a job with pp {old.pp} cannot go on with pp {new.pp} from the ranks' snapshots: its "
            "stages hold other layers; load the stored checkpoint into the new layout instead"
        )
    return coordinate_of(new, rank)


def _shards(old: int, new: int, shard: int, lengths: Iterable[int] | None) -> set[int]:
    """Return the old shards that hold some of a new shard."""
    if lengths is not None:
        return {one for length in lengths for one in _holding(old, new, shard, length)}
    # Of a length of at most as many elements as there are shards, every shard has one or none, so
    # shard i is old shard i; the other end is a length of just as many elements as the more shards.
    first = shard // -(-new // old)
    last = min(old, (shard + 1) * -(-old // new)) - 1
    return set(range(first, last + 1))


def _holding(old: int, new: int, shard: int, length: int) -> Iterator[int]:
    piece = -(-length // new)
    begin, end = shard * piece, min((shard + 1) * piece, length)
    if begin < end:
        old_piece = -(-length // old)
        yield from range(begin // old_piece, (end - 1) // old_piece + 1)
