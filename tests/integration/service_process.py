"""A real service in its own process, and what a test needs to talk to it."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
from tests.waiting import until

from everstep.bus.nats import NatsBus
from everstep.core.system import RandomIds, SystemClock
from everstep.local.server_command import free_ports
from everstep.wire.v1.envelope_pb2 import EventEnvelope


@dataclass
class ServiceProcess:
    """``python -m everstep.<name>`` with its log; may be killed and started again."""

    name: str
    environment: Mapping[str, str]
    log: Path
    port: int
    process: asyncio.subprocess.Process | None = None
    http: httpx.AsyncClient = field(init=False)

    def __post_init__(self) -> None:
        """Make a client; nothing is started."""
        self.http = httpx.AsyncClient(base_url=f"http://127.0.0.1:{self.port}", timeout=30)

    async def start(self) -> None:
        """Start it and wait until it is ready."""
        environment = {
            **os.environ,
            **self.environment,
            "EVERSTEP_HTTP_PORT": str(self.port),
            "EVERSTEP_LOG_FORMAT": "text",
        }
        with self.log.open("ab") as log:
            self.process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", f"everstep.{self.name}", env=environment, stderr=log
            )
        await until(self.is_ready, what=f"{self.name} is ready; see {self.log}")

    async def is_ready(self) -> bool:
        """Ask for readiness."""
        assert self.process is not None
        assert self.process.returncode is None, self.log.read_text()[-4000:]
        try:
            return (await self.http.get("/readyz")).status_code == 200
        except httpx.HTTPError:
            return False

    async def kill(self) -> None:
        """SIGKILL, as a crash would."""
        if self.process is not None and self.process.returncode is None:
            self.process.kill()
            await self.process.wait()

    async def get(self, path: str, **params: Any) -> Any:
        """Return the decoded answer; fails on an error."""
        answer = await self.http.get(path, params=params)
        assert answer.is_success, answer.text
        return answer.json()

    async def close(self) -> None:
        """End it."""
        await self.kill()
        await self.http.aclose()


@asynccontextmanager
async def service_process(
    name: str, environment: Mapping[str, str], directory: Path
) -> AsyncIterator[ServiceProcess]:
    """Run a service until the block ends."""
    (port,) = free_ports(1, RandomIds())
    process = ServiceProcess(
        name=name, environment=environment, log=directory / f"{name}-{port}.log", port=port
    )
    try:
        await process.start()
        yield process
    finally:
        await process.close()


class FakeService:
    """Publishes events in another service's name."""

    def __init__(self, bus: NatsBus, name: str) -> None:
        self._bus = bus
        self._name = name
        # The session's streams and durable consumers outlive a test; positions must grow.
        self._position = SystemClock().now_ms()

    async def publish(self, payload_name: str, **fields: Any) -> EventEnvelope:
        """Publish one event."""
        self._position += 1
        envelope = EventEnvelope(
            event_id=f"{self._name}-{self._position}",
            service=self._name,
            position=self._position,
            type=f"{payload_name}.v1",
            recorded_at_ms=SystemClock().now_ms(),
        )
        payload = getattr(envelope, payload_name)
        for key, value in fields.items():
            if isinstance(value, list):
                getattr(payload, key).extend(value)
            else:
                setattr(payload, key, value)
        await self.send(envelope)
        return envelope

    def skip(self) -> None:
        """Leave a position to an envelope that is sent by hand."""
        self._position += 1

    async def send(self, envelope: EventEnvelope) -> None:
        """Publish an envelope, perhaps again."""
        kind = envelope.WhichOneof("payload")
        payload = getattr(envelope, str(kind))
        about = getattr(payload, "job_id", "") or "none"
        await self._bus.publish_durable(
            f"everstep.v1.event.{self._name}.{about}.{kind}",
            envelope.SerializeToString(),
            message_id=RandomIds().new_id("m"),
        )
