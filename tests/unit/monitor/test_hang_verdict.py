"""Whom a run that makes no step waits for, and when nobody is named."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.monitor.hang_looks import (
    PACE,
    all_but,
    judged,
    loading,
    spinning,
    stopped,
    waiting,
)
from tests.unit.monitor.recorded_stacks import IN_STEP_COLLECTIVE, SPINNING

from everstep.core.record import changed
from everstep.core.spec import LayoutSpec
from everstep.monitor.detectors.hang_conduct import WORKING_LOOKS
from everstep.monitor.detectors.hang_stacks import Phase, RankLook, State
from everstep.monitor.detectors.hang_verdict import (
    Confidence,
    HangKind,
    HangVerdict,
    Unsure,
)

ASLEEP = ("/home/me/train.py:main:33", "python/threading.py:wait:324")
EVALUATES = ("/home/me/train.py:main:52", "/home/me/train.py:evaluate:9")
SAVES = ("/home/me/train.py:main:50", "site-packages/torch/serialization.py:save:992")


def named(verdict: HangVerdict | Unsure) -> tuple[object, ...]:
    """Kind, ranks, hosts and confidence; the reason when nothing is decided."""
    if isinstance(verdict, Unsure):
        return (verdict.why,)
    return (verdict.kind, verdict.ranks, verdict.hosts, verdict.confidence)


def undecided(verdict: HangVerdict | Unsure) -> str:
    """Why nothing is decided."""
    assert isinstance(verdict, Unsure), verdict
    return verdict.why


@pytest.mark.parametrize(
    ("guilty", "kind", "confidence"),
    [
        (stopped(5), HangKind.RANK_STOPPED, Confidence.CERTAIN),
        (spinning(5), HangKind.RANK_SPINNING, Confidence.LIKELY),
        (loading(5), HangKind.LOADER_BLOCKED, Confidence.LIKELY),
        (waiting(5, frames=ASLEEP), HangKind.HANG, Confidence.LIKELY),
        (
            waiting(5, frames=IN_STEP_COLLECTIVE, phase=Phase.AGREEING),
            HangKind.HANG,
            Confidence.POSSIBLE,
        ),
    ],
    ids=["stopped", "spinning", "loader", "asleep_in_a_step", "left_a_collective_out"],
)
def test_guilty_rank_is_named_after_three_looks(guilty, kind, confidence):
    """Seven ranks wait, one does not: it and its host, and nobody else."""
    assert named(judged([all_but(guilty)] * 3)) == (kind, (5,), ("h2",), confidence)


def test_reason_tells_what_was_compared():
    """An operator can check it by hand."""
    verdict = judged([all_but(spinning(5))] * 3)
    assert isinstance(verdict, HangVerdict)
    assert verdict.reason.startswith(
        "no step for 12000 ms (usually one in 200 ms, patience 10000 ms); rank 5 runs its own code "
        f"at {SPINNING[-1]} and does not leave one function (300 ms of processor time in 310 ms) "
        "on h2; 7 of 7 others at "
    )
    assert verdict.group == tuple(range(8))
    assert "stands out" in verdict.detail


@pytest.mark.parametrize("count", [0, 1])
@pytest.mark.parametrize("guilty", [stopped(5), loading(5)], ids=["stopped", "loading"])
def test_nobody_is_named_on_one_look(count, guilty):
    """A moment proves nothing."""
    assert undecided(judged([all_but(guilty)] * count))


def test_rank_is_named_only_if_it_is_the_same_at_each_look():
    """Another one each time is a run at work."""
    assert undecided(judged([all_but(loading(5)), all_but(loading(4)), all_but(loading(3))]))
    busy = [all_but(waiting(rank, frames=EVALUATES, cpu_ms=200)) for rank in (0, 1)]
    assert undecided(judged([busy[0]] * (WORKING_LOOKS - 1) + [busy[1]], 105_000))


@pytest.mark.parametrize("guilty", [stopped(5), spinning(5), loading(5), waiting(5, frames=ASLEEP)])
def test_nobody_is_named_before_the_time(guilty):
    """Nine seconds are less than ten."""
    assert "of 10000 that it may take" in undecided(judged([all_but(guilty)] * 3, 9_000))


# ---- what must not be taken for a hang


@pytest.mark.parametrize(
    "guilty",
    [spinning(5), loading(5), waiting(5, frames=ASLEEP)],
    ids=["spinning", "loader", "asleep"],
)
def test_slow_first_step_is_no_hang(guilty):
    """Models are compiled and corpora opened: ten minutes are fine."""
    pace = replace(PACE, progressed=False, gaps_ms=())
    looks = [all_but(guilty)] * WORKING_LOOKS
    assert undecided(judged(looks, 590_000, pace=pace))


def test_stopped_rank_is_named_before_the_first_step_too():
    """No compiler stops a process."""
    pace = replace(PACE, progressed=False, gaps_ms=())
    assert named(judged([all_but(stopped(5))] * 2, 30_000, pace=pace))[:2] == (
        HangKind.RANK_STOPPED,
        (5,),
    )


@pytest.mark.parametrize(
    "busy",
    [
        waiting(0, frames=EVALUATES, phase=Phase.BETWEEN),
        waiting(0, frames=EVALUATES, phase=Phase.BETWEEN, state=State.RUNNING, cpu_ms=300),
        waiting(0, frames=SAVES, phase=Phase.BETWEEN),
        waiting(0, frames=SAVES),
        waiting(0, frames=ASLEEP, phase=Phase.SNAPSHOTTING),
        waiting(0, frames=ASLEEP, io_bytes=10_000_000),
        waiting(0, frames=ASLEEP, cpu_ms=60),
        waiting(0, frames=ASLEEP, state=State.DISK_WAIT),
        waiting(0, frames=(*ASLEEP[:1], "site-packages/torch/_inductor/async_compile.py:wait:1")),
        spinning(0, frames=("/home/me/x.py:f:1", "site-packages/torch/x.py:g:1")),
        waiting(0, frames=(), answered=False, silence="it did not answer in time"),
    ],
    ids=[
        "evaluates_elsewhere",
        "evaluates_here",
        "saves_between_steps",
        "saves_in_a_step",
        "snapshots",
        "reads_or_writes",
        "computes_now_and_then",
        "waits_for_a_disk",
        "compiles",
        "computes_in_a_library",
        "does_not_answer",
    ],
)
def test_one_rank_that_may_be_at_work_is_given_time(busy):
    """As long as the others wait for it, but for a margin; then it is named with doubt."""
    looks = [all_but(busy)] * WORKING_LOOKS
    assert undecided(judged(looks, 104_000))
    assert named(judged(looks, 105_000))[1:] == ((0,), ("h0",), Confidence.POSSIBLE)


@pytest.mark.parametrize(
    "called",
    [
        ["/home/me/train.py:part0:1", "/home/me/train.py:part1:1", "/home/me/train.py:part2:1"],
        ["site-packages/torch/nn/x.py:f:1", "site-packages/torch/nn/x.py:f:1", "/home/me/t.py:f:1"],
    ],
    ids=["other_functions", "libraries"],
)
def test_rank_that_moves_from_look_to_look_is_given_time(called):
    """Other functions at each look are work, and so are those of libraries."""
    looks = [all_but(spinning(5, frames=(*SPINNING, one))) for one in called] * 3
    assert undecided(judged(looks, 104_000))


def test_rank_that_spins_in_a_function_and_what_it_calls_is_named():
    """``while not ready(): pass`` is met within ``ready`` now and then."""
    deeper = spinning(5, frames=(*SPINNING, "/home/me/train.py:ready:3"))
    looks = [all_but(deeper), all_but(spinning(5)), all_but(deeper), all_but(spinning(5))]
    assert named(judged(looks))[:2] == (HangKind.RANK_SPINNING, (5,))
    assert named(judged(looks[:3]))[:2] == (HangKind.RANK_SPINNING, (5,))


@pytest.mark.parametrize("phase", [Phase.BETWEEN, Phase.SNAPSHOTTING, Phase.STARTING])
def test_pause_of_all_ranks_is_no_hang(phase):
    """All evaluate, save or sleep at one place: no collective's timeout runs, and nobody waits."""
    looks = [tuple(waiting(rank, frames=EVALUATES, phase=phase) for rank in range(8))] * 3
    assert undecided(judged(looks, 1_700_000))


def test_pause_of_all_ranks_within_a_step_is_given_time():
    """It may be an evaluation all the same: nobody is in a collective."""
    looks = [tuple(waiting(rank, frames=EVALUATES) for rank in range(8))] * 3
    assert undecided(judged(looks, 104_000))


def test_ranks_at_work_are_no_hang():
    """Most do something of their own: a long step."""
    busy = [spinning(rank, frames=(f"/home/me/train.py:main:{rank}",)) for rank in range(5)]
    assert undecided(judged([all_but(*busy)] * 3, 600_000)) == (
        "5 of 8 ranks do not wait for others: nobody stands out"
    )


def test_line_that_most_ranks_compute_at_is_given_time():
    """One heavy operation of most ranks, while the rest is through with it."""
    busy = [spinning(rank) for rank in range(5)]
    assert undecided(judged([all_but(*busy)] * 3, 104_000))


def test_run_that_is_held_as_a_whole_is_no_hang():
    """All ranks are stopped: somebody wants it so, and a restart would not ask them."""
    looks = [tuple(stopped(rank) for rank in range(8))] * 3
    assert undecided(judged(looks, 10_000_000)) == (
        "all 8 ranks that were seen are stopped: somebody holds the run"
    )


def test_rank_that_steps_between_two_looks_is_no_hang():
    """A report of it is on its way."""
    before, after = all_but(loading(5)), all_but(changed(loading(5), step=8))
    assert undecided(judged([before, after, after])) == "rank 5 has completed step 8 meanwhile"


def test_rank_that_has_ended_is_left_to_its_exit():
    """Why it ended is known elsewhere, and the others wait for it."""
    gone = waiting(5, state=State.GONE, answered=False, frames=())
    assert "ranks 5 have ended" in undecided(judged([all_but(gone)] * 3))


def test_host_that_does_not_answer_leaves_all_open():
    """Whoever stands out may be waiting for the ones that nobody sees."""
    looks = [all_but(loading(0))[:6]] * 3
    assert undecided(judged(looks)) == "nobody has told of ranks 6-7"


# ---- nobody to name


@pytest.mark.parametrize(
    ("phase", "limit_ms"), [(Phase.COMPUTING, 10_000), (Phase.BETWEEN, 105_000)]
)
def test_ranks_that_all_wait_alike_restart_and_nobody_is_evicted(phase, limit_ms):
    """A lost message or a device: in a step at once, between two as late as possible."""
    looks = [tuple(waiting(rank, phase=phase) for rank in range(8))] * 3
    assert undecided(judged(looks, limit_ms - 1_000))
    assert named(judged(looks, limit_ms)) == (HangKind.HANG, (), (), Confidence.NOBODY)


def test_run_that_stands_for_half_an_hour_is_started_again():
    """Whatever it is, waiting longer does not help."""
    frames = [(f"/home/me/train.py:main:{rank}",) for rank in range(8)]
    looks = [tuple(waiting(rank, frames=frames[rank]) for rank in range(8))] * 3
    assert undecided(judged(looks, 1_700_000))
    assert named(judged(looks, 1_800_000)) == (HangKind.HANG, (), (), Confidence.NOBODY)


def test_rank_of_a_run_of_one_is_given_time():
    """Nobody waits for it, so nothing proves that it should be elsewhere."""
    alone = LayoutSpec()
    looks = [(loading(0),)] * WORKING_LOOKS
    assert undecided(judged(looks, 104_000, layout=alone))
    assert named(judged(looks, 105_000, layout=alone))[:2] == (HangKind.LOADER_BLOCKED, (0,))


def test_run_of_one_that_saves_is_given_half_an_hour():
    """Its last checkpoint waits for an earlier one's upload: as in a run of many, that may last."""
    looks = [(waiting(0, frames=SAVES, phase=Phase.SNAPSHOTTING),)] * WORKING_LOOKS
    assert undecided(judged(looks, 1_700_000, layout=LayoutSpec()))
    assert named(judged(looks, 1_800_000, layout=LayoutSpec()))[:2] == (HangKind.HANG, ())


# ---- several at once


def test_stopped_ranks_come_first():
    """Others may sleep because of them."""
    looks = [all_but(stopped(4), stopped(5), waiting(1, frames=ASLEEP))] * 3
    assert named(judged(looks)) == (
        HangKind.RANK_STOPPED,
        (4, 5),
        ("h2",),
        Confidence.CERTAIN,
    )


def test_ranks_of_several_hosts_that_stand_out_are_named_with_doubt():
    """A file system that hangs is not these hosts' fault."""
    assert named(judged([all_but(loading(1), loading(5))] * 3)) == (
        HangKind.LOADER_BLOCKED,
        (1, 5),
        ("h0", "h2"),
        Confidence.POSSIBLE,
    )


def test_rank_at_work_is_not_named_with_one_that_stands():
    """It will come."""
    busy = waiting(1, frames=EVALUATES, cpu_ms=200, phase=Phase.BETWEEN)
    assert named(judged([all_but(loading(5), busy)] * 3))[:2] == (HangKind.LOADER_BLOCKED, (5,))


KINDS = st.sampled_from(
    [
        waiting,
        lambda rank: waiting(rank, frames=IN_STEP_COLLECTIVE),
        lambda rank: waiting(rank, frames=EVALUATES, phase=Phase.BETWEEN),
        lambda rank: waiting(rank, frames=(), answered=False),
        stopped,
        spinning,
        loading,
    ]
)
RANKS = st.lists(KINDS, min_size=8, max_size=8).map(
    lambda makers: tuple(make(rank) for rank, make in enumerate(makers))
)


@given(RANKS, st.integers(0, 2_000_000))
def test_named_ranks_are_a_minority_that_the_last_look_shows(ranks, silent_ms):
    """No verdict names a rank that waits while another does not, or more ranks than wait."""
    verdict = judged([ranks] * WORKING_LOOKS, silent_ms)
    if isinstance(verdict, Unsure) or not verdict.ranks:
        return
    held = {one.rank for one in ranks if one.state is State.STOPPED}
    assert set(verdict.hosts) == {f"h{rank // 2}" for rank in verdict.ranks}
    if held:
        assert set(verdict.ranks) == held
    else:
        assert 2 * len(verdict.ranks) <= len(ranks)


@given(RANKS, st.integers(0, 2_000_000), st.randoms(use_true_random=False))
def test_verdict_does_not_depend_on_the_order_of_answers(ranks, silent_ms, random):
    """The same ranks, told in another order."""
    shuffled: list[RankLook] = list(ranks)
    random.shuffle(shuffled)
    assert judged([tuple(shuffled)] * 8, silent_ms) == judged([ranks] * 8, silent_ms)


@given(RANKS, st.integers(0, 2_000_000))
def test_waiting_longer_never_takes_a_verdict_back(ranks, silent_ms):
    """The same looks after more silence name the same ranks, or more are sure."""
    first = judged([ranks] * WORKING_LOOKS, silent_ms)
    later = judged([ranks] * WORKING_LOOKS, silent_ms + 60_000)
    if isinstance(first, HangVerdict):
        assert isinstance(later, HangVerdict)
        assert (later.kind, later.ranks) == (first.kind, first.ranks)
