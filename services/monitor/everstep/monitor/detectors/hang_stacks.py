"""Groups what ranks are doing, so that thousands of stacks read as a handful of places.

A place is what a rank does (its role), its own innermost line and the innermost library function
below it: ``train.py:main:31 > distributed_c10d.py:all_reduce``. Line numbers of libraries are left
out, for waiting loops come round by several lines; those of the user's code and of the SDK stay:
two collectives often differ by nothing else. Frames further out are left out, too: who called a
layer does not tell where it waits. What differs between hosts the agents have cut off already.

Each stack is read once, however many ranks show it, and the ranks are gone through a fixed number
of times: 16,384 of them took a tenth of a second on a busy machine.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from everstep.core.record import Record
from everstep.core.spec import LayoutSpec


class State(StrEnum):
    """What the kernel says of a rank's main thread; names of ``ProcessState`` on the wire."""

    UNKNOWN = "PROCESS_STATE_UNSPECIFIED"
    RUNNING = "PROCESS_RUNNING"
    SLEEPING = "PROCESS_SLEEPING"
    DISK_WAIT = "PROCESS_DISK_WAIT"
    STOPPED = "PROCESS_STOPPED"
    TRACED = "PROCESS_TRACED"
    GONE = "PROCESS_GONE"


class Phase(StrEnum):
    """Where in a step a rank is by its own word; names of ``RankPhase`` on the wire."""

    STARTING = "PHASE_STARTING"
    LOADING = "PHASE_LOADING"
    COMPUTING = "PHASE_COMPUTING"
    AGREEING = "PHASE_AGREEING"
    SNAPSHOTTING = "PHASE_SNAPSHOTTING"
    BETWEEN = "PHASE_BETWEEN"


class Role(StrEnum):
    """What a rank does, as its stack tells, or the kernel of one that is stopped."""

    WAITS = "waits for other ranks"
    LOADS = "loads data"
    SAVES = "saves state"
    COMPILES = "compiles"
    OWN = "runs its own code"
    STOPPED = "stopped by a signal (process state T)"
    UNSEEN = "does not show its stack"


class RankLook(Record, frozen=True, kw_only=True):
    """One rank at one moment: ``RankStack`` on the wire, and whose host it is."""

    rank: int
    host_id: str = ""
    step: int = -1
    state: State = State.UNKNOWN
    phase: Phase = Phase.STARTING
    answered: bool = False
    silence: str = ""
    look_ms: int = 0
    cpu_ms: int = 0
    process_cpu_ms: int = 0
    io_bytes: int = 0
    wchan: str = ""
    frames: tuple[str, ...] = ()

    @property
    def cpu_share(self) -> float:
        """Of one core, used by the main thread during the look."""
        return self.cpu_ms / self.look_ms if self.look_ms else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """What a rank does and where, without what differs between ranks that do the same."""

    role: Role
    where: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """The ranks at one place; ``frames`` are the first one's."""

    place: Place
    ranks: tuple[int, ...]
    hosts: tuple[str, ...]
    stages: tuple[int, ...]
    frames: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Grouping:
    """Who does what.

    Args:
        groups: the largest first.
        majority: the largest group of ranks that wait for others, if any do.
        outliers: ranks that the others wait for, or that wait elsewhere than the rest of their
            stage; empty when all do the same, or nothing sets anybody apart.
        unseen: ranks of the layout that nobody told of.
    """

    groups: tuple[Group, ...]
    majority: Group | None
    outliers: tuple[int, ...]
    unseen: tuple[int, ...]


_LIBRARY: Final = ("site-packages/", "python/", "<frozen ", "???")
_AROUND_WAITS: Final = "everstep/train/own_time.py:"  # stands around every wait for other ranks
_TORCH: Final = "site-packages/torch/"
_WAITING_CALLS: Final = (
    f"{_TORCH}distributed/distributed_c10d.py:",
    f"{_TORCH}distributed/_functional_collectives.py:",
    _AROUND_WAITS,
)
# A wait within C++ shows the function that called it: these make no other calls that block.
_WAITING_CALLERS: Final = (
    f"{_TORCH}distributed/fsdp/",
    f"{_TORCH}distributed/pipelining/",
    f"{_TORCH}distributed/tensor/",
    f"{_TORCH}distributed/rendezvous.py:",
    "everstep/train/control.py:",
    "everstep/train/gradients.py:",  # on an accelerator it is the step's first wait for its kernels
    "everstep/train/groups.py:",
)
_WAITING_DEPTH: Final = 6  # frames from the innermost: wrappers for logging and timing lie between
_LOADING: Final = ("everstep/train/batches.py:", "everstep/data/", f"{_TORCH}utils/data/")
_SAVING: Final = (
    "everstep/train/saving.py:",
    "everstep/train/snapshots.py:",
    f"{_TORCH}serialization.py:",
    f"{_TORCH}distributed/checkpoint/",
    "site-packages/safetensors/",
)
_COMPILING: Final = (f"{_TORCH}_dynamo/convert_frame.py:", f"{_TORCH}_inductor/")


def is_library(frame: str) -> bool:
    """Say whether a frame is neither the user's code nor the SDK's."""
    return frame.startswith(_LIBRARY)


def role_of(look: RankLook) -> Role:
    """Read from a rank's stack what it does; where that says nothing, from its phase."""
    if look.state is State.STOPPED:
        return Role.STOPPED
    if not look.frames:
        return Role.UNSEEN
    if look.frames[-1].startswith(_WAITING_CALLERS):
        return Role.WAITS
    if any(frame.startswith(_WAITING_CALLS) for frame in look.frames[-_WAITING_DEPTH:]):
        return Role.WAITS
    for role, files in (
        (Role.LOADS, _LOADING),
        (Role.SAVES, _SAVING),
        (Role.COMPILES, _COMPILING),
    ):
        if any(frame.startswith(files) for frame in look.frames):
            return role
    match look.phase:
        case Phase.LOADING:
            return Role.LOADS
        case Phase.SNAPSHOTTING:
            return Role.SAVES
        case _:
            return Role.OWN


def place_of(look: RankLook) -> Place:
    """Return where a rank is, normalised as the head of this module says."""
    role = role_of(look)
    if role is Role.STOPPED:
        return Place(role=role)
    if role is Role.UNSEEN:
        return Place(role=role, where=look.silence)
    inwards = [frame for frame in reversed(look.frames) if not frame.startswith(_AROUND_WAITS)]
    own = next((frame for frame in inwards if not is_library(frame)), "")
    innermost = inwards[0]
    if innermost == own:
        return Place(role=role, where=own)
    library = innermost.rpartition(":")[0]
    return Place(role=role, where=f"{own} > {library}" if own else library)


def stage_of(rank: int, layout: LayoutSpec) -> int:
    """Return a rank's pipeline stage: ranks count along the stages last."""
    return rank // (layout.world_size // layout.pp)


def group_stacks(looks: Sequence[RankLook], layout: LayoutSpec) -> Grouping:
    """Group ranks by place, and say who stands out.

    A rank stands out when it is stopped, or does something while others wait for it. Where more
    than half of a stage's ranks, and at least two, are at one place outside of any collective
    (an accelerator's queue shows only the line that waits for it), being there is waiting. When
    all wait, those who wait elsewhere than more than half of their stage stand out: they have left
    a collective out, or never came to it. Not where a stage has several kinds of groups: there the
    neighbours of a rank wait for it in one kind, and the rest for them in another (seen).

    Args:
        looks: of one moment, in any order, one a rank.
        layout: of the job.
    """
    looks = sorted(looks, key=lambda look: look.rank)
    places = _places(looks)
    stages = {look.rank: stage_of(look.rank, layout) for look in looks}
    common = _common_places(places, stages, layout)
    waiting = {
        look.rank
        for look in looks
        if places[look.rank].role is Role.WAITS
        or places[look.rank] == common.get(stages[look.rank])
    }
    outliers = [look.rank for look in looks if look.rank not in waiting]
    if not outliers and _one_kind_of_groups(layout):
        outliers = [
            rank
            for rank in places
            if (place := common.get(stages[rank])) is not None
            and place.role is Role.WAITS
            and places[rank] != place
        ]
    groups = _groups(looks, places, stages)
    return Grouping(
        groups=groups,
        majority=next((one for one in groups if waiting.issuperset(one.ranks)), None),
        outliers=tuple(outliers),
        unseen=tuple(rank for rank in range(layout.world_size) if rank not in places),
    )


def smallest_group(ranks: Iterable[int], layout: LayoutSpec) -> tuple[int, ...]:
    """Return the smallest tp, dp or pp group that holds all of these ranks, () when none does.

    For one rank that is the smallest group that it is in: the ranks that notice it first.
    """
    wanted = frozenset(ranks)
    found: list[tuple[int, ...]] = []
    stride = 1
    for size in (layout.tp, layout.dp_shard, layout.dp_replicate, layout.pp):
        first = min(wanted)
        base = first - first // stride % size * stride
        group = tuple(base + index * stride for index in range(size))
        if size > 1 and wanted.issubset(group):
            found.append(group)
        stride *= size
    return min(found, key=len, default=())


def _one_kind_of_groups(layout: LayoutSpec) -> bool:
    return sum(size > 1 for size in (layout.dp_replicate, layout.dp_shard, layout.tp)) <= 1


def _places(looks: Sequence[RankLook]) -> dict[int, Place]:
    known: dict[tuple[object, ...], Place] = {}
    places: dict[int, Place] = {}
    for look in looks:
        key = (look.frames, look.phase, look.silence, look.state is State.STOPPED)
        place = known.get(key)
        if place is None:
            place = known[key] = place_of(look)
        places[look.rank] = place
    return places


def _common_places(
    places: dict[int, Place], stages: dict[int, int], layout: LayoutSpec
) -> dict[int, Place]:
    """Return by stage where more than half of its ranks are, if so many are at one place."""
    counts: dict[int, Counter[Place]] = {}
    for rank, place in places.items():
        if place.role not in {Role.UNSEEN, Role.STOPPED}:
            counts.setdefault(stages[rank], Counter())[place] += 1
    size = layout.world_size // layout.pp
    common: dict[int, Place] = {}
    for stage, counted in counts.items():
        place, count = max(counted.items(), key=lambda item: (item[1], item[0].where))
        if count > size / 2 and count > 1:
            common[stage] = place
    return common


def _groups(
    looks: Sequence[RankLook], places: dict[int, Place], stages: dict[int, int]
) -> tuple[Group, ...]:
    together: dict[Place, list[RankLook]] = {}
    for look in looks:
        together.setdefault(places[look.rank], []).append(look)
    groups = [
        Group(
            place=place,
            ranks=tuple(one.rank for one in members),
            hosts=tuple(sorted({one.host_id for one in members})),
            stages=tuple(sorted({stages[one.rank] for one in members})),
            frames=members[0].frames,
        )
        for place, members in together.items()
    ]
    return tuple(sorted(groups, key=lambda group: (-len(group.ranks), group.ranks[0])))
