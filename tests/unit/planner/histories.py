"""Histories to replay: two hosts and a spare, a save of 0.1 s after each second of work."""

from everstep.planner.history import Failure, History, LostHost

CYCLE_MS = 1_100
STARTUP_MS = 5_000
WALL_MS = 100_000


def lost(host_id, out_ms=None):
    """A host that broke, and for how long."""
    return LostHost(host_id=host_id, out_ms=out_ms)


def failure(at_ms, *hosts, **fields):
    """A failure whose verdict takes 2 s and whose restart takes 8 s; a rank's without hosts."""
    usual = {
        "kind": "host_lost" if hosts else "rank_killed", "detection_ms": 2_000, "restart_ms": 8_000,
        "lost_work_ms": 500,
    }  # fmt: skip
    return Failure(at_ms=at_ms, lost=hosts, **(usual | fields))


def history(*failures, **fields):
    """A run of 100 s with these failures."""
    known = {
        "job_id": "j", "wall_ms": WALL_MS, "startup_ms": STARTUP_MS, "step_ms": 100,
        "interval_ms": 1_000, "stall_ms": 100, "hosts": ("a", "b"), "spares": ("s",),
        "failures": failures, "measured": {"useful": WALL_MS},
    }  # fmt: skip
    return History(**(known | fields))
