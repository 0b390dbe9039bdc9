"""The supervisor of a stack whose hosts are network namespaces.

``supervisor.py NETWORK --state DIR``, where NETWORK is a JSON document: ``control`` is the bridge's
address, ``places`` says of each host its namespace, address and network device. Servers listen on
loopback, as always; a relay at the bridge's address lets the namespaces reach them.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import sys
from dataclasses import replace
from pathlib import Path

from everstep.core.system import SystemClock
from everstep.local.blueprints import Blueprint
from everstep.local.bundled_nats import nats_url
from everstep.local.bundled_s3 import s3_endpoint
from everstep.local.catalogue import LocalCatalogue
from everstep.local.state import HostConfig, Stack, StatePaths, load_stack
from everstep.local.supervisor import Supervisor


class Namespaces(LocalCatalogue):
    """Starts each agent in its host's namespace; ``nats`` and ``s3`` are where the relays are."""

    def __init__(self, paths: StatePaths, places: dict[str, list[str]]) -> None:
        super().__init__(paths=paths)
        self._places = places
        self.nats = self.s3 = ("", 0)

    def agent(self, stack: Stack, host: HostConfig) -> Blueprint:
        """Return a host's agent."""
        blueprint = super().agent(stack, host)
        namespace, address, device = self._places[host.host_id]
        settings = {
            **blueprint.launch.env,
            "EVERSTEP_ADDRESS": address,
            "EVERSTEP_INTERFACE": device,
            "EVERSTEP_NATS_URL": _at(
                nats_url(self.nats[1], stack.credentials.nats_password), self.nats[0]
            ),
            "EVERSTEP_S3_ENDPOINT": _at(s3_endpoint(self.s3[1]), self.s3[0]),
        }
        argv = ("ip", "netns", "exec", namespace, *blueprint.launch.argv)
        return replace(blueprint, launch=replace(blueprint.launch, argv=argv, env=settings))


def _at(url: str, address: str) -> str:
    assert "127.0.0.1" in url, url
    return url.replace("127.0.0.1", address)


async def relay(address: str, port: int) -> asyncio.Server:
    """Carry what comes to the bridge's address to a server on loopback."""

    async def carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(1 << 18):
                writer.write(data)
                await writer.drain()
        writer.close()

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            there, back = await asyncio.open_connection("127.0.0.1", port)
        except OSError:
            writer.close()
            return
        await asyncio.gather(carry(reader, back), carry(there, writer))

    return await asyncio.start_server(accept, address, 0)


async def run(catalogue: Namespaces, address: str, paths: StatePaths, stack: Stack) -> None:
    """Run the stack until it is told to stop."""
    nats = await relay(address, stack.server_ports.nats)
    s3 = await relay(address, stack.server_ports.s3)
    catalogue.nats = address, nats.sockets[0].getsockname()[1]
    catalogue.s3 = address, s3.sockets[0].getsockname()[1]
    await Supervisor(paths=paths, stack=stack, catalogue=catalogue, clock=SystemClock()).run()


def main() -> None:
    """Read who is where, and run."""
    parser = argparse.ArgumentParser()
    parser.add_argument("network", type=json.loads)
    parser.add_argument("--state", type=Path, required=True)
    options = parser.parse_args()
    paths = StatePaths(root=options.state.resolve())
    stack = load_stack(paths)
    assert stack is not None
    catalogue = Namespaces(paths, options.network["places"])
    asyncio.run(run(catalogue, options.network["control"], paths, stack))


if __name__ == "__main__":
    sys.exit(main())
