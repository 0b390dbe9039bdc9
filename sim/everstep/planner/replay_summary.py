"""A replayed history as tables for people and as values for programs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from everstep.monitor.ledger import Cause
from everstep.planner import summary
from everstep.planner.history import History
from everstep.planner.quantities import SHARE, TIME
from everstep.planner.replay import Replayed
from everstep.planner.replay_confidence import FAILURES_MIN, Saving
from everstep.planner.replay_policy import Policy
from everstep.planner.summary import Table, percent
from everstep.planner.sweep import Axis

CAUSES: Final = {
    **summary.CAUSES,
    Cause.DATA_WAIT.value: "waits for data",
    Cause.VERIFICATION.value: "steps run twice as a check",
    Cause.DEGRADED.value: "replicas that were missing",
    Cause.WAITING_FOR_HOSTS.value: "waits for hosts",
    Cause.PAUSED.value: "paused",
    Cause.STARTUP.value: "start-up",
}
ASSUMED: Final = (
    "Assumed: hosts and processes break, and hosts are back, when they were, whatever the policy; "
    "hosts that the record never had break as often as its own."
)
REACHING: Final = (
    "A wait for hosts reaches over several failures, which the interval takes for independent: it "
    "is too narrow."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """A record, its own policy replayed, another policy replayed, and what that saves."""

    history: History
    policy: Policy
    before: Replayed
    after: Replayed
    saving: Saving

    @property
    def error(self) -> float:
        """Return how far the replay of what was done is from what was measured, of goodput."""
        return self.before.goodput - self.history.goodput


def replay_tables(compared: Compared) -> tuple[Table, ...]:
    """Return everything a person reads, the answer first."""
    return (_answer(compared), _causes(compared))


def replay_sweep_table(axis: Axis, points: Sequence[tuple[float, Compared]]) -> Table:
    """Return a line a value of one option."""
    first = points[0][1]
    return Table(
        title=f"{first.history.job_id} with other values of --{axis.name}",
        columns=(axis.name.upper(), "GOODPUT", "SAVED", "OF GOODPUT", "95 %"),
        rows=tuple(
            (
                axis.text(value),
                percent(one.after.goodput),
                _signed(one.saving.saved_ms),
                _points(one.saving.share),
                _interval(one.saving) or "-",
            )
            for value, one in points
        ),
        note=_note(first),
    )


def replay_json(compared: Compared) -> dict[str, Any]:
    """Return everything for programs; times in milliseconds, shares of 1."""
    history, saving = compared.history, compared.saving
    return {
        "job_id": history.job_id,
        "policy": {name: v for name, v in asdict(compared.policy).items() if v is not None},
        "history": {
            **{
                name: value
                for name, value in asdict(history).items()
                if name not in ("job_id", "measured", "notes", "untold")
            },
            "goodput": history.goodput,
        },
        "taken_in": course_counts(history),
        "not_accounted": list(history.untold),
        "causes_ms": {
            "measured": dict(history.measured),
            "replayed": dict(compared.before.causes),
            "policy": dict(compared.after.causes),
        },
        "goodput": {
            "measured": history.goodput,
            "replayed": compared.before.goodput,
            "policy": compared.after.goodput,
        },
        "model_error": compared.error,
        "restarts": {"replayed": compared.before.stops, "policy": compared.after.stops},
        "saved_ms": saving.saved_ms,
        "saved_ms_low": _ms(saving.share_low, history),
        "saved_ms_high": _ms(saving.share_high, history),
        "saved_share": saving.share,
        "saved_share_low": saving.share_low,
        "saved_share_high": saving.share_high,
        "resamples": saving.resamples,
        "assumed": [ASSUMED, *([REACHING] if _reaches(compared) else []), *history.notes],
    }


def _answer(compared: Compared) -> Table:
    history, saving = compared.history, compared.saving
    size = f"{_count(len(history.hosts), 'host')} and {_count(len(history.spares), 'spare')}"
    step = f"steps of {TIME.text(history.step_ms / 1e3)}"
    shares = f"{percent(compared.before.goodput)} replayed, {percent(history.goodput)} measured"
    rows = [
        (
            "record",
            TIME.text(history.wall_ms / 1e3),
            f"{_count(len(history.unplanned), 'failure')}, {size}, {step}",
        ),
        ("model's own error", _points(compared.error), f"of goodput as it was: {shares}"),
    ]
    taken_in = _taken_in(compared)
    if taken_in:
        rows.insert(1, ("also in it", "", taken_in))
    told = _policy(compared.policy)
    if told:
        low, high = (_ms(share, history) for share in (saving.share_low, saving.share_high))
        sure = (
            f"no interval: it takes {FAILURES_MIN} failures, here are {len(history.unplanned)}"
            if low is None or high is None
            else f"95 %: {_signed(low)} to {_signed(high)}"
        )
        interval = _interval(saving)
        rows = [
            ("policy", told, "the rest as it was"),
            ("saved", _signed(saving.saved_ms), sure),
            (
                "goodput", percent(compared.after.goodput),
                _points(saving.share) + (f" (95 %: {interval})" if interval else ""),
            ),
            *rows,
        ]  # fmt: skip
    return Table(
        title=f"What another policy would have made of {history.job_id}"
        if told
        else f"The record of {history.job_id}",
        columns=("WHAT", "VALUE", ""),
        rows=tuple(rows),
    )


def _taken_in(compared: Compared) -> str:
    """Say what of the run's course the replay takes as it was, beside failures."""
    counts = course_counts(compared.history)
    words = {
        "interval_changes": "change of the interval|changes of the interval",
        "rollbacks": "rollback|rollbacks",
        "drains": "drain|drains",
        "pauses": "pause|pauses",
        "begun_again": "begun again once|begun again {} times",
    }
    told = []
    for name, both in words.items():
        one, many = both.split("|")
        count = counts[name]
        if name == "begun_again" and count:
            told.append(one if count == 1 else many.format(count))
        elif count:
            told.append(f"{count} {one if count == 1 else many}")
    if counts["interval_changes"] and compared.policy.interval_ms is not None:
        told.append("of the changes only those of the object store's, for --interval is given")
    return ", ".join(told)


def course_counts(history: History) -> dict[str, int]:
    """Count what of a run's course a replay takes as it was, beside failures."""
    kinds = Counter(failure.kind for failure in history.failures)
    return {
        "interval_changes": len(history.cadences),
        "rollbacks": sum(failure.rollback for failure in history.failures),
        "drains": kinds["drain"],
        "pauses": kinds["pause"],
        "begun_again": sum(
            failure.kind in {"stop", "restart"} and failure.paused_ms > 0
            for failure in history.failures
        ),
    }


def _causes(compared: Compared) -> Table:
    measured, before, after = (
        compared.history.measured, compared.before.causes, compared.after.causes,
    )  # fmt: skip
    changed = compared.after is not compared.before
    rows = []
    order = [*CAUSES, *sorted({*measured, *before} - set(CAUSES))]
    for cause in order:
        values = [measured.get(cause, 0), before.get(cause, 0), after.get(cause, 0)]
        if not any(values):
            continue
        cells = [TIME.text(ms / 1e3) for ms in values[: 2 + changed]]
        rows.append(
            (
                CAUSES.get(cause, cause),
                *cells,
                *((_signed(values[2] - values[1]),) if changed else ()),
            )
        )
    return Table(
        title="Where the wall time goes",
        columns=(
            "CAUSE", "MEASURED", "REPLAYED", *(("WITH THE POLICY", "DIFFERENCE") if changed else ())
        ),
        rows=tuple(rows),
        note=_note(compared),
    )  # fmt: skip


def _policy(policy: Policy) -> str:
    """Return what is changed, in the words of the options."""
    times = {
        "interval": policy.interval_ms,
        "restart": policy.restart_ms,
        "detection": policy.detection_ms,
        "repair": policy.repair_ms,
    }
    told = [f"{name} {TIME.text(ms / 1e3)}" for name, ms in times.items() if ms is not None]
    if policy.spares is not None:
        told.append(_count(policy.spares, "spare"))
    if policy.straggler_share is not None:
        told.append(f"straggler threshold {SHARE.text(policy.straggler_share)}")
    if policy.no_spare is not None:
        told.append(f"no spare: {policy.no_spare}")
    return ", ".join(told)


def _count(number: int, word: str) -> str:
    return f"{number} {word}" if number == 1 else f"{number} {word}s"


def _note(compared: Compared) -> str:
    sentences = [f"{note[0].upper()}{note[1:]}." for note in compared.history.notes]
    untold = "; ".join(compared.history.untold)
    sentences += [f"Not accounted for: {untold}."] if untold else []
    return " ".join([ASSUMED, *([REACHING] if _reaches(compared) else []), *sentences])


def _reaches(compared: Compared) -> bool:
    """Say whether the saving is one of waits, which reach over several failures."""
    waited = [
        one.causes[Cause.WAITING_FOR_HOSTS] + one.causes[Cause.DEGRADED]
        for one in (compared.before, compared.after)
    ]
    return compared.saving.resamples > 0 and waited[0] != waited[1]


def _ms(share: float | None, history: History) -> int | None:
    return None if share is None else round(share * history.wall_ms)


def _interval(saving: Saving) -> str:
    if saving.share_low is None or saving.share_high is None:
        return ""
    low, high = (_points(share) for share in (saving.share_low, saving.share_high))
    return f"{low.removesuffix(' points')} to {high}"


def _points(share: float) -> str:
    """Return a difference of goodput in points of a percent."""
    points = 100 * share
    return f"{points:+.2f} points" if abs(points) >= 0.01 else f"{points:+.2g} points"


def _signed(ms: float) -> str:
    sign = "-" if ms < 0 else "+" if ms > 0 else ""
    return f"{sign}{TIME.text(abs(ms) / 1e3)}"
