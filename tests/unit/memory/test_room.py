"""Whether a host holds the snapshots of its ranks and the copies of its peer's."""

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from everstep.memory.room import HEADROOM_BYTES, Demand, Limit, declare, limit_of, shortage

GB = 10**9
ONE = Demand(generation=3, slot=5 * GB, durable=6 * GB)


def limit(gigabytes: float) -> Limit:
    """A host with so much for the job."""
    return Limit(bytes=int(gigabytes * GB), name="/dev/shm")


def test_ranks_and_copies_that_fit_are_admitted():
    """Two slots and one that is uploaded a rank, two copies a rank of the peer, some headroom."""
    needed = 2 * (2 * 5 + 6) + 2 * 2 * 5 + HEADROOM_BYTES / GB
    fits = shortage([ONE, ONE], rank_count=2, replica_count=2, limit=limit(needed))
    assert fits is None
    short = shortage([ONE, ONE], rank_count=2, replica_count=2, limit=limit(needed - 0.001))
    assert short is not None


def test_a_shortage_says_what_is_needed_what_there_is_and_what_to_do():
    """With every number that it was computed from."""
    short = shortage([ONE, ONE], rank_count=2, replica_count=2, limit=limit(40))
    assert short == (
        "2 ranks here need 32.0 GB of memory for 2 snapshots and one that is uploaded each, and "
        "about 20.0 GB for 2 copies of each of 2 ranks of other hosts: 52.1 GB in all, where "
        "/dev/shm allows 40.0 GB. Give it more, or spread the state over more ranks (dp_shard, tp, "
        "pp)"
    )


def test_a_rank_that_is_too_large_by_itself_does_not_wait_for_the_others():
    """Nothing that they may say makes it smaller."""
    short = shortage([ONE], rank_count=8, replica_count=0, limit=limit(10))
    assert short is not None
    assert short.startswith("1 ranks here (and 7 that have not said what they need) need 16.0 GB")


@given(st.integers(30, 70))
def test_whoever_declares_last_sees_the_whole(gigabytes):
    """One of the ranks is refused if and only if the host is too small, and then all later ones."""
    declared: list[Demand] = []
    refused = []
    for _ in range(4):
        declared.append(ONE)
        refused.append(
            shortage(declared, rank_count=4, replica_count=0, limit=limit(gigabytes)) is not None
        )
    assert any(refused) == (gigabytes < 4 * 16 + HEADROOM_BYTES / GB)
    assert refused == sorted(refused)


def test_demands_of_other_generations_and_hosts_do_not_count(tmp_path: Path):
    """What an earlier placement declared here says nothing about this one."""
    old = Demand(generation=2, slot=1, durable=1)
    assert declare(tmp_path, "job-1", 0, old, (0, 1)) == [old]
    assert declare(tmp_path, "job-1", 1, ONE, (0, 1)) == [ONE]
    assert declare(tmp_path, "job-1", 7, ONE, (7,)) == [ONE]
    assert declare(tmp_path, "job-1", 0, ONE, (0, 1)) == [ONE, ONE]


def test_what_a_job_has_already_counts_as_its_own(tmp_path: Path):
    """A restart finds its slots there, and needs no second place for them."""
    before = limit_of(tmp_path, "job-1").bytes
    directory = tmp_path / "job-1" / "rank-0"
    directory.mkdir(parents=True)
    (directory / "slot-0").write_bytes(b"x" * (64 << 20))
    after = limit_of(tmp_path, "job-1").bytes
    assert before > 0
    # Other processes take and give meanwhile; without counting it the job would have 64 MiB less.
    assert after > 0
    other = limit_of(tmp_path, "job-2")
    mine = limit_of(tmp_path, "job-1")
    assert mine.bytes - other.bytes > 32 << 20


def test_what_ranks_of_another_layout_left_is_no_room_of_the_new_ones(tmp_path: Path):
    """It stays beside theirs until their state is safe."""
    directory = tmp_path / "job-1" / "old-3-1" / "rank-0"
    directory.mkdir(parents=True)
    (directory / "slot-0").write_bytes(b"x" * (64 << 20))
    other = limit_of(tmp_path, "job-2")
    mine = limit_of(tmp_path, "job-1")
    assert mine.bytes - other.bytes < 32 << 20
