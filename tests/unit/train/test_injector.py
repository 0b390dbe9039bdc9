"""A rank obeys its faults, each as often as it is meant to."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from tests.clocks import ManualClock
from torch import nn

from everstep.core.errors import InvalidInput
from everstep.core.spec import LayoutSpec
from everstep.train.batches import Batch
from everstep.train.faults import (
    MARKS_VARIABLE,
    InjectedError,
    Injector,
    Marks,
    Part,
    as_environment,
    at,
    everywhere,
    injector,
    poisoned,
)
from everstep.train.state import TrackedState

STEP = 4


def marks_in(directory: Path | None, generation: int = 1) -> Marks:
    """What a process of that generation knows."""
    return Marks(
        directory=directory,
        rank=3,
        where={"host": "h2", "generation": generation},
        clock=ManualClock(),
        seen=set(),
    )


def batch(position: int, *, floating: bool = False) -> Batch:
    """Eight samples."""
    targets = torch.arange(32).reshape(8, 4)
    return Batch(
        position=position,
        samples=tuple(range(8)),
        micro_batches=4,
        inputs=targets + 1,
        targets=targets.float() if floating else targets,
        token_count=32,
    )


def test_moment_happens_once_in_a_job(tmp_path):
    """The step that is made again by the next process is made without it."""
    fault = at(rank=3, step=STEP).nan_gradient()
    assert marks_in(tmp_path).strikes(fault, {})
    assert not marks_in(tmp_path, generation=2).strikes(fault, {})


def test_moment_of_every_generation_happens_once_in_each(tmp_path):
    """As a bug does."""
    fault = at(rank=3, step=STEP, every_generation=True).raise_error()
    for generation in (1, 2):
        marks = marks_in(tmp_path, generation)
        assert [marks.strikes(fault, {}) for _ in range(2)] == [True, False]


def test_what_lies_in_the_data_is_there_whenever_it_is_read(tmp_path):
    """Else a step that is made again would be another step."""
    fault = at(rank=3, step=STEP).poisoned_batch()
    for generation in (1, 2):
        marks = marks_in(tmp_path, generation)
        assert [marks.strikes(fault, {}) for _ in range(2)] == [True, True]


def test_two_faults_of_a_step_are_two(tmp_path):
    """They differ in what they do."""
    here = at(rank=3, step=STEP)
    assert marks_in(tmp_path).strikes(here.flip(Part.PARAMETER), {})
    assert marks_in(tmp_path).strikes(here.flip(Part.MOMENT), {})


def test_mark_says_what_was_done_when_and_where(tmp_path):
    """It is the truth that detectors are measured by."""
    fault = at(rank=3, step=STEP).flip(Part.PARAMETER, bit=3)
    marks_in(tmp_path).strikes(fault, {"tensor": "model.0.weight", "element": 5})
    (path,) = tmp_path.iterdir()
    assert path.name.startswith("flip-rank-3-step-4-")
    said = json.loads(path.read_text())
    assert said.pop("fault")["bit"] == 3
    assert said == {
        "rank": 3,
        "at_ms": ManualClock().now_ms(),
        "host": "h2",
        "generation": 1,
        "tensor": "model.0.weight",
        "element": 5,
    }


def test_without_a_place_for_marks_the_process_remembers():
    """A bare run."""
    marks = marks_in(None)
    fault = at(rank=3, step=STEP).nan_gradient()
    assert [marks.strikes(fault, {}) for _ in range(2)] == [True, False]


@pytest.mark.parametrize(("stays", "left"), [(False, 1), (True, 0)])
def test_slow_chip_stays_where_it_is_if_it_is_told_so(tmp_path, stays, left):
    """Else the rank is slow wherever it goes."""
    slow = at(rank=3, step=STEP).slow(percent=50.0, stays=stays)
    env = {**as_environment(slow), MARKS_VARIABLE: str(tmp_path), "EVERSTEP_JOB_ID": "job-1"}
    assert marks_in(tmp_path / "job-1").strikes(slow, {})
    for host, count in (("h2", 1), ("h5", left)):
        obeys = injector({**env, "EVERSTEP_HOST_ID": host}, 3)
        assert obeys is not None
        assert obeys.count == count


def test_faulty_chip_flips_step_after_step_and_stays_where_it_is(tmp_path):
    """Each step once in a job; a rank that was moved to another host leaves it behind."""
    flip = at(rank=3, step=STEP).flip(Part.REDUCED_GRADIENT, steps=3)
    assert [one.step for one in flip.each()] == [STEP, STEP + 1, STEP + 2]
    assert {one.steps for one in flip.each()} == {1}
    env = {**as_environment(flip), MARKS_VARIABLE: str(tmp_path), "EVERSTEP_JOB_ID": "job-1"}

    def faults_on(host: str) -> int:
        obeys = injector({**env, "EVERSTEP_HOST_ID": host}, 3)
        assert obeys is not None
        return obeys.count

    assert faults_on("h2") == 3
    assert marks_in(tmp_path / "job-1").strikes(flip.each()[0], {})
    assert (faults_on("h2"), faults_on("h5")) == (3, 0)


def test_marks_lie_where_all_hosts_look_if_there_is_such_a_place(tmp_path):
    """Else in the host's memory, which dies with it."""
    env = {
        **as_environment(at(rank=3, step=STEP).raise_error()),
        "EVERSTEP_MEMORY_DIR": str(tmp_path / "memory"),
        "EVERSTEP_JOB_ID": "job-1",
    }
    for told, where in (({}, "memory/job-1/faults"), ({MARKS_VARIABLE: str(tmp_path)}, "job-1")):
        obeys = injector({**env, **told}, 3)
        with pytest.raises(InjectedError, match="injected"):
            obeys.computed(STEP, 1.0, [])
        assert [path.suffix for path in (tmp_path / where).iterdir()] == [".json"]


def test_gradient_that_is_no_number_comes_at_its_step_alone():
    """One element of the first tensor that has any."""
    obeys = Injector([at(rank=3, step=STEP).nan_gradient()], marks_in(None))
    for step in range(STEP + 2):
        gradients = [torch.zeros(0), torch.zeros(2, 3).t()]
        obeys.computed(step, 1.0, gradients)
        assert int(gradients[1].isnan().sum()) == (step == STEP)


@pytest.mark.parametrize("floating", [False, True])
def test_poisoned_batch_has_other_targets_the_same_for_all_who_share_it(floating):
    """Everything else stays, and so does the next batch."""
    right = batch(STEP, floating=floating)
    wrong = poisoned(right)
    assert not torch.equal(wrong.targets, right.targets)
    assert wrong.targets.dtype == right.targets.dtype
    assert torch.equal(wrong.targets, poisoned(right).targets)
    assert not torch.equal(wrong.targets, poisoned(batch(STEP + 1, floating=floating)).targets)
    assert torch.equal(wrong.inputs, right.inputs)


def test_poison_is_made_of_tokens_that_the_batch_has_not():
    """They are the rare ones, and within the vocabulary."""
    right = replace(batch(STEP), targets=torch.tensor([[3, 9, 3], [7, 9, 1]]))
    wrong = poisoned(right).targets
    assert set(wrong.flatten().tolist()) <= {0, 2, 4, 5, 6, 8}


def test_poison_lies_at_its_positions():
    """Whatever the step is."""
    obeys = Injector([at(rank=3, step=STEP).poisoned_batch(batches=2)], marks_in(None))
    for position in range(STEP + 4):
        told = obeys.loaded(0, batch(position))
        changed = not torch.equal(told.targets, batch(position).targets)
        assert changed == (position in {STEP, STEP + 1})


def test_poison_is_met_by_the_whole_data_parallel_group_and_by_no_other():
    """Ranks of pp 2 x dp 2 x tp 2: 2 and 3 share their batches with 6 and 7."""
    layout = LayoutSpec(pp=2, dp_shard=2, tp=2)
    env = as_environment(at(rank=3, step=STEP).poisoned_batch())
    met = [rank for rank in range(8) if injector(env, rank, layout) is not None]
    assert met == [2, 3, 6, 7]


def test_fault_of_every_rank_meets_every_rank():
    """And a fault of one only that one."""
    env = as_environment(everywhere(step=STEP).loss_spike())
    assert all(injector(env, rank) is not None for rank in range(4))
    env = as_environment(at(rank=2, step=STEP).loss_spike())
    assert [injector(env, rank) is not None for rank in range(4)] == [False, False, True, False]


def test_fault_that_cannot_happen_is_noted_for_the_campaign(tmp_path):
    """Not as what has struck; without a campaign the error says what is wrong."""
    flip = at(rank=3, step=STEP).flip(Part.PARAMETER, tensor="none")
    error = InvalidInput("no parameter 'none'")
    marks = replace(marks_in(tmp_path), campaign=True)
    marks.set_aside(flip, error)
    (path,) = tmp_path.glob("*.json")
    noted = json.loads(path.read_text())
    assert (noted["wrong"], noted["rank"], noted["host"]) == ("no parameter 'none'", 3, "h2")
    assert marks.said(flip) is None
    with pytest.raises(InvalidInput, match=r"EVERSTEP_FAULTS are wrong, not the code: no p"):
        marks_in(tmp_path).set_aside(flip, error)


def test_rank_goes_on_without_a_campaigns_fault_that_names_what_it_has_not(tmp_path):
    """The campaign reads why; a fault that was given by hand ends the rank and says whose it is."""
    model = nn.Linear(2, 2)
    state = TrackedState(torch.device("cpu"), {"model": model})
    env = as_environment(at(rank=3, step=STEP).flip(Part.PARAMETER, tensor="none"))
    campaign = {**env, MARKS_VARIABLE: str(tmp_path), "EVERSTEP_JOB_ID": "j"}
    injector(campaign, 3).watch(state, 0)
    (path,) = (tmp_path / "j").iterdir()
    assert "no parameter 'none'" in json.loads(path.read_text())["wrong"]
    with pytest.raises(InvalidInput, match=r"EVERSTEP_FAULTS are wrong, not the code"):
        injector(env, 3).watch(state, 0)
