"""What ranks tell of work that was done twice is gathered, and becomes a verdict."""

from __future__ import annotations

from dataclasses import replace
from functools import reduce

import pytest

from everstep.core.placement import Layout
from everstep.monitor.commands import SettleNote
from everstep.monitor.detectors.recompute_course import AGAIN_STEPS, LATE_STEPS
from everstep.monitor.detectors.verdict import Verdict
from everstep.monitor.events import (
    Action,
    CorruptionRules,
    JobMarked,
    Mark,
    TieFound,
    WatchedHost,
)
from everstep.monitor.rechecking import HELD_AT, Rechecking
from everstep.monitor.state import Watch, evolve
from everstep.monitor.ties import PAIRS_MAX, Claim, Tie
from everstep.wire.v1.agents_pb2 import Checked, RankStep, Rerun, StepMetrics, Work

RULES = CorruptionRules(on_corruption="replace")


def watch_of(replicas: int, **changes) -> Watch:
    """A job of so many replicas, each on a host of its own."""
    hosts = tuple(WatchedHost(host_id=f"h{n}", ranks=(n,)) for n in range(replicas))
    watch = Watch(
        job_id="j",
        generation=1,
        restore_step=-1,
        placed=True,
        layout=Layout(dp_replicate=replicas),
        corruption=RULES,
        hosts=hosts,
    )
    return replace(watch, **changes)


class Job:
    """Ranks that tell of their steps."""

    def __init__(self, watch: Watch) -> None:
        self.watch = watch
        self.rechecking = Rechecking()
        self.bent = 0  # another mistake than before
        self.begin(watch)

    def begin(self, watch: Watch) -> None:
        """Take up a generation."""
        self.watch = watch
        self.rechecking.begin(watch)

    def step(
        self,
        number: int,
        *,
        shift: int = 0,
        wrong: set[int] = frozenset(),
        itself: set[int] = frozenset(),
        silent: set[int] = frozenset(),
        once: int = -1,
    ) -> list[Verdict | SettleNote]:
        """All ranks tell of a step: re-run at a shift (0: not), some with bits of their own."""
        said = []
        count = len(self.watch.hosts)
        for host in self.watch.hosts:
            (rank,) = host.ranks
            checked = None
            if shift:
                of = (rank + shift) % count
                own = Work(forward=1, gradient=1 + rank + 100 * (rank in wrong or rank == once))
                other = Work(forward=1, gradient=1 + of + 1_000 * (rank in wrong))
                own.gradient += self.bent * (rank in wrong)
                other.gradient += self.bent * (rank in wrong)
                checked = Checked(rerun=Rerun(of=of, own=own, other=other))
            if rank in itself:
                checked = Checked(recomputed_wrong=["layers.0"])
            told = RankStep(rank=rank, step=number, checked=checked)
            if rank not in silent:
                message = StepMetrics(
                    job_id="j", generation=self.watch.generation, host_id=host.host_id, ranks=[told]
                )
                said += self.rechecking.told(message, self.watch, 1_000 * number)
        return said


def test_replica_that_differs_from_both_others_is_replaced():
    """Everything since the last step at which all came out alike is suspect."""
    job = Job(watch_of(3))
    assert job.step(1) == job.step(4, shift=1) == job.step(5) == []
    (verdict,) = job.step(8, shift=2, wrong={1})
    assert (verdict.kind, verdict.action) == ("silent_corruption", Action.REPLACE)
    assert (verdict.hosts, verdict.ranks) == (("h1",), (1,))
    assert (verdict.suspect_from_step, verdict.step) == (5, 8)
    assert job.rechecking.refuted == {1}


def test_what_was_never_compared_since_the_beginning_is_all_suspect():
    """A run that began afresh began sound."""
    job = Job(watch_of(3))
    job.step(1)
    (verdict,) = job.step(4, shift=1, wrong={0})
    assert verdict.suspect_from_step == 1


def test_monitor_that_has_just_begun_believes_what_it_did_not_see():
    """Else one that was restarted would send a run of weeks back to its first step."""
    job = Job(watch_of(3))
    job.step(901)
    (verdict,) = job.step(904, shift=1, wrong={0})
    assert verdict.suspect_from_step == 901


def undecided(job: Job, step: int) -> Verdict:
    """Two replicas differ, and the pairings after it tell no more."""
    said = [job.step(step + n, shift=1, wrong={1}) for n in range(AGAIN_STEPS + 1)]
    assert said[:-1] == [[]] * AGAIN_STEPS
    (verdict,) = said[-1]
    return verdict


def test_tie_goes_back_then_tries_a_third_place_and_is_held_in_the_end():
    """Nobody is condemned: the run goes on from before it, and not for ever."""
    job = Job(watch_of(2))
    job.step(1)
    job.step(4, shift=1)
    verdict = undecided(job, 8)
    assert (verdict.action, verdict.hosts) == (Action.RESTART, ("h0", "h1"))
    assert verdict.suspect_from_step == 5  # it lasts, so it may have begun right after step 4
    job.begin(watch_of(2, generation=2, restore_step=7))
    verdict = undecided(job, 8)
    assert (verdict.action, verdict.hosts) == (Action.REPLACE_IF_SPARE, ("h0",))
    job.begin(watch_of(2, generation=3, restore_step=7))
    verdict = undecided(job, 8)
    assert (verdict.action, HELD_AT) == (Action.HOLD, 3)


def test_pair_that_an_earlier_process_knew_of_is_counted_on():
    """Each new monitor would send the run back on the same hosts, as if for the first time."""
    pairs = ((1, ("h0", "h1")), (2, ("h0", "h1")), (2, ("h0", "h2")))
    expected = (Action.RESTART, Action.REPLACE_IF_SPARE, Action.HOLD, Action.HOLD)  # none to all
    for known, action in enumerate(expected):
        job = Job(watch_of(2, generation=3))
        job.rechecking.remember((), pairs[:known])
        job.step(1)
        job.step(4, shift=1)
        assert undecided(job, 8).action is action


def test_what_was_wrong_once_makes_only_its_own_step_suspect():
    """Neither the steps before it nor after it came out otherwise.

    The run goes back one more: a generation's first step is not shadowed, and this one must be.
    """
    job = Job(watch_of(3))
    job.step(1)
    job.step(4, shift=1)
    assert job.step(8, shift=1, once=1) == job.step(9, shift=2) == []
    (verdict,) = job.step(10, shift=1)
    assert (verdict.action, verdict.hosts) == (Action.RESTART, ("h0", "h1"))
    assert verdict.suspect_from_step == 7


@pytest.mark.parametrize("shift", [1, 2])
def test_step_that_is_made_again_tells_who_was_wrong_once(shift: int):
    """The run goes on, and moves off the host; whoever is paired with whom this time."""
    job = Job(watch_of(3))
    job.step(4, shift=1)
    said = [*job.step(8, shift=1, once=1), *job.step(9, shift=2), *job.step(10, shift=1)]
    assert [verdict.action for verdict in said] == [Action.RESTART]
    job.begin(watch_of(3, generation=2, restore_step=6))
    job.step(7)
    (verdict,) = job.step(8, shift=shift)
    assert (verdict.kind, verdict.action) == ("silent_corruption", Action.DRAIN)
    assert (verdict.ranks, verdict.hosts) == ((1,), ("h1",))
    assert (verdict.step, verdict.suspect_from_step) == (8, 0)
    assert job.step(12, shift=1) == []


def test_tie_that_an_earlier_process_found_is_broken_by_the_step_that_is_made_again():
    """Each kind of tie goes to those who make it again; without it nothing is said."""
    job = Job(watch_of(3))
    job.step(4, shift=1)
    said = [*job.step(8, shift=1, once=1), *job.step(9, shift=2), *job.step(10, shift=1)]
    ties = said[-1].ties
    assert [(one.step, one.work) for one in ties] == [(8, True)]
    for kept, hosts in ((ties, [("h1",)]), ((replace(ties[0], work=False),), []), ((), [])):
        other = Job(watch_of(3, placed=False))
        other.rechecking.remember(kept, ())
        other.begin(watch_of(3, generation=2, restore_step=6))
        other.step(7)
        assert [verdict.hosts for verdict in other.step(8, shift=1)] == hosts


def test_mistake_that_is_another_one_each_time_is_named_by_the_second():
    """Of two: who comes to the same twice is not the one. It costs the seat at once."""
    job = Job(watch_of(2))
    job.step(4, shift=1)
    undecided(job, 8)
    job.begin(watch_of(2, generation=2, restore_step=4))
    job.bent = 7
    (verdict,) = job.step(8, shift=1, wrong={1})
    assert (verdict.action, verdict.hosts) == (Action.REPLACE, ("h1",))
    assert verdict.suspect_from_step == 5


def test_nothing_is_said_of_a_host_that_has_left_already():
    """It is cordoned, whatever for."""
    job = Job(watch_of(3))
    job.step(4, shift=1)
    [job.step(step, shift=1, once=1 if step == 8 else -1) for step in (8, 9, 10)]
    others = tuple(WatchedHost(host_id=f"x{n}", ranks=(n,)) for n in range(3))
    job.begin(watch_of(3, generation=2, restore_step=6, hosts=others))
    job.step(7)
    assert job.step(8, shift=1) == []


def test_third_place_that_differs_from_the_same_one_is_a_tie_of_its_own():
    """The decider, which remembers doubts by host, names whom both have in common."""
    job = Job(watch_of(2))
    job.step(4, shift=1)
    assert undecided(job, 8).hosts == ("h0", "h1")
    spare = (WatchedHost(host_id="h9", ranks=(0,)), WatchedHost(host_id="h1", ranks=(1,)))
    job.begin(watch_of(2, generation=2, restore_step=7, hosts=spare))
    verdict = undecided(job, 8)
    assert (verdict.action, verdict.hosts) == (Action.RESTART, ("h9", "h1"))


@pytest.mark.parametrize(
    ("rules", "kind"),
    [
        (CorruptionRules(on_corruption="note"), "silent_corruption"),
        (CorruptionRules(on_corruption="replace", bits_vary=True), "recompute_differs"),
    ],
)
def test_is_only_noted_where_the_spec_says_so_or_bits_may_vary(rules: CorruptionRules, kind: str):
    """And the note is over once everything comes out alike again."""
    job = Job(watch_of(3, corruption=rules))
    job.step(4, shift=1)
    (verdict,) = job.step(8, shift=1, wrong={2})
    assert (verdict.action, verdict.kind) == (Action.NOTE, kind)
    assert verdict.suspect_from_step == 0
    assert job.step(9, shift=2) == [
        SettleNote(job_id="j", kind=kind, lost_ms=0, lost_steps=0, at_ms=9_000)
    ]


def test_nothing_is_looked_at_where_the_spec_says_off():
    """It is the user's run."""
    job = Job(watch_of(3, corruption=CorruptionRules(on_corruption="off")))
    assert job.step(8, shift=1, wrong={2}) == []


def test_program_that_never_repeated_its_bits_is_noted():
    """Its ranks differ everywhere, from the first time on."""
    job = Job(watch_of(4))
    job.step(1)
    (verdict,) = job.step(4, shift=1, wrong={0, 1, 2, 3})
    assert (verdict.kind, verdict.action) == ("recompute_differs", Action.NOTE)


def test_rank_that_contradicts_itself_is_replaced_and_its_step_is_suspect():
    """Nobody else need have done its work."""
    job = Job(watch_of(2))
    job.step(1)
    assert job.step(5, itself={1}) == []
    said = [one for n in range(1, LATE_STEPS + 1) for one in job.step(5 + n)]
    (verdict,) = said
    assert (verdict.action, verdict.hosts, verdict.ranks) == (Action.REPLACE, ("h1",), (1,))
    assert verdict.suspect_from_step == 5


def test_many_that_contradict_themselves_at_once_are_the_programs_doing():
    """Three hosts do not go wrong in one step."""
    job = Job(watch_of(4))
    job.step(5, itself={0, 1, 2})
    (verdict,) = [one for n in range(1, LATE_STEPS + 1) for one in job.step(5 + n)]
    assert (verdict.action, verdict.kind) == (Action.NOTE, "recompute_differs")


def test_message_that_is_lost_stops_nothing():
    """What the others have told is judged a few steps later; who is in no pair is not named."""
    job = Job(watch_of(4))
    job.step(1)
    job.step(4, shift=1)
    assert job.step(8, shift=1, wrong={1}, silent={3}) == []
    said = [one for n in range(1, LATE_STEPS + 1) for one in job.step(8 + n)]
    (verdict,) = said
    assert (verdict.action, verdict.hosts) == (Action.REPLACE, ("h1",))


def test_steps_of_an_older_generation_are_not_heard():
    """They are of a history that is over."""
    job = Job(watch_of(3))
    job.step(4, shift=1)
    later = watch_of(3, generation=2, restore_step=4)
    job.begin(later)
    job.watch = replace(later, generation=1)
    assert job.step(8, shift=1, wrong={1}) == []


def test_what_was_alike_after_the_step_that_a_run_went_back_to_is_forgotten():
    """It is made again, perhaps wrong."""
    job = Job(watch_of(3))
    job.step(1)
    job.step(20, shift=1)
    job.begin(watch_of(3, generation=2, restore_step=12))
    (verdict,) = job.step(24, shift=1, wrong={0})
    assert verdict.suspect_from_step == 13


def test_pair_is_stored_once_a_generation_however_many_steps_show_it():
    """Of work that was done twice: what two hold is another matter, and counted by nobody."""
    claims = tuple(
        Claim(what="gradient", whose=0, rank=rank, host_id=f"h{rank}", value=rank)
        for rank in (0, 1)
    )
    layout = Layout(dp_replicate=3)
    tie = Tie(step=8, layout=layout, suspects=(0, 1), claims=claims, work=True)
    hosts = tuple(WatchedHost(host_id=f"h{n}", ranks=(n,)) for n in range(3))
    placed = JobMarked(job_id="j", generation=1, mark=Mark.PLACED, hosts=hosts)
    ties = [
        (1, tie),
        (1, replace(tie, step=9)),
        (1, replace(tie, step=9, suspects=(1, 2), work=False)),
        (2, tie),
    ]
    found = [TieFound(job_id="j", generation=number, tie=one, at_ms=5) for number, one in ties]
    watch = reduce(evolve, [placed, *found], Watch())
    assert watch.pairs == ((1, ("h0", "h1")), (2, ("h0", "h1")))
    many = [replace(found[0], generation=number) for number in range(PAIRS_MAX + 2)]
    assert len(reduce(evolve, many, watch).pairs) == PAIRS_MAX
