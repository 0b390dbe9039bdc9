"""Seeds: the same one is the same run, everywhere, and what they find stays found."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from functools import cache

import pytest

from everstep.controller import policy
from everstep.sim.faults import Fault
from everstep.sim.jobs import plain_job
from everstep.sim.network import Conditions
from everstep.sim.shrink import reason_of, shrink
from everstep.sim.swarm import plan_of, run_plan, run_seed
from everstep.sim.world import Fleet

SEEDS = 25  # a few seconds; `make sim` runs thousands
PRINT = "from everstep.sim.swarm import run_seed; print(run_seed({seed}).digest)"


@cache
def told_of(seed: int) -> tuple[tuple[str, ...], str]:
    """What is wrong after a seed, and the digest of its run."""
    outcome = run_seed(seed)
    return outcome.wrong, outcome.digest


@pytest.mark.parametrize("seed", range(SEEDS))
def test_seed_ends_well(seed):
    """Whatever a seed's faults are, its jobs finish and nothing is wrong."""
    wrong, _ = told_of(seed)
    assert wrong == ()


@pytest.mark.parametrize(("seed", "hashes"), [(3, "0"), (11, "77")])
def test_seed_is_the_same_run_in_any_process(seed, hashes):
    """Byte for byte, whatever the process's hashes are: this one's are drawn."""
    other = subprocess.run(
        [sys.executable, "-c", PRINT.format(seed=seed)],
        env={**os.environ, "PYTHONHASHSEED": hashes},
        capture_output=True,
        text=True,
        check=True,
    )
    assert other.stdout == f"{told_of(seed)[1]}\n"


def test_another_seed_is_another_run():
    """Seeds are not ignored."""
    assert told_of(1)[1] != told_of(2)[1]


def test_failing_plan_is_cut_down_to_what_it_needs(monkeypatch):
    """None of the faults that are left could be left out as well."""
    monkeypatch.setattr(policy, "wanted_layouts", lambda _: ())
    faults = (
        Fault(kind="save", at_s=5.0, seed="noise"),
        Fault(kind="blink_host", at_s=10.0, seed="c"),
        Fault(kind="objects_away", at_s=30.0, seed="noise"),
    )
    job = replace(plain_job(0), layout=(1, 4, 1), elastic=True, recompute=5)
    plan = replace(
        plan_of(1),
        fleet=Fleet(pods=2, hosts_per_pod=2),
        conditions=Conditions(),
        faults=faults,
        jobs=(job,),
        hold_s=10,
    )
    failing = run_plan(plan)
    assert "stays small although there is room" in reason_of(failing)
    small = shrink(failing)
    assert reason_of(small) == reason_of(failing)
    assert [fault.kind for fault in small.plan.faults] == ["blink_host"]
    assert small.plan.jobs == (replace(job, recompute=0),), "it need not do work twice"
    assert reason_of(run_plan(replace(small.plan, faults=()))) == ""
