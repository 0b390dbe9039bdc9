"""What a watch makes of wrong numbers and slow hosts: notes, going back, holding, draining."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.spec import spec
from tests.unit.monitor.test_decider import HOSTS, OPEN, exit_of, marked, up

from everstep.core.corrections import PositionRange
from everstep.monitor.codec import AGGREGATE
from everstep.monitor.commands import (
    MarkJob,
    ObserveExit,
    ObserveProgress,
    ObserveStray,
    OpenIncident,
    SettleNote,
)
from everstep.monitor.events import (
    Action,
    ExitClass,
    GenerationProgressed,
    IncidentClosed,
    IncidentOpened,
    IncidentRecovered,
    Mark,
    NumericsRules,
    RankEnded,
    RunFinished,
    StrayFound,
)

WATCH = spec(AGGREGATE)
SUBMITTED = marked(
    0, Mark.SUBMITTED, numerics=NumericsRules(on_spike="roll_back", repeat_steps=100)
)
NOTED = {**OPEN, "incident_id": "n1", "kind": "step_skipped", "hosts": (), "action": Action.NOTE}
SPIKE = {
    **OPEN,
    "kind": "loss_spike",
    "hosts": (),
    "action": Action.ROLL_BACK,
    "step": 53,
    "reason": "raised",
    "suspect_from_step": 50,
    "skipped": (PositionRange(first=49, end=53),),
}
SETTLED = SettleNote(job_id="j", kind="step_skipped", lost_ms=700, lost_steps=1, at_ms=90)
OVER = IncidentRecovered(
    incident_id="n1", job_id="j", recovered_at_ms=90, lost_ms=700, lost_steps=1
)


def test_rules_of_the_spec_are_kept():
    """They come with the job's submission."""
    command = MarkJob(
        job_id="j", generation=0, mark=Mark.SUBMITTED, numerics=SUBMITTED.numerics, at_ms=0
    )
    WATCH.when(command).then(SUBMITTED)
    assert WATCH.given(SUBMITTED).state.numerics.repeat_steps == 100


def test_note_leaves_room_for_the_incident_that_ends_the_generation():
    """Nothing was done about it, so something may have to be done about another."""
    given = WATCH.given(*up(1))
    given.when(OpenIncident(**NOTED)).then(IncidentOpened(**NOTED))
    noted = given.given(IncidentOpened(**NOTED))
    noted.when(OpenIncident(**{**NOTED, "incident_id": "n2"})).then()
    noted.when(OpenIncident(**OPEN)).then(IncidentOpened(**OPEN))
    judged = given.given(IncidentOpened(**OPEN))
    judged.when(OpenIncident(**NOTED)).then(IncidentOpened(**NOTED))


def test_note_of_another_kind_stands_beside_it():
    """A skipped step and a raised loss are two things."""
    other = {**NOTED, "incident_id": "n2", "kind": "loss_spike"}
    noted = WATCH.given(*up(1), IncidentOpened(**NOTED))
    noted.when(OpenIncident(**other)).then(IncidentOpened(**other))


def test_note_is_settled_with_what_it_has_cost():
    """And only once, and only its own kind."""
    noted = WATCH.given(*up(1), IncidentOpened(**NOTED))
    noted.when(SETTLED).then(OVER)
    noted.when(replace(SETTLED, kind="loss_spike")).then()
    noted.given(OVER).when(SETTLED).then()


def test_incident_that_ended_the_generation_is_not_settled_as_a_note():
    """It is over when a new step is made."""
    WATCH.given(*up(1), IncidentOpened(**{**OPEN, "kind": "step_skipped"})).when(SETTLED).then()


def test_note_that_a_restart_has_overtaken_costs_nothing():
    """What the restart cost is the other incident's."""
    second = (*up(2), marked(2, Mark.PLANNED, step=5))
    given = WATCH.given(*up(1), IncidentOpened(**NOTED), IncidentOpened(**OPEN), *second)
    _, note, lost = given.when(
        ObserveProgress(job_id="j", generation=2, step=6, at_ms=99)
    ).decision.events
    assert (note.incident_id, note.lost_ms, note.lost_steps) == ("n1", 0, 0)
    assert (lost.incident_id, lost.lost_ms, lost.lost_steps) == ("i1", 49, 3)


def test_spike_goes_back_and_names_what_is_suspect():
    """The controller and the registry act on it."""
    WATCH.given(SUBMITTED, *up(1)).when(OpenIncident(**SPIKE)).then(IncidentOpened(**SPIKE))


@pytest.mark.parametrize(("step", "action"), [(150, Action.HOLD), (151, Action.ROLL_BACK)])
def test_second_spike_within_reach_is_held_for_a_person(step: int, action: Action):
    """Other batches have not helped; a spike much later is another one."""
    progressed = GenerationProgressed(job_id="j", generation=2, step=49, at_ms=80)
    given = WATCH.given(SUBMITTED, *up(1), IncidentOpened(**SPIKE), *up(2), progressed)
    again = {**SPIKE, "incident_id": "i2", "generation": 2, "suspect_from_step": step}
    (opened,) = given.when(OpenIncident(**again)).decision.events
    assert opened.action is action
    held = ". The run went back before step 50 already, within 100 steps (numerics.repeat_steps): "
    assert (held in opened.reason) == (action is Action.HOLD)


def test_spike_after_a_hold_is_held_again():
    """A person has resumed; what was learnt still holds."""
    held = IncidentOpened(**{**SPIKE, "incident_id": "i2", "generation": 2, "action": Action.HOLD})
    given = WATCH.given(SUBMITTED, *up(1), IncidentOpened(**SPIKE), *up(2), held, *up(3))
    again = {**SPIKE, "incident_id": "i3", "generation": 3}
    (opened,) = given.when(OpenIncident(**again)).decision.events
    assert opened.action is Action.HOLD


DRAIN = {**OPEN, "incident_id": "d1", "kind": "straggler", "action": Action.DRAIN}


def test_drain_stands_beside_what_ends_the_generation_and_is_said_once():
    """The run goes on until a spare is there, and much may happen until then."""
    given = WATCH.given(*up(1), IncidentOpened(**DRAIN))
    given.when(OpenIncident(**{**DRAIN, "incident_id": "d2"})).then()
    other = {**DRAIN, "incident_id": "d2", "hosts": ("h0",)}
    given.when(OpenIncident(**other)).then(IncidentOpened(**other))
    given.when(OpenIncident(**OPEN)).then(IncidentOpened(**OPEN))


@pytest.mark.parametrize(("restored", "lost_steps"), [(30, 0), (DRAIN["step"] - 1, 1)])
def test_drain_has_cost_the_move_and_what_its_host_took_with_it(restored, lost_steps):
    """What the slow host cost before is not lost by the move; it may die in the middle of one."""
    moved = (
        marked(2, Mark.BEGUN, cause="drain", at_ms=500),
        marked(2, Mark.PLACED, hosts=(HOSTS[0],)),
        marked(2, Mark.PLANNED, step=restored),
    )
    given = WATCH.given(*up(1), IncidentOpened(**DRAIN), *moved)
    _, over = given.when(
        ObserveProgress(job_id="j", generation=2, step=31, at_ms=520)
    ).decision.events
    assert (over.incident_id, over.lost_ms, over.lost_steps) == ("d1", 20, lost_steps)


def test_drain_that_never_came_to_pass_is_no_recovery():
    """The job ended first, where it was."""
    ended = MarkJob(job_id="j", generation=1, mark=Mark.ENDED, cause="succeeded", at_ms=900)
    over, _ = WATCH.given(*up(1), IncidentOpened(**DRAIN)).when(ended).decision.events
    stayed = "the run ended where it was: no spare has taken the seat"
    assert over == IncidentClosed(incident_id="d1", job_id="j", why=stayed, closed_at_ms=900)


def test_drain_waits_on_where_a_recovery_has_had_to_keep_the_host():
    """Another rank was killed meanwhile, and there was no spare then either."""
    again = (marked(2, Mark.BEGUN, at_ms=500), marked(2, Mark.PLACED, hosts=HOSTS))
    planned = marked(2, Mark.PLANNED, step=30)
    killed = IncidentOpened(**OPEN)
    given = WATCH.given(*up(1), IncidentOpened(**DRAIN), killed, *again, planned)
    told = given.when(ObserveProgress(job_id="j", generation=2, step=31, at_ms=520))
    _, *over = told.decision.events
    assert [one.incident_id for one in over] == [killed.incident_id]


def test_ranks_that_stop_for_a_drain_are_not_stray_before_there_is_a_plan():
    """They agree on a last step first; what still runs after that was never reached."""
    moving = marked(2, Mark.BEGUN, cause="drain", at_ms=500)
    left = ObserveStray(job_id="j", generation=1, host_id="h0", at_ms=7)
    given = WATCH.given(*up(1), moving)
    given.when(left).then()
    found = StrayFound(job_id="j", generation=2, host_id="h0", stray_generation=1, at_ms=7)
    given.given(marked(2, Mark.PLANNED, step=30)).when(left).then(found)


def test_run_that_finishes_while_it_is_drained_is_through():
    """As with a pause: its ranks' ends still count."""
    finished = [exit_of(rank, 1, ExitClass.FINISHED) for rank in (0, 1)]
    given = WATCH.given(
        *up(1), RankEnded(**finished[0]), marked(2, Mark.BEGUN, cause="drain", at_ms=500)
    )
    _, done = given.when(ObserveExit(**finished[1])).decision.events
    assert isinstance(done, RunFinished)
