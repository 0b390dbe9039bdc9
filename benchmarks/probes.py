"""What probing a host costs: the quick probes, each for itself and all, and a look at the fleet.

Processor time, because it is what probes take from a machine that several hosts share; on one's own
machine they take as long divided by the cores. The link is this process's own. Run:
``make bench NAME=probes``.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from functools import reduce
from pathlib import Path
from typing import Any, Final

import torch
from benchmarks.support import figures

from everstep.agent.peer_server import PeerServer
from everstep.agent.ports import PortChooser
from everstep.agent.store import HostMemory
from everstep.core.probes import Depth, PartnerHost, ProbeReport, ProbeResult, Verdict
from everstep.core.system import RandomIds, SystemClock
from everstep.host_inventory.agenda import needs, round_of
from everstep.host_inventory.care import CARE
from everstep.host_inventory.events import HostJoined, HostProbed
from everstep.host_inventory.state import Fleet, evolve
from everstep.train.probes import memory, products
from everstep.train.probes.links import check_link
from everstep.train.probes.run import QUICK_ECHOES, QUICK_MEMORY_BYTES, QUICK_REPEATS, Request, run

REPEATS: Final = 10
HOSTS: Final = 2_048
CLOCK: Final = SystemClock()


def quick(own: PartnerHost) -> dict[str, Any]:
    """Measure the quick probes of one host."""
    one = products.known()
    words = QUICK_MEMORY_BYTES // memory.WORD_BYTES
    request = Request(
        examination_id="x", depth=Depth.QUICK, burn_in_s=0, answer_path="", loopback=own
    )

    def on_cores() -> None:
        products.on_cores(one, lambda repeats: repeats >= QUICK_REPEATS, CLOCK)

    def loopback() -> None:
        check_link(own, QUICK_ECHOES, CLOCK, name="loopback")

    return {
        "known_answer_cpu_ms": cpu(products.known),
        "products_cpu_ms": cpu(on_cores),
        "memory_cpu_ms": cpu(lambda: memory.check(memory.take(words), CLOCK)),
        "loopback_cpu_ms": cpu(loopback),
        "all_cpu_ms": cpu(lambda: run(request, CLOCK)),
    }


def fleet_look() -> dict[str, Any]:
    """Measure one look at a large fleet in which nothing is to be done."""
    fleet = reduce(evolve, (event for i in range(HOSTS) for event in _spare(f"h{i:05d}")), Fleet())
    now_ms = CLOCK.now_ms()
    rounds = {host_id: round_of(host_id, now_ms, CARE) for host_id in fleet.hosts}
    return {
        "hosts": HOSTS,
        "look_cpu_ms": cpu(lambda: needs(fleet, now_ms, CARE, {}, rounds)),
    }


def cpu(work: Callable[[], object]) -> figures.Json | None:
    """Return the processor time of all threads [ms], the first time left out."""
    work()
    taken = []
    for _ in range(REPEATS):
        begun_ns = time.process_time_ns()
        work()
        taken.append((time.process_time_ns() - begun_ns) / 1e6)
    return figures.summary(taken, digits=1)


def _spare(host_id: str) -> tuple[HostJoined, HostProbed]:
    joined = HostJoined(
        host_id=host_id,
        pod="a",
        power="p",
        chips=8,
        address=host_id,
        peer_port=1,
        agent_epoch="e",
        at_ms=1,
        probes=True,
    )
    result = ProbeResult(name="memory", verdict=Verdict.PASSED)
    report = ProbeReport(
        examination_id=host_id, depth=Depth.QUICK, at_ms=1, duration_ms=1, probes=(result,)
    )
    return joined, HostProbed(host_id=host_id, passed=True, report=report, at_ms=2)


def main() -> None:
    """Measure, and print."""
    argparse.ArgumentParser(prog="benchmarks.probes", description=__doc__).parse_args()
    before = figures.machine()
    torch.set_num_threads(1)
    port = PortChooser(RandomIds().new_id(""), "127.0.0.1").choose()
    with tempfile.TemporaryDirectory() as directory:
        server = PeerServer(HostMemory(Path(directory) / "memory", Path(directory) / "forgotten"))
        server.start("127.0.0.1", port)
        own = PartnerHost(host_id="h", address="127.0.0.1", port=port)
        measured = {"quick": quick(own), "look": fleet_look(), "machine": before}
        server.close()
    figures.save("probes", measured, keep=True)


if __name__ == "__main__":
    main()
