"""Says when the loss has jumped and stays up, and when gradients are not finite again and again.

A point is measured against the sound points before it: robust deviations (z) of the log of the
loss, and of the gradient's norm, from their median, with the median absolute deviation for a scale
(PaLM, arXiv:2204.02311, section 5.1, skips batches by eye; BLOOM's chronicles tell of a norm that
rose four-thousandfold and healed by itself). So a single point decides nothing: a hard batch is
over with its step, a bad state raises every loss after it. Points that stand out are left out of
the window, or a spike would soon look usual.

While the loss falls steeply, the fall is in the window's deviation, and even twice the loss would
pass. So a point is also measured against the newest points alone: from their median, with the
deviation from a line through them for a scale. The larger of the two counts: the long window sees
what creeps up, the short one what jumps during the fall.

Which state is bad and which batch made it so? The loss of step s is that of batch s on the state
that step s - 1 left behind. When the first raised loss is at step s, either batch s is bad itself,
or the update of step s - 1 was: both batches are suspect, and every state from s - 1 on.

Rejected: a limit on the loss itself (nobody knows it beforehand), the mean and its deviation (one
spike raises both), and a norm's own spikes as a reason to go back: they are common and harmless.
"""

from __future__ import annotations

import math
from enum import StrEnum
from statistics import median
from typing import Final

from everstep.core.corrections import PositionRange
from everstep.core.record import Record, changed
from everstep.monitor.events import Action, NumericsRules

SCALE: Final = 1.4826  # of a normal distribution's median absolute deviation to its deviation
# Of the log of a loss: half a per cent, so that 6 deviations are at least 3 %. A loss that hardly
# scatters (a large batch, late in a run) would otherwise be judged by its last digits.
LOSS_SIGMA_MIN: Final = 0.005
# A loss that is smaller is a model that has learnt all there is: what is left is rounding (float32
# has 1e-7 of 1), and its logarithm jumps about.
LOSS_LEAST: Final = 1e-6
NORM_SIGMA_MIN: Final = 0.05  # norms scatter by tens of per cent; chosen ten times the loss's
# The newest points, and those of them that say what the loss is just now: their median lags behind
# a fall by half of them, so that a fall that ends is no rise. Of losses that hang together over
# twenty steps (correlation 0.95), 48 points gave 6 false alarms in 10,000 steps, 64 none.
RECENT_STEPS: Final = 64
LEVEL_STEPS: Final = 16
LEAST_POINTS: Final = 4  # three have a median deviation that says nothing
TINY: Final = 1e-12  # a loss that has been exactly 0 all along has no scale


class Kind(StrEnum):
    """What was found."""

    STEP_SKIPPED = "step_skipped"
    NON_FINITE = "non_finite"
    LOSS_SPIKE = "loss_spike"


class Point(Record, frozen=True, kw_only=True):
    """One step of the whole run; ``ranks`` are those whose own gradient or loss was not finite."""

    step: int
    position: int
    loss: float
    grad_norm: float
    skipped: bool = False
    step_time_ms: float = 0.0
    at_ms: int = 0
    ranks: tuple[int, ...] = ()


class Sound(Record, frozen=True, kw_only=True):
    """A point that counts as usual; ``position`` is None where an older version kept it."""

    step: int
    loss: float
    norm: float
    position: int | None = None


class Course(Record, frozen=True, kw_only=True):
    """What is remembered of a run: the window, and the row of odd points that it ends with."""

    window: tuple[Sound, ...] = ()
    raised: tuple[Point, ...] = ()
    skipped: tuple[Point, ...] = ()
    judged: bool = False  # in this generation: what follows is the same trouble


class Found(Record, frozen=True, kw_only=True):
    """The numbers have gone wrong; ``IncidentOpened`` says what the fields are."""

    kind: Kind
    action: Action
    step: int
    failed_at_ms: int
    reason: str
    ranks: tuple[int, ...] = ()
    suspect_from_step: int = 0
    skipped: tuple[PositionRange, ...] = ()


class Settled(Record, frozen=True, kw_only=True):
    """What was noted is over; its steps were for nothing."""

    kind: Kind
    step: int
    lost_steps: int = 0
    lost_ms: int = 0


def resumed(course: Course, step: int) -> Course:
    """Return what is remembered once the run goes on from ``step``: nothing that it undid."""
    kept = tuple(sound for sound in course.window if sound.step <= step)
    return Course(window=kept)


def follow(
    course: Course, point: Point, rules: NumericsRules
) -> tuple[Course, tuple[Found | Settled, ...]]:
    """Take the next point, in the order of steps.

    Args:
        course: from the points before it.
        point: of a step that all ranks have made.
        rules: of the job.

    Returns:
        What to remember, and what is to be said now: at most one thing that has begun, and one
        that is over.
    """
    if point.skipped:
        return _skipped(course, point, rules)
    over = _settled(course.skipped, Kind.STEP_SKIPPED, point.step)
    course = changed(course, skipped=())
    if rules.on_spike == "off" or not math.isfinite(point.loss):
        return changed(course, raised=()), over
    loss, norm = _deviations(course, point, rules)
    if not _stands_out(loss, norm, rules):
        noted = course.judged and rules.on_spike == "note" and bool(course.raised)
        if noted:
            over = (*over, Settled(kind=Kind.LOSS_SPIKE, step=point.step))
        window = (*course.window, _sound(point))[-rules.window_steps :]
        judged = course.judged and not noted
        return changed(course, window=window, raised=(), judged=judged), over
    raised = (*course.raised, point)
    course = changed(course, raised=raised)
    if rules.on_spike == "note" and len(raised) >= rules.window_steps:  # this is usual by now
        usual = tuple(_sound(one) for one in raised)
        return Course(window=usual), (*over, Settled(kind=Kind.LOSS_SPIKE, step=point.step))
    if course.judged or len(raised) < rules.spike_steps:
        return course, over
    spike = _spike(course, point, rules, loss=loss, norm=norm)
    return changed(course, judged=True), (*over, spike)


def filled(course: Course, point: Point, rules: NumericsRules) -> Course:
    """Take a point that was passed over and is told now: later ones are measured against it.

    It decides nothing any more, and is left out if it stands out from those before it.
    """
    if point.skipped or rules.on_spike == "off" or not math.isfinite(point.loss):
        return course
    before = tuple(sound for sound in course.window if sound.step < point.step)
    loss, norm = _deviations(changed(course, window=before), point, rules)
    if _stands_out(loss, norm, rules):
        return course
    after = course.window[len(before) :]
    return changed(course, window=(*before, _sound(point), *after)[-rules.window_steps :])


def _skipped(
    course: Course, point: Point, rules: NumericsRules
) -> tuple[Course, tuple[Found | Settled, ...]]:
    row = (*course.skipped, point)[-rules.window_steps :]
    first = not course.skipped
    course = changed(course, skipped=row)
    if course.judged or rules.on_spike != "roll_back" or len(row) < rules.non_finite_steps:
        return course, (_note(point),) if first else ()
    begun = row[0]
    found = Found(
        kind=Kind.NON_FINITE,
        action=Action.ROLL_BACK,
        step=point.step,
        failed_at_ms=begun.at_ms,
        ranks=_ranks(row),
        suspect_from_step=_suspect_from(begun, rules),
        skipped=_range(course.window, begun, point, rules),
        reason=f"gradients were not finite at {len(row)} steps in a row, {begun.step} to "
        f"{point.step} ({_whose(_ranks(row))}): no single batch does that",
    )
    return changed(course, judged=True), (found,)


def _note(point: Point) -> Found:
    return Found(
        kind=Kind.STEP_SKIPPED,
        action=Action.NOTE,
        step=point.step,
        failed_at_ms=point.at_ms,
        ranks=point.ranks,
        reason=f"the gradient of step {point.step} (batch {point.position}) was not finite "
        f"({_whose(point.ranks)}): every rank has left its update out",
    )


def _spike(
    course: Course, point: Point, rules: NumericsRules, *, loss: _Height, norm: _Height
) -> Found:
    early = _too_early(course.window, rules)
    unseen = max(0, course.raised[0].step - course.window[-1 - early].step - 1)
    onset = _earlier(course.raised[0], unseen)
    back = rules.on_spike == "roll_back"
    count = f"{len(course.raised)} steps in a row"
    what = "came too early to be measured" if early else "were not seen"
    after = f" after {unseen} that {what}" if unseen else ""
    return Found(
        kind=Kind.LOSS_SPIKE,
        action=Action.ROLL_BACK if back else Action.NOTE,
        step=point.step,
        failed_at_ms=onset.at_ms,
        suspect_from_step=_suspect_from(onset, rules) if back else 0,
        skipped=_range(course.window, onset, point, rules),
        reason=f"the loss has been raised since step {onset.step}, {count}{after}: "
        f"{point.loss:.4g} at step {point.step} is {loss.z:.1f} robust deviations above "
        f"{loss.usual:.4g}, {loss.measure}; the gradient's norm "
        f"{point.grad_norm:.3g} is {norm.z:.1f} off",
    )


def _too_early(window: tuple[Sound, ...], rules: NumericsRules) -> int:
    """Return how many of the newest sound points stand out from those before them.

    They came when there were too few to measure them by, as after a monitor's start.
    """
    found = 0
    while len(window) - found > LEAST_POINTS:
        before = [sound.loss for sound in window[: len(window) - found - 1]]
        if _height(window[-1 - found].loss, before, LOSS_SIGMA_MIN).z <= rules.loss_z:
            break
        found += 1
    return found


def _earlier(point: Point, steps: int) -> Point:
    """Return where the trouble may have begun: at the first step that nobody has seen."""
    return changed(point, step=point.step - steps, position=max(0, point.position - steps))


def _settled(row: tuple[Point, ...], kind: Kind, step: int) -> tuple[Settled, ...]:
    if not row:
        return ()
    lost_ms = round(sum(point.step_time_ms for point in row))
    return (Settled(kind=kind, step=step, lost_steps=len(row), lost_ms=lost_ms),)


class _Height(Record, frozen=True, kw_only=True):
    """How far a value is above what is usual: robust deviations.

    Usual is the median of the newest ``count`` steps; how much they deviate is known from ``of``.
    """

    z: float = 0.0
    usual: float = 0.0
    count: int = 0
    of: int = 0

    @property
    def measure(self) -> str:
        """What it is measured against, for a person."""
        if self.count == self.of:
            return f"the median of {self.count} sound steps, by their deviation from it"
        line = f"by the deviation of {self.of} from a line through them"
        return f"the median of the newest {self.count} sound steps, {line}"


def _deviations(course: Course, point: Point, rules: NumericsRules) -> tuple[_Height, _Height]:
    """Return how far the loss and the norm are above the window's."""
    if len(course.window) < rules.window_steps_min:
        return _Height(), _Height()
    losses = [_told_apart(sound.loss) for sound in course.window]
    return (
        _height(_told_apart(point.loss), losses, LOSS_SIGMA_MIN),
        _height(point.grad_norm, [sound.norm for sound in course.window], NORM_SIGMA_MIN),
    )


def _stands_out(loss: _Height, norm: _Height, rules: NumericsRules) -> bool:
    with_norm = norm.z > rules.norm_z and loss.z > rules.loss_z_with_norm
    return loss.z > rules.loss_z or with_norm


def _told_apart(loss: float) -> float:
    return max(loss, LOSS_LEAST) if loss > 0 else loss


def _height(value: float, window: list[float], sigma_min: float) -> _Height:
    """Return the robust deviations of ``value``, by logarithms where everything is positive.

    A loss that may be negative (some objectives are) is measured as it is; ``sigma_min`` is a share
    of its size then.
    """
    logs = value > 0 and min(window) > 0
    if logs:
        value, window = math.log(value), [math.log(one) for one in window]
    else:
        sigma_min *= abs(median(window))
    recent = window[-RECENT_STEPS:]
    heights = (
        _above(value, window, window, sigma_min),
        _above(value, recent[-LEVEL_STEPS:], _straightened(recent), sigma_min),
    )
    highest = max(heights, key=lambda height: height.z)
    return changed(highest, usual=math.exp(highest.usual)) if logs else highest


def _above(value: float, level: list[float], around: list[float], sigma_min: float) -> _Height:
    """Return how far a value is above a level, in deviations of the values around it."""
    usual = median(level)
    z = (value - usual) / max(_scatter(around), sigma_min, TINY)
    return _Height(z=z, usual=usual, count=len(level), of=len(around))


def _scatter(values: list[float]) -> float:
    middle = median(values)
    return SCALE * median(abs(one - middle) for one in values)


def _straightened(values: list[float]) -> list[float]:
    """Return values less the slope of a line through the medians of their outer thirds.

    Source: J. W. Tukey, Exploratory Data Analysis (1977), chapter 5: the resistant line.
    """
    third = len(values) // 3
    if not third:
        return values
    slope = (median(values[-third:]) - median(values[:third])) / (len(values) - third)
    return [value - slope * i for i, value in enumerate(values)]


def _sound(point: Point) -> Sound:
    return Sound(step=point.step, loss=point.loss, norm=point.grad_norm, position=point.position)


def _suspect_from(onset: Point, rules: NumericsRules) -> int:
    return max(1, onset.step - rules.skip_before)


def _range(
    window: tuple[Sound, ...], onset: Point, last: Point, rules: NumericsRules
) -> tuple[PositionRange, ...]:
    """Return the batches of the suspect steps.

    Positions jump behind batches that are left out already, so they are not counted back from the
    onset but on from the newest step before that is known: rather a batch too many.
    """
    step = _suspect_from(onset, rules)
    first = onset.position - (onset.step - step)
    for sound in reversed(window):
        if sound.step <= step and sound.position is not None:
            first = min(first, sound.position + step - sound.step)
            break
    return (PositionRange(first=max(0, first), end=last.position + 1),)


def _ranks(row: tuple[Point, ...]) -> tuple[int, ...]:
    return tuple(sorted({rank for point in row for rank in point.ranks}))


def _whose(ranks: tuple[int, ...]) -> str:
    if not ranks:
        return "no rank has said that it was its own"
    named = ", ".join(str(rank) for rank in ranks[:8])
    more = f" and {len(ranks) - 8} more" if len(ranks) > 8 else ""
    return f"of rank{'s' if len(ranks) > 1 else ''} {named}{more}"
