"""What a host counts, on its way: in heartbeats, in answers to probes, to the inventory."""

from __future__ import annotations

import pytest
from tests.integration.agent.harness import hosts_on, new_plane
from tests.waiting import until

from everstep.agent import counters, counting


async def test_error_is_told_with_the_next_heartbeats_and_to_who_asks(tmp_path, monkeypatch):
    """A probe looks at once: a failure may be younger than the last heartbeat."""
    uncorrected = tmp_path / "sys/devices/system/edac/mc/mc0/ue_count"
    uncorrected.parent.mkdir(parents=True)
    uncorrected.write_text("3\n")
    async with hosts_on(tmp_path, "h1") as [host], new_plane() as plane:
        host.settings = host.settings.model_copy(update={"sysfs": tmp_path / "sys"})
        monkeypatch.setattr(counters, "LOOK_S_MAX", 10.0)  # of this machine's patience
        async with host.up(plane):
            assert list((await plane.probe("h1")).errors) == []
            uncorrected.write_text("5\n")
            [error] = (await plane.probe("h1")).errors
            assert (error.kind, error.part, error.count) == ("memory_uncorrected", "mc0", 2)
            beat = await until(
                lambda: next((one for one in plane.heartbeats if one.errors), None), what="told"
            )
            assert [(one.kind, one.count) for one in beat.errors] == [("memory_uncorrected", 2)]
        async with host.up(plane):
            [error] = (await plane.probe("h1")).errors
            assert (error.kind, error.count) == ("memory_uncorrected", 2)
            assert error.age_ms >= 3_600_000


@pytest.mark.parametrize("own", [False, True])
async def test_host_that_shares_its_machine_looks_at_a_tree_of_its_own_only(
    tmp_path, monkeypatch, own
):
    """Moving a job to another host of the same machine would not get it off the machine."""
    corrected = tmp_path / "sys/devices/system/edac/mc/mc0/ce_count"
    corrected.parent.mkdir(parents=True)
    corrected.write_text("1\n")
    if not own:
        monkeypatch.setattr(counting, "SYSFS", tmp_path / "sys")
    monkeypatch.setattr(counters, "LOOK_S_MAX", 10.0)
    async with hosts_on(tmp_path, "h1") as [host], new_plane() as plane:
        update = {"sysfs": tmp_path / "sys", "emulated": True}
        host.settings = host.settings.model_copy(update=update)
        async with host.up(plane):
            await plane.probe("h1")
            corrected.write_text("2\n")
            kinds = {one.kind for one in (await plane.probe("h1")).errors}
    assert kinds == ({"memory_corrected"} if own else set())
