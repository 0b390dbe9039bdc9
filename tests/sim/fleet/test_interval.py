"""The controller chooses the interval of a simulated fleet about as well as if all were known."""

from __future__ import annotations

from functools import cache

import pytest

from everstep.core.errors import InvalidInput
from everstep.core.waste import Tier, best_tier_interval, tiered_waste
from everstep.fleet.scenario import parse
from everstep.fleet.simulate import Outcome, simulate

MTBF_S = 10_986.0
# Eight hosts that fail as often as 16,384 chips. All hang on one switch that fails once or twice a
# day, with all their memory: every sixth failure goes back to the object store, about a hundred in
# all, whose luck leaves a per cent of the waste uncertain. Who believes a chip to last 1,000 h is
# wrong by a factor of five at first.
FLEET = """
[fleet]
hosts = 8
spares = 24
hosts_per_pod = 32
hosts_per_switch = 8
[job]
pp = 2
dp_shard = 4
step_s = 1.0
restarts_per_hour_max = 1000
[failures]
switch_per_year = 500
group_down_h = 0.2
[repair]
median_h = 0.5
sigma = 0.5
[detection]
host_s = 0.4
[restart]
fence_s = 0.2
place_s = 0.1
plan_s = 0.2
start_s = 0.2
ranks_s = 60
spread = false
[checkpoint]
interval = "{interval}"
memory_every = {memory_every}
memory_stall_s = {memory_stall_s}
replicate_s = 0
object_every = {object_every}
object_stall_s = 2.0
state_gb = 60
store_gb_per_s = 1
believed_chip_mtbf_h = {believed_h}
"""
SEEDS, DAYS = (1, 2), 40


@cache
def outcomes(*, days: int = DAYS, **fields: object) -> tuple[Outcome, ...]:
    """The same failures for every interval."""
    known = {
        "interval": "steps",
        "memory_every": 1,
        "memory_stall_s": 0.005,
        "object_every": 100,
        "believed_h": 1_000,
    }
    scenario = parse(FLEET.format(**(known | fields)))
    return tuple(simulate(scenario, seed=seed, days=days) for seed in SEEDS)


def waste_of(*, days: int = DAYS, **fields: object) -> float:
    """The mean over the seeds."""
    found = outcomes(days=days, **fields)
    assert all(sum(one.causes_ms.values()) == one.wall_ms for one in found)
    return sum(1 - one.goodput for one in found) / len(found)


def test_automatic_interval_wastes_about_as_little_as_the_best_fixed_one():
    """Within 5 % of the best of a sweep, learning included, and far from the worst of it."""
    sweep = {every: waste_of(object_every=every) for every in (100, 500, 1_000)}
    auto = waste_of(interval="auto")
    assert auto <= 1.05 * min(sweep.values()), (auto, sweep)
    assert auto < 0.7 * sweep[100], "it has stayed where it began"


def test_automatic_interval_wastes_what_two_tiers_should():
    """Benoit's first order, with the failures and the lost memory tiers that came."""
    found = outcomes(interval="auto")
    failures = sum(one.generations - 1 for one in found)
    lost = sum(one.counts["restores_from_store"] for one in found) / failures
    rate = failures / sum(one.wall_ms / 1e3 for one in found)
    model = tiered_waste(
        [
            Tier(
                failures_per_s=(1 - lost) * rate,
                stall_s=0.005,
                durable_after_s=0.005,
                restart_s=60.8,
                interval_s=1.0,
            ),
            Tier(
                failures_per_s=lost * rate,
                stall_s=2.0,
                durable_after_s=62.0,
                restart_s=60.8 + 60,
                interval_s=best_tier_interval(lost * rate, 2.0),
            ),
        ],
        detection_s=0.4,
    )
    assert waste_of(interval="auto") == pytest.approx(model, rel=0.06)


def test_interval_changes_a_few_times_and_not_with_every_failure():
    """Some five hundred failures a seed; each is put to the decider."""
    for one in outcomes(interval="auto"):
        assert one.generations > 250
        assert 1 <= one.counts["IntervalChanged"] <= 8
        assert one.counts["IntervalInForce"] in {
            one.counts["IntervalChanged"],
            one.counts["IntervalChanged"] - 1,
        }


def test_costly_memory_tier_gets_an_interval_of_its_own():
    """Half a second a snapshot: about a hundred steps apart, where every step costs a third."""
    auto = waste_of(days=10, interval="auto", memory_stall_s=0.5, believed_h=200)
    every_step = waste_of(days=10, memory_stall_s=0.5, object_every=1_000)
    assert every_step > 0.3
    assert auto < every_step / 8


def test_automatic_interval_without_a_memory_tier_is_refused():
    """It is a choice for two tiers."""
    text = '[checkpoint]\ninterval = "auto"\nmemory_every = 0\n'
    with pytest.raises(InvalidInput, match=r"set checkpoint\.memory_every to at least 1"):
        parse(text)
