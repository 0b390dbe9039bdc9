"""The file that ``everstep jobs export`` writes, and the history that it tells.

The services' own answers, unchanged but for the curve, of which only the times are kept, as
columns: a run has millions of steps. Whoever needs more asks the services.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from statistics import median
from typing import Any, Final

from everstep.core.errors import InvalidInput
from everstep.planner.damage import DAMAGE, told_of
from everstep.planner.history import Arrival, History
from everstep.planner.history_course import BESIDE, Attempt, Course, history_of, memory_every
from everstep.planner.history_spells import Timed, spells_in

FORMAT: Final = "everstep-history"
VERSION: Final = 1
COLUMNS: Final = (
    "generation", "step", "completed_at_ms", "step_time_ms", "stall_ms", "data_wait_ms",
)  # fmt: skip
INTERVALS: Final = "intervals"  # a part that older exports do not have
PARTS: Final = ("job", "incidents", "goodput", "metrics", "hosts", "checkpoints")

Json = dict[str, Any]
Row = tuple[int, int, int, float, float, float]  # of COLUMNS


def document_of(
    *,
    job: Json,
    incidents: Sequence[Json],
    goodput: Json,
    points: Sequence[Json],
    hosts: Sequence[Json],
    checkpoints: Sequence[Json],
    intervals: Sequence[Json] | None = None,
    exported_at_ms: int,
) -> Json:
    """Return what is saved of a job.

    Args:
        job: with its recoveries.
        incidents: of the job, and of hosts that served none.
        goodput: the job's ledger.
        points: its whole curve.
        hosts: all.
        checkpoints: of the job.
        intervals: every schedule that was decided for it; None: nobody was asked.
        exported_at_ms: now [ms since epoch].
    """
    rows = [[round(point[name], 3) for name in COLUMNS] for point in points]
    secret = {"env"}  # a job's variables may hold passwords, and no replay needs them
    spec = {name: value for name, value in job["spec"].items() if name not in secret}
    return {
        "format": FORMAT,
        "version": VERSION,
        "exported_at_ms": exported_at_ms,
        "job": {**job, "spec": spec},
        "incidents": list(incidents),
        "goodput": goodput,
        "metrics": {"columns": list(COLUMNS), "rows": rows},
        "hosts": list(hosts),
        "checkpoints": list(checkpoints),
    } | ({} if intervals is None else {INTERVALS: [_schedule(one) for one in intervals]})


def _schedule(interval: Json) -> Json:
    """Leave out what a schedule was decided on: the controller's page tells it."""
    return {name: value for name, value in interval.items() if name != "grounds"}


def read_document(document: Any, *, source: str) -> History:
    """Return the history that such a document tells.

    Raises:
        InvalidInput: it is no such document, is newer than this program, or tells too little.
    """
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise InvalidInput(
            f"{source} is no history: expected what `everstep jobs export` or "
            "`everstep events -n 0 --json` writes"
        )
    version = document.get("version")
    if version != VERSION:
        raise InvalidInput(
            f"{source} has version {version!r} of the format and this program reads version "
            f"{VERSION}: use the program that has written it, or a newer one"
        )
    missing = [part for part in PARTS if part not in document]
    if missing:
        raise InvalidInput(f"{source} is no whole history: it has no {', '.join(missing)}")
    try:
        return history_of(_Reader(document).course())
    except DAMAGE as error:
        raise InvalidInput(
            f"{source} is no whole history, {told_of(error)}: export it again, with `everstep jobs "
            "export`"
        ) from error


class _Reader:
    """Reads a document that has all its parts."""

    def __init__(self, document: Json) -> None:
        self._job = document["job"]
        self._job_id = self._job["job_id"]
        self._submitted_ms = int(self._job["submitted_at_ms"])
        self._end_ms = self._submitted_ms + int(document["goodput"]["wall_ms"])
        self._measured = {cause: int(ms) for cause, ms in document["goodput"]["causes"].items()}
        incidents = document["incidents"]
        mine = [
            one
            for one in incidents
            if one["job_id"] == self._job_id and one.get("action") not in BESIDE
        ]
        self._incidents = {one["generation"]: one for one in mine}
        self._by_id = {one["incident_id"]: one for one in mine}
        self._intervals = document.get(INTERVALS)
        self._idle = [
            (int(one["failed_at_ms"]), host)
            for one in incidents
            if not one["job_id"] and self._submitted_ms <= int(one["failed_at_ms"]) <= self._end_ms
            for host in one["hosts"]
        ]
        self._completed = [
            (one["generation"], one["step"], int(one["completed_at_ms"]))
            for one in document["checkpoints"]
            if one["completed_at_ms"] is not None
        ]
        self._hosts = {host["host_id"]: host for host in document["hosts"]}
        columns = document["metrics"]["columns"]
        order = [columns.index(name) for name in COLUMNS]
        self._rows: list[Row] = sorted(
            tuple(row[i] for i in order) for row in document["metrics"]["rows"]
        )
        self._done = {(row[0], row[1]): int(row[2]) for row in self._rows}
        self._attempts = [self._attempt(one) for one in self._job["recoveries"]]

    def course(self) -> Course:
        """Return the run as the document tells it."""
        steps, plain = self._timed()
        spells, slow_ms = spells_in(steps)
        cadences = self._cadences()
        stalls = [float(row[4]) for row in self._rows]
        saves = sum(1 / self._every(cadences, row[2]) for row in self._rows)
        hosts, spares, arrivals = self._fleet()
        ended = self._job["phase"] == "succeeded" and bool(self._rows)
        last_ms = max(self._done.values(), default=self._end_ms)
        return Course(
            job_id=self._job_id,
            submitted_at_ms=self._submitted_ms,
            end_ms=self._end_ms,
            spec=self._job["spec"],
            attempts=self._attempts,
            out_ms=self._out_ms,
            step_ms=median(plain) if plain else 0.0,
            stall_ms=sum(stalls) / saves if saves else 0.0,
            finish_ms=max(self._end_ms - last_ms, 0) if ended else 0,
            hosts=hosts,
            spares=spares,
            arrivals=arrivals,
            idle_losses=sorted(self._idle),
            spells=spells,
            slow_ms=slow_ms,
            measured=self._measured,
            completed=self._completed,
            done_at_ms=lambda generation, step: self._done.get((generation, step)),
            cadences=cadences,
            notes=self._notes(),
            untold=self._untold(),
        )

    def _notes(self) -> list[str]:
        notes = []
        if any(attempt.lost for attempt in self._attempts) or self._idle:
            notes.append(
                "when a lost host was back is taken from its newest start, as the inventory has it"
            )
        return notes

    def _untold(self) -> list[str]:
        if self._intervals is not None:
            return []
        return ["changes of the interval (this export does not tell them: the spec's is taken)"]

    def _cadences(self) -> list[tuple[int, int, int]]:
        """Return when each schedule came into force, with its steps."""
        return [
            (
                int(one["in_force_at_ms"]),
                int(one["memory_every_steps"] or 0),
                int(one["object_every_steps"] or 0),
            )
            for one in self._intervals or ()
            if one.get("in_force_at_ms") is not None
        ]

    def _every(self, cadences: Sequence[tuple[int, int, int]], at_ms: float) -> int:
        """Return the steps between two saves in memory at a moment."""
        changed = [steps for since_ms, steps, _ in cadences if since_ms <= at_ms]
        return (changed[-1] if changed else memory_every(self._job["spec"])) or 1

    def _attempt(self, recovery: Json) -> Attempt:
        number, begun_ms = recovery["generation"], int(recovery["begun_at_ms"])
        stages = recovery["stages_ms"]
        incident = self._incidents.get(number)
        cause = self._by_id.get(recovery["incident_id"], {})
        attempt = Attempt(
            generation=number,
            cause=recovery["cause"],
            begun_at_ms=begun_ms,
            short_at_ms=recovery["short_at_ms"],
            placed_at_ms=begun_ms + stages["place"] if "place" in stages else None,
            restore_step=recovery["restore_step"],
            paused_at_ms=begun_ms + stages["fence"] if "fence" in stages else None,
            replacements=tuple(recovery["replacements"]),
            lost=tuple(recovery["lost_hosts"]) + self._unsound(recovery),
            rolled_back=cause.get("action") == "ROLL_BACK",
        )
        attempt.first_step = attempt.from_step + 1
        first_at_ms = self._done.get((number, attempt.first_step), recovery["running_at_ms"])
        attempt.first_at_ms = None if first_at_ms is None else int(first_at_ms)
        if incident is not None:
            attempt.kind, attempt.last_step = incident["kind"], incident["step"]
            attempt.failed_at_ms = int(incident["failed_at_ms"])
            attempt.detected_at_ms = int(incident["detected_at_ms"])
            if incident.get("closed_at_ms") is not None:  # the job ended with it
                attempt.over_at_ms = int(incident["closed_at_ms"])
        return attempt

    def _unsound(self, recovery: Json) -> tuple[str, ...]:
        """Return hosts that were replaced because they worked badly."""
        seated = {seat["host_id"] for seat in (self._job["placement"] or {}).get("hosts", ())}
        return tuple(
            host
            for host in recovery.get("unsound_hosts") or ()
            if host not in seated and recovery["replacements"]
        )

    def _timed(self) -> tuple[list[Timed], list[float]]:
        """Return the steps that follow another one, and their times without stalls."""
        steps, plain = [], []
        for before, row in pairwise(self._rows):
            if before[0] == row[0] and row[1] == before[1] + 1:
                took_ms = float(row[2] - before[2])
                steps.append(Timed(done_ms=int(row[2]) - self._submitted_ms, took_ms=took_ms))
                plain.append(max(took_ms - row[4], 0.0))
        return steps, plain

    def _fleet(self) -> tuple[list[str], list[str], list[Arrival]]:
        """Return who served first, who stood by then, and who came later."""
        placement = (self._job["placement"] or {}).get("hosts", ())
        first = {seat["host_id"] for seat in placement}
        served = set(first)
        for attempt in reversed(self._attempts[1:]):
            first = (first - set(attempt.replacements)) | set(attempt.lost)
            served |= first
        broke = {host for attempt in self._attempts for host in attempt.lost}
        broke |= {host for _, host in self._idle}
        spares, arrivals = [], []
        for host_id in sorted((served | set(self._hosts)) - first):
            host = self._hosts.get(host_id, {})
            if host.get("job_id", "") not in ("", self._job_id):
                continue
            if host_id not in served and self._was_out(host):
                continue
            joined_ms = int(host.get("joined_at_ms") or 0)
            if joined_ms > self._submitted_ms and host_id not in broke:
                at_ms = joined_ms - self._submitted_ms
                arrivals.append(Arrival(at_ms=at_ms, host_id=host_id))
            else:
                spares.append(host_id)
        return sorted(first), spares, arrivals

    def _was_out(self, host: Mapping[str, Any]) -> bool:
        """Say whether a host has been cordoned since before the submission."""
        since_ms = host.get("cordoned_at_ms")
        if host.get("state") != "cordoned" or since_ms is None:
            return False
        return int(since_ms) <= self._submitted_ms

    def _out_ms(self, host_id: str, at_ms: int) -> int | None:
        """Return how long a host was away that broke at a moment; None if it was not back.

        A job that waited took it as soon as it could serve; else it was back by its newest start,
        at the latest when it was given a seat again.
        """
        taken = [
            one
            for one in self._attempts
            if host_id in one.replacements and (one.placed_at_ms or 0) > at_ms
        ]
        known = [one.placed_at_ms for one in taken[:1] if one.placed_at_ms is not None]
        host: Mapping[str, Any] = self._hosts.get(host_id, {})
        joined_ms = int(host.get("joined_at_ms") or 0)
        waited_for = bool(taken) and taken[0].waiting_ms > 0
        if joined_ms > at_ms and host.get("state") not in ("cordoned", "left") and not waited_for:
            known.append(joined_ms)
        return min(known) - at_ms if known else None
