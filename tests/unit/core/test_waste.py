import math
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from everstep.core import waste
from everstep.core.waste import (
    Tier,
    asynchronous_waste,
    best_tier_interval,
    cadence_waste,
    costs_less,
    daly_interval,
    effective_stall,
    exact_interval,
    exact_shares,
    exact_waste,
    expected_waste,
    fleet_goodput,
    job_mtbf_hours,
    lambert_w0,
    optimal_interval,
    pair_loss_probability,
    posterior_mtbf,
    posterior_share,
    shortest_interval,
    tier_interval,
    tiered_waste,
    verified_interval,
    verified_waste,
)

MTBF_S = 10_986.0  # 16,384 chips of 50,000 hours

stalls = st.floats(0.01, 600)
mtbfs = st.floats(600, 1e6)
restarts = st.floats(0, 3_600)
factors = st.floats(1.05, 20)


def test_failure_rate_and_optimal_interval():
    """The source document's own test: one failure in 3 h, a save every 331 s."""
    m = job_mtbf_hours(16384, 50000)
    assert abs(m - 3.05) < 0.01
    tau = optimal_interval(5, m * 3600)
    assert abs(tau - 331) < 1
    for worse in (tau / 2, tau * 2):
        assert expected_waste(worse, 5, m * 3600, 120) > expected_waste(tau, 5, m * 3600, 120)


def test_table_numbers():
    """The source document's own test: 15.9, 8.5 and 4.1 % of waste."""
    m = job_mtbf_hours(16384, 50000) * 3600
    rows = [(60, 600), (5, 600), (5, 120)]
    got = [round(expected_waste(optimal_interval(c, m), c, m, r), 3) for c, r in rows]
    assert got == [0.159, 0.085, 0.041]


@pytest.mark.parametrize(
    ("stall_s", "restart_s", "interval_s", "first_order", "exact"),
    [
        (60, 600, 1148, 0.1591, 0.1487),
        (5, 600, 331, 0.0848, 0.0814),
        (5, 120, 331, 0.0411, 0.0404),
        (1, 120, 148, 0.0244, 0.0241),
        (1, 60, 148, 0.0190, 0.0188),
        (0.5, 45, 105, 0.0136, 0.0136),
        (0.1, 30, 47, 0.0070, 0.0070),
    ],
)
def test_young_interval_of_known_costs_gives_published_waste(
    stall_s, restart_s, interval_s, first_order, exact
):
    """Interval to the second, both wastes to four digits."""
    best_s = optimal_interval(stall_s, MTBF_S)
    assert round(best_s) == interval_s
    assert round(expected_waste(best_s, stall_s, MTBF_S, restart_s), 4) == first_order
    assert round(exact_waste(best_s, stall_s, MTBF_S, restart_s), 4) == exact


@pytest.mark.parametrize(
    ("mtbf_min", "interval_min"), [(24 * 60, 116.7), (6 * 60, 56.7), (15, 9.14)]
)
def test_daly_interval_of_his_examples_is_his(mtbf_min, interval_min):
    """Stall 5 min; the scale of time does not matter."""
    digits = 1 if interval_min > 10 else 2
    assert round(daly_interval(5, mtbf_min), digits) == interval_min
    assert daly_interval(5 * 60, mtbf_min * 60) == pytest.approx(60 * daly_interval(5, mtbf_min))


def test_daly_interval_of_saves_longer_than_two_failures_is_the_failures():
    """The expansion holds below that only."""
    assert daly_interval(20, 10) == 10
    assert daly_interval(19.999, 10) < 10


@pytest.mark.parametrize(
    ("x", "w"),
    [
        (-1 / math.e, -1.0),
        (-0.2, -0.2591711018190738),
        (0.0, 0.0),
        (1.0, 0.5671432904097838),  # the omega constant
        (math.e, 1.0),
        (-math.log(2) / 2, -math.log(2)),
    ],
)
def test_lambert_w_of_known_points_is_known(x, w):
    """Published values and closed forms, to 14 digits; the branch point to half of them."""
    assert lambert_w0(x) == pytest.approx(w, rel=1e-14, abs=1e-15 if x != -1 / math.e else 1e-7)


@given(st.floats(-0.999_999, 500))
def test_lambert_w_undoes_w_times_e_to_the_w(w):
    """It is the inverse function on the whole principal branch."""
    assert lambert_w0(w * math.exp(w)) == pytest.approx(w, rel=1e-9, abs=1e-9)


def test_lambert_w_below_its_branch_is_refused():
    """A negative stall has no best interval."""
    with pytest.raises(ValueError, match="-1/e"):
        lambert_w0(-0.5)


@given(stalls, mtbfs, restarts, factors)
def test_interval_beside_an_optimum_wastes_more(stall_s, mtbf_s, restart_s, factor):
    """Young's, the exact and the tiers' intervals are minima of their own models."""
    young_s, exact_s = optimal_interval(stall_s, mtbf_s), exact_interval(stall_s, mtbf_s)
    for other in (factor, 1 / factor):
        assert expected_waste(young_s * other, stall_s, mtbf_s, restart_s) > expected_waste(
            young_s, stall_s, mtbf_s, restart_s
        )
        assert exact_waste(exact_s * other, stall_s, mtbf_s, restart_s) >= exact_waste(
            exact_s, stall_s, mtbf_s, restart_s
        )


@given(stalls, mtbfs)
def test_exact_interval_is_near_daly_and_below_young(stall_s, mtbf_s):
    """Daly's expansion is good to a percent where saves are short beside failures."""
    exact_s = exact_interval(stall_s, mtbf_s)
    assert 0 < exact_s < optimal_interval(stall_s, mtbf_s)
    if stall_s < mtbf_s / 20:
        assert exact_s == pytest.approx(daly_interval(stall_s, mtbf_s), rel=0.01)


@given(stalls, mtbfs, restarts, st.floats(1, 1e5), factors)
def test_waste_grows_with_every_cost(stall_s, mtbf_s, restart_s, interval_s, factor):
    """Longer stalls and restarts, later saves and more failures never help, in any model."""
    base = (interval_s, stall_s, mtbf_s, restart_s)
    worse = [
        (interval_s, stall_s * factor, mtbf_s, restart_s),
        (interval_s, stall_s, mtbf_s / factor, restart_s),
        (interval_s, stall_s, mtbf_s, restart_s * factor),
    ]
    for other in worse:
        assert expected_waste(*other) >= expected_waste(*base)
        assert exact_waste(*other) >= exact_waste(*base) - 1e-12
    later = [asynchronous_waste(*base, durable_after_s=stall_s + x) for x in (0, 60, 600)]
    assert later == sorted(later)


@given(
    stalls, mtbfs, restarts, st.floats(1, 1e6), st.floats(0, 600), st.floats(0, 600), st.booleans()
)
def test_shares_of_any_run_sum_to_one(
    stall_s, mtbf_s, restart_s, interval_s, detect_s, upload_s, found_together
):
    """Every second has one cause, also where nothing useful is left."""
    shares = exact_shares(
        interval_s=interval_s,
        stall_s=stall_s,
        mtbf_s=mtbf_s,
        restart_s=restart_s,
        detection_s=detect_s,
        durable_after_s=stall_s + upload_s,
        found_together=found_together,
    )
    parts = (shares.stall, shares.lost_work, shares.detection, shares.restart)
    assert all(part >= -1e-12 for part in parts)
    assert shares.useful + sum(parts) == pytest.approx(1, abs=1e-9)
    assert shares.waste == pytest.approx(1 - shares.useful, abs=1e-9)


def test_hopeless_run_wastes_everything_without_overflow():
    """A week of work between saves and a failure a minute."""
    assert exact_waste(604_800, 5, 60, 120) == 1
    assert expected_waste(604_800, 5, 60, 120) > 1


def test_upload_that_lasts_longer_costs_what_vaidya_says():
    """C 5 s, R 120 s; the mean loss is T/2 + L."""
    interval_s = optimal_interval(5, MTBF_S)
    got = [
        round(asynchronous_waste(interval_s, 5, MTBF_S, 120, durable_after_s=later_s), 4)
        for later_s in (5, 60, 120, 300, 600)
    ]
    assert got == [0.0404, 0.0452, 0.0504, 0.0658, 0.0910]


def test_upload_that_slows_training_counts_as_a_stall():
    """300 s at 2 % beside a stall of 5 s; two uploads at once allow a save every 150 s."""
    assert effective_stall(5, 300, 0.02) == 11
    assert shortest_interval(300, 2) == 150


@pytest.mark.parametrize(
    ("lost", "stalls_s", "upload_s", "restarts_s", "intervals_s", "expected"),
    [
        (0.02, (1, 2), 300, (60, 300), (150, 1482), 0.0225),
        (0.05, (0.2, 1), 600, (45, 300), (68, 663), 0.0169),
    ],
)
def test_two_levels_give_published_intervals_and_waste(
    lost, stalls_s, upload_s, restarts_s, intervals_s, expected
):
    """Intervals to the second, waste to four digits."""
    rates = ((1 - lost) / MTBF_S, lost / MTBF_S)
    best = tuple(map(tier_interval, rates, stalls_s))
    assert tuple(round(one) for one in best) == intervals_s
    tiers = [
        Tier(
            failures_per_s=rate,
            stall_s=stall_s,
            durable_after_s=durable_s,
            restart_s=restart_s,
            interval_s=interval_s,
        )
        for rate, stall_s, durable_s, restart_s, interval_s in zip(
            rates, stalls_s, (stalls_s[0], upload_s), restarts_s, best, strict=True
        )
    ]
    assert round(tiered_waste(tiers), 4) == expected
    assert tiered_waste(tiers, detection_s=60) == pytest.approx(tiered_waste(tiers) + 60 / MTBF_S)


def test_detection_adds_to_the_restart():
    """C 5 s, R 120 s: ten minutes of silence more than double the waste."""
    interval_s = optimal_interval(5, MTBF_S)
    got = [
        round(exact_waste(interval_s, 5, MTBF_S, 120 + late_s), 4)
        for late_s in (30, 120, 600, 1800)
    ]
    assert got == [0.0430, 0.0508, 0.0914, 0.1854]
    shares = exact_shares(
        interval_s=interval_s, stall_s=5, mtbf_s=MTBF_S, restart_s=120, detection_s=600
    )
    assert round(shares.waste, 4) == 0.0914
    assert shares.detection == pytest.approx(5 * shares.restart)


@pytest.mark.parametrize("found_together", [False, True])
def test_shares_are_what_a_run_of_drawn_failures_comes_to(found_together):
    """C 50 s, R 300 s, L 100 s, D 900 s at an hour between failures, over 100,000 intervals."""
    draw = Random(5).expovariate
    mtbf_s, segment_s, again_s = 3_600.0, 650.0, 300.0 + 50.0
    once_s = 900.0 if found_together else 0.0
    again_s += 900.0 - once_s
    useful_s = wall_s = 0.0
    for _ in range(100_000):
        while (failed_s := draw(1 / mtbf_s)) < segment_s:
            wall_s += failed_s + once_s
            while (failed_s := draw(1 / mtbf_s)) < again_s:
                wall_s += failed_s + once_s
            wall_s += again_s
        useful_s += 600.0
        wall_s += segment_s
    shares = exact_shares(
        interval_s=600,
        stall_s=50,
        mtbf_s=mtbf_s,
        restart_s=300,
        detection_s=900,
        durable_after_s=100,
        found_together=found_together,
    )
    assert shares.useful == pytest.approx(useful_s / wall_s, rel=0.005)


@pytest.mark.parametrize(("lost", "survives"), [(0, 1), (1, 1), (2, 0.9995), (8, 0.9864)])
def test_pairs_of_2048_hosts_survive_as_gemini_says(lost, survives):
    """To four digits."""
    assert round(1 - pair_loss_probability(2048, lost), 4) == survives


def test_pairs_are_lost_for_certain_when_more_than_half_the_hosts_are():
    """The pigeonhole; and against counting by hand for six hosts."""
    assert pair_loss_probability(6, 4) == 1
    assert pair_loss_probability(6, 2) == pytest.approx(3 / 15)
    assert pair_loss_probability(6, 3) == pytest.approx(1 - 8 / 20)


@given(st.floats(0.1, 600), st.floats(0, 600), st.floats(1e4, 1e7), mtbfs, factors)
def test_verified_interval_is_a_minimum(stall_s, verification_s, silent_s, mtbf_s, factor):
    """Beside it either verification or lost work costs more."""

    def cost(interval_s: float) -> float:
        return verified_waste(
            interval_s=interval_s,
            stall_s=stall_s,
            verification_s=verification_s,
            silent_mtbf_s=silent_s,
            mtbf_s=mtbf_s,
            restart_s=120,
        )

    best_s = verified_interval(stall_s, verification_s, silent_s, mtbf_s)
    assert cost(best_s) < min(cost(best_s * factor), cost(best_s / factor))


def test_verified_interval_without_silent_errors_is_young():
    """Free verification and errors that never come leave Young's formula."""
    assert verified_interval(5, 0, math.inf, MTBF_S) == pytest.approx(optimal_interval(5, MTBF_S))
    assert verified_interval(5, 4, MTBF_S / 2, math.inf) == pytest.approx(math.sqrt(9 * MTBF_S / 2))


def test_fleet_goodput_counts_idle_spares_and_slow_steps():
    """Half the hosts idle halve it; slow and repeated steps multiply."""
    assert fleet_goodput(hosts=2048, spares=0, effective_time=0.96) == 0.96
    assert fleet_goodput(hosts=100, spares=100, effective_time=0.96) == 0.48
    assert fleet_goodput(
        hosts=98, spares=2, effective_time=0.9, slow=0.1, replayed=0.02, rolled_back=0.08
    ) == pytest.approx(0.98 * 0.9 * 0.9 * 0.9)


def test_waste_names_of_the_source_document_are_there():
    """Their order of arguments is the document's, so that its tests run as they stand."""
    assert waste.expected_waste(interval_s=331, stall_s=5, mtbf_s=MTBF_S, restart_s=120) < 0.0412


@pytest.mark.parametrize(
    ("failures_per_s", "stall_s", "interval_s"),
    [(0.98 / MTBF_S, 1, 150), (0.02 / MTBF_S, 2, 1_482), (0.95 / MTBF_S, 0.2, 68)],
)
def test_best_tier_interval_is_the_published_one(failures_per_s, stall_s, interval_s):
    """To a second or two: the higher order takes two thirds of the stall off."""
    assert best_tier_interval(failures_per_s, stall_s) == pytest.approx(interval_s, abs=1.5)


@given(stalls, mtbfs, factors)
def test_best_tier_interval_is_near_the_minimum_and_never_above_the_failures(
    stall_s, mtbf_s, factor
):
    """The first order has its minimum within a few per cent of it, and is flat there."""
    best_s = best_tier_interval(1 / mtbf_s, stall_s)
    assert 0 < best_s <= mtbf_s
    if stall_s < mtbf_s / 50 and factor > 1.5:
        least = cadence_waste(best_s, stall_s, 1 / mtbf_s)
        for other in (factor, 1 / factor):
            assert cadence_waste(best_s * other, stall_s, 1 / mtbf_s) > least


def test_tier_that_no_failure_needs_is_never_saved_to():
    """And a tier that failures need costs everything when it is not."""
    assert best_tier_interval(0, 1) == math.inf
    assert cadence_waste(math.inf, 1, 0) == 0
    assert cadence_waste(math.inf, 1, 1e-6) == math.inf
    assert cadence_waste(100, 1, 0) == 0.01


def test_save_costs_less_than_a_share_of_the_work_it_follows():
    """Less, not as much: the limit belongs to the longer interval."""
    assert costs_less(0.0099, 1.0, 0.01)
    assert not costs_less(0.01, 1.0, 0.01)


def test_posterior_mtbf_goes_from_the_belief_to_what_was_seen():
    """As many failures of one's own as the belief weighs meet in the middle of the rates."""
    assert posterior_mtbf(1_000, 2, 0, 0) == 1_000
    assert posterior_mtbf(1_000, 2, 2, 200) == pytest.approx(550)
    assert posterior_mtbf(1_000, 2, 1_000_000, 1e8) == pytest.approx(100, rel=1e-4)
    assert posterior_mtbf(1_000, 2, 0, 8_000) == 5_000


@given(st.floats(0, 1), st.floats(0.1, 100), st.integers(0, 1_000), st.integers(0, 1_000))
def test_posterior_share_is_a_share(prior, count, hits, misses):
    """Between the belief and what was seen."""
    got = posterior_share(prior, count, hits, hits + misses)
    seen = hits / (hits + misses) if hits + misses else prior
    assert min(prior, seen) - 1e-9 <= got <= max(prior, seen) + 1e-9
