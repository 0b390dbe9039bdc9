"""Runs a campaign against a job: strikes when it is time, until the job has ended.

What ranks do to themselves goes into the job's environment before it is launched, and is known of
afterwards by the marks they leave; everything else the hand does from outside.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final

import msgspec

from everstep.chaos.campaign import Campaign, Planned
from everstep.chaos.deadline import Deadline
from everstep.chaos.hand import Appointment, Hand
from everstep.chaos.kinds import By, Whom
from everstep.chaos.truth import Done
from everstep.cli.client import Client
from everstep.cli.position import ENDED
from everstep.core.errors import (
    EverstepError,
    InvalidInput,
    NotFoundError,
    RefusedError,
    Unavailable,
)
from everstep.core.system import Clock
from everstep.faults.kinds import MARKS_VARIABLE, WRONG, Flip, as_environment
from everstep.local import launch
from everstep.local.state import Stack, StatePaths

POLL_S: Final = 0.1  # steps take about a second
TRIES_MS: Final = 60_000  # a fault that cannot be done now is tried as long as a recovery takes
LOOK_TIMEOUT_MS: Final = 120_000  # for the last incident to be settled when a job has ended
MARKS: Final = "chaos"  # below the stack's directory: what has struck, one directory a job

CAMPAIGN_IS_WRONG: Final = "the campaign is wrong"

Say = Callable[[str], None]


@dataclass(slots=True, kw_only=True)
class Watched:
    """What is known of a job while faults meet it."""

    step: int = -1  # the newest that was ever seen
    begun_ms: float | None = None  # when the first was seen, by the monotonic clock
    phase: str = ""


@dataclass(slots=True, kw_only=True)
class Performed:
    """What came of a campaign."""

    job: Mapping[str, Any]
    done: list[Done] = field(default_factory=list)
    missed: dict[int, str] = field(default_factory=dict)  # fault -> why it did not strike
    problems: list[str] = field(default_factory=list)


def require_chaos(paths: StatePaths) -> Stack:
    """Return the stack.

    Raises:
        RefusedError: it was not started for chaos.
    """
    stack = launch.require_stack(paths)
    if not stack.chaos:
        raise RefusedError(
            "not_for_chaos",
            f"the stack in {paths.root} takes no faults: `everstep down` and then "
            "`everstep up --chaos` start it so; its data and jobs stay",
        )
    return stack


def marks_of(paths: StatePaths) -> Path:
    """Return where ranks note what has struck."""
    return paths.root / MARKS


def with_faults(spec: dict[str, Any], campaign: Campaign, marks: Path) -> dict[str, Any]:
    """Return a job spec whose ranks carry out their part of a campaign."""
    faults = [one.as_fault() for one in campaign.faults if one.kind.by is By.RANK]
    if not faults:
        return spec
    told = {**as_environment(*faults), MARKS_VARIABLE: str(marks)}
    return {**spec, "env": {**spec.get("env", {}), **told}}


def require_outside(campaign: Campaign) -> None:
    """Refuse faults that a job must be launched with. Raises InvalidInput."""
    inside = sorted({one.kind.name for one in campaign.faults if one.kind.by is By.RANK})
    if inside:
        raise InvalidInput(
            f"a job that runs already cannot be made to {', '.join(inside)}: ranks are told of "
            "that at their start; give the job's spec with --spec instead of --job"
        )


class Performance:
    """One campaign on one job."""

    def __init__(
        self, hand: Hand, campaign: Campaign, marks: Path, *, say: Say, deadline: Deadline
    ) -> None:
        self._hand = hand
        self._client: Client = hand.client
        self._job_id = hand.job_id
        self._clock: Clock = hand.clock
        self._campaign = campaign
        self._marks = marks / hand.job_id
        self._say = say
        self._deadline = deadline
        self._told: set[str] = set()  # marks that were spoken of
        self._seen = Watched()
        self._waiting = [one for one in campaign.faults if one.kind.by is By.STACK]
        self._since_ms: dict[int, float] = {}  # fault -> when it was first due
        self._later: list[tuple[float, Appointment]] = []
        self._result = Performed(job={})

    def run(self) -> Performed:
        """Strike until the job has ended; whatever lasts is ended in any case.

        Raises:
            TimedOut: the job does not end in time.
        """
        try:
            while not self._ended():
                self._keep_appointments()
                self._strike_what_is_due()
                self._tell_marks()
                at = f"at step {self._seen.step}" if self._seen.step >= 0 else "at no step yet"
                phase = self._seen.phase or "not heard of"
                self._deadline.require(f"job {self._job_id} is {phase}, {at}")
                time.sleep(POLL_S)
        finally:
            self._attempt("healing", self._hand.heal)
        self._collect_marks()
        for planned in self._waiting:
            self._result.missed.setdefault(planned.number, "the job ended before")
        self._wait_settled()
        return self._result

    def _ended(self) -> bool:
        """Look at the job; what does not answer is asked again."""
        seen, client = self._seen, self._client
        try:
            self._result.job = client.job(self._job_id)
            seen.phase = str(self._result.job["phase"])
            found = client.metrics(self._job_id, after_step=seen.step, limit=1_000)
        except NotFoundError:  # the monitor has not heard of the job yet
            return seen.phase in ENDED
        except Unavailable:
            return False
        if found:
            seen.step = max(int(point["step"]) for point in found)
            if seen.begun_ms is None:
                seen.begun_ms = self._clock.monotonic_ms()
        return seen.phase in ENDED

    def _strike_what_is_due(self) -> None:
        for planned in [one for one in self._waiting if self._is_due(one)]:
            now_ms = self._clock.monotonic_ms()
            since_ms = self._since_ms.setdefault(planned.number, now_ms)
            try:
                struck = self._hand.strike(planned)
            except EverstepError as error:
                if isinstance(error, InvalidInput):
                    error = InvalidInput(f"{CAMPAIGN_IS_WRONG}: {error}")
                if isinstance(error, InvalidInput) or now_ms - since_ms > TRIES_MS:
                    self._waiting.remove(planned)
                    self._result.missed[planned.number] = str(error)
                    self._say(f"{planned}: could not be done: {error}")
                continue
            self._waiting.remove(planned)
            self._result.done.append(struck.done)
            self._put_down(struck.later)
            where = f" on {', '.join(struck.done.hosts)}" if struck.done.hosts else ""
            self._say(f"step {self._seen.step}: {planned}{where}")

    def _is_due(self, planned: Planned) -> bool:
        seen = self._seen
        if planned.at_step >= 0:
            return seen.step >= planned.at_step
        if seen.begun_ms is None:
            return False
        return self._clock.monotonic_ms() - seen.begun_ms >= planned.after_s * 1_000

    def _put_down(self, later: tuple[Appointment, ...]) -> None:
        now_ms = self._clock.monotonic_ms()
        self._later += [(now_ms + one.in_s * 1_000, one) for one in later]

    def _keep_appointments(self) -> None:
        now_ms = self._clock.monotonic_ms()
        due = [one for one in self._later if one[0] <= now_ms]
        self._later = [one for one in self._later if one[0] > now_ms]
        for _, appointment in due:
            self._say(appointment.what)
            self._attempt(appointment.what, partial(self._keep, appointment))

    def _keep(self, appointment: Appointment) -> None:
        self._put_down(tuple(appointment.act()))

    def _attempt(self, what: str, act: Callable[[], object]) -> None:
        try:
            act()
        except EverstepError as error:
            self._result.problems.append(f"{what}: {error}")
            self._say(f"{what}: {error}")

    def _tell_marks(self) -> None:
        """Say what ranks have done to themselves since the last look."""
        for path in self._mark_files():
            if path.name in self._told:
                continue
            self._told.add(path.name)
            said = msgspec.json.decode(path.read_bytes())
            fault = said["fault"]
            what = f"rank {said['rank']} on {said['host']}: {fault['type']} at step {fault['step']}"
            wrong = f": {CAMPAIGN_IS_WRONG}: {said[WRONG]}" if WRONG in said else ""
            self._say(f"{what}{wrong}")

    def _mark_files(self) -> list[Path]:
        """Return those that are whole: one that is being written has a dot before its name."""
        return sorted(one for one in self._marks.glob("*.json") if not one.name.startswith("."))

    def _collect_marks(self) -> None:
        """Learn from the ranks' marks what they have done to themselves."""
        found = [msgspec.json.decode(path.read_bytes()) for path in self._mark_files()]
        marks = [one for one in found if WRONG not in one]
        wrong = [one for one in found if WRONG in one]
        for planned in self._campaign.faults:
            if planned.kind.by is not By.RANK:
                continue
            fault = planned.as_fault()
            first_of = fault.each()[0] if isinstance(fault, Flip) else fault
            wanted = msgspec.to_builtins(first_of)
            mine = [one for one in marks if one["fault"] == wanted]
            if not mine:
                impossible = [one[WRONG] for one in wrong if one["fault"] == wanted]
                self._result.missed[planned.number] = (
                    f"{CAMPAIGN_IS_WRONG}: {impossible[0]}" if impossible else "no rank came to it"
                )
                continue
            first = min(mine, key=lambda one: (one["at_ms"], one["rank"] != planned.rank))
            named = next((one for one in mine if one["rank"] == planned.rank), first)
            known = {"fault", "rank", "at_ms", "host", "generation"}
            self._result.done.append(
                Done(
                    number=planned.number,
                    kind=planned.kind.name,
                    right=planned.kind.right,
                    at_ms=first["at_ms"],
                    rank=planned.rank if planned.kind.whom is Whom.RANK else -1,
                    hosts=(named["host"],) if planned.kind.whom is Whom.RANK else (),
                    details={
                        **planned.options,
                        **{name: value for name, value in first.items() if name not in known},
                    },
                )
            )

    def _wait_settled(self) -> None:
        """Wait until the monitor, too, knows that all is over."""
        deadline_ms = self._clock.monotonic_ms() + LOOK_TIMEOUT_MS
        problem = ""
        while self._clock.monotonic_ms() < deadline_ms and not self._deadline.passed:
            try:
                self._client.goodput(self._job_id)  # which is there once it has heard of the job
                incidents = self._client.incidents(self._job_id)
            except (Unavailable, NotFoundError) as error:
                problem = str(error)
            else:
                if all(one["recovered_at_ms"] or one["closed_at_ms"] for one in incidents):
                    return
                problem = "an incident is still open"
            time.sleep(POLL_S)
        self._result.problems.append(problem or "there was no time to see how incidents ended")
