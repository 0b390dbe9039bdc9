"""Which pod and which switch a host hangs under: in even groups, or as in a recorded network.

A recorded network is built as often as the fleet needs it; the last copy is a part of one, with
switches of every aggregation block in proportion, so that a small fleet has the same shape. Cutting
the record off instead would give a small fleet a single pod.
"""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Final

from everstep.core.errors import InvalidInput
from everstep.fleet.scenario import FleetPart

TOPOLOGIES: Final = Path(__file__).with_name("topologies")


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """An access switch and the ``hosts`` under it; only the three names together are one switch."""

    core: str
    aggregation: str
    access: str
    hosts: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where one host hangs: its pod (an aggregation block) and the number of its access switch."""

    pod: str
    switch: int


def places(fleet: FleetPart) -> list[Place]:
    """Return the place of every host, spares included; neighbours hang under one switch.

    Raises:
        InvalidInput: there is no such topology.
    """
    count = fleet.hosts + fleet.spares
    if not fleet.topology:
        return [
            Place(
                pod=f"pod-{index // fleet.hosts_per_pod:03d}",
                switch=index // fleet.hosts_per_switch,
            )
            for index in range(count)
        ]
    network = recorded(fleet.topology)
    copies, rest = divmod(count, sum(switch.hosts for switch in network))
    found: list[Place] = []
    number = 0
    for copy in range(copies + 1):
        for switch in network if copy < copies else part_of(network, rest):
            pod = f"pod-{copy}.{switch.core}.{switch.aggregation}"
            found += [Place(pod=pod, switch=number)] * switch.hosts
            number += 1
    return found


def part_of(network: Sequence[Access], hosts: int) -> list[Access]:
    """Return a smaller network of so many hosts, its aggregation blocks in proportion."""
    blocks = Counter((switch.core, switch.aggregation) for switch in network)
    seen: Counter[tuple[str, str]] = Counter()
    order: list[tuple[float, int]] = []
    for index, switch in enumerate(network):
        block = (switch.core, switch.aggregation)
        order.append(((seen[block] + 0.5) / blocks[block], index))
        seen[block] += 1
    taken: dict[int, int] = {}
    for _, index in sorted(order):
        taken[index] = min(network[index].hosts, hosts - sum(taken.values()))
    return [replace(network[index], hosts=taken[index]) for index in sorted(taken) if taken[index]]


@cache
def recorded(topology: str) -> tuple[Access, ...]:
    """Read a network: one of ``topologies/`` by its name, or a CSV file.

    Raises:
        InvalidInput: there is no such file, or it is no network.
    """
    path = Path(topology) if topology.endswith(".csv") else TOPOLOGIES / f"{topology}.csv"
    if not path.is_file():
        known = ", ".join(sorted(p.stem for p in TOPOLOGIES.glob("*.csv")))
        raise InvalidInput(
            f"fleet.topology {topology!r}: expected a path that ends in .csv, or one of {known}"
        )
    with path.open(newline="") as file:
        found = tuple(map(_access, csv.DictReader(file)))
    if not found or not all(found):
        raise InvalidInput(f"{path}: expected rows of core, aggregation, access and hosts above 0")
    return tuple(switch for switch in found if switch is not None)


def _access(row: dict[str, str]) -> Access | None:
    """Return a row's switch; None if it names none."""
    hosts = row.get("hosts") or ""
    names = [row.get(name) or "" for name in ("core", "aggregation", "access")]
    if not all(names) or not hosts.isdigit() or int(hosts) < 1:
        return None
    return Access(core=names[0], aggregation=names[1], access=names[2], hosts=int(hosts))
