"""The trace of a command reaches the events that it led to."""

from __future__ import annotations

from tests.clocks import ManualClock
from tests.toy import AGGREGATE, Command, Cordon, Event, Host

from everstep.bus.tracing import incoming
from everstep.core.system import RandomIds
from everstep.eventstore.memory import MemoryStore
from everstep.service.handler import Handler

TRACE_ID = "0af7651916cd43dd8448eb211c80319c"
HEADERS = {"traceparent": f"00-{TRACE_ID}-b7ad6b7169203331-01"}


async def test_event_is_stored_with_the_trace_of_its_command() -> None:
    """Whoever looks at an event finds the request that caused it."""
    store = MemoryStore(clock=ManualClock())
    handler: Handler[Command, Host, Event] = Handler(AGGREGATE, store, RandomIds())
    with incoming("serve", "subject", HEADERS):
        await handler.handle(Cordon(host_id="a"))
    await handler.handle(Cordon(host_id="a"))
    traced, untraced = await store.load("host-a")
    assert traced.metadata["traceparent"].split("-")[1] == TRACE_ID
    assert untraced.metadata == {}
