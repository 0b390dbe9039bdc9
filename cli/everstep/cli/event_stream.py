"""Reads the published events from JetStream and prints them, for people or for programs."""

from __future__ import annotations

import json
from collections import deque
from typing import Any, Final

import nats
from nats.aio.msg import Msg
from nats.errors import Error as NatsError
from nats.js.api import ConsumerConfig, DeliverPolicy
from nats.js.errors import NotFoundError as NoStream

from everstep.cli.output import OUT, clock_time
from everstep.core.errors import Unavailable
from everstep.local.bundled_nats import nats_url
from everstep.local.state import Stack
from everstep.wire.codec import to_builtins
from everstep.wire.v1.envelope_pb2 import EventEnvelope

STREAM: Final = "EVERSTEP_EVENTS"
SUBJECTS: Final = "everstep.v1.event.>"
QUIET_S: Final = 0.5  # loopback delivers thousands in that time: silence means the end of the past
FIELD_CHARACTERS_MAX: Final = 120  # a traceback or a spec does not fit a line; --json has it whole
HIDDEN: Final = frozenset({"at_ms", "spec_json"})  # the line begins with the time


def nats_address(stack: Stack) -> str:
    """Return where the stack's NATS is, with the credentials."""
    return nats_url(stack.server_ports.nats, stack.credentials.nats_password)


async def follow_events(
    stack: Stack,
    *,
    follow: bool,
    lines: int,
    service: str,
    job_id: str,
    as_json: bool,
) -> bool:
    """Print past events, and go on with new ones if asked; say whether there were any.

    Args:
        stack: where NATS is.
        follow: do not end.
        lines: how many past ones at most; 0 for all.
        service: only of this one, if given.
        job_id: only those that name this job, if given.
        as_json: one JSON object a line.

    Raises:
        Unavailable: NATS does not answer.
    """
    past: deque[EventEnvelope] | None = deque(maxlen=lines or None)
    try:
        connection = await nats.connect(nats_address(stack), name="everstep events")
        try:
            stream = connection.jetstream()
            subscription = await stream.subscribe(
                SUBJECTS,
                stream=STREAM,
                ordered_consumer=True,
                config=ConsumerConfig(deliver_policy=DeliverPolicy.ALL),
            )
            while True:
                message = await _next(subscription, quiet_s=QUIET_S if past is not None else None)
                if message is None:
                    for envelope in past or ():
                        _print(envelope, as_json=as_json)
                    if not follow:
                        return bool(past)
                    past = None
                    continue
                envelope = EventEnvelope.FromString(message.data)
                if not concerns(envelope, service=service, job_id=job_id):
                    continue
                if past is not None:
                    past.append(envelope)
                else:
                    _print(envelope, as_json=as_json)
        finally:
            await connection.close()
    except NoStream:
        return False  # nothing has ever been published
    except (NatsError, OSError) as error:
        raise Unavailable(f"NATS does not answer: {error or type(error).__name__}") from error


async def _next(subscription: Any, *, quiet_s: float | None) -> Msg | None:
    """Return the next message; None after ``quiet_s`` of silence."""
    try:
        message: Msg = await subscription.next_msg(timeout=quiet_s)
    except TimeoutError:
        return None
    return message


def concerns(envelope: EventEnvelope, *, service: str, job_id: str) -> bool:
    """Say whether an event is asked for."""
    if service and envelope.service != service:
        return False
    if not job_id:
        return True
    kind = envelope.WhichOneof("payload")
    return kind is not None and getattr(getattr(envelope, kind), "job_id", "") == job_id


def event_line(envelope: EventEnvelope) -> str:
    """Return an event as a person reads it."""
    kind = envelope.WhichOneof("payload")
    told = []
    if kind is not None:
        payload = getattr(envelope, kind)
        values = to_builtins(payload)
        names = [field.name for field in payload.DESCRIPTOR.fields]  # the contract's own order
        told = [f"{n}={_short(values[n])}" for n in names if _worth(n, values.get(n))]
    name = envelope.type.partition(".")[0]
    when = clock_time(envelope.recorded_at_ms)
    millis = f"{envelope.recorded_at_ms % 1000:03d}"
    return f"{when}.{millis} {envelope.service:<19} {name:<21} {' '.join(told)}"


def _print(envelope: EventEnvelope, *, as_json: bool) -> None:
    if as_json:
        OUT.file.write(json.dumps(to_builtins(envelope)) + "\n")
        OUT.file.flush()
    else:
        OUT.print(event_line(envelope), markup=False)


def _worth(name: str, value: Any) -> bool:
    return name not in HIDDEN and value not in ("", [], {}, "-1", None)


def _short(value: Any) -> str:
    if isinstance(value, dict) and "hosts" in value:  # a placement
        return ",".join(f"{h['host_id']}:{h['ranks']}" for h in value["hosts"]).replace(" ", "")
    text = value if isinstance(value, str) else json.dumps(value)
    text = " ".join(text.split())
    return text if len(text) <= FIELD_CHARACTERS_MAX else text[:FIELD_CHARACTERS_MAX] + "..."
