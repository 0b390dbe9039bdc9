"""Follows a job: asks the services in turn and hands what is new to a view.

Services may be killed or fail while we look; training goes on without them, so the follower says so
and keeps asking. It gives up only when nobody has answered for a long time.
"""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from everstep.cli.position import ENDED, is_present, newest_point, restored_step
from everstep.core.errors import EverstepError, NotFoundError, Unavailable

POLL_S: Final = 0.5  # steps of a small job take about a second
SILENCE_S_MAX: Final = 90.0  # longer than any restart of the control plane
RECENT_POINTS: Final = 20  # over which tokens/s is measured
# Asked for in one look: more than half a second's steps. After a restart's step the curve has the
# present steps first, so that those which it has gone back over never fill an answer.
POINTS_MAX: Final = 1_000
METRICS_GRACE_S: Final = 5.0  # the last steps' metrics may come after the job's end


class Source(Protocol):
    """What the follower asks; ``cli.client.Client`` is one."""

    def job(self, job_id: str) -> dict[str, Any]:
        """Return the job."""
        ...

    def metrics(self, job_id: str, *, after_step: int, limit: int) -> list[dict[str, Any]]:
        """Return newer steps, the oldest first."""
        ...

    def incidents(self, job_id: str) -> list[dict[str, Any]]:
        """Return the job's incidents."""
        ...

    def goodput(self, job_id: str) -> dict[str, Any]:
        """Return where the time went."""
        ...


@dataclass(slots=True)
class Seen:
    """All that is known of a job by now."""

    job: dict[str, Any]
    recent: deque[dict[str, Any]] = field(default_factory=lambda: deque(maxlen=RECENT_POINTS))
    fresh: list[dict[str, Any]] = field(default_factory=list)  # points new in this round
    incidents: list[dict[str, Any]] = field(default_factory=list)
    goodput: dict[str, Any] = field(default_factory=lambda: {"wall_ms": 0, "causes": {}})
    trouble: str = ""

    @property
    def ended(self) -> bool:
        """Whether the job is over."""
        return self.job["phase"] in ENDED

    @property
    def last(self) -> dict[str, Any] | None:
        """The newest step's values."""
        return self.recent[-1] if self.recent else None

    @property
    def tokens_per_s(self) -> float:
        """Throughput over the recent steps of the newest generation; 0 when unknown."""
        last = self.last
        if last is None:
            return 0.0
        same = [p for p in self.recent if p["generation"] == last["generation"]]
        span_ms = same[-1]["completed_at_ms"] - same[0]["completed_at_ms"]
        return 1000 * sum(p["tokens"] for p in same[1:]) / span_ms if span_ms > 0 else 0.0


class View(Protocol):
    """Shows a job."""

    def show(self, seen: Seen) -> None:
        """Show what is known now."""
        ...


class Follower:
    """One job's state as it changes."""

    def __init__(
        self,
        source: Source,
        job_id: str,
        *,
        poll_s: float = POLL_S,
        silence_s_max: float = SILENCE_S_MAX,
    ) -> None:
        self._source = source
        self._job_id = job_id
        self._poll_s = poll_s
        self._silence_s_max = silence_s_max
        self._seen: Seen | None = None
        self._placed = False  # whether the first look at the curve has been

    def look(self) -> Seen:
        """Ask once.

        Raises:
            NotFoundError: there is no such job.
            EverstepError: the controller has never answered, or not with a job.
        """
        seen = self._seen
        try:
            job = self._source.job(self._job_id)
            trouble = ""
        except NotFoundError:
            raise
        except EverstepError as error:
            if seen is None:
                raise
            job, trouble = seen.job, f"{error}; training goes on without it"
        seen = self._seen = seen or Seen(job=job)
        seen.job, seen.trouble, seen.fresh = job, trouble, []
        try:
            self._ask_monitor(seen)
        except NotFoundError:
            pass  # the monitor has not heard of the job yet
        except EverstepError as error:
            seen.trouble = seen.trouble or f"{error}; training goes on without it"
        return seen

    def _ask_monitor(self, seen: Seen) -> None:
        self._drop_abandoned(seen)
        found = self._source.metrics(
            self._job_id, after_step=self._newest_step(seen), limit=POINTS_MAX
        )
        self._placed = True
        seen.fresh = [point for point in found if is_present(point, seen.job)]
        seen.recent.extend(seen.fresh)
        seen.incidents = self._source.incidents(self._job_id)
        seen.goodput = self._source.goodput(self._job_id)

    def _drop_abandoned(self, seen: Seen) -> None:
        """Forget steps that a restart has gone back over since the last look."""
        present = [point for point in seen.recent if is_present(point, seen.job)]
        if len(present) < len(seen.recent):
            seen.recent.clear()
            seen.recent.extend(present)

    def _newest_step(self, seen: Seen) -> int:
        """Return the step after which the curve is to be read on."""
        if seen.last is not None:
            return int(seen.last["step"])
        if self._placed:
            return restored_step(seen.job) - 1
        newest = newest_point(self._source, seen.job)  # of a job that may have run for weeks
        return max(-1, int(newest["step"]) - RECENT_POINTS) if newest is not None else -1

    def follow(self, view: View) -> dict[str, Any]:
        """Show the job until it ends; return it.

        Raises:
            Unavailable: nobody answered for ``silence_s_max``.
        """
        silent_since_s: float | None = None
        while True:
            seen = self.look()
            view.show(seen)
            if seen.ended:
                self._wait_last_step(seen, view)
                return seen.job
            if not seen.trouble:
                silent_since_s = None
            elif silent_since_s is None:
                silent_since_s = time.monotonic()
            elif time.monotonic() - silent_since_s > self._silence_s_max:
                raise Unavailable(seen.trouble)
            time.sleep(self._poll_s)

    def _wait_last_step(self, seen: Seen, view: View) -> None:
        deadline_s = time.monotonic() + METRICS_GRACE_S
        while time.monotonic() < deadline_s:
            if (seen.last["step"] if seen.last is not None else 0) >= seen.job["step"]:
                return
            time.sleep(self._poll_s)
            seen = self.look()
            view.show(seen)
