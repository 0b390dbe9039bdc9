"""That the swarm draws what it is to draw, and sees what goes wrong of it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from everstep.controller import correcting, policy
from everstep.host_inventory import agenda
from everstep.monitor.detectors.recompute_course import RecomputeCourse
from everstep.sim.faults import Fault
from everstep.sim.jobs import SMALL_BUDGET, JobPlan
from everstep.sim.moments import MOMENTS
from everstep.sim.network import Conditions
from everstep.sim.swarm import STRIKES, Plan, plan_of, run_plan
from everstep.sim.world import Fleet

PLANS = [plan_of(seed) for seed in range(1_000)]


def test_every_kind_and_every_moment_is_drawn():
    """A thousand seeds have all of them, and mixes."""
    faults = [fault for plan in PLANS for fault in plan.faults]
    assert {fault.kind for fault in faults} == set(STRIKES)
    assert {fault.moment for fault in faults} == {"", *MOMENTS}


def test_jobs_of_every_kind_are_drawn():
    """Elastic ones with both batches, few replicas and many, work done twice, small budgets."""
    jobs = [job for plan in PLANS for job in plan.jobs]
    assert {(job.elastic, job.scale) for job in jobs} == {(0, 0), (1, 0), (1, 1)}
    assert {job.layout[1] for job in jobs} == {1, 2, 3, 4}
    assert {job.recompute for job in jobs} == {0, 5, 10}
    assert {job.budget for job in jobs if job.budget < 100} == {SMALL_BUDGET}
    assert {plan.hold_s for plan in PLANS} == {0, 10, 30}
    competing = [plan for plan in PLANS if len(plan.jobs) > 1]
    hosts = [plan.fleet.pods * plan.fleet.hosts_per_pod for plan in competing]
    wanted = [sum(job.hosts for job in plan.jobs) for plan in competing]
    assert any(there < asked for there, asked in zip(hosts, wanted, strict=True))


def small(*faults: Fault, job: JobPlan, hold_s: int = 0) -> Plan:
    """Return a plan of one job on four hosts, on a good network."""
    return Plan(
        seed=1,
        fleet=Fleet(pods=2, hosts_per_pod=2),
        conditions=Conditions(),
        clocks_differ=False,
        faults=faults,
        jobs=(job,),
        hold_s=hold_s,
    )


def wrong_of(plan: Plan) -> str:
    """Run a plan and return what is wrong, as one text."""
    return "; ".join(run_plan(plan).wrong)


LOST = Fault(kind="kill_host", at_s=10.0, seed="c")
SHRINKING = small(
    LOST, job=JobPlan(number=0, layout=(1, 4, 1), elastic=True, scale=True), hold_s=10
)


def test_smaller_batch_that_ranks_are_not_told_of_is_found(monkeypatch):
    """They would train on samples again, or leave some out."""
    assert wrong_of(SHRINKING) == ""
    monkeypatch.setattr(correcting, "_batches", lambda *_: ())
    assert "samples from place" in wrong_of(SHRINKING)


def test_job_that_does_not_grow_back_is_found(monkeypatch):
    """There is room, and nobody asks for it."""
    monkeypatch.setattr(policy, "wanted_layouts", lambda _: ())
    assert "stays small although there is room" in wrong_of(SHRINKING)


def test_host_that_is_held_out_for_good_is_found(monkeypatch):
    """Its time is over, and nobody lets it come back."""
    monkeypatch.setattr(agenda, "may_return", lambda *_: False)
    assert "may come back and does not" in wrong_of(SHRINKING)


@pytest.mark.parametrize("replicas", [2, 3])
def test_wrong_work_that_nobody_acts_on_is_found(replicas, monkeypatch):
    """All ranks told of it."""
    fault = Fault(kind="wrong_work", at_s=15.0, seed="a")
    plan = small(fault, job=JobPlan(number=0, layout=(1, replicas, 1), recompute=5))
    assert wrong_of(plan) == ""
    monkeypatch.setattr(RecomputeCourse, "told", lambda *_: [])
    assert "goes on with work that differs" in wrong_of(plan)


def test_fault_that_lies_in_wait_strikes_at_its_moment():
    """The controller is killed right after it has begun to shrink, and the next one carries on."""
    kill = Fault(kind="kill_service", at_s=15.0, seed="a", moment="placed", after_s=0.02)
    outcome = run_plan(replace(SHRINKING, faults=(LOST, kill)))
    assert outcome.wrong == ()
    [at] = [n for n, line in enumerate(outcome.trace) if line.endswith(" killed")]
    assert any("placement_decided" in line for line in outcome.trace[at - 10 : at])
