"""What NVIDIA's driver counts: how it is read, on a device that fails in every way."""

# ruff: noqa: N802 - the names are the library's

from __future__ import annotations

import importlib
import inspect
import logging
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from everstep.agent import gpu_counters
from everstep.agent.gpu_counters import XIDS_MAX, GpuCounters, Nvml, open_nvml

pynvml = importlib.import_module("pynvml")


class FakeNvml:
    """A driver with two devices; functions and constants are those of the real library."""

    NVMLError = pynvml.NVMLError
    NVMLError_GpuIsLost = pynvml.NVMLError_GpuIsLost

    def __init__(self) -> None:
        self.lost: set[int] = set()
        self.ecc: dict[tuple[int, int, int], int] = {}
        self.rows = {0: (0, 0, 0, 0)}  # device 1 tells of no rows
        self.nvlink: dict[tuple[int, int], int] = {}
        self.reasons = {0: 0, 1: 0}
        self.xids: list[tuple[int, int]] = []
        self.asked_links = 0

    def __getattr__(self, name: str) -> Any:
        """Constants are the library's."""
        if name.startswith(("NVML_", "nvmlClocks", "nvmlEventType")):
            return getattr(pynvml, name)
        raise AttributeError(name)

    def _here(self, device: int) -> None:
        if device in self.lost:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_GPU_IS_LOST)

    def nvmlInit(self) -> None:
        pass

    def nvmlDeviceGetCount(self) -> int:
        return 2

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:
        return index

    def nvmlDeviceGetIndex(self, device: int) -> int:
        self._here(device)
        return device

    def nvmlDeviceGetTotalEccErrors(self, device: int, error: int, scope: int) -> int:
        self._here(device)
        return self.ecc.get((device, error, scope), 0)

    def nvmlDeviceGetRemappedRows(self, device: int) -> tuple[int, int, int, int]:
        self._here(device)
        if device not in self.rows:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)
        return self.rows[device]

    def nvmlDeviceGetNvLinkErrorCounter(self, device: int, link: int, kind: int) -> int:
        self._here(device)
        self.asked_links += 1
        if link >= 2:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_INVALID_ARGUMENT)
        return (
            self.nvlink.get((device, link), 0) if kind == pynvml.NVML_NVLINK_ERROR_DL_REPLAY else 0
        )

    def nvmlDeviceGetCurrentClocksThrottleReasons(self, device: int) -> int:
        self._here(device)
        return self.reasons[device]

    def nvmlEventSetCreate(self) -> str:
        return "events"

    def nvmlDeviceRegisterEvents(self, device: int, types: int, events: str) -> None:
        assert (types, events) == (pynvml.nvmlEventTypeXidCriticalError, "events")

    def nvmlEventSetWait_v2(self, events: str, timeout_ms: int) -> Any:
        assert (events, timeout_ms) == ("events", 0)
        if not self.xids:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_TIMEOUT)
        device, xid = self.xids.pop(0)
        return SimpleNamespace(device=device, eventData=xid)


@pytest.fixture
def nvml() -> FakeNvml:
    """A driver that has nothing to tell."""
    return FakeNvml()


def read(counters: GpuCounters) -> dict[tuple[str, str], int]:
    """One look."""
    return {(str(one.kind), one.part): one.value for one in counters.read()}


def test_library_has_every_name_that_is_used():
    """The installed ``nvidia-ml-py`` offers all of it, and its functions take what we give."""
    used = set(
        re.findall(r"[nN][vV][mM][lL]\.((?:nvml|NVML)\w+)", Path(gpu_counters.__file__).read_text())
    )
    declared = set(inspect.get_annotations(Nvml))
    assert used <= declared
    assert {name for name in declared if not hasattr(pynvml, name)} == set()
    for name, given in (
        ("nvmlDeviceGetTotalEccErrors", 3),
        ("nvmlDeviceGetRemappedRows", 1),
        ("nvmlDeviceGetNvLinkErrorCounter", 3),
        ("nvmlDeviceGetCurrentClocksThrottleReasons", 1),
        ("nvmlDeviceRegisterEvents", 3),
        ("nvmlEventSetWait_v2", 2),
        ("nvmlDeviceGetIndex", 1),
    ):
        inspect.signature(getattr(pynvml, name)).bind(*range(given))
    assert {"device", "eventData"} <= {name for name, _ in pynvml.c_nvmlEventData_t._fields_}
    assert issubclass(pynvml.NVMLError_GpuIsLost, pynvml.NVMLError)


def test_where_there_is_no_driver_it_is_said_and_nothing_is_read(caplog):
    """As on every machine of these tests that has no GPU."""
    with caplog.at_level(logging.INFO):
        library = open_nvml()
    assert (library is None) == ("no GPU counters" in caplog.text)


def test_devices_that_are_well_tell_zeros(nvml):
    """And nothing of what they do not have."""
    counts = read(GpuCounters(nvml, lambda: 0.0))
    assert set(counts.values()) == {0}
    assert ("gpu_row_remap_failed", "gpu0") in counts
    assert ("gpu_row_remap_failed", "gpu1") not in counts


def test_ecc_errors_are_told_by_device_and_memory(nvml):
    """Uncorrected ones also as the board keeps them."""
    corrected, uncorrected = (
        pynvml.NVML_MEMORY_ERROR_TYPE_CORRECTED,
        pynvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED,
    )
    nvml.ecc = {
        (0, corrected, pynvml.NVML_VOLATILE_ECC): 5,
        (1, uncorrected, pynvml.NVML_VOLATILE_ECC): 1,
        (1, uncorrected, pynvml.NVML_AGGREGATE_ECC): 2,
    }
    counts = read(GpuCounters(nvml, lambda: 0.0))
    assert counts["gpu_corrected", "gpu0"] == 5
    assert counts["gpu_uncorrected", "gpu1"] == 1
    assert counts["gpu_uncorrected", "gpu1 by its board"] == 2


def test_rows_that_wait_and_rows_that_failed_are_states(nvml):
    """The driver tells numbers; what matters is whether there are any."""
    nvml.rows = {0: (3, 1, 1, 0), 1: (0, 9, 0, 1)}
    counts = read(GpuCounters(nvml, lambda: 0.0))
    assert [counts["gpu_row_remap_pending", part] for part in ("gpu0", "gpu1")] == [1, 0]
    assert [counts["gpu_row_remap_failed", part] for part in ("gpu0", "gpu1")] == [0, 1]


def test_links_are_added_up_and_those_that_are_not_there_are_asked_once(nvml):
    """Two of eighteen."""
    nvml.nvlink = {(0, 0): 3, (0, 1): 4}
    counters = GpuCounters(nvml, lambda: 0.0)
    assert read(counters)["nvlink_errors", "gpu0"] == 7
    first, nvml.asked_links = nvml.asked_links, 0
    read(counters)
    assert nvml.asked_links == 2 * 2 * 4 < first


def test_time_with_the_clock_held_down_adds_up(nvml):
    """From look to look; power brakes beside heat."""
    now = [0.0]
    counters = GpuCounters(nvml, lambda: now[0])
    hot = pynvml.nvmlClocksThrottleReasonHwThermalSlowdown
    for at_ms, reasons in ((5_000.0, hot), (10_000.0, 0), (15_000.0, hot)):
        now[0], nvml.reasons[1] = at_ms, reasons
        counts = read(counters)
    assert counts["gpu_thermal_ms", "gpu1"] == 10_000
    assert counts["gpu_thermal_ms", "gpu0"] == 0
    assert counts["gpu_power_brake_ms", "gpu1"] == 0


def test_power_cap_is_no_fault(nvml):
    """A GPU at full load runs into it all the time."""
    nvml.reasons[0] = pynvml.nvmlClocksThrottleReasonSwPowerCap
    now = iter((0.0, 5_000.0))
    assert set(read(GpuCounters(nvml, lambda: next(now))).values()) == {0}


def test_xids_are_told_by_number_and_drained(nvml):
    """Each once; a flood is told in pieces."""
    nvml.xids = [(0, 79), (1, 94)]
    counters = GpuCounters(nvml, lambda: 0.0)
    counts = read(counters)
    assert (counts["gpu_xid_79", "gpu0"], counts["gpu_xid_94", "gpu1"]) == (1, 1)
    assert not any(kind.startswith("gpu_xid") for kind, _ in read(counters))
    nvml.xids = [(0, 13)] * (XIDS_MAX + 1)
    read(counters)
    assert len(nvml.xids) == 1


def test_device_that_is_lost_is_told_and_asked_nothing_more(nvml):
    """The others are read as before."""
    counters = GpuCounters(nvml, lambda: 0.0)
    nvml.lost = {0}
    counts = read(counters)
    assert counts["gpu_lost", "gpu0"] == 1
    assert {part for _, part in counts} == {"gpu0", "gpu1", "gpu1 by its board"}
    assert [kind for kind, part in counts if part == "gpu0"] == ["gpu_lost"]


def test_xid_of_a_device_that_is_lost_is_told(nvml):
    """Its number cannot be asked for any more."""
    counters = GpuCounters(nvml, lambda: 0.0)
    nvml.lost, nvml.xids = {1}, [(1, 79)]
    assert read(counters)["gpu_xid_79", "gpu?"] == 1
