"""A whole service around the toy aggregate, run as a process by the tests of the shell.

It answers ``cordon_host``, follows the events of the service named by ``TOY_SOURCE``, and counts
hosts in a table.
"""

from __future__ import annotations

import asyncio
import logging
import os
from pathlib import Path

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection
from tests.toy import AGGREGATE, CODEC, Cordon

from everstep.core.errors import NotFoundError
from everstep.core.ports import Consumed, StoredEvent
from everstep.service.bootstrap import ServiceShell
from everstep.service.settings import ServiceSettings
from everstep.wire.v1.common_pb2 import CommandReply, Outcome
from everstep.wire.v1.envelope_pb2 import EventEnvelope
from everstep.wire.v1.hosts_pb2 import CordonHost


class Hosts:
    """Counts cordons."""

    async def apply(self, transaction: AsyncConnection, event: StoredEvent) -> None:
        """One more for this host."""
        await transaction.execute(
            text(
                "insert into hosts values (:host_id, 1) on conflict (host_id)"
                " do update set cordoned = hosts.cordoned + 1"
            ),
            {"host_id": event.data["host_id"]},
        )


async def main() -> None:
    """Wire it as the real services do."""
    name, source = os.environ["TOY_NAME"], os.environ.get("TOY_SOURCE")
    async with ServiceShell.open(
        name,
        ServiceSettings(),
        codecs=[CODEC],
        migrations=Path(__file__).parent / "migrations",
        projections=[Hosts()],
    ) as shell:
        handler = shell.handler(AGGREGATE)

        async def cordon(command: CordonHost) -> CommandReply:
            if command.host_id == "bug":
                raise ZeroDivisionError("a bug")
            handled = await handler.handle(
                Cordon(host_id=command.host_id, incident_id=command.incident_id)
            )
            refused = handled.rejected
            return CommandReply(
                outcome=Outcome(accepted=refused is None, why=refused.why if refused else "")
            )

        async def follow(envelope: EventEnvelope, consumed: Consumed) -> None:
            cordoned = envelope.host_cordoned
            await handler.handle(Cordon(host_id=f"also-{cordoned.host_id}"), consumed=consumed)

        @shell.app.get("/v1/hosts/{host_id}")
        async def host(host_id: str) -> dict[str, int]:
            async with shell.store.reading() as connection:
                row = await connection.execute(
                    text("select cordoned from hosts where host_id = :id"), {"id": host_id}
                )
                count = row.scalar_one_or_none()
            if count is None:
                raise NotFoundError(f"no host {host_id!r}")
            return {"cordoned": count}

        @shell.app.get("/v1/slow")
        async def slow(count: int) -> dict[str, int]:
            logging.getLogger(__name__).info("a slow request has begun")
            await asyncio.sleep(0.5)
            return {"count": count}

        fuse = Path(os.environ.get("TOY_FUSE", "/nonexistent"))

        async def fragile() -> None:
            while True:
                await asyncio.sleep(0.02)
                if await asyncio.to_thread(fuse.exists):
                    raise ZeroDivisionError("the fuse is there")

        shell.spawn("fragile", fragile)
        await shell.serve_command("cordon_host", CordonHost, cordon)
        if source:
            await shell.consume_events(source, follow)
        await shell.run()


if __name__ == "__main__":
    asyncio.run(main())
