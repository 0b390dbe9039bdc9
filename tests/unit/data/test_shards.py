"""Token files: prepared from text, opened, read, and refused when they are wrong."""

import json

import numpy as np
import pytest

from everstep.core.errors import InvalidInput, NotFoundError
from everstep.data.prepare import DOCUMENT_END, prepare
from everstep.data.shards import open_shards


@pytest.fixture
def texts(tmp_path):
    """Two documents, one empty, in a directory with another one that is left out."""
    source = tmp_path / "source"
    (source / "b").mkdir(parents=True)
    (source / "__pycache__").mkdir()
    (source / "a.py").write_text("one")
    (source / "b" / "c.py").write_bytes(b"\xff2")
    (source / "empty.py").write_text("")
    (source / "note.txt").write_text("not wanted")
    (source / "__pycache__" / "x.py").write_text("not wanted")
    return source


def tokens_of(shards):
    """Return every token of a corpus."""
    return shards.window(0, shards.tokens).tolist()


def test_text_becomes_bytes_with_separators_in_path_order(texts, tmp_path):
    """Documents come in the order of their paths, each followed by its end."""
    seen = []
    made = prepare(
        [texts],
        tmp_path / "out",
        suffixes=(".py",),
        progress=lambda done, total: seen.append((done, total)),
    )
    assert (made.documents, made.tokens, made.shards) == (3, 7, 1)
    assert seen == [(1, 3), (2, 3), (3, 3)]
    shards = open_shards(tmp_path / "out")
    assert tokens_of(shards) == [*b"one", DOCUMENT_END, 0xFF, *b"2", DOCUMENT_END]
    assert shards.vocab_size == 257


@pytest.mark.parametrize("shard_tokens", [1, 2, 3, 4, 7, 8])
def test_cutting_into_shards_changes_no_token(texts, tmp_path, shard_tokens):
    """Samples read over shard ends like over none."""
    prepare([texts], tmp_path / "out", suffixes=(".py",), shard_tokens=shard_tokens)
    shards = open_shards(tmp_path / "out")
    assert len(shards.shards) == -(-7 // shard_tokens)
    assert tokens_of(shards) == [*b"one", DOCUMENT_END, 0xFF, *b"2", DOCUMENT_END]
    assert shards.samples(3) == 2
    assert shards.read([1, 0], 3).tolist() == [
        [DOCUMENT_END, 0xFF, ord("2"), DOCUMENT_END],
        [*b"one", DOCUMENT_END],
    ]


def test_preparing_again_replaces_everything(texts, tmp_path):
    """Shards of an earlier, larger corpus do not stay behind."""
    prepare([texts], tmp_path / "out", shard_tokens=1)
    prepare([texts / "a.py"], tmp_path / "out")
    assert tokens_of(open_shards(tmp_path / "out")) == [*b"one", DOCUMENT_END]
    assert len(list((tmp_path / "out").glob("*.bin"))) == 1


def test_unusable_sources_are_refused(texts, tmp_path):
    """No source, no matching file and no text are told apart."""
    with pytest.raises(NotFoundError, match="nowhere"):
        prepare([tmp_path / "nowhere"], tmp_path / "out")
    with pytest.raises(InvalidInput, match=r"no files ending in \.rs"):
        prepare([texts], tmp_path / "out", suffixes=(".rs",))
    with pytest.raises(InvalidInput, match="the corpus is empty"):
        prepare([texts / "empty.py"], tmp_path / "out")


@pytest.mark.parametrize("dtype", ["uint16", "uint32"])
def test_headerless_file_is_read_as_told(tmp_path, dtype):
    """NanoGPT's files are the tokens and nothing else."""
    tokens = np.arange(50, dtype=dtype) * 1000
    tokens.tofile(tmp_path / "train.bin")
    shards = open_shards(tmp_path / "train.bin", dtype=dtype)
    assert tokens_of(shards) == tokens.tolist()


@pytest.mark.parametrize(
    ("magic", "version", "dtype"), [(20240520, 1, "uint16"), (20240801, 7, "uint32")]
)
def test_llm_c_file_is_recognised_by_its_header(tmp_path, magic, version, dtype):
    """llm.c's header says the dtype, whatever the caller thinks."""
    header = np.zeros(256, dtype=np.int32)
    header[:3] = magic, version, 5
    body = np.array([5, 4, 3, 2, 1], dtype=dtype)
    (tmp_path / "x.bin").write_bytes(header.tobytes() + body.tobytes())
    assert tokens_of(open_shards(tmp_path / "x.bin")) == [5, 4, 3, 2, 1]


@pytest.mark.parametrize("vocabulary", [50_257, 128_256, 262_144])
def test_headerless_file_of_uint32_is_not_read_as_uint16(tmp_path, vocabulary):
    """Every second token would be next to nothing, and training would go on with nonsense."""
    path = tmp_path / "train.bin"
    tokens = np.random.default_rng(1).integers(0, vocabulary, 10_000, dtype=np.uint32)
    tokens.tofile(path)
    with pytest.raises(InvalidInput, match=r"train\.bin looks like uint32.*data\.dtype: uint32"):
        open_shards(path)
    assert tokens_of(open_shards(path, dtype="uint32")) == tokens.tolist()
    words = np.frombuffer(path.read_bytes(), dtype=np.uint16)
    assert tokens_of(open_shards(path, dtype="uint16")) == words.tolist()  # who says so knows it


@pytest.mark.parametrize(
    "tokens",
    [
        np.zeros(8192),  # padding
        np.arange(8192) % 4,  # a vocabulary of four
        np.random.default_rng(1).integers(0, 257, 8192),
        np.tile([300, 4], 4096),
        [300, 1, 300, 1],  # too few to tell
    ],
    ids=["padding", "four letters", "bytes", "every second one small", "few"],
)
def test_headerless_file_of_uint16_is_not_taken_for_another(tmp_path, tokens):
    """Small tokens alone are no sign."""
    np.array(tokens, dtype=np.uint16).tofile(tmp_path / "x.bin")
    assert tokens_of(open_shards(tmp_path / "x.bin")) == list(tokens)


def test_file_that_says_its_dtype_is_not_read_as_another(texts, tmp_path):
    """A header or an index says what the file is: a spec that says otherwise is wrong."""
    header = np.zeros(256, dtype=np.int32)
    header[:3] = 20240801, 7, 2
    body = np.array([5, 4], dtype=np.uint32)
    (tmp_path / "x.bin").write_bytes(header.tobytes() + body.tobytes())
    with pytest.raises(InvalidInput, match=r"x\.bin has a header that says uint32, .* uint16"):
        open_shards(tmp_path / "x.bin", dtype="uint16")
    assert tokens_of(open_shards(tmp_path / "x.bin", dtype="uint32")) == [5, 4]
    prepare([texts], tmp_path / "out", suffixes=(".py",))
    with pytest.raises(InvalidInput, match=r"index\.json says uint16, .* uint32"):
        open_shards(tmp_path / "out", dtype="uint32")
    assert open_shards(tmp_path / "out", dtype="uint16").tokens == 7


def test_wrong_files_are_refused(tmp_path):
    """Absent, empty, of odd size, of unknown dtype, or a directory without index."""
    with pytest.raises(NotFoundError, match="no corpus"):
        open_shards(tmp_path / "absent.bin")
    (tmp_path / "empty.bin").touch()
    with pytest.raises(InvalidInput, match="empty"):
        open_shards(tmp_path / "empty.bin")
    (tmp_path / "odd.bin").write_bytes(b"123")
    with pytest.raises(InvalidInput, match="not a multiple of 2"):
        open_shards(tmp_path / "odd.bin")
    with pytest.raises(InvalidInput, match="uint16 or uint32"):
        open_shards(tmp_path / "odd.bin", dtype="int8")
    with pytest.raises(NotFoundError, match=r"index\.json"):
        open_shards(tmp_path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"dtype": "float32"}, "uint16 or uint32"),
        ({"format": "other"}, "not an index"),
        ({"shards": [{"file": "shard-00000.bin"}]}, "lacks or garbles"),
        ({"shards": [{"file": "gone.bin", "tokens": 7}]}, "it is missing"),
        (
            {"shards": [{"file": "shard-00000.bin", "tokens": 8}]},
            "should have 16 bytes, but it has 14",
        ),
        ({"shards": []}, "the corpus is empty"),
    ],
)
def test_wrong_index_is_refused(texts, tmp_path, change, message):
    """An index that contradicts the files never gives a corpus."""
    prepare([texts], tmp_path / "out", suffixes=(".py",))
    path = tmp_path / "out" / "index.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    with pytest.raises(InvalidInput, match=message):
        open_shards(tmp_path / "out")
    path.write_text("{")
    with pytest.raises(InvalidInput, match="not JSON"):
        open_shards(tmp_path / "out")


def test_corpus_shorter_than_a_sample_is_refused(texts, tmp_path):
    """The message says how many tokens there are and how many are needed."""
    prepare([texts], tmp_path / "out", suffixes=(".py",))
    shards = open_shards(tmp_path / "out")
    assert shards.samples(6) == 1
    with pytest.raises(InvalidInput, match="has 7 tokens, but one sample needs 8"):
        shards.samples(7)
