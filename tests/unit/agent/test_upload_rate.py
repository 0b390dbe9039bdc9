"""How fast a host uploads, in a time of its own."""

from __future__ import annotations

import heapq

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.clocks import ManualClock

from everstep.agent.rate import HostRate, Promised, UploadPace, piece_bytes, promise
from everstep.core.errors import RefusedError
from everstep.objectstore.files import CHUNK_BYTES

MB = 1_000_000


def sent_by(ranks: int, *, bytes_per_s: int, until_ms: float) -> list[tuple[float, int]]:
    """Let so many ranks send as fast as they may; returns (when, rank) of every piece."""
    piece = piece_bytes(bytes_per_s)
    promised, sent = Promised(), []
    asking = [(0.0, rank) for rank in range(ranks)]
    while asking:
        at_ms, rank = heapq.heappop(asking)
        promised, wait_ms = promise(
            promised, at_ms=at_ms, size_bytes=piece, bytes_per_s=bytes_per_s
        )
        assert len(sent) <= 2 * bytes_per_s * until_ms / 1_000 / piece, "there is no limit"
        if at_ms + wait_ms < until_ms:
            sent.append((at_ms + wait_ms, rank))
            heapq.heappush(asking, (at_ms + wait_ms, rank))
    return sent


@pytest.mark.parametrize("ranks", [1, 8])
def test_host_sends_at_its_limit_however_many_ranks_it_has(ranks: int) -> None:
    """Within one piece of the limit after ten seconds."""
    sent = sent_by(ranks, bytes_per_s=10 * MB, until_ms=10_000)
    total = len(sent) * piece_bytes(10 * MB)
    assert abs(total - 100 * MB) <= piece_bytes(10 * MB)


def test_rate_is_smooth_from_the_first_piece_on() -> None:
    """No tenth of a second holds more than its share and a piece: nothing is sent in bursts."""
    piece = piece_bytes(10 * MB)
    sent = sent_by(4, bytes_per_s=10 * MB, until_ms=5_000)
    for begin_ms in range(0, 4_900, 10):
        within = [at for at, _ in sent if begin_ms <= at < begin_ms + 100]
        assert len(within) * piece <= 1 * MB + piece


def test_ranks_of_a_host_share_the_line_evenly() -> None:
    """None of four waits for another's whole shard: within two pieces after ten seconds."""
    sent = sent_by(4, bytes_per_s=10 * MB, until_ms=10_000)
    counts = [sum(1 for _, one in sent if one == rank) for rank in range(4)]
    assert max(counts) - min(counts) <= 2


def test_idle_time_is_not_saved_up() -> None:
    """After a quiet minute the line is as wide as ever, not wider."""
    first, _ = promise(Promised(), at_ms=0, size_bytes=MB, bytes_per_s=MB)
    second, wait_ms = promise(first, at_ms=60_000, size_bytes=MB, bytes_per_s=MB)
    assert (wait_ms, second.until_ms) == (0, 61_000)
    assert promise(second, at_ms=60_000, size_bytes=MB, bytes_per_s=MB)[1] == 1_000


@given(
    st.lists(st.tuples(st.floats(0, 1e6), st.integers(1, CHUNK_BYTES)), max_size=50),
    st.integers(1, 10**10),
)
def test_turns_never_overlap(asked: list[tuple[float, int]], bytes_per_s: int) -> None:
    """Whoever asks whenever: each piece begins when the one before has had its time."""
    promised = Promised()
    for at_ms, size_bytes in asked:
        before = promised
        promised, wait_ms = promise(
            promised, at_ms=at_ms, size_bytes=size_bytes, bytes_per_s=bytes_per_s
        )
        assert wait_ms >= 0
        assert at_ms + wait_ms >= min(before.until_ms, at_ms + wait_ms)
        took_ms = size_bytes * 1_000 / bytes_per_s
        assert promised.until_ms == pytest.approx(max(before.until_ms, at_ms) + took_ms)


def test_pieces_are_small_enough_for_the_rate_and_for_memory() -> None:
    """A slow line gets small pieces, a free one the largest."""
    assert piece_bytes(0) == CHUNK_BYTES
    assert piece_bytes(1_000 * MB) == CHUNK_BYTES
    assert piece_bytes(2 * MB) == 100_000
    assert piece_bytes(1) == 16 << 10


def test_shards_of_one_host_take_turns_on_one_line() -> None:
    """Two paces of the same host are not two limits."""
    clock = ManualClock()
    rate = HostRate(clock)
    waits = [rate.turn_ms(MB, MB) for _ in range(3)]
    clock.advance(3_000)
    assert [*waits, rate.turn_ms(MB, MB)] == [0, 1_000, 2_000, 0]


@pytest.mark.parametrize("bytes_per_s", [0, 1_000 * MB])
def test_pace_that_is_cut_off_lets_nothing_go(bytes_per_s: int) -> None:
    """A thread that nobody can cancel ends by itself at its next piece."""
    pace = UploadPace(HostRate(ManualClock()), bytes_per_s)
    pace.wait(1)
    pace.cut()
    with pytest.raises(RefusedError, match="given up"):
        pace.wait(1)
