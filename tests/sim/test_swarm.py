"""Seeds: the same one is the same run, everywhere, and what they find stays found."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace

import pytest

from everstep.controller import decider as controller
from everstep.controller.outside import Looked
from everstep.controller.runner import Runner
from everstep.sim.faults import Fault
from everstep.sim.shrink import reason_of, shrink
from everstep.sim.swarm import plan_of, run_plan, run_seed

SEEDS = 25  # a few seconds; `make sim` runs thousands
PRINT = "from everstep.sim.swarm import run_seed; print(run_seed({seed}).digest)"


@pytest.mark.parametrize("seed", range(SEEDS))
def test_seed_ends_well(seed):
    """Whatever a seed's faults are, its jobs finish and nothing is wrong."""
    assert run_seed(seed).wrong == ()


@pytest.mark.parametrize("seed", [3, 11])
def test_seed_is_the_same_run_in_any_process(seed):
    """Byte for byte, whatever the process's hashes are."""
    digests = {
        subprocess.run(
            [sys.executable, "-c", PRINT.format(seed=seed)],
            env={**os.environ, "PYTHONHASHSEED": hashes},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for hashes in ("0", "1", "77")
    }
    assert digests == {f"{run_seed(seed).digest}\n"}


def test_another_seed_is_another_run():
    """Seeds are not ignored."""
    assert run_seed(1).digest != run_seed(2).digest


def test_failing_plan_is_cut_down_to_what_it_needs(monkeypatch):
    """None of the faults that are left could be left out as well."""

    async def never(*_):
        return Looked()

    monkeypatch.setattr(Runner, "look_at_step", never)
    monkeypatch.setattr(controller, "NO_SUCH_STEP", frozenset())
    noise = tuple(
        Fault(kind=kind, at_s=at_s, seed="noise")
        for kind, at_s in (("save", 12.0), ("kill_agent", 30.0), ("objects_away", 50.0))
    )
    failing = next(
        outcome
        for seed in range(127, 200)  # the first ones do not fail
        if (plan := plan_of(seed)) and [fault.kind for fault in plan.faults].count("restart") > 1
        if reason_of(outcome := run_plan(replace(plan, faults=(*plan.faults, *noise))))
    )
    small = shrink(failing)
    assert reason_of(small) == reason_of(failing)
    faults = small.plan.faults
    assert len(faults) < len(failing.plan.faults)
    assert "restart" in {fault.kind for fault in faults}
    for index in range(len(faults)):
        less = replace(small.plan, faults=faults[:index] + faults[index + 1 :])
        assert reason_of(run_plan(less)) != reason_of(small), "one more could have been left out"
