"""The relay of a stack for chaos, opened for each host that joins."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from everstep.core.system import Clock, RandomIds
from everstep.local import hosts
from everstep.local.relay import Line, Relay
from everstep.local.state import RelayPorts, Stack, StatePaths

SOCKETS: Final = Path("/proc/net/tcp")  # proc_net(5): addresses in hex, the inode in column 9


class Relays:
    """One relay, and the ports that it has for each host as long as the supervisor lives."""

    def __init__(self, *, paths: StatePaths, stack: Stack, clock: Clock) -> None:
        self._paths = paths
        self._stack = stack
        self._ports: dict[str, RelayPorts] = {}
        self.relay = Relay(clock=clock, owner=self.owner)

    async def open_for(self, host_id: str) -> RelayPorts:
        """Return a host's ports; they stay the same while the supervisor lives."""
        if host_id not in self._ports:
            # Not on top: a plain installation, made to talk to a cluster, has no database driver.
            from everstep.local.server_command import free_ports

            servers = self._stack.server_ports
            services = self._stack.service_ports.values()
            agents = (ports.peers_behind for ports in self._ports.values())
            (behind,) = free_ports(1, RandomIds(), besides={*servers.all, *services, *agents})
            self._ports[host_id] = RelayPorts(
                nats=await self.relay.open(host_id, Line.NATS, servers.nats),
                s3=await self.relay.open(host_id, Line.S3, servers.s3),
                peers=await self.relay.open(host_id, Line.PEERS, behind),
                peers_behind=behind,
            )
        return self._ports[host_id]

    def owner(self, port: int) -> str:
        """Return the host whose agent has a connection from this port; "" if none has."""
        inode = _inode_of(port)
        for host_id in sorted(self._ports) if inode else ():
            agent = hosts.read_agent(self._paths, host_id)
            if agent is not None and _has_socket(agent.pid, inode):
                return host_id
        return ""


def _inode_of(port: int) -> str:
    for line in SOCKETS.read_text().splitlines()[1:]:
        fields = line.split()
        if int(fields[1].rpartition(":")[2], 16) == port:
            return fields[9]
    return ""


def _has_socket(pid: int, inode: str) -> bool:
    wanted = f"socket:[{inode}]"
    try:
        entries = list(Path(f"/proc/{pid}/fd").iterdir())
    except OSError:
        return False  # ended meanwhile
    for entry in entries:
        try:
            if os.readlink(entry) == wanted:  # noqa: PTH115 - a link that leads to no file
                return True
        except OSError:
            continue  # closed meanwhile
    return False
