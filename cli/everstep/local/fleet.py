"""Decides which hosts a one-machine stack has: their names and failure domains. Pure.

Hosts fill the pods evenly, neighbours share a pod, and every pod has its own power feed, so that a
job with pipeline stages inside a pod and replicas across pods finds the same shape as in a hall.
"""

from __future__ import annotations

from typing import Final

from everstep.local.state import HostConfig

CHIPS_DEFAULT: Final = 2
PODS_DEFAULT: Final = 2


def first_fleet(*, hosts: int, spares: int, chips: int, pods: int) -> tuple[HostConfig, ...]:
    """Return ``hosts`` hosts spread over ``pods`` in blocks, and spares dealt out in turn."""
    pods = max(1, min(pods, hosts))
    per_pod = -(-hosts // pods)
    fleet = [_host(i + 1, pod=i // per_pod + 1, chips=chips) for i in range(hosts)]
    fleet += [_host(hosts + i + 1, pod=i % pods + 1, chips=chips) for i in range(spares)]
    return tuple(fleet)


def grown(fleet: tuple[HostConfig, ...], *, count: int, name: str = "") -> tuple[HostConfig, ...]:
    """Return the hosts to add so that there are ``count``; each joins the smallest pod."""
    added: list[HostConfig] = []
    chips = fleet[0].chips if fleet else CHIPS_DEFAULT
    while len(fleet) + len(added) < count:
        every = (*fleet, *added)
        pod = _smallest_pod(every)
        new = _host(_free_number(every), pod=pod, chips=chips)
        added.append(new if not name else _named(new, name))
    return tuple(added)


def _host(number: int, *, pod: int, chips: int) -> HostConfig:
    return HostConfig(host_id=f"h{number}", pod=f"pod{pod}", power=f"power{pod}", chips=chips)


def _named(host: HostConfig, name: str) -> HostConfig:
    return HostConfig(host_id=name, pod=host.pod, power=host.power, chips=host.chips)


def _smallest_pod(fleet: tuple[HostConfig, ...]) -> int:
    sizes = {f"pod{i + 1}": 0 for i in range(PODS_DEFAULT)} if not fleet else {}
    for host in fleet:
        sizes[host.pod] = sizes.get(host.pod, 0) + 1
    smallest = min(sorted(sizes), key=lambda pod: sizes[pod])
    return int(smallest.removeprefix("pod"))


def _free_number(fleet: tuple[HostConfig, ...]) -> int:
    taken = {host.host_id for host in fleet}
    number = 1
    while f"h{number}" in taken:
        number += 1
    return number
