"""Reads a history from exported events: what ``everstep events -n 0 --json`` prints.

Events tell decisions and no measurements: the step time comes from how far each generation got,
stalls and slow spells stay unknown. An export of one job (``--job``) leaves out the hosts' own
events, so which hosts stood by, and when lost ones were back, is known only of those that the job
took; an export of everything tells it of all.
"""

from __future__ import annotations

import bisect
import json
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from everstep.core.errors import InvalidInput
from everstep.planner.damage import DAMAGE, told_of
from everstep.planner.history import Arrival, History
from everstep.planner.history_course import (
    BESIDE,
    HALF,
    Attempt,
    Course,
    history_of,
    memory_every,
)

ENDS: Final = frozenset({"job_succeeded", "job_failed", "job_stopped"})
LOST: Final = "lost"  # a host on which the monitor has opened an incident
# What is over for a host with an event. A cordon outlasts the agent that it was said of.
ENDED_BY: Final = {
    "host_joined": frozenset({"host_left", LOST}),
    "host_uncordoned": frozenset({"host_cordoned", LOST}),
}
OF_HOSTS: Final = frozenset({"host_left", "host_cordoned", *ENDED_BY})

Json = dict[str, Any]


@dataclass(slots=True)
class _Told:
    """What the events of a job, and of all hosts, say.

    ``over_ms``: when the job ended, None while it goes on; ``changes``: when which host came,
    went, or was put out of service or back.
    """

    job_id: str
    submitted: Json = field(default_factory=dict)
    end_ms: int = 0
    over_ms: int | None = None
    changes: list[tuple[int, str, str]] = field(default_factory=list)
    attempts: dict[int, Attempt] = field(default_factory=dict)
    seats: dict[int, tuple[str, ...]] = field(default_factory=dict)
    idle: list[tuple[int, str]] = field(default_factory=list)
    completed: list[tuple[int, int, int]] = field(default_factory=list)
    joined: dict[str, list[int]] = field(default_factory=lambda: defaultdict(list))
    cleared: dict[str, list[int]] = field(default_factory=lambda: defaultdict(list))
    cordoned: dict[str, list[int]] = field(default_factory=lambda: defaultdict(list))
    placed: dict[str, list[int]] = field(default_factory=lambda: defaultdict(list))
    schedules: dict[int, tuple[int, int]] = field(default_factory=dict)
    cadences: list[tuple[int, int, int]] = field(default_factory=list)


def read_events(text: str, *, source: str, job_id: str = "", stall_ms: int = 0) -> History:
    """Return the history that exported events tell, one JSON event a line.

    Args:
        text: of the export.
        source: where it is from, for messages.
        job_id: whose; "" if the export is of one job.
        stall_ms: of a save in memory, which events do not tell.

    Raises:
        InvalidInput: it is no such export, or tells too little.
    """
    events = list(_parsed(text, source))
    told = _Told(job_id=_job_of(events, source, job_id))
    for number, (kind, payload, recorded_ms) in enumerate(events, start=1):
        try:
            _take(told, kind, payload, recorded_ms)
        except DAMAGE as error:
            raise InvalidInput(
                f"{source} is no history: in event {number} ({kind}) {told_of(error)}"
            ) from error
    if told.over_ms is not None:  # what hosts do after the end is no time of the job
        told.end_ms = told.over_ms
    try:
        return history_of(_course(told, source, stall_ms))
    except DAMAGE as error:
        raise InvalidInput(f"{source} is no whole history: {told_of(error)}") from error


def _parsed(text: str, source: str) -> Iterable[tuple[str, Json, int]]:
    """Yield kind, payload and time of each event."""
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip():
            continue
        try:
            event = json.loads(line)
            kind = event["type"].partition(".")[0]
            payload = dict(event.get(kind, {}))  # raises where it is no object
            yield kind, payload, int(event["recorded_at_ms"])
        except (
            ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError,
        ) as error:  # fmt: skip
            raise InvalidInput(
                f"{source} is no history: line {number} is no event as `everstep events --json` "
                "prints it, and the whole is nothing that `everstep jobs export` has written"
            ) from error


def _job_of(events: Sequence[tuple[str, Json, int]], source: str, job_id: str) -> str:
    submitted = [payload["job_id"] for kind, payload, _ in events if kind == "job_submitted"]
    if job_id in submitted or (not job_id and len(submitted) == 1):
        return job_id or str(submitted[0])
    if len(submitted) > 1:
        raise InvalidInput(
            f"{source} tells of {len(submitted)} jobs ({', '.join(sorted(submitted))}): export "
            "one, with `everstep events -n 0 --json --job JOB`"
        )
    raise InvalidInput(
        f"{source} does not begin with a job's submission: export all of its events, with "
        "`everstep events -n 0 --json --job JOB`"
    )


def _take(told: _Told, kind: str, payload: Json, recorded_ms: int) -> None:
    """Fold one event."""
    # Whose placement lost a host, its cordon tells; it keeps the host from every job.
    if kind not in OF_HOSTS and payload.get("job_id", "") not in ("", told.job_id):
        return
    at_ms = int(payload.get("at_ms") or recorded_ms)
    told.end_ms = max(told.end_ms, at_ms)
    if kind in ENDS or kind == "generation_begun":
        told.over_ms = at_ms if kind in ENDS else None
    match kind:
        case "job_submitted":
            told.submitted = payload
        case _ if kind in OF_HOSTS:
            _take_of_host(told, kind, payload["host_id"], at_ms)
        case "incident_opened" if not payload.get("job_id"):
            failed_at_ms = int(payload["failed_at_ms"])
            told.idle += [(failed_at_ms, host) for host in payload["hosts"]]
            told.changes += [(failed_at_ms, LOST, host) for host in payload["hosts"]]
        case "checkpoint_completed":
            made = (int(payload["generation"]), int(payload["step"]), at_ms)
            told.completed.append(made)
        case "generation_begun":
            number = int(payload["generation"])
            told.attempts[number] = Attempt(
                generation=number,
                cause=payload["cause"],
                begun_at_ms=at_ms,
                lost=tuple(payload["lost_hosts"]),
                rolled_back=int(payload.get("before_step") or 0) > 0,
            )
        case "interval_changed":
            schedule = payload["schedule"]
            told.schedules[int(schedule["version"])] = (
                int(schedule.get("memory_every_steps") or 0),
                int(schedule.get("object_every_steps") or 0),
            )
        case "interval_in_force" if int(payload["version"]) in told.schedules:
            told.cadences.append((at_ms, *told.schedules[int(payload["version"])]))
        case _:
            attempt = told.attempts.get(int(payload.get("generation") or 0))
            if attempt is not None:
                _fill(told, attempt, kind, payload, at_ms)


def _take_of_host(told: _Told, kind: str, host_id: str, at_ms: int) -> None:
    """Fold an event of a host."""
    if not isinstance(host_id, str):
        raise TypeError(f"{host_id!r} is no name of a host")
    told.changes.append((at_ms, kind, host_id))
    match kind:
        case "host_joined":
            told.joined[host_id].append(at_ms)
        case "host_uncordoned":
            told.cleared[host_id].append(at_ms)
        case "host_cordoned":
            told.cordoned[host_id].append(at_ms)
        case _:
            pass


def _fill(told: _Told, attempt: Attempt, kind: str, payload: Json, at_ms: int) -> None:
    """Fold an event of a generation."""
    match kind:
        case "hosts_short":
            attempt.short_at_ms = attempt.short_at_ms or at_ms
        case "placement_decided":
            attempt.placed_at_ms = at_ms
            attempt.replacements = tuple(payload["replacements"])
            told.seats[attempt.generation] = tuple(
                seat["host_id"] for seat in payload["placement"]["hosts"]
            )
            for host in payload["replacements"]:
                told.placed[host].append(at_ms)
        case "restore_decided":
            attempt.restore_step = int(payload["step"])
        case "generation_progressed":
            attempt.first_step, attempt.first_at_ms = int(payload["step"]), at_ms
        case "job_running" if attempt.first_at_ms is None:
            attempt.first_step, attempt.first_at_ms = int(payload["step"]), at_ms
        case "job_paused":
            attempt.paused_at_ms = at_ms
        case "incident_opened" if not attempt.kind and payload.get("action") not in BESIDE:
            attempt.kind = payload["kind"]
            attempt.failed_at_ms = int(payload["failed_at_ms"])
            attempt.detected_at_ms = int(payload["detected_at_ms"])
            attempt.last_step = int(payload["step"])
        case _ if kind in ENDS:
            attempt.over_at_ms = attempt.paused_at_ms = at_ms
            if not attempt.kind:
                attempt.failed_at_ms = None
                attempt.last_step = int(payload.get("step") or 0) or None


def _course(told: _Told, source: str, stall_ms: int) -> Course:
    attempts = [told.attempts[number] for number in sorted(told.attempts)]
    _add_replaced(told, attempts)
    spec = json.loads(told.submitted["spec_json"])
    first = next((told.seats[a.generation] for a in attempts if a.generation in told.seats), ())
    if not first:
        raise InvalidInput(f"{source} is too short: {told.job_id} has never been placed")
    submitted_ms = int(told.submitted["at_ms"])
    spares, arrivals, note = _others(told, set(first), attempts, submitted_ms)
    return Course(
        job_id=told.job_id,
        submitted_at_ms=submitted_ms,
        end_ms=told.end_ms,
        spec=spec,
        attempts=attempts,
        out_ms=_Outages(told).out_ms,
        step_ms=max(_step_ms(attempts, told.end_ms) - stall_ms / memory_every(spec), 0.0),
        stall_ms=stall_ms,
        hosts=first,
        spares=spares,
        arrivals=arrivals,
        idle_losses=sorted(one for one in told.idle if submitted_ms <= one[0] <= told.end_ms),
        completed=told.completed,
        cadences=told.cadences,
        notes=[
            *([] if stall_ms else ["events do not tell the stall of a save: it counts as none"]),
            "events tell of no single steps: slow spells are unknown",
            *([note] if note else []),
        ],
    )


def _add_replaced(told: _Told, attempts: Sequence[Attempt]) -> None:
    """Count hosts that a placement left out without calling them lost (unsound, cordoned)."""
    before: set[str] = set()
    gone: set[str] = set()
    for attempt in attempts:
        gone.update(attempt.lost)
        seats = set(told.seats.get(attempt.generation, ()))
        if seats:
            attempt.lost += tuple(sorted(before - seats - gone))
            before, gone = seats, set()


def _others(
    told: _Told, first: set[str], attempts: Sequence[Attempt], submitted_ms: int
) -> tuple[list[str], list[Arrival], str]:
    """Return who stood by at the begin, who came later, and what is not known of them."""
    if told.joined:
        able, late = _able(told, submitted_ms)
        came = [Arrival(at_ms=at - submitted_ms, host_id=h) for at, h in late if h not in first]
        return sorted(able - first), came, ""
    spares: set[str] = set()
    came = []
    for attempt in attempts:
        for host in attempt.replacements:
            if host in first or host in spares or any(host == one.host_id for one in came):
                continue
            if attempt.waiting_ms and attempt.placed_at_ms is not None:
                came.append(Arrival(at_ms=attempt.placed_at_ms - submitted_ms, host_id=host))
            else:
                spares.add(host)
    note = (
        "events of one job tell only of hosts that served it: other spares, and lost hosts that "
        "were back but not needed, are unknown; `everstep events -n 0 --json` tells of all"
    )
    return sorted(spares), came, note


def _able(told: _Told, submitted_ms: int) -> tuple[set[str], list[tuple[int, str]]]:
    """Return who could serve at the submission, and when, until the end, others first could."""
    out: dict[str, set[str]] = defaultdict(lambda: {"host_left"})  # why; nobody is there unseen
    able: set[str] = set()
    later: dict[str, int] = {}
    for at_ms, kind, host in sorted(told.changes, key=lambda change: change[0]):
        if kind in ENDED_BY:
            out[host] -= ENDED_BY[kind]
        else:
            out[host].add(kind)
        if at_ms <= submitted_ms:
            (able.discard if out[host] else able.add)(host)
        elif at_ms <= told.end_ms and not out[host] and host not in able:
            later.setdefault(host, at_ms)
    return able, sorted((at_ms, host) for host, at_ms in later.items())


class _Outages:
    """Knows when a lost host could serve again."""

    def __init__(self, told: _Told) -> None:
        self._told = told

    def out_ms(self, host_id: str, at_ms: int) -> int | None:
        """Return how long a host was away that broke at a moment; None if it was not back."""
        told = self._told
        joined, cleared = (_next(of[host_id], at_ms) for of in (told.joined, told.cleared))
        cordoned = _next(told.cordoned[host_id], at_ms - 1)
        ready: int | None = None
        if joined is not None and (cordoned is None or joined < cordoned):
            ready = joined  # back before anybody had cordoned it; a later cordon is another story
        elif cleared is not None:
            ready = max(cleared, joined or 0)
        taken = _next(told.placed[host_id], at_ms)
        known = [at for at in (ready, taken) if at is not None and at <= told.end_ms]
        return min(known) - at_ms if known else None


def _next(moments: list[int], after_ms: int) -> int | None:
    at = bisect.bisect_right(moments, after_ms)
    return moments[at] if at < len(moments) else None


def _step_ms(attempts: Sequence[Attempt], end_ms: int) -> float:
    """Return the usual time of a step, from how far the generations got; 0 if none got far.

    A generation's first step is left out: it fills caches. The middle one of the generations'
    paces, each counted as often as it has steps, so that one slow stretch does not spoil it.
    """
    paces: list[tuple[float, float]] = []
    for i, attempt in enumerate(attempts):
        if attempt.first_at_ms is None or attempt.last_step is None:
            continue
        until_ms = attempt.failed_at_ms or (
            attempts[i + 1].begun_at_ms if i + 1 < len(attempts) else end_ms
        )
        broke = HALF if attempt.failed_at_ms is not None else 0.0
        steps = attempt.last_step - attempt.first_step + broke
        if steps >= 1:
            paces.append(((until_ms - attempt.first_at_ms) / steps, steps))
    paces.sort()
    half = sum(steps for _, steps in paces) / 2
    for pace, steps in paces:
        half -= steps
        if half <= 0:
            return pace
    return 0.0
