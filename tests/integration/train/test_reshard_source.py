"""Tensors put together from old ranks' parts, or refused by name."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.integration.train.test_slot_source import flip
from torch import Tensor, nn

from everstep.core.placement import Layout
from everstep.memory.parts import PLACES_NAME, encoded_places
from everstep.memory.reader import SlotReader
from everstep.memory.writer import Owner, SlotWriter, TensorSpec
from everstep.train import randomness, tree
from everstep.train.endings import RestoreFailedError, StateMismatchError
from everstep.train.resharding import OldSlots, ReshardingSource
from everstep.train.slot_source import PIECE_BYTES, SlotDamagedError, dtype_name
from everstep.train.state import TrackedState

pytestmark = pytest.mark.torch
STEP = 4


@dataclass
class Old:
    """What an old rank keeps: whole tensors, parts of tensors, objects."""

    rank: int
    tensors: dict[str, Tensor] = field(default_factory=dict)
    places: dict[str, tuple[tuple[int, ...], tuple[int, ...]]] | None = field(default_factory=dict)
    objects: dict[str, Any] = field(default_factory=dict)
    position: int = STEP
    step: int = STEP

    def part(self, name: str, whole: Tensor, begin: int, end: int) -> Old:
        """Keep rows of a tensor."""
        self.tensors[name] = whole[begin:end].clone()
        self.places[name] = tuple(whole.shape), (begin, *(0 for _ in whole.shape[1:]))
        return self

    def write(self, path: Path, world_size: int) -> None:
        """Take the snapshot, with this process's random states."""
        moving = randomness.tensor_states(torch.device("cpu"))
        objects = {
            name: tree.encode(value, name, moving)
            for name, value in {**randomness.object_states(), **self.objects}.items()
        }
        tensors = {**self.tensors, **dict(moving)}
        specs = [
            TensorSpec(
                name=name,
                dtype=dtype_name(one),
                shape=tuple(one.shape),
                bytes=one.numel() * one.element_size(),
            )
            for name, one in tensors.items()
        ]
        owner = Owner(job_id="job-1", rank=self.rank, world_size=world_size, generation=0)
        writer = SlotWriter(path, owner, specs)
        writer.begin()
        for name, one in tensors.items():
            if one.numel():
                writer.buffers[name][:] = one.reshape(-1).view(torch.uint8).numpy().tobytes()
        if self.places is not None:
            objects[PLACES_NAME] = encoded_places(self.places)
        writer.commit(step=self.step, data_state={"position": self.position}, objects=objects)
        writer.close()


class Shop:
    """Writes old ranks' snapshots and opens a source over them."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.threads = 1

    def path(self, rank: int) -> Path:
        """Where a rank's snapshot lies."""
        return self.directory / f"old-{rank}"

    @contextlib.contextmanager
    def opened(
        self, old: Layout, ranks: list[Old], *, new: Layout | None = None, rank: int = 0
    ) -> Iterator[ReshardingSource]:
        """Open what a rank of the new layout, of one rank by default, is put together from."""
        for one in ranks:
            if not self.path(one.rank).exists():
                one.write(self.path(one.rank), old.world_size)
        paths = {one.rank: self.path(one.rank) for one in ranks}
        slots = OldSlots(old=old, new=new or Layout(), paths=paths)
        with contextlib.ExitStack() as stack:
            readers = {one: stack.enter_context(SlotReader(path)) for one, path in paths.items()}
            source = ReshardingSource(readers, slots, rank, self.threads)
            yield stack.enter_context(contextlib.closing(source))


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    """A shop over an empty directory."""
    return Shop(tmp_path)


WHOLE = torch.arange(35.0).view(7, 5)


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize(
    "cuts", [[0, 7, 7], [0, 4, 7], [0, 3, 6, 7, 7]], ids=["empty", "uneven", "four"]
)
@pytest.mark.parametrize(
    "target",
    [torch.zeros(7, 5), torch.zeros(5, 7).t(), nn.Parameter(torch.zeros(7, 5))],
    ids=["contiguous", "strided", "parameter"],
)
def test_rows_of_old_ranks_make_up_the_whole(shop, cuts, threads, target):
    """Bit for bit, whatever the shards' sizes."""
    shop.threads = threads
    ranks = [
        Old(rank).part("weight", WHOLE, *cuts[rank : rank + 2]) for rank in range(len(cuts) - 1)
    ]
    with torch.no_grad():
        target.zero_()
    with shop.opened(Layout(dp_shard=len(ranks)), ranks) as source:
        source.fill("weight", target)
        source.finish()
    assert torch.equal(target, WHOLE)


def test_parts_larger_than_a_piece_and_of_other_dtypes_arrive_whole(shop):
    """They are copied and checked piece by piece."""
    whole = torch.randn(2 * PIECE_BYTES // 2 + 6).to(torch.bfloat16)
    cut = len(whole) // 2 + 1
    ranks = [Old(0).part("half", whole, 0, cut), Old(1).part("half", whole, cut, len(whole))]
    target = torch.zeros_like(whole)
    with shop.opened(Layout(dp_shard=2), ranks) as source:
        source.fill("half", target)
        source.finish()
    assert torch.equal(target, whole)


def test_tensor_that_every_rank_has_is_taken_once(shop):
    """Counters, and norms under tensor parallelism."""
    ranks = [Old(rank, {"count": torch.tensor(7.0)}) for rank in range(2)]
    target = torch.tensor(0.0)
    with shop.opened(Layout(dp_shard=2), ranks) as source:
        source.fill("count", target)
    assert target == 7


def test_rows_that_nobody_has_are_named(shop):
    """Nothing is left as it was by chance."""
    ranks = [Old(0).part("weight", WHOLE, 0, 3), Old(2).part("weight", WHOLE, 5, 7)]
    message = r"weight\[3:5, 0:5\] is in none of the snapshots of old ranks 0, 2"
    with (
        shop.opened(Layout(dp_shard=3), ranks) as source,
        pytest.raises(RestoreFailedError, match=message),
    ):
        source.fill("weight", torch.zeros(7, 5))


@pytest.mark.parametrize(
    ("target", "message"),
    [
        (torch.zeros(7, 5).double(), r"by old rank 0 as a part of float32\[7, 5\].*float64"),
        (torch.zeros(8, 5), r"by old rank 0 as a part of float32\[7, 5\].*float32\[8, 5\]"),
    ],
    ids=["dtype", "shape"],
)
def test_tensor_that_does_not_fit_is_the_users_to_mend(shop, target, message):
    """It is the code that has changed, and no other snapshot would fit."""
    ranks = [Old(0).part("weight", WHOLE, 0, 4), Old(1).part("weight", WHOLE, 4, 7)]
    with (
        shop.opened(Layout(dp_shard=2), ranks) as source,
        pytest.raises(StateMismatchError, match=message),
    ):
        source.fill("weight", target)


def test_copies_with_other_bits_are_refused_and_both_ranks_named(shop):
    """Neither is right by itself, and their mean is neither."""
    ranks = [Old(rank, {"mean": torch.tensor([1.0, rank])}) for rank in range(2)]
    with (
        shop.opened(Layout(dp_replicate=2), ranks) as source,
        pytest.raises(RestoreFailedError, match=r"mean\[0:2\] differs between old ranks 0 and 1"),
    ):
        source.fill("mean", torch.zeros(2))


def test_blocks_that_cross_are_refused(shop):
    """No layout cuts so: somebody says the wrong place."""
    ranks = [Old(0).part("weight", WHOLE, 0, 4), Old(1).part("weight", WHOLE, 3, 7)]
    with (
        shop.opened(Layout(dp_shard=2), ranks) as source,
        pytest.raises(RestoreFailedError, match="overlap without being the same block"),
    ):
        source.fill("weight", torch.zeros(7, 5))


@pytest.mark.parametrize("places", [{}, None], ids=["absent", "of unknown place"])
def test_tensor_without_a_part_is_named(shop, places):
    """Also one of which an older snapshot does not say where it belongs."""
    tensors = {} if places is not None else {"weight": WHOLE}
    ranks = [Old(0, tensors, places)]
    with (
        shop.opened(Layout(), ranks) as source,
        pytest.raises(StateMismatchError, match="old ranks 0 has a tensor weight, or says"),
    ):
        source.fill("weight", torch.zeros(7, 5))


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("damaged", [0, 1])
def test_damaged_part_is_told_with_its_file(shop, threads, damaged):
    """So that this one copy is brought again, from elsewhere."""
    shop.threads = threads
    ranks = [Old(0).part("weight", WHOLE, 0, 4), Old(1).part("weight", WHOLE, 4, 7)]
    with shop.opened(Layout(dp_shard=2), ranks):
        pass
    flip(shop.path(damaged), "weight")

    def fill(source: ReshardingSource) -> None:
        source.fill("weight", torch.zeros(7, 5))
        source.finish()

    with (
        shop.opened(Layout(dp_shard=2), ranks) as source,
        pytest.raises(SlotDamagedError, match="weight: checksum expected") as caught,
    ):
        fill(source)
    assert caught.value.path == shop.path(damaged)


def test_damaged_random_state_is_found_while_another_copy_can_be_had(shop):
    """It is put back before the first batch, which is too late to ask."""
    with shop.opened(Layout(), [Old(0)]):
        pass
    flip(shop.path(0), "rng.torch")
    with (
        shop.opened(Layout(), [Old(0)]) as source,
        pytest.raises(SlotDamagedError, match=r"rng\.torch: checksum expected"),
    ):
        source.finish()


@pytest.mark.parametrize(
    ("other", "message"),
    [
        (Old(1, step=5), "the step differs between old ranks 0 and 1: 4 and 5"),
        (Old(1, position=9), "the data position differs between old ranks 0 and 1"),
        (
            Old(1, objects={"adam": [{"lr": 0.2}], "adam.layout": {}}),
            "adam differs between old ranks 0 and 1",
        ),
        (
            Old(1, objects={"adam": [{"lr": 0.1}], "adam.layout": {"states": {}}}),
            r"adam\.layout differs between old ranks 0 and 1",
        ),
        (Old(0), r"old rank 1: expected \(rank, world size\) \(1, 2\), got \(0, 2\)"),
    ],
    ids=["step", "position", "options", "states", "rank"],
)
def test_snapshots_that_do_not_belong_together_are_refused(shop, other, message):
    """Parts of two steps, or of two optimizers, make no state."""
    first = Old(0, objects={"adam": [{"lr": 0.1}], "adam.layout": {}})
    if "adam" not in other.objects:
        other.objects.update(first.objects)
    old = Layout(dp_shard=2)
    first.write(shop.path(0), 2)
    other.write(shop.path(1), 2)
    with (
        pytest.raises(RestoreFailedError, match=message),
        shop.opened(old, [Old(0), Old(1)]),
    ):
        pass


def test_option_that_is_a_tensor_must_be_alike_too(shop):
    """A rate that lies on the accelerator is no less a rate."""
    ranks = [
        Old(rank, objects={"adam": [{"lr": torch.tensor(0.1 * rank)}], "adam.layout": {}})
        for rank in range(2)
    ]
    with (
        pytest.raises(RestoreFailedError, match=r"adam\.0\.lr differs between old ranks 0 and 1"),
        shop.opened(Layout(dp_shard=2), ranks),
    ):
        pass


def test_plan_without_the_elder_is_refused(shop):
    """Its random states are nobody else's."""
    with (
        pytest.raises(RestoreFailedError, match=r"rank 0 goes on from old rank 0.*ranks 1$"),
        shop.opened(Layout(dp_shard=2), [Old(1)]),
    ):
        pass


def test_another_number_of_stages_is_refused(shop):
    """Their layers are others."""
    with (
        pytest.raises(RestoreFailedError, match="pp 2 cannot go on with pp 1"),
        shop.opened(Layout(pp=2), [Old(0)]),
    ):
        pass


def drawn() -> list[float]:
    """Draw from every generator."""
    return [torch.rand(()).item(), random.random(), np.random.random()]  # noqa: NPY002 - users' own


def old_pair(shop: Shop) -> None:
    """Two old ranks of two groups, each with its own streams and an object of its own."""
    for rank in range(2):
        randomness.seed_all(7, rank)
        drawn()
        Old(rank, objects={"tally": {"seen": rank}, "both": {"x": 1}}).write(shop.path(rank), 2)


def test_group_that_was_there_goes_on_with_its_own_streams_and_objects(shop):
    """Those of its elder, and no other's."""
    old_pair(shop)
    state = TrackedState(torch.device("cpu"), {})
    new = Layout(dp_shard=4)
    with shop.opened(Layout(dp_shard=2), [Old(0), Old(1)], new=new, rank=1) as source:
        assert source.tree("tally") == {"seen": 1}
        assert source.problems == ()
        randomness.seed_all(99)
        source.restore_randomness(state)
        found = drawn()
    randomness.seed_all(7, 1)
    drawn()
    assert found == drawn()


def test_new_group_begins_streams_of_its_own_and_says_what_it_copied(shop):
    """The same ones whenever it is done again; other ones than any other group's."""
    old_pair(shop)
    state = TrackedState(torch.device("cpu"), {})
    new = Layout(dp_shard=5)
    streams = []
    for rank in (2, 3, 4, 2):
        with shop.opened(Layout(dp_shard=2), [Old(0), Old(1)], new=new, rank=rank) as source:
            assert source.tree("tally") == {"seen": rank % 2}
            elder, other = rank % 2, 1 - rank % 2
            [problem] = source.problems
            assert problem == (
                f"tally differs between old ranks {elder} and {other}: data-parallel group {rank} "
                f"is new and begins with a copy of rank {elder}'s"
            )
            source.restore_randomness(state)
            streams.append(drawn())
    assert streams[0] == streams[3]
    randomness.seed_all(7, 0)
    drawn()
    known = {value for stream in streams for value in stream}
    assert len(known | set(drawn())) == 3 * 4


def test_new_tensor_parallel_ranks_draw_alike_where_their_elders_did(shop):
    """Their activations are equal, and their masks must be."""
    randomness.seed_all(7, 0)
    old, new = Layout(tp=2), Layout(dp_shard=2, tp=2)
    streams = []
    for rank in (2, 3):
        elder = Old(rank - 2, {"weight": torch.tensor(float(rank))})
        with shop.opened(old, [elder], new=new, rank=rank) as source:
            source.restore_randomness(TrackedState(torch.device("cpu"), {}))
        streams.append(drawn())
        randomness.seed_all(7, 0)
    assert streams[0] == streams[1]
