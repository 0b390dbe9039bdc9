"""What a host says of its ways to others: over real sockets, whole, cut, wrong and shut."""

from __future__ import annotations

import contextlib
import socket
import threading

import pytest
from tests.integration.agent.relay import relay_to

from everstep.agent import framing
from everstep.agent.links import ECHO_BYTES, PEERS_MAX, TRIES, TRY_S_MAX, check_links, echo_of
from everstep.agent.peer_server import PeerServer
from everstep.agent.ports import PortChooser
from everstep.agent.store import HostMemory
from everstep.core.errors import CorruptData
from everstep.core.system import RandomIds, SystemClock
from everstep.wire.v1.agents_pb2 import LinkPeer

CLOCK = SystemClock()


@pytest.fixture
def port(tmp_path):
    """Of a host's running snapshot server."""
    port = PortChooser(RandomIds().new_id(""), "127.0.0.1").choose()
    server = PeerServer(HostMemory(tmp_path / "memory", tmp_path / "forgotten.json"))
    server.start("127.0.0.1", port)
    yield port
    server.close()


def peer(port: int, host_id: str = "h1") -> LinkPeer:
    """A host on this machine."""
    return LinkPeer(host_id=host_id, address="127.0.0.1", port=port)


async def test_whole_way_is_reached(port):
    """One connection, one echo."""
    [check] = await check_links([peer(port)], CLOCK)
    assert (check.host_id, check.reached, check.why) == ("h1", True, "")


async def test_way_that_drops_everything_is_not_reached(port):
    """It is tried twice and given up; when it is mended, it is reached."""
    async with relay_to(port) as relay:
        relay.cut()
        [check] = await check_links([peer(relay.port)], CLOCK)
        assert (check.reached, check.why) == (False, f"no echo within {TRY_S_MAX} s")
        relay.mend()
        [check] = await check_links([peer(relay.port)], CLOCK)
        assert check.reached
        assert relay.carried_bytes >= 2 * ECHO_BYTES


async def test_port_that_nobody_listens_on_is_not_reached():
    """An agent that is gone, or another address than the inventory knows."""
    port = PortChooser(RandomIds().new_id(""), "127.0.0.1").choose()
    [check] = await check_links([peer(port)], CLOCK)
    assert not check.reached
    assert "Connect call failed" in check.why


async def test_each_way_is_told_for_itself(port):
    """All at once, in the order in which they were asked."""
    async with relay_to(port) as relay:
        relay.cut()
        asked = [peer(port, "a"), peer(relay.port, "b"), peer(port, "c")]
        checks = await check_links(asked, CLOCK)
    assert [(check.host_id, check.reached) for check in checks] == [
        ("a", True),
        ("b", False),
        ("c", True),
    ]


async def test_way_that_changes_bytes_is_not_reached():
    """An echo of other bytes is no echo."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def answer() -> None:
            for _ in range(TRIES):
                connection, _ = listener.accept()
                with connection, contextlib.suppress(OSError):
                    frame = framing.receive(connection)
                    assert frame is not None
                    frame["data"] = bytes(len(frame["data"]))
                    framing.send(connection, frame)

        thread = threading.Thread(target=answer)
        thread.start()
        [check] = await check_links([peer(listener.getsockname()[1])], CLOCK)
        thread.join()
    assert (check.reached, check.why) == (False, "what came back is not what was sent")


def test_damaged_echo_is_refused():
    """The asked side looks too."""
    with pytest.raises(CorruptData, match="checksum"):
        echo_of({"kind": "echo", "data": b"x", "checksum": "00"})
    with pytest.raises(CorruptData, match="checksum"):
        echo_of({"kind": "echo"})


async def test_no_more_hosts_are_tried_than_the_bound(port):
    """Whoever asks for more is answered for the first ones."""
    checks = await check_links([peer(port, f"h{i}") for i in range(PEERS_MAX + 3)], CLOCK)
    assert [check.host_id for check in checks] == [f"h{i}" for i in range(PEERS_MAX)]
