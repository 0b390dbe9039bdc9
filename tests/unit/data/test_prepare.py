"""What preparing a corpus leaves alone, and what it says when it cannot."""

from __future__ import annotations

import resource

import pytest

from everstep.core.errors import InvalidInput, Unavailable
from everstep.data.prepare import prepare


def test_corpus_within_its_sources_is_made_again_alike(tmp_path):
    """Its own shards are no documents."""
    (tmp_path / "text").write_text("some text")
    out = tmp_path / "corpus"
    made = prepare([tmp_path], out)
    before = (out / "shard-00000.bin").read_bytes()
    assert prepare([tmp_path], out) == made
    assert (out / "shard-00000.bin").read_bytes() == before


def test_shards_of_others_are_not_replaced(tmp_path):
    """Token files are often called so; whose these are nobody knows."""
    (tmp_path / "text").write_text("some text")
    other = tmp_path / "corpus" / "shard-00007.bin"
    other.parent.mkdir()
    other.write_bytes(b"theirs")
    with pytest.raises(InvalidInput, match=f"^{other} is there, without the index.json"):
        prepare([tmp_path / "text"], other.parent)
    assert other.read_bytes() == b"theirs"


def test_shard_that_cannot_be_written_is_named_and_not_left(tmp_path):
    """A disk that is full names no file by itself, and half a shard would be nobody's."""
    (tmp_path / "text").write_text("some text")
    shard = tmp_path / "corpus" / "shard-00000.bin.unfinished"
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4, before[1]))
    try:
        with pytest.raises(Unavailable, match=f"^cannot write {shard}: "):
            prepare([tmp_path / "text"], shard.parent)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert not shard.exists()


def test_preparation_that_was_interrupted_is_begun_again(tmp_path):
    """What it left is nobody else's, and is gone afterwards."""
    (tmp_path / "text").write_text("some text")
    out = tmp_path / "corpus"

    def interrupt(done: int, _: int) -> None:
        raise KeyboardInterrupt

    (tmp_path / "more").write_text("and more of it")
    with pytest.raises(KeyboardInterrupt):
        prepare([tmp_path], out, shard_tokens=4, progress=interrupt)
    assert len(list(out.iterdir())) == 3
    prepare([tmp_path / "text"], out)
    assert sorted(path.name for path in out.iterdir()) == ["index.json", "shard-00000.bin"]


def test_corpus_stays_when_another_cannot_be_made(tmp_path):
    """A job may be training on it, and begins again from it."""
    (tmp_path / "text").write_text("some text")
    (tmp_path / "empty").touch()
    out = tmp_path / "corpus"
    prepare([tmp_path / "text"], out)
    before = {path.name: path.read_bytes() for path in out.iterdir()}
    with pytest.raises(InvalidInput, match="hold no text"):
        prepare([tmp_path / "empty"], out)
    assert {path.name: path.read_bytes() for path in out.iterdir()} == before


@pytest.mark.parametrize("theirs", ['{"version": 2, "shards": []}', "[1]", "no JSON"])
def test_index_of_something_else_is_not_replaced(tmp_path, theirs):
    """Others call their index so too."""
    (tmp_path / "text").write_text("some text")
    index = tmp_path / "theirs" / "index.json"
    index.parent.mkdir()
    index.write_text(theirs)
    with pytest.raises(InvalidInput, match="is not of a corpus that was made here"):
        prepare([tmp_path / "text"], index.parent)
    assert index.read_text() == theirs
