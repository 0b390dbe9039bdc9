"""When a run is looked at, and how long after its last step a rank that is stopped is named."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.unit.monitor.hang_looks import (
    LAYOUT,
    TIMEOUT_MS,
    all_but,
    loading,
    spinning,
    stopped,
    waiting,
)

from everstep.core.placement import Layout
from everstep.monitor.detectors.hang_stacks import RankLook
from everstep.monitor.detectors.hang_verdict import HangKind, Look
from everstep.monitor.detectors.verdict import COLLECTIVE_ERROR, Verdict
from everstep.monitor.events import Action, AuditOf
from everstep.monitor.hanging import Hanging
from everstep.monitor.state import Watch

WATCH = Watch(
    job_id="j",
    generation=1,
    placed=True,
    restore_step=0,
    steps=1_000,
    layout=Layout(dp_shard=8),
    collective_timeout_ms=TIMEOUT_MS,
)


def named_after(hanging: Hanging, watch: Watch, guilty: RankLook) -> tuple[int, Verdict]:
    """Look whenever that is due; returns how long after the last step there was a verdict."""
    for now_ms in range(hanging.since_ms, hanging.since_ms + 3_600_000, 500):
        if hanging.is_due(watch, now_ms):
            look = Look.of(now_ms, all_but(guilty), LAYOUT)
            verdict = hanging.looked(look, watch, now_ms)
            if verdict is not None:
                return now_ms - hanging.since_ms, verdict
    raise AssertionError("nobody was named within an hour")


def stepping(step_ms: int) -> Hanging:
    """A run that has made five steps of this length."""
    hanging = Hanging()
    hanging.begin(WATCH, 0)
    for step in range(1, 6):
        hanging.stepped(step, step * step_ms)
    return hanging


def test_script_that_hangs_before_the_step_of_an_audit_is_named():
    """It would keep its hosts, and its job from other audits, for ever; an unknown script may."""
    of = AuditOf(job_id="j", step=4, replica=0, number=1, works=(), layout=WATCH.layout)
    audit = replace(WATCH, script=True, audit=of)
    hanging = Hanging()
    hanging.begin(audit, 0)
    assert named_after(hanging, audit, stopped(5))[1].ranks == (5,)
    hour_ms = range(0, 3_600_000, 500)
    assert not any(hanging.is_due(replace(audit, audit=None), now_ms) for now_ms in hour_ms)


@pytest.mark.parametrize("step_ms", [200, 5_000, 12_000, 20_000, 60_000])
def test_stopped_rank_is_named_before_the_others_give_up(step_ms: int):
    """Their collectives fail two minutes after the last step at the earliest."""
    silent_ms, verdict = named_after(stepping(step_ms), WATCH, stopped(5))
    assert silent_ms <= min(TIMEOUT_MS - 14_000, max(11_000, 10 * step_ms))
    assert (verdict.kind, verdict.ranks) == (HangKind.RANK_STOPPED, (5,))


def test_stopped_rank_is_named_in_the_first_step_of_a_later_generation():
    """It is known from the generation before that steps are long."""
    hanging, again = stepping(20_000), replace(WATCH, generation=2)
    hanging.begin(again, 200_000)
    silent_ms, verdict = named_after(hanging, again, stopped(5))
    assert (silent_ms, verdict.kind) == (106_000, HangKind.RANK_STOPPED)


def test_rank_that_stands_still_in_a_long_step_is_given_a_pause_and_a_step():
    """An evaluation may take as long as the others wait, and there is a step to be made then."""
    silent_ms, verdict = named_after(stepping(20_000), WATCH, loading(5))
    assert (silent_ms, verdict.kind) == (125_000, HangKind.LOADER_BLOCKED)


ERROR = Verdict(
    kind=COLLECTIVE_ERROR,
    action=Action.RESTART,
    ranks=(0, 1),
    hosts=(),
    reason="collectives failed on 2 ranks",
    failed_at_ms=9,
)


def looked_at(guilty: RankLook, until_ms: int) -> Hanging:
    """A run that was looked at in its first step, which was to begin at 0 ms."""
    hanging = Hanging()
    hanging.begin(WATCH, 0)
    for now_ms in range(0, until_ms, 500):
        if hanging.is_due(WATCH, now_ms):
            assert hanging.looked(Look.of(now_ms, all_but(guilty), LAYOUT), WATCH, now_ms) is None
    return hanging


@pytest.mark.parametrize(
    ("guilty", "kind"),
    [(spinning(5), HangKind.RANK_SPINNING), (loading(5), HangKind.LOADER_BLOCKED)],
)
def test_rank_that_the_others_waited_for_in_vain_is_named_by_the_looks_before(guilty, kind):
    """Ten minutes are given to a first step, and the others have given up after two."""
    hanging = looked_at(guilty, TIMEOUT_MS)
    verdict = hanging.instead(ERROR, WATCH, TIMEOUT_MS)
    assert (verdict.kind, verdict.ranks, verdict.hosts) == (kind, (5,), ("h2",))
    assert verdict.reason.startswith("no step for 120000 ms (usually one in 0 ms, patience 105000")
    assert verdict.reason.endswith("; then collectives failed on 2 ranks")
    dead = replace(ERROR, kind="rank_killed")
    assert hanging.instead(dead, WATCH, TIMEOUT_MS) == dead


@pytest.mark.parametrize(
    ("guilty", "until_ms", "failed_ms"),
    [
        (waiting(5), TIMEOUT_MS, TIMEOUT_MS),
        (
            waiting(5, frames=("train.py:main:1", "train.py:warm_up:9"), cpu_ms=90),
            TIMEOUT_MS,
            TIMEOUT_MS,
        ),
        (spinning(5), 60_000, 60_000),
        (spinning(5), 60_000, TIMEOUT_MS),
    ],
    ids=["all_wait", "at_work", "failed_before_the_timeout", "looked_at_long_before"],
)
def test_nobody_is_named_for_collectives_that_failed_by_something_else(guilty, until_ms, failed_ms):
    """Or by nobody knows whom."""
    hanging = looked_at(guilty, until_ms)
    assert hanging.instead(ERROR, WATCH, failed_ms) == ERROR


def test_nobody_is_named_for_collectives_whose_timeout_is_not_known():
    """They may have failed by anything."""
    hanging = looked_at(spinning(5), TIMEOUT_MS)
    assert hanging.instead(ERROR, replace(WATCH, collective_timeout_ms=0), TIMEOUT_MS) == ERROR
