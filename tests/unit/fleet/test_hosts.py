from itertools import islice
from statistics import fmean, median

import pytest

from everstep.core.time import HOUR_MS
from everstep.fleet.hosts import (
    failure_after_ms,
    first_failure_ms,
    machines,
    recorded,
    repair_ms,
)
from everstep.fleet.scenario import parse
from everstep.sim.seeds import Seeds


def _scenario(failures="", rest=""):
    return parse(f"[failures]\njob_mtbf_h = 3\n{failures}\n{rest}")


@pytest.mark.parametrize(
    "failures", ["kind = 'exponential'", "kind = 'weibull'\nshape = 0.75", "lemon_share = 0.05"]
)
def test_fleet_fails_as_often_as_the_scenario_says(failures):
    """The mean rate of all hosts together, within 5 %."""
    scenario = _scenario(failures)
    fleet = machines(scenario, Seeds(1))
    per_hour = sum(
        HOUR_MS / fmean(failure_after_ms(machine, scenario) for _ in range(60)) for machine in fleet
    )
    expected = len(fleet) / scenario.fleet.hosts / 3
    # The mean of 60 draws is itself random, and its inverse is a little too large.
    assert per_hour == pytest.approx(expected, rel=0.08)


def test_weibull_fleet_of_all_ages_does_not_begin_with_a_burst():
    """As many hosts fail in the first day as in the fifth."""
    scenario = _scenario("kind = 'weibull'\nshape = 0.7")
    day_ms = 24 * HOUR_MS
    firsts = [
        first_failure_ms(machine, scenario)
        for seed in range(4)
        for machine in machines(scenario, Seeds(seed))
    ]
    first, fifth = (sum(d * day_ms <= at < (d + 1) * day_ms for at in firsts) for d in (0, 4))
    assert first == pytest.approx(fifth, rel=0.5)


def test_lemons_fail_more_often_than_the_others():
    """By the factor that the scenario says."""
    fleet = machines(_scenario("lemon_share = 0.05\nlemon_factor = 20"), Seeds(1))
    lemons = [machine for machine in fleet if machine.lemon]
    assert len(lemons) == round(0.05 * len(fleet))
    others = next(machine for machine in fleet if not machine.lemon)
    assert others.mean_ms / lemons[0].mean_ms == pytest.approx(20)


def test_half_of_the_repairs_take_less_than_the_median():
    """Log-normal, by its median."""
    scenario = _scenario(rest="[repair]\nmedian_h = 5\nsigma = 1.2")
    random = Seeds(1).of("repairs")
    taken = median(repair_ms(random, scenario) for _ in range(4_000))
    assert taken == pytest.approx(5 * HOUR_MS, rel=0.08)


@pytest.mark.parametrize("trace", ["lanl-18", "lanl-20"])
def test_recorded_failures_come_as_often_as_the_scenario_says_and_go_on(trace):
    """Over more than one round of the record, in order, on hosts of the fleet."""
    scenario = _scenario(f"kind = 'trace'\ntrace = '{trace}'")
    outages = list(islice(recorded(scenario, Seeds(3).of("trace")), 4_000))
    times = [outage.at_ms for outage in outages]
    assert times == sorted(times)
    count = scenario.fleet.hosts + scenario.fleet.spares
    assert all(0 <= outage.index < count and outage.down_ms > 0 for outage in outages)
    of_training_hosts_h = times[-1] / HOUR_MS / len(times) * count / scenario.fleet.hosts
    assert of_training_hosts_h == pytest.approx(3, rel=0.1)
