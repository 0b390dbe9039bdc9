"""A memory directory that another process fills: what is refused, in which words, and what goes on.

On a small tmpfs and on a fake of one; where nothing can be mounted, on the fake alone.
"""

from __future__ import annotations

import re

import pytest
import torch
from tests.small_memory import kinds, small_memory

from everstep.agent.exits import ExitClass
from everstep.agent.store import HostMemory
from everstep.core.errors import Unavailable
from everstep.memory import layout
from everstep.memory.control import Control
from everstep.memory.reader import verify_slot
from everstep.memory.room import Demand, declare
from everstep.memory.slot import read_preamble
from everstep.memory.slot_file import SlotFile, WrittenSlotFile
from everstep.memory.writer import Owner, SlotWriter, TensorSpec
from everstep.train.endings import HostTooSmallError, classify
from everstep.train.snapshots import Snapshots
from everstep.train.state import TrackedState

SIZE = 1 << 20
OWNER = Owner(job_id="job-1", rank=0, world_size=1, generation=1)


@pytest.fixture(params=kinds())
def full(request, tmp_path, monkeypatch):
    """A directory of 8 MiB; ``fill`` it."""
    with small_memory(request.param, tmp_path / "memory", 8 * SIZE, monkeypatch) as small:
        yield small


def said(name, directory):
    """What must be said: which file, where, how much it needs and how much there is."""
    where = re.escape(f"no room for {name} in {directory}: it needs ")
    return where + r"\d+ more bytes, 0 are free \(No space left on device\)"


def many_tensors(directory):
    """A writer of a snapshot whose header is larger than what is in most tensors."""
    specs = [TensorSpec(name=f"t{n}", dtype="uint8", shape=(8,), bytes=8) for n in range(2_000)]
    return SlotWriter(directory / "slot-0", OWNER, specs)


def test_snapshot_that_has_its_file_is_taken_in_a_full_directory(full):
    """It has its memory before the first step, the header's too, however many entries that has."""
    writer = many_tensors(full.path)
    full.fill()
    for step in (1, 2):
        writer.begin()
        writer.commit(step=step, data_state={}, objects={"random": bytes(5_000)})
        verify_slot(writer.path)
        assert read_preamble(writer.path).step == step
    assert read_preamble(writer.path).header_bytes > 128 << 10
    writer.close()


def test_header_that_grows_out_of_its_room_is_refused_with_the_numbers(full):
    """An object with a state_dict may keep more and more; the snapshot is not valid then."""
    writer = many_tensors(full.path)
    full.fill()
    writer.begin()
    with pytest.raises(Unavailable, match=said("slot-0", full.path)):
        writer.commit(step=1, data_state={}, objects={"grown": bytes(SIZE)})
    assert read_preamble(writer.path) is None
    writer.close()


def slot_writer(path):
    """A rank's."""
    return SlotWriter(path, OWNER, [TensorSpec(name="w", dtype="uint8", shape=(9,), bytes=9)])


def received(path):
    """What comes from a peer, once."""
    WrittenSlotFile(path)


@pytest.mark.parametrize(
    "make", [lambda path: SlotFile(path, SIZE), slot_writer, received, Control]
)
def test_new_file_that_finds_no_room_says_where_and_how_much(full, make):
    """Whoever writes it, a rank or an agent."""
    full.fill()
    with pytest.raises(Unavailable, match=said("new", full.path)):
        make(full.path / "new")


def test_job_that_is_known_is_fenced_in_a_full_directory(full):
    """Else a host could not be used that holds what is left of a step."""
    memory = HostMemory(full.path, full.path.parent / "forgotten.json")
    memory.raise_fence("job-1", 9)
    full.fill()
    memory.raise_fence("job-1", 10)
    assert layout.read_fence(full.path, "job-1") == 10
    with pytest.raises(Unavailable, match=said("generation", full.path / "job-2")):
        memory.raise_fence("job-2", 1)


def test_rank_that_is_back_declares_itself_in_a_full_directory(full):
    """What it needs is there already."""
    first, again = (Demand(generation=n, slot=10**n, durable=1) for n in (9, 1))
    declare(full.path, "job-1", 0, first, (0,))
    full.fill()
    assert declare(full.path, "job-1", 0, again, (0,)) == [again]


def state():
    """A megabyte of parameters."""
    return TrackedState(torch.device("cpu"), {"weights": torch.ones(SIZE // 4)})


def test_rank_without_room_ends_as_too_large_for_its_host(full):
    """Another process took the room after the check: the host is to blame, not the user."""
    snapshots = Snapshots(full.path / "rank-0", OWNER, state())
    full.fill()
    with pytest.raises(HostTooSmallError, match=said("slot-0", full.path / "rank-0")) as raised:
        snapshots.prepare()
    assert classify(raised.value).exit_class is ExitClass.HOST_TOO_SMALL


def test_rank_goes_on_snapshotting_in_a_full_directory(full):
    """All its files are there, and as large as they will be."""
    snapshots = Snapshots(full.path / "rank-0", OWNER, state())
    snapshots.prepare()
    full.fill()
    for step in range(1, 5):
        slot = snapshots.take(step=step, data_state={})
        snapshots.take_durable(step=step, data_state={})
        snapshots.go_on(lambda: None)
        snapshots.wait_whole()
        assert read_preamble(layout.slot_path(full.path / "rank-0", slot)).step == step
