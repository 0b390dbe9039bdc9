"""The real contents of a one-machine stack: three servers, four services, one agent a host.

Settings go through the environment, as docs/architecture.md lists them. Every process also carries
the stack's id there, which is how leftovers are recognised as ours.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Final

import httpx

from everstep.core.errors import Unavailable
from everstep.local import processes
from everstep.local.blueprints import Blueprint
from everstep.local.bundled_nats import nats_url
from everstep.local.bundled_s3 import s3_endpoint
from everstep.local.hosts import memory_dir
from everstep.local.processes import HOST_VARIABLE, STACK_VARIABLE
from everstep.local.server_command import HOST, ServerCommand
from everstep.local.servers import Servers, create_database, prepare_servers
from everstep.local.state import (
    DROPPED_PREFIX,
    INVENTORY_SETTINGS,
    SERVICES,
    HostConfig,
    ProcessRecord,
    Stack,
    StatePaths,
)
from everstep.local.unit import Launch, Ready

BUCKET: Final = "everstep"
INTERFACE: Final = "lo"  # ranks of one machine meet on loopback, whatever its name resolves to
PROBE_TIMEOUT_S: Final = 1.0  # loopback answers in milliseconds
PROVISION_ATTEMPTS: Final = 20  # the database may restart once while it creates its cluster
PROVISION_PAUSE_S: Final = 0.25


class LocalCatalogue:
    """Implements ``blueprints.Catalogue`` with the bundled servers and our own programs."""

    def __init__(self, *, paths: StatePaths) -> None:
        self._paths = paths
        self._servers: Servers | None = None
        self._http = httpx.AsyncClient(timeout=PROBE_TIMEOUT_S, trust_env=False)

    def prepare(self, stack: Stack) -> None:
        """Create the database cluster and the servers' configuration; half a second once."""
        self._servers = prepare_servers(self._paths.root, stack.server_ports, stack.credentials)

    def servers(self, stack: Stack) -> list[Blueprint]:
        """Return PostgreSQL, NATS and the S3 server."""
        return [
            Blueprint(
                name=command.name,
                kind="server",
                launch=_launch(stack, command),
                ready=_ignoring_record(command.ready),
                leftovers=command.leftovers,
            )
            for command in self._prepared().commands
        ]

    async def provision(self, stack: Stack) -> None:
        """Create one database a service; the bucket is made at its first use."""
        for service in stack.service_ports:
            await _persist(partial(create_database, self._prepared(), service))

    def services(self, stack: Stack) -> list[Blueprint]:
        """Return the control plane."""
        return [
            Blueprint(
                name=name,
                kind="service",
                launch=Launch(
                    argv=(sys.executable, "-m", f"everstep.{name}"),
                    env=self._service_env(stack, name),
                    cwd=self._paths.root,
                ),
                ready=self._answers(f"{stack.url(name)}/readyz"),
            )
            for name in SERVICES
        ]

    def agent(self, stack: Stack, host: HostConfig) -> Blueprint:
        """Return a host's agent; ready when the inventory knows of it."""
        run_dir = self._paths.run_dir(host.host_id)
        run_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
        memory = memory_dir(stack, host.host_id)
        memory.mkdir(parents=True, exist_ok=True, mode=0o700)
        settings = {
            **self._shared_env(stack),
            **self._s3_env(stack),
            HOST_VARIABLE: host.host_id,
            "EVERSTEP_POD": host.pod,
            "EVERSTEP_POWER": host.power,
            "EVERSTEP_CHIPS": str(host.chips),
            "EVERSTEP_ADDRESS": HOST,
            "EVERSTEP_RUN_DIR": str(run_dir),
            "EVERSTEP_MEMORY_DIR": str(memory),
            "EVERSTEP_INTERFACE": INTERFACE,
            "EVERSTEP_EMULATED": str(len(stack.hosts) > 1).lower(),
            **self._through_relay(stack, host),
        }
        return Blueprint(
            name=host.host_id,
            kind="agent",
            launch=Launch(
                argv=(sys.executable, "-m", "everstep.agent"), env=settings, cwd=self._paths.root
            ),
            ready=lambda record: self._host_joined(stack, host.host_id, record),
        )

    def _through_relay(self, stack: Stack, host: HostConfig) -> dict[str, str]:
        if host.relay is None:
            return {}
        return {
            "EVERSTEP_NATS_URL": nats_url(host.relay.nats, stack.credentials.nats_password),
            "EVERSTEP_S3_ENDPOINT": s3_endpoint(host.relay.s3),
            "EVERSTEP_PEER_PORT": str(host.relay.peers_behind),
            "EVERSTEP_ADVERTISED_PEER_PORT": str(host.relay.peers),
        }

    async def close(self) -> None:
        """Close the connections that asked for readiness."""
        await self._http.aclose()

    def _prepared(self) -> Servers:
        assert self._servers is not None, "prepare comes first"
        return self._servers

    def _shared_env(self, stack: Stack) -> dict[str, str]:
        return {
            **_inherited(),
            STACK_VARIABLE: stack.stack_id,
            "EVERSTEP_NATS_URL": self._prepared().nats_url,
            "EVERSTEP_LOG_LEVEL": "INFO",
            "EVERSTEP_LOG_FORMAT": "text",  # `everstep logs` is for people
            "PYTHONUNBUFFERED": "1",
        }

    def _s3_env(self, stack: Stack) -> dict[str, str]:
        return {
            "EVERSTEP_S3_ENDPOINT": self._prepared().s3_endpoint,
            "EVERSTEP_S3_ACCESS_KEY": stack.credentials.s3_access_key,
            "EVERSTEP_S3_SECRET_KEY": stack.credentials.s3_secret_key,
            "EVERSTEP_S3_BUCKET": BUCKET,
            "EVERSTEP_S3_SECURE": "false",  # loopback
        }

    def _service_env(self, stack: Stack, name: str) -> dict[str, str]:
        return {
            **self._shared_env(stack),
            **self._s3_env(stack),
            "EVERSTEP_DATABASE_URL": self._prepared().database_url(name),
            "EVERSTEP_NATS_SYSTEM_URL": self._prepared().nats_system_url,
            "EVERSTEP_HTTP_HOST": HOST,
            "EVERSTEP_HTTP_PORT": str(stack.service_ports[name]),
            **(_told(INVENTORY_SETTINGS) if name == "host_inventory" else {}),
        }

    def _answers(self, url: str) -> Ready:
        async def ready(_: ProcessRecord) -> bool:
            try:
                return (await self._http.get(url)).is_success
            except httpx.HTTPError:
                return False

        return ready

    async def _host_joined(self, stack: Stack, host_id: str, agent: ProcessRecord) -> bool:
        try:
            answer = await self._http.get(f"{stack.url('host_inventory')}/v1/hosts")
            hosts = answer.json()["hosts"] if answer.is_success else []
        except (httpx.HTTPError, ValueError, KeyError):
            return False
        began_ms = processes.started_ms(agent)
        return any(
            host["host_id"] == host_id
            and host["state"] != "left"
            and host["awaits"] != "quick"  # a job that is launched next need not wait for probes
            and (host["last_heartbeat_ms"] or 0) >= began_ms
            for host in hosts
        )


def _launch(stack: Stack, command: ServerCommand) -> Launch:
    return Launch(
        argv=command.argv,
        env={**command.env, STACK_VARIABLE: stack.stack_id},
        cwd=command.cwd,
        stop_signal=command.stop_signal,
        stop_timeout_s=command.stop_grace_s,
        with_children=True,
    )


def _ignoring_record(ready: Callable[[], Awaitable[bool]]) -> Ready:
    async def asked_of_any(_: ProcessRecord) -> bool:
        return await ready()

    return asked_of_any


def _told(names: frozenset[str]) -> Mapping[str, str]:
    return {name: os.environ[name] for name in sorted(names & os.environ.keys())}


def _inherited() -> Mapping[str, str]:
    bin_dir = str(Path(sys.executable).parent)
    kept = {k: v for k, v in os.environ.items() if not k.startswith(DROPPED_PREFIX)}
    return {**kept, "PATH": os.pathsep.join((bin_dir, kept.get("PATH", os.defpath)))}


async def _persist(work: Callable[[], Awaitable[None]]) -> None:
    """Repeat what a server that has just started may refuse for a moment.

    Raises:
        Unavailable: it refused to the end.
    """
    error: Exception | None = None
    for _ in range(PROVISION_ATTEMPTS):
        try:
            return await work()
        except (OSError, Unavailable) as caught:
            error = caught
        await asyncio.sleep(PROVISION_PAUSE_S)
    raise Unavailable(f"PostgreSQL does not take commands: {error}") from error
