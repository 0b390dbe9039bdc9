import dataclasses

import pytest

from everstep.core.errors import InvalidInput
from everstep.planner.inputs import (
    LAB_64,
    LLAMA3_405B,
    MISSION,
    PARAMETERS,
    PRESETS,
    Inputs,
    changed,
)
from everstep.planner.plan import make_plan, spare_choices
from everstep.planner.summary import inputs_table, plan_json, tables

KEYS = {
    "compute_days", "failures_per_day", "mtbf_s", "state_bytes_total", "state_bytes_per_chip",
    "interval_young_s", "interval_daly_s", "interval_exact_s", "waste_first_order", "waste_exact",
    "spares_p99", "goodput",
}  # fmt: skip
MTBF_S = 50_000 * 3_600 / 16_384


def _saving(name, given):
    """Return one way of saving of the mission, changed."""
    savings = make_plan(changed(MISSION, given)).savings
    return next(saving for saving in savings if saving.name == name)


def test_mission_preset_gives_the_source_document_numbers():
    """64 days, 8 failures a day, 6.4 TB, 390 MB a chip, 13 s of upload, 331 s, 4.1 % of waste."""
    plan = make_plan(MISSION)
    assert plan.flops == 3.6e25
    assert round(plan.compute_s / 86_400) == 64
    assert round(plan.failures_per_day) == 8
    assert plan.mtbf_s == pytest.approx(10_986, abs=1)
    assert plan.state_bytes_total == 6.4e12
    assert round(plan.state_bytes_per_chip / 1e6) == 391
    assert round(plan.upload_s) == 13
    assert plan.copy_s < 1
    assert round(plan.interval_young_s) == 331
    assert round(plan.waste_first_order, 3) == 0.041
    assert round(plan.waste_exact, 4) == 0.0404
    assert plan.goodput == 1 - plan.waste_exact > 0.9


def test_llama_preset_reproduces_its_published_interruptions():
    """419 unexpected stops in 54 days, one in 3.1 h, and more than 90 % of effective time."""
    plan = make_plan(LLAMA3_405B)
    assert plan.failures_per_day * 54 == pytest.approx(419)
    assert round(plan.mtbf_s / 3600, 1) == 3.1
    assert plan.flops == pytest.approx(3.8e25, rel=0.01)
    assert plan.goodput > 0.9
    assert plan.interval_verified_s is not None


@pytest.mark.parametrize("preset", sorted(PRESETS))
def test_shares_of_any_preset_sum_to_one(preset):
    """With stragglers, replays and roll-backs too; goodput is the useful one."""
    base = PRESETS[preset]
    for given in ({}, {"slow": 0.02, "replay": 0.0025, "rollback": 0.01, "detection": 30.0}):
        plan = make_plan(changed(base, given))
        assert sum(share for _, share in plan.causes) == pytest.approx(1)
        assert plan.goodput == dict(plan.causes)["useful"]


def test_given_interval_is_in_use_and_the_best_one_stands_beside_it():
    """Whoever saves every hour sees what that costs."""
    plan = make_plan(changed(MISSION, {"interval": 3_600.0}))
    assert plan.interval_s == 3_600
    assert plan.interval_exact_s == make_plan(MISSION).interval_exact_s
    assert [saving.name for saving in plan.savings[:2]] == ["as given", "complete model"]
    assert plan.waste_exact > plan.savings[1].waste


def test_upload_slower_than_the_interval_holds_the_saves_back():
    """At 1 GB/s an upload takes 6,400 s; two at once allow a save every 3,200 s."""
    plan = make_plan(changed(MISSION, {"upload_bandwidth": 1e9, "uploads_at_once": 2.0}))
    by_name = {saving.name: saving for saving in plan.savings}
    assert by_name["asynchronous"].interval_s == 3_200
    assert by_name["two levels"].upload_interval_s >= 3_200
    assert by_name["complete model"].interval_s < 331


@pytest.mark.parametrize(
    ("lost", "stalls", "upload_s", "restarts", "intervals", "first_order"),
    [
        (0.02, (1.0, 2.0), 300.0, (60.0, 300.0), (150, 1_482), 0.0225),
        (0.05, (0.2, 1.0), 600.0, (45.0, 300.0), (68, 663), 0.0169),
    ],
)
def test_two_levels_give_the_values_computed_by_hand(
    lost, stalls, upload_s, restarts, intervals, first_order
):
    """Two examples with a failure every 10,986 s; simulated, they waste 0.0227 and 0.0171."""
    given = {
        "memory_loss": lost, "stall": stalls[0], "object_stall": stalls[1],
        "upload_bandwidth": 6.4e12 / upload_s, "restart": restarts[0],
        "object_restart": restarts[1],
    }  # fmt: skip
    two = _saving("two levels", given)
    assert (round(two.interval_s), round(two.upload_interval_s)) == intervals
    assert two.waste == pytest.approx(first_order, abs=1e-4)


def test_upload_that_slows_training_is_counted_once():
    """What it slows is a stall; of 400 s at a quarter less speed, 300 s of work are in danger."""
    given = {
        "upload_bandwidth": 6.4e12 / 400, "upload_slowdown": 0.25, "object_restart": 500.0,
        "interval": 200.0,
    }  # fmt: skip
    two = _saving("two levels", given)
    away_s = two.upload_interval_s / 2 + 300 + 500
    by_hand = 5 / 200 + 0.98 * (100 + 120) / MTBF_S
    by_hand += 105 / two.upload_interval_s + 0.02 * away_s / MTBF_S
    assert two.waste == pytest.approx(by_hand, rel=1e-6)
    assert two.policy.upload_s == pytest.approx(300)


@pytest.mark.parametrize("interval", [None, 100.0, 2_000.0])
def test_memory_that_no_failure_leaves_costs_nothing(interval):
    """With --memory-loss 1 both levels are the one in the object store, in formula and policy."""
    given = {"memory_loss": 1.0, "upload_bandwidth": 1e10, "upload_slowdown": 0.1}
    two = _saving("two levels", given | {"interval": interval})
    assert two.upload_interval_s == two.interval_s
    alone = _saving("asynchronous", given | {"interval": two.interval_s})
    assert two.interval_s == alone.interval_s
    assert two.first_order == pytest.approx(alone.first_order)
    assert two.policy.elapsed_s(0, 7) == pytest.approx(alone.policy.elapsed_s(0, 7))
    assert two.policy.upload_s == alone.policy.upload_s


def test_spares_cost_idle_hosts_and_save_waits():
    """Without spares little is left; with those of the quantile the idle ones are what is lost."""
    choices = spare_choices(make_plan(MISSION))
    none, asked = choices[0], next(one for one in choices if one.quantile == 0.99)
    assert none.row.spares == 0
    assert none.goodput < 0.2
    assert asked.goodput > 0.95
    assert asked.fleet_goodput == pytest.approx(asked.goodput * 2048 / (2048 + asked.row.spares))
    assert [one.row.spares for one in choices] == sorted(one.row.spares for one in choices)


def test_json_has_the_promised_keys():
    """Programs rely on them."""
    plan = make_plan(MISSION)
    value = plan_json(plan, spare_choices(plan))
    assert set(value) >= KEYS
    assert all(isinstance(value[key], float | int) for key in KEYS)
    assert value["spares_p99"] == 20


def test_tables_show_the_answer_first():
    """Goodput, then where the rest goes."""
    plan = make_plan(MISSION)
    shown = tables(plan, spare_choices(plan))
    assert [table.title for table in shown] == [
        "The run", "Where the wall time goes", "How often to save", "Spare hosts",
    ]  # fmt: skip
    assert shown[0].rows[0][:2] == ("goodput", "95.96 %")
    assert "repairs are log-normal with mean 1 d" in shown[-1].note


def test_every_input_is_described():
    """An input without a description would be no option and stand in no report."""
    assert set(PARAMETERS) == {one.name for one in dataclasses.fields(Inputs)}
    assert len(inputs_table(MISSION).rows) == len(PARAMETERS)


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        ({"chips": 0.0}, "--chips is 0: it must be greater than 0"),
        ({"chips": 10.5}, "--chips is 10.5: it must be a whole number"),
        ({"stall": 0.0}, "--stall is 0"),
        ({"slow": 1.0}, "nothing is left to train with"),
        ({"replay": 0.6, "rollback": 0.5}, "nothing is left to train with"),
        ({"quantile": 1.0}, "a --quantile below 1"),
        ({"quantile": 0.9999}, "--quantile 0.9999 asks for the worst .*: 0.9995 at most"),
        ({"repair_spread": 3.5}, "--repair-spread is 3.5: beyond 3 all"),
        ({"rate_spread": 1e20}, "--rate-spread is 1e"),
    ],
)
def test_inputs_that_make_no_sense_get_one_sentence(given, complaint):
    """They name the option."""
    with pytest.raises(InvalidInput, match=complaint):
        changed(MISSION, given)


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        (
            {"chip_mtbf": 16_384.0},
            "a failure every 1 s leaves .* beside a restart of 120 s; lower --restart",
        ),
        ({"interval": 63 * 86_400.0}, "beside an interval of 63 d; lower --interval or --chips"),
        ({"stall": 1e9}, "beside a stall of .* lower --stall"),
        ({"detection": 1e9}, "beside a detection of .* lower --detection"),
    ],
)
def test_run_that_would_never_end_is_refused(given, sentence):
    """With what leaves no time for work."""
    with pytest.raises(InvalidInput, match=f"such a run never ends: .*{sentence}"):
        make_plan(changed(MISSION, given))


def test_fleet_in_repair_that_could_not_be_counted_is_refused():
    """A simulation that begins with an empty workshop would say less than are needed."""
    with pytest.raises(InvalidInput, match="2,872,443 hosts would be in repair at a time"):
        make_plan(changed(MISSION, {"repair": 1_000 * 31_557_600.0}))


def test_run_shorter_than_its_interval_says_that_nothing_is_saved():
    """The formulas take runs for endless."""
    short = make_plan(changed(LAB_64, {"tokens": 1e9, "interval": 43_200.0}))
    usual = make_plan(LAB_64)
    said = [{row[0]: row[2] for row in tables(one, ())[0].rows} for one in (short, usual)]
    assert said[0]["interval in use"] == "longer than the run: nothing is ever saved"
    assert said[1]["interval in use"] == "stall 2 s each"
