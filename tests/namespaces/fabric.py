"""A network of hosts on one machine, each a network namespace on a bridge; links fail silently.

What is cut gets no answer and no error: packets go to a hardware address that nobody has, as on a
network that drops them. It needs no kernel module beyond bridges and veth pairs, but root.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

NOBODY = "02:00:00:00:ff:ff"  # locally administered, given to nobody
DEVICE = "eth0"
CONTROL = ""  # the machine itself: servers and services


def why_not() -> str:
    """Say why this machine cannot make namespaces; "" if it can."""
    if shutil.which("ip") is None:
        return "there is no `ip` command: install iproute2"
    if os.geteuid() != 0:
        return "network namespaces need root"
    done = subprocess.run(
        ["ip", "netns", "add", f"es{os.getpid()}-try"], capture_output=True, text=True, check=False
    )
    if done.returncode:
        return f"no namespace can be made: {done.stderr.strip()}"
    ip("netns", "delete", f"es{os.getpid()}-try")
    return ""


def ip(*words: str) -> str:
    """Run ``ip``; what it says when it fails is in the error."""
    done = subprocess.run(["ip", *words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"ip {' '.join(words)}: {done.stderr.strip()}"
    return done.stdout


@dataclass(slots=True)
class Fabric:
    """The namespaces of one stack; names and addresses are its own."""

    hosts: Sequence[str]
    number: int = field(default_factory=lambda: os.getpid() % 250)

    @property
    def prefix(self) -> str:
        """Of every name that it makes."""
        return f"es{self.number}"

    @property
    def bridge(self) -> str:
        """The bridge's device."""
        return f"{self.prefix}br"

    def namespace(self, host_id: str) -> str:
        """A host's namespace."""
        return f"{self.prefix}-{host_id}"

    def address(self, host_id: str) -> str:
        """Where a host is reached; the control plane's for ``CONTROL``."""
        last = 1 + (self.hosts.index(host_id) + 1 if host_id else 0)
        return f"10.198.{self.number}.{last}"

    def build(self) -> None:
        """Make the bridge, the namespaces and their links."""
        ip("link", "add", self.bridge, "type", "bridge")
        ip("address", "add", f"{self.address(CONTROL)}/24", "dev", self.bridge)
        ip("link", "set", self.bridge, "up")
        for host_id in self.hosts:
            inside, end = self.namespace(host_id), f"{self.prefix}{host_id}"
            ip("netns", "add", inside)
            ip("link", "add", end, "type", "veth", "peer", "name", DEVICE, "netns", inside)
            ip("link", "set", end, "master", self.bridge, "up")
            ip("-n", inside, "address", "add", f"{self.address(host_id)}/24", "dev", DEVICE)
            ip("-n", inside, "link", "set", "lo", "up")
            ip("-n", inside, "link", "set", DEVICE, "up")

    def remove(self) -> None:
        """Take away what was made; a namespace takes its device along."""
        for host_id in self.hosts:
            subprocess.run(["ip", "netns", "delete", self.namespace(host_id)], check=False)
        subprocess.run(["ip", "link", "delete", self.bridge], check=False)

    def drop(self, sender: str, receiver: str) -> None:
        """Let nothing that one sends arrive at the other."""
        self._neighbour("replace", sender, receiver, "lladdr", NOBODY, "nud", "permanent")

    def cut(self, one: str, *others: str) -> None:
        """Let nothing pass between one and others, either way."""
        for other in others:
            self.drop(one, other)
            self.drop(other, one)

    def mend(self) -> None:
        """Let everything pass again."""
        for sender in (CONTROL, *self.hosts):
            for receiver in (CONTROL, *self.hosts):
                if sender != receiver and NOBODY in self._neighbours(sender):
                    self._neighbour("del", sender, receiver, missing_ok=True)

    def _neighbour(
        self, what: str, sender: str, receiver: str, *how: str, missing_ok: bool = False
    ) -> None:
        at = [self.address(receiver), *how, "dev", self._device(sender)]
        words = [*self._inside(sender), "neighbour", what, *at]
        done = subprocess.run(["ip", *words], capture_output=True, text=True, check=False)
        assert missing_ok or done.returncode == 0, f"ip {' '.join(words)}: {done.stderr.strip()}"

    def _neighbours(self, sender: str) -> str:
        return ip(*self._inside(sender), "neighbour", "show", "dev", self._device(sender))

    def _inside(self, host_id: str) -> list[str]:
        return ["-n", self.namespace(host_id)] if host_id else []

    def _device(self, host_id: str) -> str:
        return DEVICE if host_id else self.bridge


@contextmanager
def open_fabric(hosts: Sequence[str]) -> Iterator[Fabric]:
    """Make the network of some hosts, and take it away at the end."""
    fabric = Fabric(hosts)
    try:
        fabric.build()
        yield fabric
    finally:
        fabric.remove()
