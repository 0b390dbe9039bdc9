"""How many steps incidents say were lost: each once, whatever is told late."""

from __future__ import annotations

from dataclasses import replace

from tests.unit.monitor.test_decider import (
    HOSTS,
    OPEN,
    WATCH,
    exit_of,
    marked,
    progress,
    recovered,
    up,
)

from everstep.monitor.commands import MarkJob, ObserveExit
from everstep.monitor.events import Action, ExitClass, IncidentOpened, Mark, RankEnded, RunFinished


def test_steps_are_lost_by_one_of_two_incidents():
    """The second one struck before a plan, or between two: the sum is what was lost."""
    second = IncidentOpened(**{**OPEN, "incident_id": "i2", "generation": 2})
    command, progressed = progress(3, 6)
    unplanned = (*up(1), IncidentOpened(**OPEN), *up(2), second, *up(3))
    given = WATCH.given(*unplanned, marked(3, Mark.PLANNED, step=5))
    given.when(command).then(progressed, recovered("i1", 950, 3), recovered("i2", 950, 0))
    at_7 = IncidentOpened(**{**OPEN, "incident_id": "i2", "generation": 2, "step": 7})
    given = WATCH.given(
        *up(1), IncidentOpened(**OPEN), *up(2), marked(2, Mark.PLANNED, step=7),
        at_7, *up(3), marked(3, Mark.PLANNED, step=5),
    )  # fmt: skip
    given.when(command).then(progressed, recovered("i1", 950, 1), recovered("i2", 950, 2))


def test_incident_before_its_generations_plan_does_not_lose_the_same_steps_again():
    """What it took for made, the generation before it had made (seed 73583)."""
    second = IncidentOpened(**{**OPEN, "incident_id": "i2", "generation": 2})
    planned = (marked(2, Mark.PLANNED, step=7), *up(3), marked(3, Mark.PLANNED, step=5))
    given = WATCH.given(*up(1), IncidentOpened(**OPEN), *up(2), second, *planned)
    command, progressed = progress(3, 6)
    given.when(command).then(progressed, recovered("i1", 950, 1), recovered("i2", 950, 2))


def test_move_that_waits_does_not_lose_what_another_incident_has_lost():
    """It was found further on than the run went back to before there was a spare (seed 73583)."""
    waits = {**OPEN, "kind": "silent_corruption", "action": Action.DRAIN}
    other = IncidentOpened(**{**OPEN, "incident_id": "i2", "step": 9})
    back = (*up(2), marked(2, Mark.PLANNED, step=5), recovered("i2", 900, 4))
    moved = (
        marked(3, Mark.BEGUN, cause="drain"),
        marked(3, Mark.PLACED, hosts=HOSTS[:1]),
        marked(3, Mark.PLANNED, step=6),
    )
    given = WATCH.given(*up(1), IncidentOpened(**waits), other, *back, *moved)
    command, progressed = progress(3, 7)
    ended = replace(recovered("i1", 950, 0), lost_ms=950)  # since the move began
    given.when(command).then(progressed, ended)


def test_steps_are_lost_although_the_plan_is_told_after_a_step():
    """The first one that is heard of need not be the first that was made (seed 84049)."""
    given = WATCH.given(*up(1), IncidentOpened(**OPEN), *up(2))
    for told, step, lost_steps in ((7, 6, 2), (9, 6, 2), (0, -1, 8)):
        command, event = progress(2, told)
        given.when(command).then(event)
        plan = {"generation": 2, "mark": Mark.PLANNED, "step": step, "at_ms": 990}
        planned, over = marked(**plan), recovered("i1", 950, lost_steps)
        given.given(event).when(MarkJob(job_id="j", **plan)).then(planned, over)


def test_run_that_is_through_before_its_plan_is_told_has_lost_steps():
    """Its ends are told without a word of a step between them."""
    last = exit_of(1, 2, ExitClass.FINISHED)
    ends = RankEnded(**exit_of(0, 2, ExitClass.FINISHED)), RankEnded(**last)
    done = RunFinished(job_id="j", generation=2, step=10, at_ms=101)
    given = WATCH.given(*up(1), IncidentOpened(**OPEN), *up(2), ends[0])
    given.when(ObserveExit(**last)).then(ends[1], done)
    mark = MarkJob(job_id="j", generation=2, mark=Mark.PLANNED, step=7, at_ms=150)
    planned = marked(2, Mark.PLANNED, step=7, at_ms=150)
    given.given(ends[1], done).when(mark).then(planned, recovered("i1", 150, 1))


def test_incident_of_a_generation_that_was_heard_to_step_loses_steps_although_its_plan_comes_late():
    """They are its own, and not those that the generation before had made."""
    _, progressed = progress(2, 7)
    own = IncidentOpened(**{**OPEN, "incident_id": "i2", "generation": 2, "step": 9})
    plan = marked(2, Mark.PLANNED, step=6)
    before = (*up(1), IncidentOpened(**OPEN), *up(2))
    after = (plan, recovered("i1", 950, 2), *up(3), marked(3, Mark.PLANNED, step=6))
    for told in ((progressed, own), (replace(own, step=7),)):  # by all hosts, or by one of them
        *_, last = WATCH.given(*before, *told, *after).when(progress(3, 7)[0]).decision.events
        assert (last.incident_id, last.lost_steps) == ("i2", told[-1].step - 6)


def test_incident_says_whose_step_it_was_where_nobody_else_does():
    """A generation's plan and its first sign of life are told after it has ended (seed 91368)."""
    before = (*up(1), IncidentOpened(**OPEN), *up(2))
    after = (marked(2, Mark.PLANNED, step=7), *up(3), marked(3, Mark.PLANNED, step=5))
    for own_step, step, lost in ((True, 14, 9), (False, 14, 2), (None, 14, 2), (False, 7, 2)):
        fields = {**OPEN, "incident_id": "i2", "generation": 2, "step": step}
        incident = IncidentOpened(**{**fields, "own_step": own_step})
        given = WATCH.given(*before, incident, *after)
        *_, last = given.when(progress(3, 6)[0]).decision.events
        assert (last.incident_id, last.lost_steps) == ("i2", lost)


def test_run_that_is_through_when_it_is_found_to_be_wrong_loses_what_is_made_again():
    """The incident came first: its ranks had finished, and the next ones go back behind it."""
    last = exit_of(1, 1, ExitClass.FINISHED)
    first = RankEnded(**exit_of(0, 1, ExitClass.FINISHED))
    done = RunFinished(job_id="j", generation=1, step=10, at_ms=101)
    given = WATCH.given(*up(1), first, IncidentOpened(**OPEN))
    given.when(ObserveExit(**last)).then(RankEnded(**last), done)
    back = (RankEnded(**last), done, *up(2), marked(2, Mark.PLANNED, step=5))
    command, progressed = progress(2, 6)
    given.given(*back).when(command).then(progressed, recovered("i1", 950, 3))
