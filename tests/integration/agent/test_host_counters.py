"""What a host's kernel counts, read from real trees on disk."""

from __future__ import annotations

import asyncio
import json
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from tests.waiting import until

from everstep.agent.counters import TOLD_MAX, Count, Counters
from everstep.agent.host_counters import HostCounters, boot_id, is_clock_synchronised
from everstep.bus.memory import MemoryBus
from everstep.core.counters import ErrorKind
from everstep.core.ports import Message
from everstep.core.system import SystemClock
from everstep.wire.v1.common_pb2 import CommandReply, Outcome
from everstep.wire.v1.hosts_pb2 import CountErrors


class Machine:
    """A host's sysfs and procfs, as files."""

    def __init__(self, root: Path) -> None:
        self.sysfs, self.procfs = root / "sys", root / "proc"
        self.run_dir = root / "run"
        self.run_dir.mkdir()
        self.write("proc/sys/kernel/random/boot_id", "boot-1")
        self.mount("rw")

    def write(self, path: str, value: object) -> None:
        """Set one file."""
        file = self.sysfs.parent / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"{value}\n")

    def mount(self, how: str) -> None:
        """Mount the run directory's disk read-write or read-only."""
        place = str(self.run_dir).replace(" ", "\\040")
        self.write(
            "proc/self/mounts",
            f"/dev/sda1 / ext4 rw,relatime 0 0\n/dev/sdb1 {place} ext4 {how},relatime 0 0",
        )

    def everything(self) -> None:
        """One of each, with counts from before we look."""
        self.write("sys/devices/system/edac/mc/mc0/ce_count", 7)
        self.write("sys/devices/system/edac/mc/mc0/ue_count", 1)
        self.write("sys/class/net/eth0/device/vendor", "0x15b3")
        for name in ("rx_errors", "tx_errors", "rx_dropped", "tx_dropped"):
            self.write(f"sys/class/net/eth0/statistics/{name}", 5)
        self.write("sys/class/net/eth0/carrier_down_count", 1)
        self.write("sys/class/net/veth9/statistics/rx_errors", 5)
        port = "sys/class/infiniband/mlx5_0/ports/1/counters"
        self.write(f"{port}/symbol_error", 2)
        self.write(f"{port}/port_rcv_errors", 3)
        self.write(f"{port}/link_downed", 0)
        self.write("sys/block/sda/device/ioerr_cnt", "0x10")

    def counters(self, *, machine: bool = True) -> HostCounters:
        """Read them."""
        return HostCounters(self.sysfs, self.procfs, [self.run_dir], machine=machine)


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    """A machine whose paths have blanks in them."""
    root = tmp_path / "a machine"
    root.mkdir()
    return Machine(root)


@pytest.fixture
def executor():
    """Where reading is done."""
    with ThreadPoolExecutor(1) as executor:
        yield executor


def told(counters: Counters) -> dict[tuple[str, str], int]:
    """What a heartbeat would say."""
    return {(one.kind, one.part): one.count for one in counters.told()}


def open_counters(machine: Machine, executor: ThreadPoolExecutor, boot: str = "") -> Counters:
    """As the agent does."""
    return Counters(
        [machine.counters()],
        machine.run_dir / "counters.json",
        boot or boot_id(machine.procfs),
        SystemClock(),
        executor,
        lambda: True,
    )


def test_everything_that_is_there_is_read(machine):
    """Values as the kernel writes them; virtual interfaces are left out."""
    machine.everything()
    values = {(one.kind, one.part): one.value for one in machine.counters().read()}
    mount = str(machine.run_dir)
    assert values == {
        ("memory_corrected", "mc0"): 7,
        ("memory_uncorrected", "mc0"): 1,
        ("nic_errors", "eth0"): 10,
        ("nic_drops", "eth0"): 10,
        ("link_flaps", "eth0"): 1,
        ("fabric_errors", "mlx5_0/1"): 5,
        ("fabric_flaps", "mlx5_0/1"): 0,
        ("disk_errors", "sda"): 16,
        ("disk_read_only", mount): 0,
        ("disk_full", mount): 0,
    }


def test_host_that_has_nothing_of_it_is_read_too(machine):
    """A container without EDAC, InfiniBand or disks of its own."""
    kinds = {one.kind for one in machine.counters().read()}
    assert kinds == {ErrorKind.DISK_READ_ONLY, ErrorKind.DISK_FULL}


def test_files_that_are_no_numbers_are_left_out(machine):
    """What cannot be read is not zero."""
    machine.write("sys/devices/system/edac/mc/mc0/ce_count", "n/a")
    machine.write("sys/block/sda/device/ioerr_cnt", "")
    assert {one.kind for one in machine.counters().read()} == {
        ErrorKind.DISK_READ_ONLY,
        ErrorKind.DISK_FULL,
    }


def test_host_that_shares_its_machine_reads_its_own_directories_only(machine):
    """A machine's errors would be told of every host on it."""
    machine.everything()
    kinds = {one.kind for one in machine.counters(machine=False).read()}
    assert kinds == {ErrorKind.DISK_READ_ONLY, ErrorKind.DISK_FULL}


def test_this_machine_can_be_read():
    """Whatever the real trees look like."""
    counts = list(HostCounters(Path("/sys"), Path("/proc"), [Path("/tmp")]).read())
    assert ErrorKind.DISK_FULL in {one.kind for one in counts}
    assert all(one.value >= 0 for one in counts)
    assert boot_id(Path("/proc"))
    assert is_clock_synchronised() in {True, False}


async def test_only_growth_is_told_and_adds_up(machine, executor):
    """What was there at the first look is history."""
    machine.everything()
    counters = open_counters(machine, executor)
    await counters.look()
    assert told(counters) == {}
    machine.write("sys/devices/system/edac/mc/mc0/ce_count", 9)
    await counters.look()
    machine.write("sys/devices/system/edac/mc/mc0/ce_count", 12)
    await counters.look()
    assert told(counters) == {("memory_corrected", "mc0"): 5}


async def test_counter_that_begins_anew_loses_nothing(machine, executor):
    """A driver that was loaded again counts from zero."""
    machine.everything()
    counters = open_counters(machine, executor)
    await counters.look()
    machine.write("sys/devices/system/edac/mc/mc0/ce_count", 3)
    await counters.look()
    assert told(counters) == {("memory_corrected", "mc0"): 3}


async def test_state_counts_whenever_it_begins(machine, executor):
    """Also when it holds at the first look, and not while it lasts."""
    counters = open_counters(machine, executor)
    key = ("disk_read_only", str(machine.run_dir))
    for how, count in (("rw", 0), ("ro", 1), ("ro", 1), ("rw", 1), ("ro", 2)):
        machine.mount(how)
        await counters.look()
        assert told(counters).get(key, 0) == count
    (machine.run_dir / "counters.json").unlink()
    fresh = open_counters(machine, executor)
    await fresh.look()
    assert told(fresh) == {key: 1}


async def test_what_happens_while_the_agent_is_away_is_counted(machine, executor):
    """The next agent of this boot goes on where the last one was; a new boot begins anew."""
    machine.everything()
    counters = open_counters(machine, executor)
    await counters.look()
    machine.write("sys/devices/system/edac/mc/mc0/ue_count", 2)
    await counters.look()
    machine.write("sys/devices/system/edac/mc/mc0/ue_count", 4)
    adopted = open_counters(machine, executor)
    assert told(adopted) == {("memory_uncorrected", "mc0"): 1}
    [old] = adopted.told()
    assert old.age_ms >= 3_600_000
    await adopted.look()
    [grown] = adopted.told()
    assert (grown.count, grown.age_ms < 3_600_000) == (3, True)
    rebooted = open_counters(machine, executor, boot="boot-2")
    await rebooted.look()
    assert told(rebooted) == {}


@pytest.mark.parametrize("text", ["", "{", "[]", '{"boot_id": "boot-1", "counts": [[1]]}'])
async def test_file_that_cannot_be_read_is_as_none(machine, executor, text):
    """A disk that was full when it was written."""
    (machine.run_dir / "counters.json").write_text(text)
    counters = open_counters(machine, executor)
    await counters.look()
    assert told(counters) == {}
    assert json.loads((machine.run_dir / "counters.json").read_text())["boot_id"] == "boot-1"


async def test_driver_that_hangs_does_not_hold_a_probe_up(machine, executor):
    """What is known is told; the look that hangs is waited for by nobody."""
    fifo = machine.run_dir / "hangs"
    os.mkfifo(fifo)

    class Hanging:
        def read(self):
            fifo.read_text()
            return []

    counters = Counters([Hanging()], machine.run_dir / "c", "b", SystemClock(), executor, bool)
    assert await counters.fresh() == []
    fifo.write_text("")  # lets the thread go
    await counters.look()


class Many:
    """More than a heartbeat carries."""

    def read(self):
        """Events of many parts."""
        return [
            Count(kind="gpu_xid_79", part=f"gpu{i:03d}", value=1, events=True)
            for i in range(2 * TOLD_MAX)
        ]


async def test_heartbeat_stays_small(machine, executor):
    """However much a host has to tell."""
    counters = Counters([Many()], machine.run_dir / "c", "b", SystemClock(), executor, bool)
    await counters.look()
    assert len(counters.told()) == TOLD_MAX


async def test_inventory_is_told_each_error_once(machine, executor, monkeypatch):
    """Also when its first answer was lost."""
    monkeypatch.setattr("everstep.agent.counters.REPORT_S", 0.01)
    counters = Counters([Many()], machine.run_dir / "c", "b", SystemClock(), executor, bool)
    await counters.look()
    bus, seen = MemoryBus(), []

    async def count(message: Message) -> bytes:
        seen.append(CountErrors.FromString(message.data))
        if len(seen) == 1:
            return b"lost"  # no answer that anybody could read
        return CommandReply(outcome=Outcome(accepted=True)).SerializeToString()

    task = asyncio.create_task(counters.keep_reporting(bus, "h1"))
    await asyncio.sleep(0)  # nobody serves the inventory yet
    await bus.serve("everstep.v1.cmd.host_inventory.count_errors", count)
    await until(lambda: len(seen) == 2, what="told, and told again")
    await counters.look()
    await until(lambda: len(seen) == 3, what="told what is new")
    task.cancel()
    assert [(one.host_id, one.kind, one.count) for one in seen] == [
        ("h1", "gpu_xid_79", 2 * TOLD_MAX)
    ] * 3
    assert seen[0] == seen[1]
    assert seen[2].at_ms > seen[1].at_ms
    for listener in list(bus.listeners):
        await listener.close()
