"""How the messages of many hosts become the points of one course."""

from __future__ import annotations

import math
from dataclasses import replace

from everstep.core.record import changed
from everstep.monitor.detectors.spike import Found, Settled, Sound
from everstep.monitor.events import NumericsRules, WatchedHost
from everstep.monitor.numerics import Numerics, settle, verdict_of
from everstep.monitor.state import Watch
from everstep.wire.v1.agents_pb2 import RankStep, StepMetrics

RULES = NumericsRules(on_spike="roll_back", window_steps=64, window_steps_min=16)
WATCH = Watch(
    job_id="j",
    generation=1,
    placed=True,
    restore_step=-1,
    numerics=RULES,
    hosts=(WatchedHost(host_id="h0", ranks=(0, 1)), WatchedHost(host_id="h1", ranks=(2, 3))),
)


def message(host: str, step: int, generation: int = 1, **fields: object) -> StepMetrics:
    """One host's word about a step."""
    first = 0 if host == "h0" else 2
    told = {"step": step, "position": step - 1, "loss": 2.0, "grad_norm": 1.0, "health": "ok"}
    ranks = [RankStep(rank=first + i, **{**told, **fields}) for i in range(2)]
    return StepMetrics(job_id="j", generation=generation, host_id=host, ranks=ranks)


def begun(watch: Watch = WATCH) -> Numerics:
    """A job's course at the begin of its generation."""
    numerics = Numerics()
    numerics.begin(watch)
    return numerics


def tell(numerics: Numerics, *messages: StepMetrics) -> list[Found | Settled]:
    """Take messages; returns what there is to say."""
    return [said for one in messages for said in numerics.told(one)]


def kept(last_step: int) -> list[Sound]:
    """Usual steps up to this one."""
    return [Sound(step=s, loss=2.0 + 0.01 * (s % 3), norm=1.0) for s in range(1, last_step + 1)]


def test_step_is_looked_at_when_every_host_has_told_of_it():
    """Whose gradient it was, each host knows of its own ranks only."""
    numerics = begun()
    bad = {"health": "skipped_non_finite", "loss": math.nan}
    assert tell(numerics, message("h0", 1, **bad)) == []
    (found,) = tell(numerics, message("h1", 1, poisoned=True, **bad))
    assert found.ranks == (2, 3)


def test_skipped_step_has_cost_what_its_slowest_rank_took():
    """All the others waited for it."""
    numerics = begun()
    bad = {"health": "skipped_non_finite", "poisoned": True}
    slow, fast = (message(h, 1, step_time_ms=ms, **bad) for h, ms in (("h0", 900.0), ("h1", 700.0)))
    _, over = tell(numerics, slow, fast, message("h0", 2), message("h1", 2))
    assert (over.lost_steps, over.lost_ms) == (1, 900)


def test_step_that_a_host_never_told_of_does_not_stop_the_course():
    """Its message was lost; the others have gone on."""
    numerics = begun()
    bad = {"health": "skipped_non_finite", "poisoned": True}
    assert tell(numerics, message("h0", 1, **bad), message("h0", 2)) == []
    said = tell(numerics, message("h0", 3))
    assert [type(one) for one in said] == [Found]
    assert said[0].ranks == (0, 1)
    assert numerics.step == 1


def test_messages_in_any_order_and_twice_are_one_course():
    """A step is looked at once, after the one before it."""
    numerics = begun()
    tell(numerics, message("h1", 2), message("h0", 1), message("h0", 1), message("h0", 2))
    assert numerics.step == 0
    tell(numerics, message("h1", 1), message("h1", 1), message("h1", 2))
    assert numerics.step == 2
    assert [sound.step for sound in numerics.course.window] == [1, 2]


def test_word_of_another_generation_is_not_taken():
    """It speaks of what is undone, or of what is not begun."""
    numerics = begun()
    tell(numerics, message("h0", 1, generation=2), message("h1", 1, generation=2))
    assert numerics.step == 0


def test_new_generation_goes_on_from_its_plan():
    """What lies beyond is made again, with other batches perhaps."""
    numerics = begun()
    for step in range(1, 21):
        tell(numerics, message("h0", step), message("h1", step))
    said = []
    for step in range(21, 24):
        said += tell(numerics, message("h0", step, loss=9.0), message("h1", step, loss=9.0))
    assert len(said) == 1
    numerics.begin(Watch(job_id="j", generation=2, numerics=RULES))
    planned = replace(WATCH, generation=2, restore_step=18)
    numerics.begin(planned)
    assert (numerics.step, numerics.course.window[-1].step) == (18, 18)
    assert not numerics.course.judged
    tell(numerics, message("h0", 19, generation=2), message("h1", 19, generation=2))
    assert numerics.step == 19
    numerics.begin(planned)
    assert numerics.step == 19  # the plan was told again


def test_monitor_that_starts_anew_measures_against_what_was_kept():
    """A spike right after its restart is seen."""
    numerics = begun()
    numerics.remember(kept(99), 1)
    assert (numerics.step, len(numerics.course.window)) == (99, 64)
    said = []
    for step in range(100, 103):
        said += tell(numerics, message("h0", step, loss=9.0), message("h1", step, loss=9.0))
    assert [found.kind for found in said] == ["loss_spike"]


def test_monitor_that_starts_anew_is_not_blind_to_steps_that_are_made_again():
    """What an older generation had made beyond the plan is undone: neither news nor usual."""
    numerics = begun(replace(WATCH, generation=2, restore_step=100))
    numerics.remember(kept(150), 1)
    assert (numerics.step, numerics.course.window[-1].step) == (100, 100)
    assert len(numerics.course.window) == 64
    said = []
    for step in range(101, 104):
        raised = {"generation": 2, "loss": 9.0}
        said += tell(numerics, message("h0", step, **raised), message("h1", step, **raised))
    assert [found.kind for found in said] == ["loss_spike"]


def test_monitor_that_starts_anew_keeps_what_the_generation_has_made_since_its_plan():
    """These steps have been looked at."""
    numerics = begun(replace(WATCH, generation=2, restore_step=100))
    numerics.remember(kept(103), 2)
    assert (numerics.step, numerics.course.window[-1].step) == (103, 103)


def test_monitor_that_starts_anew_before_the_plan_is_known_goes_back_with_it():
    """Until then nothing is undone."""
    numerics = begun(Watch(job_id="j", generation=2, numerics=RULES))
    numerics.remember(kept(150), 1)
    numerics.begin(replace(WATCH, generation=2, restore_step=100))
    assert (numerics.step, numerics.course.window[-1].step) == (100, 100)


def test_verdict_names_the_hosts_of_the_ranks():
    """An operator looks for a machine."""
    found = Found(
        kind="step_skipped",
        action="NOTE",
        step=4,
        failed_at_ms=9,
        reason="so",
        ranks=(1, 2),
    )
    verdict = verdict_of(found, WATCH)
    assert (verdict.kind, verdict.hosts, verdict.ranks) == ("step_skipped", ("h0", "h1"), (1, 2))
    assert (verdict.step, verdict.failed_at_ms, verdict.reason) == (4, 9, "so")
    assert verdict_of(changed(found, ranks=(3,)), WATCH).hosts == ("h1",)


def test_settling_says_what_it_has_cost():
    """Steps that were for nothing."""
    command = settle("j", Settled(kind="step_skipped", step=5, lost_steps=2, lost_ms=70), 8)
    assert (command.kind, command.lost_steps, command.lost_ms, command.at_ms) == (
        "step_skipped",
        2,
        70,
        8,
    )


def raised(numerics: Numerics, *steps: int) -> list[Found | Settled]:
    """Tell of steps with twice the usual loss."""
    return tell(numerics, *(message(h, step, loss=4.0) for step in steps for h in ("h0", "h1")))


def test_steps_that_are_told_again_are_what_later_ones_are_measured_against():
    """Seeds 81051, 82215: the first steps were lost, and a spike was what is usual."""
    numerics = begun()
    tell(numerics, *(message(h, step) for step in range(17, 20) for h in ("h0", "h1")))
    assert raised(numerics, 20) == []  # too early to be measured
    for step in range(1, 17):
        numerics.told_again(message("h1", step))
        numerics.told_again(message("h0", step))
    assert [sound.step for sound in numerics.course.window] == [*range(1, 21)]
    (found,) = raised(numerics, 21, 22, 23)
    assert (found.suspect_from_step, found.step) == (19, 23)


def test_step_that_is_told_again_decides_nothing_and_hides_nothing():
    """What stands out from those before it is left out, as it would have been."""
    numerics = begun()
    numerics.remember(kept(20), 1)
    assert raised(numerics, 24) == []
    for step in (21, 22, 23, 24, 25):
        numerics.told_again(message("h0", step, loss=4.0))
    numerics.told_again(message("h0", 21, generation=2))
    assert numerics.course.window[-1].step == 20
    (found,) = raised(numerics, 25, 26)
    assert (found.suspect_from_step, found.step) == (20, 26)


def test_steps_that_were_passed_over_are_known_as_far_as_the_window_reaches():
    """And what another generation has made of them is another matter."""
    numerics = begun()
    tell(numerics, *(message(h, 200) for h in ("h0", "h1")))
    for step in (100, 136):
        numerics.told_again(message("h0", step))
    assert [sound.step for sound in numerics.course.window] == [136, 200]
    numerics.begin(replace(WATCH, generation=2, restore_step=200))
    numerics.told_again(message("h0", 137, generation=2))
    assert [sound.step for sound in numerics.course.window] == [136, 200]
