"""Puts this host's counters together, from its settings."""

from __future__ import annotations

from concurrent.futures import Executor
from pathlib import Path
from typing import Final

from everstep.agent.counters import Counters, Source
from everstep.agent.gpu_counters import GpuCounters, open_nvml
from everstep.agent.host_counters import HostCounters, boot_id, is_clock_synchronised
from everstep.agent.settings import AgentSettings
from everstep.core.system import Clock

SYSFS: Final = Path("/sys")


def open_counters(settings: AgentSettings, clock: Clock, executor: Executor) -> Counters:
    """Return what there is to read.

    One of several hosts on a machine looks at its own directories only: moving a job from one to
    another would not get it off the machine. A tree of its own (``EVERSTEP_SYSFS``) makes it look.
    """
    machine = not settings.emulated or settings.sysfs != SYSFS
    directories = [settings.run_dir.absolute(), settings.memory_dir.absolute()]
    sources: list[Source] = [
        HostCounters(settings.sysfs, settings.procfs, directories, machine=machine)
    ]
    nvml = None if settings.emulated else open_nvml()
    if nvml is not None:
        sources.append(GpuCounters(nvml, clock.monotonic_ms))
    return Counters(
        sources,
        settings.run_dir / "counters.json",
        boot_id(settings.procfs),
        clock,
        executor,
        is_clock_synchronised,
    )
