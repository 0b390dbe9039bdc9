"""Error counters in the watch loop: a host that says that it is broken, busy or idle."""

from __future__ import annotations

from tests.unit.monitor.test_watcher import Stage, echo, stage
from tests.unit.monitor.test_watcher_hangs import planned

from everstep.monitor.events import Action
from everstep.wire.v1.agents_pb2 import ErrorCount, Heartbeat

__all__ = ("planned", "stage")  # fixtures


def say(stage: Stage, host_id: str, kind: str, count: int = 1) -> None:
    """A heartbeat with one count."""
    errors = [ErrorCount(kind=kind, part="gpu0", count=count)]
    stage.watcher.counting.heard(Heartbeat(host_id=host_id, at_ms=stage.now_ms(), errors=errors))


async def test_broken_host_of_a_run_that_goes_on_is_moved_off_once(stage: Stage):
    """It loses no step; the next heartbeats say the same and change nothing."""
    for _ in range(5):
        say(stage, "h1", "gpu_uncorrected")
        await stage.tick(1_000)
        for host_id in ("h0", "h1", "h2"):
            await stage.watcher.stepped("j", 1, host_id, 6)
    (incident,) = await stage.incidents()
    assert (incident.kind, incident.action, incident.hosts, incident.ranks) == (
        "host_faulty",
        Action.DRAIN,
        ("h1",),
        (2, 3),
    )


async def test_broken_host_of_a_run_that_fails_is_replaced(stage: Stage):
    """Every host answers, and only echoes come; the links need not be asked."""
    say(stage, "h2", "gpu_xid_79")
    await stage.watcher.echoed(echo(0))
    await stage.tick(500)
    found = [(one.kind, one.action, one.hosts) for one in await stage.incidents()]
    assert ("host_faulty", Action.REPLACE, ("h2",)) in found
    assert stage.tried == 0


async def test_broken_host_of_a_run_that_hangs_is_replaced(planned: Stage):
    """The others wait for a device that is gone."""
    say(planned, "h2", "gpu_lost")
    await planned.tick(12_000)
    found = [(one.kind, one.action, one.hosts) for one in await planned.incidents()]
    assert found == [
        ("host_faulty", Action.DRAIN, ("h2",)),
        ("host_faulty", Action.REPLACE, ("h2",)),
    ]


async def test_broken_spare_is_cordoned_once(stage: Stage):
    """It would be the next one to be taken."""
    stage.watcher.heard("spare")
    for _ in range(3):
        say(stage, "spare", "gpu_row_remap_failed")
        await stage.tick(300)
    (incident,) = await stage.incidents()
    assert (incident.job_id, incident.kind, incident.hosts) == ("", "host_faulty", ("spare",))


async def test_burst_of_corrected_errors_is_a_note(stage: Stage):
    """The run goes on where it is."""
    say(stage, "h1", "memory_corrected", 500)
    await stage.tick(2_000)
    (incident,) = await stage.incidents()
    assert (incident.kind, incident.action) == ("errors_rising", Action.NOTE)
