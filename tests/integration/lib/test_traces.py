"""Spans of a service as they leave it, collected by a stand-in for an OpenTelemetry collector."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span
from tests.integration.lib.test_service import Start, name, start  # noqa: F401 - fixtures
from tests.waiting import until

from everstep.bus.nats import NatsBus
from everstep.core.ports import Message
from everstep.wire.v1.common_pb2 import CommandReply
from everstep.wire.v1.envelope_pb2 import EventEnvelope
from everstep.wire.v1.hosts_pb2 import CordonHost

TRACE_ID = "0af7651916cd43dd8448eb211c80319c"
TRACEPARENT = f"00-{TRACE_ID}-b7ad6b7169203331-01"


class Collector:
    """Takes OTLP over HTTP."""

    def __init__(self) -> None:
        self.spans: list[Span] = []
        self.services: set[str] = set()
        collector = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                size = int(self.headers["Content-Length"])
                collector.take(ExportTraceServiceRequest.FromString(self.rfile.read(size)))
                self.send_response(200)
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)

    def take(self, request: ExportTraceServiceRequest) -> None:
        for resource in request.resource_spans:
            self.services |= {
                attribute.value.string_value
                for attribute in resource.resource.attributes
                if attribute.key == "service.name"
            }
            for scope in resource.scope_spans:
                self.spans += scope.spans


@pytest.fixture
def collector() -> Iterator[Collector]:
    """A running collector."""
    made = Collector()
    threading.Thread(target=made.server.serve_forever, daemon=True).start()
    yield made
    made.server.shutdown()


async def test_one_trace_runs_from_the_command_to_the_published_event(
    start: Start,  # noqa: F811 - pytest's way to ask for a fixture
    name: str,  # noqa: F811 - the same
    collector: Collector,
    database_url: str,
    nats_url: str,
) -> None:
    """Served, handled and published in one trace, which the envelope carries on."""
    port = collector.server.server_address[1]
    toy = await start(
        name,
        database=database_url,
        nats=nats_url,
        OTEL_EXPORTER_OTLP_ENDPOINT=f"http://127.0.0.1:{port}",
    )
    await toy.wait_ready()
    events: list[EventEnvelope] = []

    async def see(message: Message) -> None:
        events.append(EventEnvelope.FromString(message.data))

    async with NatsBus.open(nats_url, name="test") as bus:
        await bus.subscribe(f"everstep.v1.event.{name}.>", see)
        answer = await bus.request(
            f"everstep.v1.cmd.{name}.cordon_host",
            CordonHost(host_id="h1").SerializeToString(),
            timeout_s=30,
            headers={"traceparent": TRACEPARENT},
        )
        assert CommandReply.FromString(answer).outcome.accepted
        await until(lambda: events)
    missing = await toy.http.get("/v1/hosts/none", headers={"traceparent": TRACEPARENT})
    assert missing.status_code == 404
    assert events[0].traceparent.split("-")[1] == TRACE_ID
    await toy.end()  # spans are sent in batches, and at the end
    ours = [span.name for span in collector.spans if span.trace_id.hex() == TRACE_ID]
    assert sorted(ours) == ["GET /v1/hosts/{host_id}", "handle Cordon", "publish", "serve"]
    assert collector.services == {f"everstep-{name}"}
