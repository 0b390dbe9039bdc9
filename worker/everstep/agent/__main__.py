"""``python -m everstep.agent``: reads the settings, wires one host's agent, runs until a signal."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
from collections.abc import Sequence

import uvloop

from everstep.agent.host import HostAgent, open_agent
from everstep.agent.settings import AgentSettings
from everstep.bus.nats import NatsBus
from everstep.core.system import RandomIds, SystemClock
from everstep.objectstore.s3 import S3Store
from everstep.service.logging import configure
from everstep.service.telemetry import tracing

log = logging.getLogger(__name__)


async def run(settings: AgentSettings, *, fork_arguments: Sequence[str] = ()) -> None:
    """Serve until SIGTERM or SIGINT.

    An idle host leaves the cluster; one with running ranks only loses its agent, so that the next
    agent can go on with them.

    Args:
        settings: of this host.
        fork_arguments: extra ones for the fork server's command line.
    """
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    async with contextlib.AsyncExitStack() as stack:
        bus = await stack.enter_async_context(
            NatsBus.open(settings.nats_url.get_secret_value(), name=f"agent:{settings.host_id}")
        )
        objects = None
        if settings.s3_endpoint:
            objects = await stack.enter_async_context(
                S3Store.open(
                    endpoint=settings.s3_endpoint,
                    access_key=settings.s3_access_key.get_secret_value(),
                    secret_key=settings.s3_secret_key.get_secret_value(),
                    bucket=settings.s3_bucket,
                    secure=settings.s3_secure,
                )
            )
        agent: HostAgent = await stack.enter_async_context(
            open_agent(
                settings,
                bus,
                objects,
                clock=SystemClock(),
                ids=RandomIds(),
                fork_arguments=fork_arguments,
            )
        )
        log.info("agent %s of host %s is up", agent.facts.agent_epoch, settings.host_id)
        await stop.wait()
        if agent.idle:
            await agent.leave()
        else:
            log.info("ranks run: they and the fork server go on without this agent")


def main() -> None:
    """Run the agent."""
    settings = AgentSettings()  # type: ignore[call-arg]  # read from the environment
    configure(
        service=f"agent:{settings.host_id}", level=settings.log_level, style=settings.log_format
    )
    with tracing("agent"):
        uvloop.run(run(settings))


if __name__ == "__main__":
    main()
