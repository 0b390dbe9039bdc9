from tests.unit.planner.histories import failure, history, lost

from everstep.planner.replay import replay
from everstep.planner.replay_confidence import FAILURES_MIN, RESAMPLES, saving
from everstep.planner.replay_policy import Policy
from everstep.planner.replay_summary import REACHING, Compared, replay_tables

EVEN = [failure(at_ms) for at_ms in range(15_000, 96_000, 16_000)]  # six, one like the other


def saved(*failures, seed=0, progress=None, **policy):
    """What a policy saves of a run with these failures."""
    record = history(*failures)
    before, after = replay(record), replay(record, Policy(**policy))
    return saving(before, after, failures=len(failures), seed=seed, progress=progress)


def test_saving_is_the_difference_of_useful_time():
    """Five stretches of 6 s (5 saves kept) become ones of 11 s (10 saves)."""
    got = saved(*EVEN, restart_ms=3_000)
    assert got.saved_ms == 25_000
    assert got.share == 0.25
    assert got.resamples == RESAMPLES


def test_interval_holds_the_saving_and_says_how_sure_it_is():
    """Failures that cost the same leave little to chance; ones that do not leave more."""
    even = saved(*EVEN, restart_ms=3_000)
    assert even.share_low < even.share < even.share_high
    odd = [failure(one.at_ms, restart_ms=ms) for one, ms in zip(
        EVEN, [0, 1_000, 0, 12_000, 0, 11_000], strict=True)]  # fmt: skip
    uneven = saved(*odd, restart_ms=0)
    assert uneven.share_high - uneven.share_low > 2 * (even.share_high - even.share_low)


def test_policy_that_changes_nothing_saves_nothing_for_sure():
    """Pairs cancel: no chance is left."""
    got = saved(*EVEN, restart_ms=8_000)
    assert (got.saved_ms, got.share_low, got.share_high) == (0, 0.0, 0.0)


def test_few_failures_have_no_interval():
    """Four are too few, five are enough."""
    four = saved(*EVEN[: FAILURES_MIN - 1], restart_ms=3_000)
    assert (four.share_low, four.share_high, four.resamples) == (None, None, 0)
    assert four.saved_ms > 0
    assert saved(*EVEN[:FAILURES_MIN], restart_ms=3_000).share_low is not None


def test_resamples_follow_from_the_seed():
    """And from nothing else."""
    one, same, other = (saved(*EVEN, restart_ms=3_000, seed=seed) for seed in (1, 1, 2))
    assert one == same
    assert (one.share_low, one.share_high) != (other.share_low, other.share_high)
    assert one.saved_ms == other.saved_ms


def test_progress_is_told_for_every_resample():
    """So that a long one is no silence."""
    told = []
    saved(*EVEN, restart_ms=3_000, progress=lambda done, total: told.append((done, total)))
    assert (told[0], told[-1]) == ((1, RESAMPLES), (RESAMPLES, RESAMPLES))


def test_missing_replicas_reach_over_several_failures_as_waits_do():
    """Without a spare an elastic job does not wait at all, and its interval is too narrow too."""
    record = history(failure(10_500, lost("a")), *EVEN[1:], replicas=2)
    for policy, told in ((Policy(spares=0, no_spare="elastic"), True), (Policy(), False)):
        before, after = replay(record), replay(record, policy)
        saves = saving(before, after, failures=FAILURES_MIN)
        compared = Compared(history=record, policy=policy, before=before, after=after, saving=saves)
        assert before.causes["waiting_for_hosts"] == after.causes["waiting_for_hosts"] == 0
        assert (REACHING in replay_tables(compared)[-1].note) is told
