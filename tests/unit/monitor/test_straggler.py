"""Who is slow, by own times."""

from __future__ import annotations

import math
from statistics import median

import pytest
from hypothesis import given
from hypothesis import strategies as st

from everstep.core.placement import Layout
from everstep.monitor.detectors.straggler import (
    UNKNOWN,
    Crew,
    Doubt,
    Finding,
    Limits,
    Part,
    Why,
    judge,
    middle,
    relative,
    stage_roles,
)

LIMITS = Limits()
# Two stages of eight ranks, two ranks a host; the second stage has twice the first one's work.
CREW = Crew(["stage 0"] * 8 + ["stage 1"] * 8, [f"h{rank // 2}" for rank in range(16)])
EVEN = [100.0] * 8 + [200.0] * 8


def parts_of(rows: list[list[float]]) -> list[Part]:
    """Return parts of five steps, the first one from step 11 on."""
    return [
        Part(first_step=11 + 5 * number, last_step=15 + 5 * number, ratios=row)
        for number, row in enumerate(rows)
    ]


def window(slow: dict[int, float], *, crew: Crew = CREW, even: list[float] = EVEN, parts: int = 32):
    """Judge windows in which some ranks take some factor longer than the others."""
    times = [time * slow.get(rank, 1.0) for rank, time in enumerate(even)]
    return judge(parts_of([relative(times, crew)] * parts), crew, LIMITS)


def named(judgement) -> list[tuple[str, tuple[int, ...], bool]]:
    """Return who was named."""
    return [(one.host_id, one.ranks, one.whole) for one in judgement.findings]


def test_even_ranks_of_uneven_stages_are_nobody():
    """The last stage may have far more to do: stages are not compared."""
    judgement = window({})
    assert (judgement.findings, judgement.doubts) == ((), ())
    assert judgement.ratios == (1.0,) * 16


@pytest.mark.parametrize("factor", [1.05, 1.08, 1.15, 1.5, 2.35])
@pytest.mark.parametrize("rank", [0, 5, 11])
def test_slow_rank_is_named_with_its_host_and_numbers(rank, factor):
    """From five per cent on; its host's other rank is not blamed."""
    (finding,) = window({rank: factor}).findings
    host, role = f"h{rank // 2}", f"stage {rank // 8}"
    assert finding == Finding(
        host_id=host,
        ranks=(rank,),
        whole=False,
        ratio=pytest.approx(factor),
        next_ratio=1.0,
        first_step=11,
        last_step=170,
        reason=f"rank {rank} of {host} slow over steps 11 to 170: rank {rank} takes {factor:.3f} "
        f"times as long as the others of {role}, the next one of them 1.000 times",
    )


def test_rank_that_is_two_per_cent_slower_is_nobody():
    """No two chips are quite alike."""
    assert window({3: 1.02}).findings == ()


def test_host_whose_ranks_are_all_slow_is_one_finding():
    """What slows both is the host's."""
    judgement = window({4: 1.3, 5: 1.2})
    assert named(judgement) == [("h2", (4, 5), True)]
    assert judgement.findings[0].reason.startswith("all 2 ranks of h2 slow over steps 11 to 170:")


def test_slow_ranks_of_several_hosts_are_a_finding_each():
    """Hosts are drained one by one."""
    slow = {1: 1.5, 4: 1.06, 5: 1.06, 12: 1.1}
    assert named(window(slow)) == [("h0", (1,), False), ("h2", (4, 5), True), ("h6", (12,), False)]


def test_everybody_slow_at_once_is_nobody():
    """A slow network or file system is no rank's fault."""
    assert window(dict.fromkeys(range(16), 1.5)).findings == ()


@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_too_few_peers_are_said_and_nobody_is_named(ranks):
    """One of two is slow, but which one is not: the other may be fast."""
    crew = Crew(["stage 0"] * ranks, [f"h{rank}" for rank in range(ranks)])
    judgement = window({0: 1.5}, crew=crew, even=[100.0] * ranks)
    assert judgement.findings == ()
    doubts = [(one.why, one.role, one.ranks) for one in judgement.doubts]
    assert doubts == ([(Why.TOO_FEW_PEERS, "stage 0", (0,))] if ranks > 1 else [])


def test_three_peers_are_enough():
    """The smallest role in which an odd one out is one."""
    crew = Crew(["stage 0"] * 4, ["h0", "h0", "h1", "h1"])
    assert named(window({2: 1.05}, crew=crew, even=[80.0] * 4)) == [("h1", (2,), False)]


def test_half_of_a_role_slow_is_doubted():
    """Nobody can tell whether some are slow or the others fast."""
    crew = Crew(["stage 0"] * 4, ["h0", "h0", "h1", "h1"])
    judgement = window({2: 1.5, 3: 1.5}, crew=crew, even=[80.0] * 4)
    assert judgement.findings == ()
    assert judgement.doubts == (
        Doubt(
            why=Why.NO_MAJORITY,
            role="stage 0",
            ranks=(2, 3),
            ratio=1.5,
            reason="rank 2 takes 1.500 times as long as the others of stage 0, but 2 of 4 ranks "
            "look slow: half of a role or more",
        ),
    )


def test_host_that_becomes_half_of_its_role_is_named_if_both_halves_were_alike():
    """Two hosts carry the stage: whoever has changed is the slow one, not whoever has not."""
    crew = Crew(["stage 0"] * 4, ["h0", "h0", "h1", "h1"])
    parts = parts_of([relative([80.0, 80.0, 90.0, 88.0], crew)] * 8)
    for once_even, hosts in (({0, 1, 2, 3}, ["h1"]), ({0, 1, 2}, [])):
        judgement = judge(parts, crew, LIMITS, once_even)
        assert [finding.host_id for finding in judgement.findings] == hosts
        assert len(judgement.doubts) == 1 - len(hosts)


def test_half_of_a_role_on_several_hosts_is_doubted_even_if_it_was_even_before():
    """That is a switch or a file system, not two hosts that break at once."""
    crew = Crew(["stage 0"] * 4, ["h0", "h1", "h2", "h3"])
    parts = parts_of([relative([80.0, 80.0, 90.0, 88.0], crew)] * 8)
    judgement = judge(parts, crew, LIMITS, once_even=range(4))
    assert judgement.findings == ()
    assert [one.why for one in judgement.doubts] == [Why.NO_MAJORITY]


def test_slowest_of_a_role_that_scatters_is_doubted():
    """Somebody is always the slowest: being the end of a spread is no fault."""
    spread = {rank: 1 + 0.012 * rank for rank in range(8)}
    judgement = window(spread)
    assert judgement.findings == ()
    assert [(one.why, one.role) for one in judgement.doubts] == [(Why.UNEVEN, "stage 0")]


def test_straggler_beyond_a_spread_is_named_alone():
    """Those that are slow by the limit but belong to the spread stay unnamed."""
    spread = {3: 1.03, 4: 1.06, 5: 1.08, 6: 1.1, 7: 1.6}
    assert named(window(spread)) == [("h3", (7,), False)]


def test_rank_that_is_slow_in_some_parts_only_is_nobody():
    """Half of the time is not persistent, most of the time is."""
    slow, sound = relative([100.0] * 7 + [150.0], EIGHT), relative([100.0] * 8, EIGHT)
    for rows, findings in (([slow, sound] * 8, 0), ([slow, slow, sound] * 5 + [slow], 1)):
        assert len(judge(parts_of(rows), EIGHT, LIMITS).findings) == findings


EIGHT = Crew(["stage 0"] * 8, [f"h{rank}" for rank in range(8)])


@pytest.mark.parametrize(("factor", "parts"), [(1.15, 8), (1.08, 16), (1.05, 32)])
def test_small_excess_takes_the_longer_window(factor, parts):
    """What is near the scatter of a window needs more steps to be told from it."""
    assert window({3: factor}, parts=parts - 1).findings == ()
    assert named(window({3: factor}, parts=parts)) == [("h1", (3,), False)]


def test_excess_that_the_scatter_of_the_parts_explains_is_nobody():
    """On a machine on which nothing can be measured, nobody is blamed."""
    for scatter, hosts in ((0.0, ["h7"]), (0.15, [])):
        rows = [
            [*(1 + scatter * (-1) ** (number + rank) for rank in range(7)), 1.12]
            for number in range(8)
        ]
        judgement = judge(parts_of(rows), EIGHT, LIMITS)
        assert judgement.ratios == pytest.approx([1.0] * 7 + [1.12])
        assert [finding.host_id for finding in judgement.findings] == hosts


def test_rank_that_does_not_tell_is_left_out():
    """Neither is it named, nor does it count as anybody's peer."""
    ratios = relative([100.0, 0.0, 100.0, UNKNOWN, 120.0, 100.0, 100.0, 100.0], EIGHT)
    assert ratios[4] == 1.2
    assert [rank for rank, ratio in enumerate(ratios) if math.isnan(ratio)] == [1, 3]
    crew = Crew(["stage 0"] * 5, [f"h{rank}" for rank in range(5)])
    judgement = window({0: 1.5}, crew=crew, even=[100.0, 100.0, 100.0, UNKNOWN, UNKNOWN])
    assert [one.why for one in judgement.doubts] == [Why.TOO_FEW_PEERS]


def test_stage_of_a_rank_follows_from_the_layout():
    """Ranks count along tp first and along pp last."""
    layout = Layout(pp=2, dp_replicate=1, dp_shard=2, tp=2)
    assert stage_roles(layout) == ("stage 0",) * 4 + ("stage 1",) * 4


TIMES = st.lists(st.one_of(st.just(0.0), st.floats(1.0, 1e6)), min_size=1, max_size=12)


@given(TIMES)
def test_ratio_is_to_the_median_of_the_others(times):
    """The shortcut past taking each rank out in turn equals doing so."""
    crew = Crew(["r"] * len(times), ["h"] * len(times))
    for rank, ratio in enumerate(relative(times, crew)):
        others = [one for other, one in enumerate(times) if other != rank and one > 0]
        if times[rank] > 0 and others:
            assert ratio == pytest.approx(times[rank] / median(others))
        else:
            assert math.isnan(ratio)


@given(st.permutations(range(16)), st.floats(1.05, 10.0), st.floats(0.01, 100.0))
def test_who_is_named_depends_neither_on_numbering_nor_on_units(order, factor, unit):
    """Renumbered ranks are named by their new numbers; twice as fast a machine changes nothing."""
    crew = Crew([CREW.roles[rank] for rank in order], [CREW.hosts[rank] for rank in order])
    even = [EVEN[rank] * unit for rank in order]
    slow = order.index(9)
    judgement = window({slow: factor}, crew=crew, even=even)
    assert named(judgement) == [("h4", (slow,), False)]


@given(st.lists(st.floats(0.98, 1.02), min_size=16, max_size=16))
def test_scatter_within_the_limit_is_nobody(factors):
    """Whatever it looks like."""
    even = [time * factor for time, factor in zip(EVEN, factors, strict=True)]
    judgement = window({}, even=even)
    assert judgement.findings == () or max(judgement.ratios) >= 1.035


def test_middle_is_unknown_where_too_little_was_told():
    """More than half of a part's steps have to be there."""
    rows = [[1.0, UNKNOWN, 1.0], [UNKNOWN, 5.0, 2.0], [UNKNOWN, 7.0, 3.0]]
    found = middle(rows)
    assert math.isnan(found[0])
    assert found[1:] == [6.0, 2.0]
