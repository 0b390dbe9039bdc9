"""What snapshots and uploads cost, from what ranks tell of their steps."""

from __future__ import annotations

from everstep.controller.commands import Measured
from everstep.controller.measuring import Measurements
from everstep.wire.v1.agents_pb2 import RankStep, StepMetrics

WORK_MS = 100.0


def tell(
    measurements: Measurements,
    step: int,
    stall_ms: float,
    *,
    kept: bool = False,
    durable: bool = False,
    first: bool = False,
    generation: int = 1,
    now_ms: int = 0,
) -> None:
    """Let two ranks tell of a step; the second is faster."""
    ranks = [
        RankStep(
            rank=rank,
            step=step,
            step_time_ms=WORK_MS + stall_ms - rank,
            stall_ms=stall_ms - rank / 10,
            kept=kept,
            durable=durable,
            first=first,
        )
        for rank in (0, 1)
    ]
    measurements.heard(StepMetrics(generation=generation, ranks=ranks), now_ms)


def test_snapshots_of_every_step_cost_what_each_step_stalls():
    """The slowest rank counts; the first step of a generation and the newest three do not."""
    measurements = Measurements()
    tell(measurements, 1, 900.0, kept=True, first=True)
    for step in range(2, 21):
        tell(measurements, step, 4.0, kept=True)
    measured = measurements.measured()
    assert measured == Measured(
        step=20, step_us=100_000, steps_count=15, memory_stall_us=4_000, memory_count=15
    )


def test_durable_snapshot_costs_what_two_steps_stall_beyond_the_usual():
    """What is copied at once shows in its own step, the rest in the next one."""
    measurements = Measurements()
    for step in range(1, 41):
        durable = step % 10 == 0
        stall_ms = 4.0 + 7.0 * durable + 5.0 * (step % 10 == 1 and step > 1)
        tell(measurements, step, stall_ms, kept=True, durable=durable)
    measured = measurements.measured()
    assert measured.memory_stall_us == 4_000
    assert (measured.object_stall_us, measured.object_count) == (12_000, 3)


def test_seldom_memory_snapshots_are_measured_over_their_two_steps():
    """Every fourth step one, of 3 ms at once and 2 ms of rest."""
    measurements = Measurements()
    for step in range(1, 41):
        stall_ms = {0: 3.0, 1: 2.0}.get(step % 4, 0.0)
        tell(measurements, step, stall_ms, kept=step % 4 == 0)
    measured = measurements.measured()
    assert measured.memory_stall_us == 5_000
    assert measured.step_us == 100_000


def test_upload_lasts_from_its_step_to_its_checkpoint():
    """The usual and the longest; one that was begun before we listened is not guessed."""
    measurements = Measurements()
    for number, took_ms in enumerate((2_000, 9_000, 3_000)):
        step, begun_ms = 10 * (number + 1), 100_000 * number
        tell(measurements, step, 1.0, durable=True, now_ms=begun_ms)
        tell(measurements, step, 1.0, durable=True, now_ms=begun_ms + 500)  # another host
        measurements.completed(step, begun_ms + took_ms)
        measurements.completed(step, begun_ms + 50_000)
    measurements.completed(7, 5)
    measured = measurements.measured()
    assert (measured.upload_ms, measured.upload_ms_max, measured.upload_count) == (3_000, 9_000, 3)


def test_older_generation_tells_nothing_and_a_newer_one_keeps_what_is_known():
    """Steps begin anew, costs stay; an upload of the old one may never end."""
    measurements = Measurements()
    for step in range(1, 21):
        tell(measurements, step, 4.0, kept=True, durable=step == 19)
    before = measurements.measured()
    tell(measurements, 12, 4.0, generation=2, first=True)
    tell(measurements, 21, 800.0, generation=1)
    measurements.completed(19, 1_000)
    after = measurements.measured()
    assert after.step == 12
    assert (after.memory_stall_us, after.steps_count) == (
        before.memory_stall_us,
        before.steps_count,
    )
    assert after.upload_count == 0


def test_holes_in_what_is_heard_are_no_steps_without_stalls():
    """A lost message makes its neighbours say nothing, not something wrong."""
    measurements = Measurements()
    for step in range(1, 41):
        if step % 5:
            tell(measurements, step, 4.0, kept=True)
    measured = measurements.measured()
    assert measured.memory_stall_us == 4_000
    assert 0 < measured.memory_count < 20
