"""Plans from snapshots that ranks of another layout wrote."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import reduce

from hypothesis import given
from hypothesis import strategies as st
from tests.unit.checkpoint_registry.words import HISTORY, ask, copy_of, facts, host, own, past

from everstep.checkpoint_registry.codec import HISTORIES, plan_restore_reply
from everstep.checkpoint_registry.commands import HostHoldings, PlanRestore
from everstep.checkpoint_registry.events import (
    JobNoted,
    RestoreLaidOut,
    SourceDistrusted,
)
from everstep.checkpoint_registry.policy import preferred_counts
from everstep.checkpoint_registry.state import History
from everstep.core.decision import Accepted, Rejected
from everstep.core.placement import Layout
from everstep.core.resharding import why_unreachable
from everstep.service.handler import Handled

FOUR, TWO = Layout(dp_shard=4), Layout(dp_shard=2)
NOTED = JobNoted(job_id="job", keep_last=3, layout=FOUR, at_ms=1)
LAUNCHED = HISTORY.given(NOTED, *past((1, -1)))


def ask_under(
    layout: Layout, *holdings: HostHoldings, generation: int = 2, **rest: object
) -> PlanRestore:
    """Ask for a plan for ranks of a layout."""
    command = ask(*holdings, generation=generation, world_size=layout.world_size, **rest)
    return replace(command, layout=layout)


def laid_out(given_: object, command: PlanRestore) -> RestoreLaidOut:
    """Return the plan that follows."""
    decision = given_.when(command).decision
    assert isinstance(decision, Accepted), decision
    return decision.events[0]


# Rank 1's host is gone; host c has kept its copy.
A = host("a", own(0, 7), own(0, 6), copy_of(3, 7))
C = host("c", own(2, 7), own(2, 6), copy_of(1, 7), copy_of(1, 6))
D = host("d", own(3, 7), own(3, 6))


def test_new_ranks_go_on_from_old_ranks_in_memory():
    """The plan names old ranks, and says under which layout they ran."""
    plan = laid_out(LAUNCHED, ask_under(TWO, A, C, D))
    assert (plan.step, plan.layout, plan.old_layout, plan.lost) == (7, TWO, FOUR, ())
    assert plan.world_size == 4
    assert preferred_counts(plan) == (3, 1, 0)


def test_first_generation_of_a_layout_says_so_once():
    """From then on its generations are of it, and older ones of the old."""
    command = ask_under(TWO, A, C, D)
    history = LAUNCHED.given(*LAUNCHED.when(command).decision.events).state
    assert history.layouts == ((2, TWO),)
    assert [history.layout_of(g) for g in (1, 2, 3)] == [FOUR, TWO, TWO]


def test_shard_that_nobody_has_leaves_the_step_out():
    """It is told, and the object store's checkpoint is put together instead."""
    lonely = ask_under(TWO, A, D, checkpoints=[facts(4, world_size=4)])
    decision = LAUNCHED.when(lonely).decision
    assert isinstance(decision, Accepted)
    plan, planned = decision.events
    assert (plan.step, len(plan.shards), plan.old_layout) == (4, 4, FOUR)
    assert planned.passed_over[0] == "step 7: ranks 1, 2 have no source"


def test_lost_replica_is_made_good_by_the_other_one():
    """Of two replicas of two shards one is gone whole: its ranks are lost, nothing is missing."""
    old, new = Layout(dp_replicate=2, dp_shard=2), Layout(dp_shard=2)
    given_ = HISTORY.given(replace(NOTED, layout=old), *past((1, -1)))
    plan = laid_out(given_, ask_under(new, host("c", own(2, 7)), host("d", own(3, 7))))
    assert (plan.step, plan.lost) == (7, (0, 1))
    assert preferred_counts(plan) == (2, 0, 0)


def test_same_layout_again_takes_what_it_wrote_itself():
    """What lies there of the other layout, from before, is passed by."""
    command = ask_under(TWO, A, C, D)
    shrunk = LAUNCHED.given(*LAUNCHED.when(command).decision.events)
    mine = [host("a", own(0, 9, 2), own(0, 7)), host("c", own(1, 9, 2), own(2, 7))]
    plan = laid_out(shrunk, ask_under(TWO, *mine, generation=3))
    assert (plan.step, plan.old_layout, plan.world_size) == (9, None, 2)


def test_generation_that_made_no_snapshot_leaves_the_old_ones():
    """It died before it had any: the next one plans from the same old ranks."""
    command = ask_under(TWO, A, C, D)
    shrunk = LAUNCHED.given(*LAUNCHED.when(command).decision.events)
    half = host("a", own(0, 7), copy_of(3, 7), own(0, 8, 2))  # rank 1 of two never made step 8
    plan = laid_out(shrunk, ask_under(TWO, half, C, D, generation=3))
    assert (plan.step, plan.old_layout) == (7, FOUR)


def test_growing_back_goes_on_from_the_few():
    """And what it writes is of the whole layout again."""
    shrunk = LAUNCHED.given(*LAUNCHED.when(ask_under(TWO, A, C, D)).decision.events)
    small = [host("a", own(0, 9, 2)), host("c", own(1, 9, 2))]
    command = ask_under(FOUR, *small, generation=3)
    plan = laid_out(shrunk, command)
    assert (plan.step, plan.old_layout, plan.world_size) == (9, TWO, 2)
    history = shrunk.given(*shrunk.when(command).decision.events).state
    assert [history.layout_of(g) for g in (1, 2, 3)] == [FOUR, TWO, FOUR]


def test_checkpoint_of_a_layout_is_whole_by_its_own_ranks():
    """Two shards are a checkpoint of two ranks, and none of four."""
    shrunk = LAUNCHED.given(*LAUNCHED.when(ask_under(TWO, A, C, D)).decision.events)
    stored = [facts(8, generation=2, world_size=2)]
    assert laid_out(shrunk, ask_under(FOUR, generation=3, checkpoints=stored)).step == 8
    wrong = [facts(8, generation=2, world_size=4)]
    assert isinstance(
        shrunk.when(ask_under(FOUR, generation=3, checkpoints=wrong)).decision, Rejected
    )


def test_bad_copy_of_an_old_rank_is_not_planned_again():
    """It is told under the old rank's number."""
    bad = SourceDistrusted(
        job_id="job", generation=2, rank=1, step=7, host_id="c", uri="", detail="x", at_ms=3
    )
    plan = laid_out(LAUNCHED.given(bad), ask_under(TWO, A, C, D, generation=3))
    assert plan.step == 6 or 1 in plan.lost


def test_other_stages_cannot_go_on():
    """Not even from the object store: their layers are others'."""
    command = ask_under(Layout(pp=2, dp_shard=2), A, C, D, checkpoints=[facts(4, world_size=4)])
    assert isinstance(LAUNCHED.when(command).decision, Rejected)


def test_answer_says_the_old_layout():
    """So that hosts know whose snapshots these are."""
    command = ask_under(TWO, A, C, D)
    state = LAUNCHED.given(*LAUNCHED.when(command).decision.events).state
    reply = plan_restore_reply(Handled(state=state, version=1, events=(), rejected=None))
    assert reply.sources.old_layout.dp_shard == 4
    assert list(reply.sources.lost) == []


def test_request_of_an_older_controller_is_planned_as_before():
    """It says no layout: then nothing has changed."""
    whole = [host("a", own(0, 7)), host("b", own(1, 7))]
    given_ = HISTORY.given(replace(NOTED, layout=TWO), *past((1, -1)))
    plan = laid_out(given_, ask(*whole))
    assert (plan.layout, plan.old_layout, plan.step) == (None, None, 7)


layouts = st.builds(Layout, dp_replicate=st.integers(1, 2), dp_shard=st.integers(1, 4))


@given(
    before=layouts,
    after=layouts,
    held=st.sets(st.tuples(st.integers(0, 7), st.integers(5, 8)), max_size=24),
)
def test_newest_step_that_all_can_be_put_together_from_is_taken(before, after, held):
    """Against a look at every step; asking again decides nothing."""
    held = {(rank, step) for rank, step in held if rank < before.world_size}
    given_ = HISTORY.given(replace(NOTED, layout=before), *past((1, -1)))
    holdings = [host(f"h{rank}", own(rank, step)) for rank, step in sorted(held)]
    command = ask_under(after, *merged(holdings))
    plan = laid_out(given_, command)
    assert plan.step == expected(before, after, held)
    again: History = reduce(HISTORIES.evolve, given_.when(command).decision.events, given_.state)
    assert HISTORIES.decide(command, again) == Accepted(())


def merged(holdings: Iterable[HostHoldings]) -> list[HostHoldings]:
    """Each host once."""
    by_host: dict[str, HostHoldings] = {}
    for one in holdings:
        known = by_host.get(one.host_id)
        by_host[one.host_id] = one if known is None else host(one.host_id, *known.held, *one.held)
    return list(by_host.values())


def expected(before: Layout, after: Layout, held: set[tuple[int, int]]) -> int:
    """The newest step at which nothing is missing, -1 for a fresh start."""
    for step in (8, 7, 6, 5):
        there = {rank for rank, at in held if at == step}
        missing = set(range(before.world_size)) - there
        if before == after and not missing:
            return step
        if before != after and there and not why_unreachable(before, after, missing):
            return step
    return -1
