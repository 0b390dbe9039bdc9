"""What a snapshot's header says of wholes."""

from __future__ import annotations

from everstep.memory.parts import PLACES_NAME, encoded_places, lengths_in, parts_in
from everstep.memory.regions import Region
from everstep.memory.slot import Entry, SlotHeader, StoredObject, TorchFile


def entry(name: str, shape: tuple[int, ...], torch: TorchFile | None = None) -> Entry:
    """A tensor of a header."""
    return Entry(
        name=name, dtype="float32", shape=shape, offset=64, bytes=0, torch=torch, checksum="0" * 32
    )


def header(entries: list[Entry], places=None) -> SlotHeader:
    """A header; with ``places``, as they are written now."""
    objects = {}
    if places is not None:
        objects[PLACES_NAME] = StoredObject(data=encoded_places(places), checksum="")
    return SlotHeader(
        job_id="job-1",
        rank=0,
        world_size=2,
        step=3,
        generation=0,
        data_state={},
        entries=tuple(entries),
        objects=objects,
    )


def test_tensors_that_are_listed_are_parts_and_others_are_wholes():
    """A scalar lies nowhere in particular."""
    found = parts_in(
        header(
            [entry("weight", (2, 4)), entry("norm", (4,)), entry("count", ())],
            {"weight": ((6, 4), (2, 0))},
        )
    )
    told = {name: (one.whole, one.region) for name, one in found.items()}
    assert told == {
        "weight": ((6, 4), Region((2, 0), (2, 4))),
        "norm": ((4,), Region((0,), (4,))),
        "count": ((), Region((), ())),
    }


def test_older_snapshots_are_understood_by_what_they_say_to_pytorch():
    """And what they do not say of a tensor is not made up."""
    file = TorchFile(offset=0, bytes=9, path=("model", "w"), whole=(6, 4), offsets=(4, 0))
    found = parts_in(header([entry("w", (2, 4), file), entry("rng.torch", (7,))]))
    assert {name: (one.whole, one.region) for name, one in found.items()} == {
        "w": ((6, 4), Region((4, 0), (2, 4)))
    }


def test_lengths_are_those_of_cut_dimensions_and_of_their_tensor_parallel_pieces():
    """A dimension that is whole here is not cut, whoever asks."""
    places = {"a": ((12, 8), (0, 0)), "b": ((7,), (0,))}
    entries = [entry("a", (3, 8)), entry("b", (2,)), entry("c", (5,))]
    assert lengths_in(header(entries, places), tp=1) == {12, 7}
    assert lengths_in(header(entries, places), tp=2) == {12, 6, 7, 4, 3}
    assert lengths_in(header([entry("c", (5,))]), tp=2) == set()
