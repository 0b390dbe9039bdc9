import random

import pytest

from everstep.core.errors import InvalidInput
from everstep.core.waste import (
    asynchronous_waste,
    exact_waste,
    expected_waste,
    optimal_interval,
    tier_interval,
)
from everstep.planner.monte_carlo import Policy, simulate, simulate_goodput, simulate_run

MTBF_S = 10_986.0
RUN_S = 5_493_000.0  # 64 days of useful work


def _single(stall_s: float, restart_s: float, upload_s: float = 0.0) -> Policy:
    return Policy(
        interval_s=optimal_interval(stall_s, MTBF_S),
        stall_s=stall_s,
        upload_s=upload_s,
        restart_s=restart_s,
        object_restart_s=restart_s,
    )


def test_simulation_agrees_with_the_model():
    """The source document's own test."""
    mtbf_s = 3 * 3600
    for stall, restart in ((5, 120), (60, 600)):
        tau = optimal_interval(stall, mtbf_s)
        model = expected_waste(tau, stall, mtbf_s, restart)
        sim = 1 - simulate_goodput(
            tau, stall, mtbf_s, restart, useful_target_s=3600 * 24 * 300, seed=1
        )
        assert abs(sim - model) < 0.02


@pytest.mark.parametrize(("stall_s", "restart_s"), [(60, 600), (5, 120), (0.1, 30)])
def test_simulated_runs_agree_with_the_complete_model(stall_s, restart_s):
    """Within the wider of 1 % of the waste and three times the confidence interval."""
    policy = _single(stall_s, restart_s)
    got, _ = simulate(policy, mtbf_s=MTBF_S, useful_target_s=RUN_S, runs=60)
    model = exact_waste(policy.interval_s, stall_s, MTBF_S, restart_s)
    assert 1 - got.mean == pytest.approx(model, abs=max(0.01 * model, 3 * got.margin))
    assert got.margin < 0.05 * model


def test_simulated_uploads_agree_with_vaidya():
    """Five minutes until a save is durable cost half as much again as the rest."""
    policy = _single(5, 120, upload_s=295)
    got, _ = simulate(policy, mtbf_s=MTBF_S, useful_target_s=RUN_S, runs=60)
    model = asynchronous_waste(policy.interval_s, 5, MTBF_S, 120, durable_after_s=300)
    assert 1 - got.mean == pytest.approx(model, abs=3 * got.margin)


def test_simulated_two_levels_agree_with_the_first_order():
    """The published pair of tiers: 2.25 % of waste."""
    memory_s = tier_interval(0.98 / MTBF_S, 1)
    policy = Policy(
        interval_s=memory_s,
        stall_s=1,
        saves_per_upload=round(tier_interval(0.02 / MTBF_S, 2) / memory_s),
        upload_stall_s=2,
        upload_s=300,
        memory_loss=0.02,
        restart_s=60,
        object_restart_s=300,
    )
    got, _ = simulate(policy, mtbf_s=MTBF_S, useful_target_s=RUN_S, runs=100)
    assert 1 - got.mean == pytest.approx(0.0225, abs=0.0006)


def test_run_without_failures_takes_its_work_and_its_stalls():
    """Ten intervals of 100 s with nine saves between, a rest of 50 s after the tenth save."""
    policy = Policy(interval_s=100, stall_s=5, restart_s=60, object_restart_s=60)
    assert simulate_run(policy, 1e12, 1_050, random.Random(0)) == 10 * 105 + 50


def test_saves_within_a_time_count_their_stalls():
    """Every third save stalls 7 s more; the count is the same from any save on."""
    policy = Policy(
        interval_s=10, stall_s=1, saves_per_upload=3, upload_stall_s=7, restart_s=0,
        object_restart_s=0,
    )  # fmt: skip
    assert [policy.saves_within(0, time_s) for time_s in (0, 10.9, 11, 22, 39.9, 40, 51)] == [
        0, 0, 1, 2, 2, 3, 4,
    ]  # fmt: skip
    for first in range(7):
        for last in range(first, 20):
            elapsed_s = policy.elapsed_s(first, last)
            assert policy.saves_within(first, elapsed_s) == last
            assert policy.saves_within(first, elapsed_s + 10.9) == last


def test_same_seed_gives_the_same_runs_and_more_runs_keep_the_first():
    """Run i draws from its own generator."""
    few = simulate(_single(5, 120), mtbf_s=MTBF_S, useful_target_s=RUN_S, runs=3, seed=7)
    again = simulate(_single(5, 120), mtbf_s=MTBF_S, useful_target_s=RUN_S, runs=3, seed=7)
    more = simulate(_single(5, 120), mtbf_s=MTBF_S, useful_target_s=RUN_S, runs=5, seed=7)
    other = simulate(_single(5, 120), mtbf_s=MTBF_S, useful_target_s=RUN_S, runs=3, seed=8)
    assert few == again != other
    assert set(few[1]) < set(more[1])


def test_run_that_never_ends_is_refused():
    """Each failure comes long before the first save."""
    policy = Policy(interval_s=1_000, stall_s=5, restart_s=1, object_restart_s=1)
    with pytest.raises(InvalidInput, match="they come faster than work is saved"):
        simulate_run(policy, 10, 1e6, random.Random(0))
