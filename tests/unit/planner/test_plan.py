import dataclasses

import pytest

from everstep.core.errors import InvalidInput
from everstep.planner.inputs import LLAMA3_405B, MISSION, PARAMETERS, PRESETS, Inputs, changed
from everstep.planner.plan import make_plan, spare_choices
from everstep.planner.summary import inputs_table, plan_json, tables

KEYS = {
    "compute_days", "failures_per_day", "mtbf_s", "state_bytes_total", "state_bytes_per_chip",
    "interval_young_s", "interval_daly_s", "interval_exact_s", "waste_first_order", "waste_exact",
    "spares_p99", "goodput",
}  # fmt: skip


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
    ],
)
def test_inputs_that_make_no_sense_get_one_sentence(given, complaint):
    """They name the option."""
    with pytest.raises(InvalidInput, match=complaint):
        changed(MISSION, given)


def test_run_that_would_never_end_is_refused():
    """A failure a second and a restart of two minutes."""
    with pytest.raises(InvalidInput, match="such a run never ends"):
        make_plan(changed(MISSION, {"chip_mtbf": 16_384.0}))
