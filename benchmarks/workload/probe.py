"""What each rank writes down, and what is read out of it: the same probe for every contestant.

A rank appends one JSON line for each moment to its own file. A step is *committed* when the last of
all ranks has applied its update, so nobody's figure depends on which rank is asked.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

DIRECTORY_VARIABLE: Final = "BENCH_PROBE_DIR"

STARTED: Final = "started"  # the rank's own code begins (imports are done)
JOINED: Final = "joined"  # process group, mesh, model and optimizer exist
RESTORED: Final = "restored"  # ``step`` completed steps are back
STEP: Final = "step"  # ``step`` completed steps


class Probe:
    """Writes this rank's moments.

    Args:
        rank: names the file.
        directory: where the files go.
    """

    def __init__(self, rank: int, directory: Path) -> None:
        self._file = os.open(
            directory / f"rank-{rank}.jsonl", os.O_WRONLY | os.O_CREAT | os.O_APPEND
        )

    def note(self, event: str, step: int = -1, **parts_ms: float) -> None:
        """Write that ``event`` happens now; ``parts_ms`` is what is known of its parts."""
        line = {
            "event": event,
            "step": step,
            "at": time.time(),
            "pid": os.getpid(),
            "parts_ms": parts_ms,
        }
        os.write(self._file, json.dumps(line).encode() + b"\n")


def probe_from_environment() -> Probe:
    """Return the probe of this torchrun-like process."""
    return Probe(int(os.environ["RANK"]), Path(os.environ[DIRECTORY_VARIABLE]))


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """A line of a rank's file; ``at`` is in seconds since the epoch."""

    event: str
    step: int
    at: float
    pid: int
    parts_ms: dict[str, float]


Record = Mapping[int, list[Moment]]  # by rank


def read(directory: Path, world_size: int) -> Record:
    """Return every rank's moments so far; a line that is not whole yet is left out."""
    record: dict[int, list[Moment]] = {}
    for rank in range(world_size):
        path = directory / f"rank-{rank}.jsonl"
        text = path.read_text() if path.exists() else ""
        record[rank] = [Moment(**json.loads(line)) for line in text.split("\n")[:-1]]
    return record


def committed(record: Record, *, until: float) -> int:
    """Return the newest step that every rank had completed by ``until``, -1 for none."""
    newest = [
        max((one.step for one in moments if one.event == STEP and one.at <= until), default=-1)
        for moments in record.values()
    ]
    return min(newest)


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovery:
    """What a fault cost, in seconds from the fault.

    Args:
        new_step_s: until a step newer than every one committed before was committed.
        first_step_s: until any step was committed again.
        restored_step: completed steps that the state put back had.
        steps_lost: committed steps that had to be done again.
        stages_s: when the last rank had reached each moment.
    """

    new_step_s: float
    first_step_s: float
    restored_step: int
    steps_lost: int
    stages_s: dict[str, float]


def recovery(record: Record, fault_at: float, before: int) -> Recovery | None:
    """Read a recovery out of the record; None while it is not over.

    Args:
        record: of all ranks.
        fault_at: seconds since the epoch.
        before: newest step committed before the fault.
    """
    new_step = _all_reached(record, fault_at, STEP, before + 1)
    if new_step is None:
        return None
    restored = _last_of_each(record, fault_at, RESTORED)
    restored_step = min(one.step for one in restored)
    first = _all_reached(record, fault_at, STEP, restored_step + 1)
    assert first is not None, "a newer step is done but not the first one"
    stages = {
        event: max(one.at for one in _last_of_each(record, fault_at, event)) - fault_at
        for event in (STARTED, JOINED, RESTORED)
    }
    return Recovery(
        new_step_s=new_step - fault_at,
        first_step_s=first - fault_at,
        restored_step=restored_step,
        steps_lost=before - restored_step,
        stages_s={name: round(value, 3) for name, value in stages.items()},
    )


def _all_reached(record: Record, fault_at: float, event: str, step: int) -> float | None:
    """Return when the last rank's newest process had done ``step``, None if not all have."""
    times = []
    for moments in record.values():
        process = _newest_process(moments, fault_at)
        done = [one.at for one in process if one.event == event and one.step == step]
        if not done:
            return None
        times.append(done[0])
    return max(times)


def _newest_process(moments: list[Moment], fault_at: float) -> list[Moment]:
    """Return the moments of the process that started last, if it did so after the fault."""
    starts = [one for one in moments if one.event == STARTED and one.at > fault_at]
    return [one for one in moments if starts and one.pid == starts[-1].pid]


def _last_of_each(record: Record, fault_at: float, event: str) -> list[Moment]:
    return [
        [one for one in _newest_process(moments, fault_at) if one.event == event][-1]
        for moments in record.values()
    ]


def commits(record: Record, *, since: float, until: float) -> list[float]:
    """Return when each step that lies wholly in an interval was committed, in order."""
    times: dict[int, list[float]] = {}
    for moments in record.values():
        for one in moments:
            if one.event == STEP and since < one.at <= until:
                times.setdefault(one.step, []).append(one.at)
    return sorted(max(each) for each in times.values() if len(each) == len(record))


def step_time_s(record: Record, *, since: float, until: float) -> float | None:
    """Return the mean time between committed steps in an interval, None if there are too few."""
    ends = commits(record, since=since, until=until)
    return (ends[-1] - ends[0]) / (len(ends) - 1) if len(ends) > 2 else None


def to_json(value: Recovery) -> dict[str, Any]:
    """Return a recovery as JSON values, in milliseconds' precision."""
    return {
        "new_step_s": round(value.new_step_s, 3),
        "first_step_s": round(value.first_step_s, 3),
        "restored_step": value.restored_step,
        "steps_lost": value.steps_lost,
        "stages_s": value.stages_s,
    }
