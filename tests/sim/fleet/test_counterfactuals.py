import functools
import io

import pytest

from everstep.fleet.recorded import events_of
from everstep.fleet.scenario import parse
from everstep.fleet.simulate import simulate
from everstep.planner.history import checked
from everstep.planner.history_events import read_events
from everstep.planner.replay import Policy, replay

# Twelve failures of serving hosts a day, on eight hosts; everything that a policy can change.
FLEET = """
[fleet]
hosts = 8
spares = {spares}
hosts_per_pod = 1
[job]
pp = 1
dp_shard = 8
step_s = 1.0
restarts_per_hour_max = 1000
[failures]
job_mtbf_h = 2.0
rank_share = {rank_share}
[repair]
median_h = 1.0
sigma = 0.5
[detection]
host_s = {detection_s}
rank_s = {detection_s}
[restart]
ranks_s = {ranks_s}
spread = false
[checkpoint]
memory_every = {memory_every}
memory_stall_s = 0.5
replicate_s = 2.0
object_every = 300
state_gb = 0
store_gb_per_s = 1
"""
AS_IT_WAS = {
    "spares": 4, "detection_s": 5.0, "ranks_s": 90, "memory_every": 60, "rank_share": 0.0,
}  # fmt: skip
CONTROL_MS = 800  # of the services' answers, beside what the ranks take
DAYS = 8
SEEDS = range(3)
# Of what the simulation says is lost or saved, over all seeds and for each of them. What is left
# over is chance: in which order hosts take over, and which pairs are then lost together.
BOUND = 0.03
BOUND_OF_A_SEED = 0.08
BOUND_OF_NEW_HOSTS = 0.15  # a ninth of the hosts breaks at other times than in the simulation


@functools.cache
def _simulated(seed, **changed):
    """A run's outcome and trace; one of each policy and seed is enough for all tests."""
    trace = io.StringIO()
    scenario = parse(FLEET.format(**(AS_IT_WAS | changed)))
    return simulate(scenario, seed=seed, days=DAYS, trace=trace), trace.getvalue()


@functools.cache
def _history(seed, **changed):
    """The record of a run, read as a person's export would be."""
    _, trace = _simulated(seed, **changed)
    text = events_of(trace, parse(FLEET.format(**(AS_IT_WAS | changed))), days=DAYS)
    return checked(read_events(text, source="the trace", stall_ms=500))


def _lost_ms(causes):
    return sum(causes.values()) - causes["useful"]


def _changes(base, other, policy):
    """What another policy loses (negative: saves), predicted and simulated, by seed."""
    predicted, simulated = [], []
    for seed in SEEDS:
        history = _history(seed, **base)
        before, after = replay(history), replay(history, policy)
        predicted.append(_lost_ms(after.causes) - _lost_ms(before.causes))
        was, would_be = (_simulated(seed, **case)[0].causes_ms for case in (base, other))
        simulated.append(_lost_ms(would_be) - _lost_ms(was))
    return predicted, simulated


def test_record_of_a_simulated_run_tells_where_its_time_went():
    """Read from events alone, cause by cause, within half a step a failure."""
    for seed in SEEDS:
        outcome, history = _simulated(seed)[0], _history(seed)
        assert history.wall_ms == outcome.wall_ms
        assert abs(history.step_ms - 1_000) <= 1
        slack_ms = 600 * len(history.failures)
        for cause, ms in outcome.causes_ms.items():
            assert history.measured[cause] == pytest.approx(ms, abs=slack_ms), (seed, cause)


@pytest.mark.parametrize("changed", [{}, {"spares": 0}, {"spares": 1}, {"rank_share": 0.5}])
def test_unchanged_policy_replays_what_happened(changed):
    """The model's own error: less than a twentieth of a point of goodput, waits included."""
    for seed in SEEDS:
        history = _history(seed, **changed)
        outcome = _simulated(seed, **changed)[0]
        assert replay(history).goodput == pytest.approx(outcome.goodput, abs=5e-4), seed


@pytest.mark.parametrize(
    ("base", "other", "policy"),
    [
        ({}, {"ranks_s": 20}, Policy(restart_ms=20_000 + CONTROL_MS)),
        ({}, {"ranks_s": 600}, Policy(restart_ms=600_000 + CONTROL_MS)),
        (
            {"rank_share": 0.5},
            {"rank_share": 0.5, "ranks_s": 300},
            Policy(restart_ms=300_000 + CONTROL_MS),
        ),
        ({}, {"detection_s": 60.0}, Policy(detection_ms=60_000)),
        ({}, {"detection_s": 600.0}, Policy(detection_ms=600_000)),
        ({}, {"memory_every": 10}, Policy(interval_ms=10_000)),
        ({}, {"memory_every": 600}, Policy(interval_ms=600_000)),
        ({}, {"spares": 1}, Policy(spares=1)),
        ({}, {"spares": 0}, Policy(spares=0)),
    ],
    ids=lambda value: str(value) if isinstance(value, dict) else "",
)
def test_counterfactual_agrees_with_the_simulation_of_the_other_policy(base, other, policy):
    """What the replay of a run says another policy loses or saves is what it does."""
    predicted, simulated = _changes(base, other, policy)
    assert predicted == pytest.approx(simulated, rel=BOUND_OF_A_SEED)
    assert sum(predicted) == pytest.approx(sum(simulated), rel=BOUND)


@pytest.mark.parametrize(("had", "would_have"), [(1, 4), (0, 1)])
def test_spares_that_the_record_never_had_are_worth_what_they_are_in_the_simulation(
    had, would_have
):
    """They break as its hosts do; of when they do, no record can tell."""
    predicted, simulated = _changes(
        {"spares": had}, {"spares": would_have}, Policy(spares=would_have)
    )
    assert predicted == pytest.approx(simulated, rel=BOUND_OF_NEW_HOSTS)
    assert sum(predicted) == pytest.approx(sum(simulated), rel=BOUND_OF_A_SEED)


def test_spares_that_would_have_stood_by_all_the_time_change_nothing():
    """Nor does the simulation lose or win by them."""
    for seed in SEEDS:
        history = _history(seed)
        if history.measured["waiting_for_hosts"]:
            continue
        assert replay(history, Policy(spares=8)).causes == replay(history).causes
        was, would_be = _simulated(seed)[0], _simulated(seed, spares=8)[0]
        assert would_be.goodput == pytest.approx(was.goodput, abs=2e-3)
