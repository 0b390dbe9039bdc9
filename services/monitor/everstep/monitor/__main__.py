"""Run the monitor: ``python -m everstep.monitor``."""

from __future__ import annotations

import asyncio
import json
import logging
from contextlib import AsyncExitStack
from pathlib import Path

from everstep.bus.nats import NatsBus
from everstep.core.errors import NoResponders, Unavailable
from everstep.core.ports import Message, Receive
from everstep.monitor import inputs, queries
from everstep.monitor.api import routes
from everstep.monitor.codec import AGGREGATE, CODEC
from everstep.monitor.curves import Curves
from everstep.monitor.detectors.root_cause import Probe
from everstep.monitor.inputs import PROBE_S_MAX
from everstep.monitor.measurements import FLUSH_S, Rollup, flush
from everstep.monitor.policy import Limits
from everstep.monitor.projections import MonitorProjection
from everstep.monitor.repair import Repairer
from everstep.monitor.settings import Settings
from everstep.monitor.watcher import ProbeHost, Watcher
from everstep.service.bootstrap import ServiceShell
from everstep.service.commands import host_subject, request
from everstep.wire.v1.agents_pb2 import ProbeHost as ProbeMessage
from everstep.wire.v1.agents_pb2 import ProbeHostReply

log = logging.getLogger(__name__)

DISCONNECTS = "$SYS.ACCOUNT.*.DISCONNECT"
AGENT_PREFIX = "agent:"


async def main() -> None:
    """Wire everything by hand and serve until told to stop."""
    settings = Settings()  # type: ignore[call-arg]  # the environment fills it
    here = Path(__file__).parent
    async with (
        ServiceShell.open(
            "monitor",
            settings,
            codecs=[CODEC],
            migrations=here / "migrations",
            projections=[MonitorProjection()],
        ) as shell,
        AsyncExitStack() as stack,
    ):
        watcher = Watcher(
            shell.handler(AGGREGATE),
            _prober(shell),
            lambda: shell.bus.connected,
            shell.clock,
            shell.ids,
            Limits(),
        )
        rollup, curves = Rollup(), Curves()
        repairer = Repairer(shell.bus, rollup, curves, shell.clock)
        async with shell.store.reading() as connection:
            for job_id, step in (await queries.watched_jobs(connection)).items():
                await watcher.adopt(job_id, step)
                curves.adopt(job_id, step)
        shell.app.include_router(routes(shell.store, watcher, shell.clock))
        await shell.consume_events("controller", inputs.on_controller(watcher, repairer))
        await shell.consume_events("host_inventory", inputs.on_inventory(watcher))
        await shell.bus.subscribe(host_subject("*", "heartbeat"), inputs.on_heartbeat(watcher))
        await shell.bus.subscribe(
            host_subject("*", "metrics"), inputs.on_metrics(watcher, repairer)
        )
        await shell.bus.consume(
            host_subject("*", "report"), inputs.on_report(watcher), durable="monitor-reports"
        )
        if settings.nats_system_url is not None:
            system = await stack.enter_async_context(
                NatsBus.open(
                    settings.nats_system_url.get_secret_value(),
                    name="monitor-system",
                    durable=False,
                )
            )
            await system.subscribe(DISCONNECTS, _on_disconnect(watcher))
        shell.spawn("watch", watcher.watch)
        shell.spawn("repair", repairer.repair)

        async def write_measurements() -> None:
            while True:
                await asyncio.sleep(FLUSH_S)
                await flush(rollup, shell.store.engine.begin)

        shell.spawn("measurements", write_measurements)
        await shell.run()


def _prober(shell: ServiceShell) -> ProbeHost:
    async def probe(host_id: str) -> Probe:
        """Ask a host whether it is there."""
        nonce = shell.ids.new_id("n")
        try:
            reply = await request(
                shell.bus,
                host_subject(host_id, "cmd.probe"),
                ProbeMessage(nonce=nonce),
                ProbeHostReply,
                timeout_s=PROBE_S_MAX,
            )
        except NoResponders:
            return Probe.NO_RESPONDERS
        except Unavailable:
            return Probe.NO_ANSWER
        return Probe.ANSWERED if reply.nonce == nonce else Probe.NO_ANSWER

    return probe


def _on_disconnect(watcher: Watcher) -> Receive:
    async def receive(message: Message) -> None:
        client = json.loads(message.data).get("client", {})
        name = str(client.get("name", ""))
        if name.startswith(AGENT_PREFIX):
            log.info("the bus lost the connection of %s", name)
            await watcher.dropped(name.removeprefix(AGENT_PREFIX))

    return receive


if __name__ == "__main__":
    asyncio.run(main())
