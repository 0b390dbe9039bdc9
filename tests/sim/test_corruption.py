"""Each rule about wrong bits is what makes its story end well: without it, it does not."""

from __future__ import annotations

from dataclasses import replace

import pytest

from everstep.controller import decider as controller
from everstep.controller import noting
from everstep.core.decision import Accepted
from everstep.memory.gate import Gate
from everstep.monitor import decider as monitor
from everstep.monitor import queries, state
from everstep.monitor.detectors import corruption_course
from everstep.monitor.detectors.remade import Ties
from everstep.sim import training
from everstep.sim.faults import Fault
from everstep.sim.jobs import plain_job
from everstep.sim.network import Conditions
from everstep.sim.playing import play
from everstep.sim.swarm import plan_of, run_plan

BAD_NETWORK = Conditions(
    latency_s=0.005, late_share=0.05, late_s=0.5, lost_share=0.02, doubled_share=0.1
)


def fails(name: str) -> None:
    """Say that a story does not end well."""
    with pytest.raises(AssertionError):
        play(name)


@pytest.mark.parametrize(
    "name", ["flipped_bit", "flipped_bit_on_one_of_two", "wrong_work_in_the_last_steps"]
)
@pytest.mark.parametrize("seed", range(3))
def test_story_ends_well_on_a_bad_network(name: str, seed: int):
    """Ranks tell again what they hold, with every step that they make."""
    play(name, seed=seed, conditions=BAD_NETWORK)


def test_without_the_gate_the_sound_step_is_overwritten(monkeypatch):
    """Memory holds the two newest steps, and both are wrong when it is known."""
    monkeypatch.setattr(Gate, "opens", lambda *_, **__: True)
    fails("flipped_bit_while_the_monitor_starts_anew")


def test_without_what_was_claimed_nobody_is_named_by_the_step_made_again(monkeypatch):
    """It comes out equal, and that is all."""
    monkeypatch.setattr(Ties, "keep", lambda *_: None)
    fails("flipped_bit_on_one_of_two")
    fails("wrong_work_once")


def test_without_what_was_stored_a_new_monitor_names_nobody(monkeypatch):
    """The process that knew what each had is gone."""
    monkeypatch.setattr(monitor, "_ties", lambda _: ())
    fails("flipped_bit_that_a_new_monitor_knows_of")
    fails("wrong_work_once_that_a_new_monitor_knows_of")


def test_without_the_first_suspect_step_the_run_goes_on_from_it(monkeypatch):
    """The newest step in memory is the wrong one."""
    monkeypatch.setattr(controller, "SILENT_CORRUPTION", "")
    fails("flipped_bit")


def test_without_a_word_of_what_a_stop_does_nothing_about_a_restart_has_only_suspect_states(
    monkeypatch,
):
    """The incident is dropped, and the job waits for a person (seed 84016)."""
    monkeypatch.setattr(noting, "note", lambda *_: Accepted())
    fails("wrong_bits_told_of_while_the_job_is_stopped")
    fails("wrong_bits_told_of_when_the_job_is_stopped")


def test_without_names_at_the_end_a_wrong_host_serves_the_next_job(monkeypatch):
    """What names it else is the next placement."""
    monkeypatch.setattr(noting, "SILENT_CORRUPTION", "")
    fails("host_to_be_left_for_wrong_bits_when_the_job_ends")
    fails("wrong_bits_told_of_while_the_job_is_paused")


def test_last_snapshots_that_wait_for_no_judge_overwrite_the_sound_step(monkeypatch):
    """As in the middle of a run: a job that is paused then would begin anew."""
    monkeypatch.setattr(training, "HELD_LOOKS_MAX", 0)
    fails("wrong_bits_told_of_while_the_job_is_paused")


def test_without_what_was_never_equal_a_later_generation_blames_somebody_for_it(monkeypatch):
    """It takes what it begins with for sound (seeds 73077, 73425)."""
    monkeypatch.setattr(state, "NEVER_EQUAL", "")
    fails("flipped_bit_from_the_beginning")


def test_without_doubts_nobody_is_ever_named_among_two(monkeypatch):
    """However often it was among them."""
    monkeypatch.setattr(monitor, "named", lambda *_: "")
    fails("flipped_bit_twice_beside_others")


def test_without_what_other_jobs_have_left_a_host_begins_each_job_without_a_doubt(monkeypatch):
    """It is one of two once more."""

    async def nothing(*_):
        return ()

    monkeypatch.setattr(queries, "doubts_elsewhere", nothing)
    fails("flipped_bit_in_one_job_and_in_the_next")


def test_without_patience_a_monitor_that_starts_anew_sees_nothing(monkeypatch):
    """The first host to tell it of a step that is long held would be judged alone."""
    told = corruption_course.CorruptionCourse._take

    def hasty(course, rank):
        told(course, rank)
        for step, one in course._told.items():
            one.since = min(one.since, step)

    monkeypatch.setattr(corruption_course.CorruptionCourse, "_take", hasty)
    fails("flipped_bit_while_the_monitor_starts_anew")


def test_swarm_sees_a_run_that_goes_on_with_a_wrong_bit(monkeypatch):
    """What nobody looks for is not found, and the world knows of it."""
    fault = Fault(kind="wrong_bit", at_s=20.0, seed="flip")
    plan = replace(plan_of(1), faults=(fault,), conditions=Conditions(), jobs=(plain_job(0),))
    assert run_plan(plan).wrong == ()
    monkeypatch.setattr(corruption_course.CorruptionCourse, "told", lambda *_: [])
    assert any("a wrong bit that ranks hold since step" in one for one in run_plan(plan).wrong)
