"""What every bus keeps: NATS and memory under the same rules."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from tests.waiting import until

from everstep.bus.memory import MemoryBus
from everstep.bus.nats import NatsBus
from everstep.core.errors import InvalidInput, NoResponders, Unavailable
from everstep.core.ports import Bus, Message
from everstep.core.system import RandomIds

TRACEPARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@pytest.fixture(params=["memory", "nats"])
async def bus(request: pytest.FixtureRequest) -> AsyncIterator[Bus]:
    """A connected bus."""
    if request.param == "memory":
        yield MemoryBus()
        return
    async with NatsBus.open(request.getfixturevalue("nats_url"), name="test") as opened:
        await opened.wait_connected()
        yield opened


@pytest.fixture
def topic() -> str:
    """A plain subject that no other test uses."""
    return f"test.{RandomIds().new_id('t')}"


@pytest.fixture
def durable_topic() -> str:
    """A stored subject that no other test uses."""
    return f"everstep.v1.event.test.{RandomIds().new_id('t')}"


class Inbox:
    """Receives and remembers."""

    def __init__(self) -> None:
        self.messages: list[Message] = []

    async def receive(self, message: Message) -> None:
        self.messages.append(message)

    @property
    def data(self) -> list[bytes]:
        return [message.data for message in self.messages]


def durable_name(topic: str) -> str:
    """A consumer name as unique as the topic."""
    return topic.replace(".", "-")


async def echo(message: Message) -> bytes:
    """Answer what was asked."""
    return b"echo " + message.data


async def test_published_messages_reach_every_subscriber_in_order(bus: Bus, topic: str) -> None:
    """Each subscriber sees each message once, with its subject and headers."""
    first, second = Inbox(), Inbox()
    await bus.subscribe(f"{topic}.*", first.receive)
    await bus.subscribe(f"{topic}.>", second.receive)
    for index in range(50):
        await bus.publish(f"{topic}.a", b"%d" % index, headers={"k": "v"})
    for inbox in (first, second):
        await until(lambda inbox=inbox: len(inbox.messages) == 50)
        assert inbox.data == [b"%d" % index for index in range(50)]
        assert inbox.messages[0] == Message(subject=f"{topic}.a", data=b"0", headers={"k": "v"})


async def test_receivers_get_messages_one_after_the_other(bus: Bus, topic: str) -> None:
    """The second message waits for the first one's receiver."""
    gate, seen = asyncio.Event(), []

    async def receive(message: Message) -> None:
        seen.append(message.data)
        await gate.wait()

    await bus.subscribe(topic, receive)
    done = Inbox()
    await bus.subscribe(topic, done.receive)
    await bus.publish(topic, b"1")
    await bus.publish(topic, b"2")
    await until(lambda: len(done.messages) == 2)
    assert seen == [b"1"]
    gate.set()
    await until(lambda: seen == [b"1", b"2"])


async def test_queue_group_shares_the_messages(bus: Bus, topic: str) -> None:
    """Two instances of one service handle each message once between them."""
    first, second = Inbox(), Inbox()
    await bus.subscribe(topic, first.receive, queue="service")
    await bus.subscribe(topic, second.receive, queue="service")
    for index in range(40):
        await bus.publish(topic, b"%d" % index)
    await until(lambda: len(first.messages) + len(second.messages) == 40)
    assert sorted(first.data + second.data) == sorted(b"%d" % index for index in range(40))


async def test_failing_receiver_gets_the_next_message(bus: Bus, topic: str) -> None:
    """One bad message does not end a subscription."""
    seen: list[bytes] = []

    async def receive(message: Message) -> None:
        if message.data == b"bad":
            raise ValueError("bad")
        seen.append(message.data)

    await bus.subscribe(topic, receive)
    await bus.publish(topic, b"bad")
    await bus.publish(topic, b"good")
    await until(lambda: seen == [b"good"])


async def test_closed_subscription_receives_no_more(bus: Bus, topic: str) -> None:
    """Closing returns when nothing is in work, and nothing comes after."""
    closed, other = Inbox(), Inbox()
    subscription = await bus.subscribe(topic, closed.receive)
    await bus.subscribe(topic, other.receive)
    await subscription.close()
    await subscription.close()
    await bus.publish(topic, b"x")
    await until(lambda: other.messages)
    assert closed.messages == []


async def test_request_returns_the_answer(bus: Bus, topic: str) -> None:
    """A request reaches one of the servers and brings its answer back."""
    await bus.serve(topic, echo, queue="service")
    await bus.serve(topic, echo, queue="service")
    assert await bus.request(topic, b"hi", timeout_s=10) == b"echo hi"


async def test_request_that_nobody_serves_fails_at_once(bus: Bus, topic: str) -> None:
    """Absence is known without waiting for the timeout."""
    started = asyncio.get_running_loop().time()
    with pytest.raises(NoResponders, match=topic):
        await bus.request(topic, b"hi", timeout_s=30)
    assert asyncio.get_running_loop().time() - started < 5


async def test_request_without_an_answer_times_out(bus: Bus, topic: str) -> None:
    """A server that does not answer in time is unavailable, which is not the same as absent."""
    never = asyncio.Event()

    async def silent(message: Message) -> bytes:
        await never.wait()
        return message.data

    await bus.serve(topic, silent)
    with pytest.raises(Unavailable) as caught:
        await bus.request(topic, b"hi", timeout_s=0.05)
    assert not isinstance(caught.value, NoResponders)
    never.set()


@pytest.mark.parametrize(
    ("raised", "expected"),
    [
        (ValueError("broken"), Unavailable),
        (Unavailable("database away"), Unavailable),
        (InvalidInput("not a command"), InvalidInput),
    ],
)
async def test_failing_handler_is_told_at_once(
    bus: Bus, topic: str, raised: Exception, expected: type[Exception]
) -> None:
    """The requester learns of a failure, and whether sending again may help, without a timeout."""

    async def fail(message: Message) -> bytes:
        raise raised

    await bus.serve(topic, fail)
    started = asyncio.get_running_loop().time()
    with pytest.raises(expected, match=str(raised)):
        await bus.request(topic, b"hi", timeout_s=30)
    assert asyncio.get_running_loop().time() - started < 5


async def test_requests_are_served_concurrently(bus: Bus, topic: str) -> None:
    """A slow request does not hold up the next one."""
    gate, taken = asyncio.Event(), asyncio.Event()

    async def serve(message: Message) -> bytes:
        if message.data == b"slow":
            taken.set()
            await gate.wait()
        return message.data

    await bus.serve(topic, serve)
    slow = asyncio.create_task(bus.request(topic, b"slow", timeout_s=30))
    await taken.wait()
    assert await bus.request(topic, b"fast", timeout_s=30) == b"fast"
    gate.set()
    assert await slow == b"slow"


async def test_closing_a_server_finishes_what_is_in_work(bus: Bus, topic: str) -> None:
    """A request taken before the close is answered."""
    gate, taken = asyncio.Event(), asyncio.Event()

    async def serve(message: Message) -> bytes:
        taken.set()
        await gate.wait()
        return message.data

    subscription = await bus.serve(topic, serve)
    request = asyncio.create_task(bus.request(topic, b"x", timeout_s=30))
    await taken.wait()
    closing = asyncio.create_task(subscription.close())
    gate.set()
    await closing
    assert await request == b"x"
    with pytest.raises(NoResponders):
        await bus.request(topic, b"y", timeout_s=30)


async def test_stored_messages_are_consumed_in_order(bus: Bus, durable_topic: str) -> None:
    """A consumer sees what was stored before it started, and what comes after, in order."""
    inbox = Inbox()
    for index in range(10):
        await bus.publish_durable(
            f"{durable_topic}.a", b"%d" % index, message_id=f"{durable_topic}-{index}"
        )
    await bus.consume(f"{durable_topic}.>", inbox.receive, durable=durable_name(durable_topic))
    for index in range(10, 20):
        await bus.publish_durable(
            f"{durable_topic}.b", b"%d" % index, message_id=f"{durable_topic}-{index}"
        )
    await until(lambda: len(inbox.messages) == 20)
    assert inbox.data == [b"%d" % index for index in range(20)]


async def test_repeated_message_id_is_stored_once(bus: Bus, durable_topic: str) -> None:
    """A publisher that does not know whether it succeeded may send again."""
    inbox = Inbox()
    for message_id in ("a", "a", "b", "a"):
        await bus.publish_durable(
            durable_topic, message_id.encode(), message_id=f"{durable_topic}-{message_id}"
        )
    await bus.consume(durable_topic, inbox.receive, durable=durable_name(durable_topic))
    await until(lambda: len(inbox.messages) == 2)
    assert inbox.data == [b"a", b"b"]


async def test_durable_consumer_goes_on_where_it_left_off(bus: Bus, durable_topic: str) -> None:
    """What was handled does not come again; what came meanwhile does."""
    durable = durable_name(durable_topic)
    first, second = Inbox(), Inbox()
    consumer = await bus.consume(durable_topic, first.receive, durable=durable)
    await bus.publish_durable(durable_topic, b"1", message_id=f"{durable}-1")
    await until(lambda: first.messages)
    await consumer.close()
    await bus.publish_durable(durable_topic, b"2", message_id=f"{durable}-2")
    await bus.consume(durable_topic, second.receive, durable=durable)
    await until(lambda: second.messages)
    assert (first.data, second.data) == ([b"1"], [b"2"])


async def test_failing_consumer_sees_the_message_again_before_any_later_one(
    bus: Bus, durable_topic: str
) -> None:
    """Order holds over failures: consumers rely on positions that only grow."""
    seen: list[bytes] = []

    async def receive(message: Message) -> None:
        seen.append(message.data)
        if message.data == b"1" and seen.count(b"1") < 3:
            raise ValueError("not yet")

    for index in range(4):
        await bus.publish_durable(
            durable_topic, b"%d" % index, message_id=f"{durable_topic}-{index}"
        )
    await bus.consume(durable_topic, receive, durable=durable_name(durable_topic))
    await until(lambda: b"3" in seen)
    assert seen == [b"0", b"1", b"1", b"1", b"2", b"3"]


async def test_instances_of_one_durable_share_the_messages_in_order(
    bus: Bus, durable_topic: str
) -> None:
    """Two instances never work on two messages at once, and together see each one once."""
    seen: list[bytes] = []
    at_work = 0

    async def receive(message: Message) -> None:
        nonlocal at_work
        at_work += 1
        assert at_work == 1
        await asyncio.sleep(0)
        seen.append(message.data)
        at_work -= 1

    durable = durable_name(durable_topic)
    await bus.consume(durable_topic, receive, durable=durable)
    await bus.consume(durable_topic, receive, durable=durable)
    for index in range(20):
        await bus.publish_durable(durable_topic, b"%d" % index, message_id=f"{durable}-{index}")
    await until(lambda: len(seen) == 20)
    assert seen == [b"%d" % index for index in range(20)]


async def test_different_durables_each_see_everything(bus: Bus, durable_topic: str) -> None:
    """Each consumer has its own place in the stream."""
    inboxes = [Inbox(), Inbox()]
    for index, inbox in enumerate(inboxes):
        await bus.consume(
            durable_topic, inbox.receive, durable=f"{durable_name(durable_topic)}-{index}"
        )
    await bus.publish_durable(durable_topic, b"x", message_id=durable_topic)
    await until(lambda: all(inbox.data == [b"x"] for inbox in inboxes))


async def test_stored_message_also_reaches_plain_subscribers(bus: Bus, durable_topic: str) -> None:
    """A web page may watch the events without a durable consumer."""
    inbox = Inbox()
    await bus.subscribe("everstep.v1.event.>", inbox.receive)
    await bus.publish_durable(durable_topic, b"x", message_id=durable_topic)
    await until(lambda: b"x" in inbox.data)


async def test_subject_without_a_stream_cannot_be_stored(bus: Bus, topic: str) -> None:
    """A typo in a subject is an error, not a message that nobody will ever see."""
    with pytest.raises(InvalidInput, match=topic):
        await bus.publish_durable(topic, b"x", message_id="x")


@pytest.mark.parametrize("kind", ["subscribe", "serve", "consume"])
async def test_trace_context_travels_with_the_message(
    bus: Bus, durable_topic: str, kind: str
) -> None:
    """What a handler publishes in turn belongs to the same trace."""
    inbox = Inbox()
    await bus.subscribe(f"{durable_topic}.next", inbox.receive)

    async def pass_on(message: Message) -> bytes:
        await bus.publish(f"{durable_topic}.next", b"")
        return b""

    async def receive(message: Message) -> None:
        await pass_on(message)

    headers = {"traceparent": TRACEPARENT}
    match kind:
        case "subscribe":
            await bus.subscribe(durable_topic, receive)
            await bus.publish(durable_topic, b"", headers=headers)
        case "serve":
            await bus.serve(durable_topic, pass_on)
            await bus.request(durable_topic, b"", timeout_s=30, headers=headers)
        case _:
            await bus.consume(durable_topic, receive, durable=durable_name(durable_topic))
            await bus.publish_durable(durable_topic, b"", message_id=durable_topic, headers=headers)
    await until(lambda: inbox.messages)
    trace_id = TRACEPARENT.split("-")[1]
    assert inbox.messages[0].headers["traceparent"].split("-")[1] == trace_id
