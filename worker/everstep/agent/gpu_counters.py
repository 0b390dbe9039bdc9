"""Reads what NVIDIA's driver counts, through NVML (the package ``nvidia-ml-py``, if there is one).

ECC: volatile counts begin with the driver, aggregate ones are kept by the board; what the driver
forgets when it is loaded again, the board still knows. XIDs come as events, drained at each look.
A device or driver may lack any of it, and then that is left out.

Rejected: ``nvidia-smi`` (a process a look, and text), and DCGM (a daemon that not every host has).
"""

# ruff: noqa: N815 - the names are the library's

from __future__ import annotations

import importlib
import logging
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, Protocol

from everstep.agent.counters import Count
from everstep.core.counters import ErrorKind, xid_kind

log = logging.getLogger(__name__)

XIDS_MAX: Final = 64  # drained in one look; a GPU that fails may report some hundreds


class Nvml(Protocol):
    """What is used of ``pynvml``. Its functions raise ``NVMLError`` for what a device lacks."""

    NVMLError: type[Exception]
    NVMLError_GpuIsLost: type[Exception]
    NVML_MEMORY_ERROR_TYPE_CORRECTED: int
    NVML_MEMORY_ERROR_TYPE_UNCORRECTED: int
    NVML_VOLATILE_ECC: int
    NVML_AGGREGATE_ECC: int
    NVML_NVLINK_MAX_LINKS: int
    NVML_NVLINK_ERROR_DL_REPLAY: int
    NVML_NVLINK_ERROR_DL_RECOVERY: int
    NVML_NVLINK_ERROR_DL_CRC_FLIT: int
    NVML_NVLINK_ERROR_DL_CRC_DATA: int
    nvmlEventTypeXidCriticalError: int
    nvmlClocksThrottleReasonHwThermalSlowdown: int
    nvmlClocksThrottleReasonSwThermalSlowdown: int
    nvmlClocksThrottleReasonHwPowerBrakeSlowdown: int

    nvmlInit: Callable[[], None]
    nvmlDeviceGetCount: Callable[[], int]
    nvmlDeviceGetHandleByIndex: Callable[[int], Any]
    nvmlDeviceGetIndex: Callable[[Any], int]
    nvmlDeviceGetTotalEccErrors: Callable[[Any, int, int], int]
    nvmlDeviceGetRemappedRows: Callable[[Any], tuple[int, int, int, int]]
    nvmlDeviceGetNvLinkErrorCounter: Callable[[Any, int, int], int]
    nvmlDeviceGetCurrentClocksThrottleReasons: Callable[[Any], int]
    nvmlEventSetCreate: Callable[[], Any]
    nvmlDeviceRegisterEvents: Callable[[Any, int, Any], None]
    nvmlEventSetWait_v2: Callable[[Any, int], Any]


def open_nvml() -> Nvml | None:
    """Return the library, initialised; None, said once, where there is no package or driver."""
    try:
        nvml: Any = importlib.import_module("pynvml")
        nvml.nvmlInit()
    except ImportError:
        log.info("no GPU counters: the package nvidia-ml-py is not installed")
    except nvml.NVMLError as error:
        log.info("no GPU counters: %s", error)
    else:
        library: Nvml = nvml
        return library
    return None


class GpuCounters:
    """Of all GPUs of this machine.

    Args:
        nvml: initialised.
        now_ms: any clock that only grows; how long a clock was held down is the time between looks.
    """

    def __init__(self, nvml: Nvml, now_ms: Callable[[], float]) -> None:
        self._nvml = nvml
        self._now_ms = now_ms
        self._looked_ms = now_ms()
        self._held_ms: dict[tuple[ErrorKind, str], int] = {}
        self._devices = [
            (f"gpu{index}", nvml.nvmlDeviceGetHandleByIndex(index))
            for index in range(nvml.nvmlDeviceGetCount())
        ]
        self._links: dict[str, list[int]] = {}
        self._events = self._register()

    def read(self) -> Iterable[Count]:
        """Return everything that the devices tell."""
        now_ms = self._now_ms()
        passed_ms, self._looked_ms = round(now_ms - self._looked_ms), now_ms
        for name, device in self._devices:
            lost = False
            try:
                # The first question tells whether it is there; others fail for many reasons.
                self._nvml.nvmlDeviceGetIndex(device)
            except self._nvml.NVMLError_GpuIsLost:
                lost = True
            except self._nvml.NVMLError:
                pass
            yield Count(kind=ErrorKind.GPU_LOST, part=name, value=int(lost), state=True)
            if not lost:
                yield from self._ecc(name, device)
                yield from self._rows(name, device)
                yield from self._nvlinks(name, device)
                yield from self._throttling(name, device, passed_ms)
        yield from self._xids()

    def _ecc(self, name: str, device: Any) -> Iterator[Count]:
        nvml = self._nvml
        corrected = nvml.NVML_MEMORY_ERROR_TYPE_CORRECTED
        uncorrected = nvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED
        for kind, error, scope, word in (
            (ErrorKind.GPU_CORRECTED, corrected, nvml.NVML_VOLATILE_ECC, ""),
            (ErrorKind.GPU_UNCORRECTED, uncorrected, nvml.NVML_VOLATILE_ECC, ""),
            (ErrorKind.GPU_UNCORRECTED, uncorrected, nvml.NVML_AGGREGATE_ECC, " by its board"),
        ):
            count = self._asked(nvml.nvmlDeviceGetTotalEccErrors, device, error, scope)
            if count is not None:
                yield Count(kind=kind, part=f"{name}{word}", value=count)

    def _rows(self, name: str, device: Any) -> Iterator[Count]:
        rows = self._asked(self._nvml.nvmlDeviceGetRemappedRows, device)
        if rows is not None:
            _, _, pending, failed = rows
            for kind, value in (
                (ErrorKind.GPU_ROW_REMAP_PENDING, pending),
                (ErrorKind.GPU_ROW_REMAP_FAILED, failed),
            ):
                yield Count(kind=kind, part=name, value=int(bool(value)), state=True)

    def _nvlinks(self, name: str, device: Any) -> Iterator[Count]:
        nvml = self._nvml
        kinds = (
            nvml.NVML_NVLINK_ERROR_DL_REPLAY,
            nvml.NVML_NVLINK_ERROR_DL_RECOVERY,
            nvml.NVML_NVLINK_ERROR_DL_CRC_FLIT,
            nvml.NVML_NVLINK_ERROR_DL_CRC_DATA,
        )
        known = self._links.get(name)
        links, total = [], 0
        for link in range(nvml.NVML_NVLINK_MAX_LINKS) if known is None else known:
            counts = [
                self._asked(nvml.nvmlDeviceGetNvLinkErrorCounter, device, link, kind)
                for kind in kinds
            ]
            told = [count for count in counts if count is not None]
            if told:
                links.append(link)
                total += sum(told)
        if known is None:
            self._links[name] = links  # the others are not there, and asking costs time
        if links:
            yield Count(kind=ErrorKind.NVLINK_ERRORS, part=name, value=total)

    def _throttling(self, name: str, device: Any, passed_ms: int) -> Iterator[Count]:
        nvml = self._nvml
        reasons = self._asked(nvml.nvmlDeviceGetCurrentClocksThrottleReasons, device)
        if reasons is None:
            return
        hot = (
            nvml.nvmlClocksThrottleReasonHwThermalSlowdown
            | nvml.nvmlClocksThrottleReasonSwThermalSlowdown
        )
        for kind, mask in (
            (ErrorKind.GPU_THERMAL_MS, hot),
            (ErrorKind.GPU_POWER_BRAKE_MS, nvml.nvmlClocksThrottleReasonHwPowerBrakeSlowdown),
        ):
            key = (kind, name)
            held_ms = self._held_ms.get(key, 0) + (passed_ms if reasons & mask else 0)
            self._held_ms[key] = held_ms
            yield Count(kind=kind, part=name, value=held_ms)

    def _xids(self) -> Iterator[Count]:
        if self._events is None:
            return
        for _ in range(XIDS_MAX):
            event = self._asked(self._nvml.nvmlEventSetWait_v2, self._events, 0)
            if event is None:
                return  # NVML tells of none by an error: a timeout
            index = self._asked(self._nvml.nvmlDeviceGetIndex, event.device)
            part = "gpu?" if index is None else f"gpu{index}"
            yield Count(kind=xid_kind(int(event.eventData)), part=part, value=1, events=True)

    def _register(self) -> Any:
        """Return a set of events that XIDs of all devices come to; None where there are none."""
        nvml, registered = self._nvml, False
        events = self._asked(nvml.nvmlEventSetCreate)
        if events is None:
            return None
        for name, device in self._devices:
            try:
                nvml.nvmlDeviceRegisterEvents(device, nvml.nvmlEventTypeXidCriticalError, events)
            except nvml.NVMLError as error:
                log.info("no XIDs of %s: %s", name, error)
            else:
                registered = True
        return events if registered else None

    def _asked(self, question: Callable[..., Any], *arguments: Any) -> Any:
        """Return the answer; None for what is not there."""
        try:
            return question(*arguments)
        except self._nvml.NVMLError:
            return None
