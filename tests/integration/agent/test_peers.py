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
from everstep.memory.reader import verify_slot
from everstep.memory.receive import SlotReceiver, StreamReceiver
from everstep.memory.slot import PREAMBLE_BYTES, Preamble, read_preamble
from everstep.memory.slot_file import SlotFile
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
    head = {
        "step": preamble.step,
        "bytes": preamble.slot_bytes,
        "header_bytes": preamble.header_bytes,
        "header_checksum": preamble.header_checksum,
    }
    framing.send(raw, {"kind": "push", **HEAD, **head})
    return framing.receive(raw)


def on_the_wire(path: Path) -> bytes:
    """Return a slot file's bytes as they travel: preamble, header, payload."""
    data, preamble = path.read_bytes(), read_preamble(path)
    header = data[preamble.header_offset : preamble.slot_bytes]
    return data[:PREAMBLE_BYTES] + header + data[PREAMBLE_BYTES : preamble.header_offset]


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
        coming = connection.ask("job-1", 4, 9)
        size = coming.bytes
        with contextlib.closing(SlotFile(target, size)) as file:
            receiver = StreamReceiver(file, size, coming.header_bytes)
            connection.receive(receiver)
            receiver.commit(job_id="job-1", rank=4, step=9)
        with pytest.raises(NotFoundError):
            connection.ask("job-1", 4, 10)
    assert target.read_bytes() == snapshot.read_bytes()[:size]


def test_newest_other_copy_is_never_overwritten(memory, port, tmp_path):
    """Three pushes leave the two newest steps, whatever slots the sender uses."""
    for step in (7, 8, 9):
        push(port, write(tmp_path / "slot-0", step=step))
    assert sorted(one.step for one in memory.held("job-1")) == [8, 9]


def mapped(memory: HostMemory) -> list[str]:
    """Return the files of a host's memory that this process has mapped, its trash included."""
    lines = Path("/proc/self/maps").read_text().splitlines()
    return sorted({line.split(maxsplit=5)[5] for line in lines if str(memory.root) in line})


def test_copies_stay_mapped_from_push_to_push_and_no_longer_than_they_lie_there(
    memory, port, tmp_path
):
    """A file that was removed gives its memory back although its sender is still connected."""
    with PeerConnection("127.0.0.1", port) as connection:
        for step in (7, 8, 9):
            path = write(tmp_path / "slot-0", step=step)
            connection.push(HEAD, path, read_preamble(path))
        directory = memory.directory("job-1", 4, own=False)
        assert mapped(memory) == [str(directory / f"slot-{slot}") for slot in (0, 1)]
        memory.drop_strangers("job-1", 1, frozenset(), frozenset())
        assert mapped(memory) == []
        path = write(tmp_path / "slot-0", step=10)
        connection.push(HEAD, path, read_preamble(path))
    assert [one.step for one in memory.held("job-1")] == [10]


def test_copy_that_becomes_a_ranks_own_is_not_received_into_any_more(memory, port, tmp_path):
    """A later push for the same rank goes to a new file, whatever was mapped."""
    push(port, write(tmp_path / "slot-0", step=7))
    own = memory.directory("job-1", 4, own=True) / "slot-0"
    memory.adopt(memory.find("job-1", 4, 7, own=False), own)
    assert mapped(memory) == []
    push(port, write(tmp_path / "slot-0", step=8))
    assert verify_slot(own).step == 7
    assert [(one.own, one.step) for one in memory.held("job-1")] == [(True, 7), (False, 8)]


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
        raw.sendall(on_the_wire(newer)[: preamble.slot_bytes // 2])
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
        raw.sendall(on_the_wire(snapshot)[:1_000])
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
        sizes = {"bytes": 1 << 50, "header_bytes": 100}
        framing.send(raw, {"kind": "push", **HEAD, "step": 9, **sizes, "header_checksum": 0})
        answer = framing.receive(raw)
    assert (answer["kind"], answer["why"]) == ("refused", "no_space")


def test_silent_server_is_unavailable():
    """A port where nobody listens is known at once."""
    with pytest.raises(Unavailable):
        PeerConnection("127.0.0.1", PortChooser(RandomIds().new_id(""), "127.0.0.1").choose())


def test_whoever_else_answers_on_the_port_is_no_peer(snapshot):
    """Another program has taken it: the push is tried again later, and nothing else breaks."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def answer():
            connection, _ = listener.accept()
            with connection:
                connection.recv(1 << 16)
                connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

        with ThreadPoolExecutor(1) as pool:
            pool.submit(answer)
            with pytest.raises(Unavailable, match="the stream is garbled"):
                push(listener.getsockname()[1], snapshot)


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


def test_strangers_of_an_older_generation_are_no_longer_dropped(memory, port, snapshot):
    """A tidying that comes late must not take what the next generation is to restore from."""
    push(port, snapshot)
    memory.raise_fence("job-1", 2)
    memory.drop_strangers("job-1", 1, frozenset(), frozenset())
    assert [one.step for one in memory.held("job-1")] == [9]
    memory.drop_strangers("job-1", 2, frozenset(), frozenset())
    assert memory.held("job-1") == []


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
