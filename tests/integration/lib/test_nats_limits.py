"""What the NATS server takes at most, and what is said where that is too little."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.integration.lib.conftest import OwnServer
from tests.waiting import until

from everstep.bus.nats import NatsBus
from everstep.core.errors import InvalidInput
from everstep.core.ports import Message

TOPIC = "everstep.v1.event.test.x.happened"
DEFAULT_BYTES = 1024 * 1024  # of a server whose configuration says nothing


@pytest.fixture
def default_nats(own_nats: OwnServer, tmp_path: Path) -> OwnServer:
    """A server as an operator has it who has set no limit; not started."""
    path = tmp_path / "nats" / "nats.conf"
    configuration = json.loads(path.read_text())
    del configuration["max_payload"]
    path.write_text(json.dumps(configuration))
    return own_nats


async def test_server_that_takes_too_little_is_told_with_the_setting(
    default_nats: OwnServer, caplog: pytest.LogCaptureFixture
) -> None:
    """Before a large job needs it: a restore of it would be refused."""
    await default_nats.start()
    async with NatsBus.open(default_nats.url, name="test") as bus:
        await bus.wait_connected()
    assert "takes messages of at most 1048576 bytes" in caplog.text
    assert "max_payload: 8MB" in caplog.text


async def test_server_with_our_setting_is_not_complained_of(
    own_nats: OwnServer, caplog: pytest.LogCaptureFixture
) -> None:
    """The bundled one has it."""
    await own_nats.start()
    async with NatsBus.open(own_nats.url, name="test") as bus:
        await bus.wait_connected()
    assert "max_payload" not in caplog.text


@pytest.mark.parametrize("missing", [-1000, 0, 10])
async def test_message_that_is_too_large_with_its_headers_is_refused_for_good(
    default_nats: OwnServer, missing: int
) -> None:
    """The server cuts the connection of whoever sends it, and would again at every try."""
    await default_nats.start()
    data = b"x" * (DEFAULT_BYTES - missing)
    async with NatsBus.open(default_nats.url, name="test") as bus:
        await bus.wait_connected()
        with pytest.raises(InvalidInput, match=r"1048576.*max_payload: 8MB"):
            await bus.publish_durable(TOPIC, data, message_id="large")
        with pytest.raises(InvalidInput, match="1048576"):
            await bus.request("test.x", data, timeout_s=1.0, headers={"one": "x" * 10})
        with pytest.raises(InvalidInput, match="1048576"):
            await bus.publish("test.x", data, headers={"one": "x" * 10})
        await bus.publish_durable(TOPIC, b"small", message_id="small")


async def test_answer_that_is_too_large_is_told_to_whoever_asked(default_nats: OwnServer) -> None:
    """It need not wait for a timeout, and learns what to set."""

    async def reply(_: Message) -> bytes:
        return b"x" * (DEFAULT_BYTES + 1)

    await default_nats.start()
    async with NatsBus.open(default_nats.url, name="test") as bus:
        await bus.serve("test.x", reply)
        with pytest.raises(InvalidInput, match="max_payload: 8MB"):
            await bus.request("test.x", b"", timeout_s=5.0)


async def test_largest_message_is_stored(default_nats: OwnServer) -> None:
    """What is refused is what the server would not take, and no byte less."""
    got: list[Message] = []

    async def receive(message: Message) -> None:
        got.append(message)

    await default_nats.start()
    lines = ("NATS/1.0", "Nats-Msg-Id: x", "Nats-Expected-Stream: EVERSTEP_EVENTS", "")
    head = sum(len(line) + len("\r\n") for line in lines)
    async with NatsBus.open(default_nats.url, name="test") as bus:
        await bus.consume(TOPIC, receive, durable="test")
        data = b"x" * (DEFAULT_BYTES - head)
        with pytest.raises(InvalidInput):
            await bus.publish_durable(TOPIC, data + b"x", message_id="x")
        await bus.publish_durable(TOPIC, data, message_id="x")
        await until(lambda: got)
    assert got[0].data == data
