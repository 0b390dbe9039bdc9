"""What a peer's snapshot server refuses, over real sockets."""

from __future__ import annotations

import contextlib
import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from everstep.agent import framing, peer_protocol
from everstep.agent.peer_protocol import PeerConnection
from everstep.agent.peer_server import PeerServer
from everstep.agent.ports import PortChooser
from everstep.agent.store import HostMemory
from everstep.core.errors import CorruptData, NotFoundError, RefusedError, Unavailable
from everstep.core.system import RandomIds
from everstep.memory.receive import SlotReceiver
from everstep.memory.slot import Preamble, read_preamble
from everstep.memory.writer import Owner, SlotWriter, TensorSpec

SIZE = 3 * peer_protocol.CHUNK_BYTES + 17
HEAD = {"job_id": "job-1", "generation": 1, "rank": 4}


@pytest.fixture
def memory(tmp_path):
    """The receiving host's."""
    return HostMemory(tmp_path / "memory", tmp_path / "forgotten.json")


@pytest.fixture
def port(memory):
    """Of its running snapshot server."""
    port = PortChooser(RandomIds().new_id(""), "127.0.0.1").choose()
    server = PeerServer(memory)
    server.start("127.0.0.1", port)
    yield port
    server.close()


@pytest.fixture
def snapshot(tmp_path):
    """A rank's slot of step 9."""
    return write(tmp_path / "rank-4" / "slot-0", step=9)


def write(path: Path, *, step: int, rank: int = 4) -> Path:
    """Write a snapshot and return its path."""
    owner = Owner(job_id="job-1", rank=rank, world_size=8, generation=1)
    specs = [TensorSpec(name="weights", dtype="uint8", shape=(SIZE,), bytes=SIZE)]
    writer = SlotWriter(path, owner, specs)
    writer.begin()
    writer.buffers["weights"][:] = bytes([step]) * SIZE
    writer.commit(step=step, data_state={}, objects={})
    writer.close()
    return path


def offer(raw: socket.socket, preamble: Preamble) -> framing.Frame | None:
    """Announce a snapshot as a peer would; returns the answer."""
    head = {"step": preamble.step, "bytes": preamble.slot_bytes}
    checksum = preamble.header_checksum
    framing.send(raw, {"kind": "push", **HEAD, **head, "header_checksum": checksum})
    return framing.receive(raw)


def push(port: int, path: Path, **head: int) -> None:
    """Push a slot file."""
    preamble = read_preamble(path)
    assert preamble is not None
    with PeerConnection("127.0.0.1", port) as connection:
        connection.push({**HEAD, **head}, path, preamble)


def test_pushed_snapshot_can_be_pulled_again(memory, port, snapshot, tmp_path):
    """The copy is complete and checked on both ways."""
    push(port, snapshot)
    assert memory.find("job-1", 4, 9, own=False) is not None
    target = tmp_path / "pulled"
    with PeerConnection("127.0.0.1", port) as connection:
        size = connection.ask("job-1", 4, 9)
        with contextlib.closing(SlotReceiver(target, size)) as receiver:
            connection.receive(receiver, size)
            receiver.commit(job_id="job-1", rank=4, step=9)
        with pytest.raises(NotFoundError):
            connection.ask("job-1", 4, 10)
    assert target.read_bytes() == snapshot.read_bytes()[:size]


def test_newest_other_copy_is_never_overwritten(memory, port, tmp_path):
    """Three pushes leave the two newest steps, whatever slots the sender uses."""
    for step in (7, 8, 9):
        push(port, write(tmp_path / "slot-0", step=step))
    assert sorted(one.step for one in memory.held("job-1")) == [8, 9]


def test_known_snapshot_is_acknowledged_without_its_bytes(memory, port, snapshot):
    """After a reconnection the same step is not sent twice."""
    push(port, snapshot)
    preamble = read_preamble(snapshot)
    with socket.create_connection(("127.0.0.1", port)) as raw:
        assert offer(raw, preamble) == {"kind": "ack", "step": 9}


def test_corrupt_snapshot_is_refused_and_not_held(memory, port, snapshot):
    """A bit that flipped at the sender is found by the receiver, and named."""
    preamble = read_preamble(snapshot)
    data = bytearray(snapshot.read_bytes())
    data[1_000] ^= 1
    snapshot.write_bytes(data)
    with PeerConnection("127.0.0.1", port) as connection:
        with pytest.raises(RefusedError, match="weights: checksum expected") as refusal:
            connection.push(HEAD, snapshot, preamble)
        assert refusal.value.why == "bad_checksum"
        assert memory.held("job-1") == []
        data[1_000] ^= 1
        snapshot.write_bytes(data)
        connection.push(HEAD, snapshot, preamble)  # the same connection still serves
    assert [one.step for one in memory.held("job-1")] == [9]


def test_torn_transfer_leaves_the_older_copy_alone(memory, port, snapshot, tmp_path):
    """A sender that dies in the middle costs the slot it wrote to, not the other."""
    push(port, snapshot)
    newer = write(tmp_path / "slot-1", step=10)
    preamble = read_preamble(newer)
    with socket.create_connection(("127.0.0.1", port)) as raw:
        assert offer(raw, preamble) == {"kind": "go"}
        raw.sendall(newer.read_bytes()[: preamble.slot_bytes // 2])
    memory.raise_fence("job-1", 2)
    assert memory.wait_quiet("job-1", 2)
    assert [one.step for one in memory.held("job-1")] == [9]


def test_wrong_rank_inside_is_refused(memory, port, tmp_path):
    """What comes must be what was announced."""
    other = write(tmp_path / "slot-0", step=9, rank=5)
    with pytest.raises(RefusedError, match="expected step 9 of rank 4"):
        push(port, other)
    assert memory.held("job-1") == []


def test_stale_generation_is_refused(memory, port, snapshot):
    """A host that was fenced takes nothing from an older generation."""
    memory.raise_fence("job-1", 2)
    with pytest.raises(RefusedError) as refusal:
        push(port, snapshot)
    assert refusal.value.why == "stale_generation"
    push(port, snapshot, generation=2)
    assert [one.step for one in memory.held("job-1")] == [9]


def test_fence_cuts_off_a_push_under_way(memory, port, snapshot):
    """A push that hangs in the middle does not hold the fence up, and is never valid."""
    preamble = read_preamble(snapshot)
    with socket.create_connection(("127.0.0.1", port)) as raw:
        assert offer(raw, preamble) == {"kind": "go"}
        raw.sendall(snapshot.read_bytes()[:1_000])
        memory.raise_fence("job-1", 2)
        assert memory.wait_quiet("job-1", 2)
        assert memory.held("job-1") == []


def test_newer_connection_takes_a_hanging_one_s_place(memory, port, snapshot):
    """A sender that connected again is not held up by what it left behind."""
    preamble = read_preamble(snapshot)
    with socket.create_connection(("127.0.0.1", port)) as raw:
        assert offer(raw, preamble) == {"kind": "go"}
        push(port, snapshot)
    assert [one.step for one in memory.held("job-1")] == [9]


def test_many_ranks_push_at_the_same_time(memory, port, tmp_path):
    """Pushes of different ranks do not wait for one another."""
    paths = {rank: write(tmp_path / f"r{rank}", step=3, rank=rank) for rank in range(8)}
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda rank: push(port, paths[rank], rank=rank), paths))
    assert [(one.rank, one.step) for one in memory.held("job-1")] == [(r, 3) for r in range(8)]


def test_path_in_a_job_id_is_refused(memory, port, snapshot):
    """A name that would leave the memory directory is no job id."""
    with pytest.raises(RefusedError, match="not a job id"):
        push_as(port, snapshot, "../../etc")
    assert memory.jobs() == []


def push_as(port: int, path: Path, job_id: str) -> None:
    """Push under another job id."""
    with PeerConnection("127.0.0.1", port) as connection:
        connection.push({**HEAD, "job_id": job_id}, path, read_preamble(path))


def test_snapshot_larger_than_the_free_memory_is_refused(memory, port, snapshot):
    """The receiver says that it has no room before a byte is sent."""
    with socket.create_connection(("127.0.0.1", port)) as raw:
        framing.send(
            raw, {"kind": "push", **HEAD, "step": 9, "bytes": 1 << 50, "header_checksum": 0}
        )
        answer = framing.receive(raw)
    assert (answer["kind"], answer["why"]) == ("refused", "no_space")


def test_silent_server_is_unavailable():
    """A port where nobody listens is known at once."""
    with pytest.raises(Unavailable):
        PeerConnection("127.0.0.1", PortChooser(RandomIds().new_id(""), "127.0.0.1").choose())


def test_writer_of_a_newer_generation_waits_for_the_cut_off_one(memory):
    """Two writers are never in the same directory at once."""
    directory = memory.directory("job-1", 0, own=True)
    inside = threading.Event()
    cut = threading.Event()
    order: list[str] = []

    def old() -> None:
        with memory.writing("job-1", 1, directory, cut.set):
            inside.set()
            cut.wait(10)
            order.append("old ends")

    thread = threading.Thread(target=old)
    thread.start()
    assert inside.wait(10)
    with memory.writing("job-1", 2, directory, lambda: None):
        order.append("new writes")
    thread.join()
    assert order == ["old ends", "new writes"]


def test_garbled_request_ends_the_connection(memory, port):
    """Bytes that are no frame are not answered, and the server goes on."""
    with socket.create_connection(("127.0.0.1", port)) as raw:
        raw.sendall(b"\xff\xff\xff\xff")
        assert raw.recv(10) == b""
    with pytest.raises(NotFoundError), PeerConnection("127.0.0.1", port) as connection:
        connection.ask("job-1", 0, 1)


def test_receiver_refuses_more_bytes_than_announced(tmp_path):
    """The slot file never grows beyond what was announced."""
    receiver = SlotReceiver(tmp_path / "slot-0", 128)
    with contextlib.closing(receiver), pytest.raises(CorruptData):
        receiver.write(b"x" * 129)
