"""Only echoes, and every host answers: what their links add to that."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.unit.monitor.test_links import names
from tests.unit.monitor.test_root_cause import LIMITS, NOW, host

from everstep.monitor.detectors.links import LinkView, Standing
from everstep.monitor.detectors.root_cause import Echo, Evidence, Judgement, Probe, judge
from everstep.monitor.events import Action

HOSTS = tuple(host(name, 2 * i, Probe.ANSWERED) for i, name in enumerate(names(4)))
ECHO_MS = NOW - 5_000
EVIDENCE = Evidence(
    generation=3,
    hosts=HOSTS,
    echoes=(Echo(rank=0, host_id="h0000", at_ms=ECHO_MS, error="closed"),),
    echo_ms=ECHO_MS,
    step=7,
    stepped_ms=NOW - 9_000,
)
TRIED = LinkView(asked_ms=ECHO_MS + 10)


def judged(view: LinkView | None, **fields: object) -> Judgement:
    """What follows from echoes and these links."""
    return judge(NOW, replace(EVIDENCE, links=view, **fields), LIMITS)


def test_links_are_tried_before_anybody_is_started_again():
    """What was tried before the trouble does not count."""
    assert judged(LinkView()) == Judgement(try_links=True)
    assert judged(LinkView(asked_ms=ECHO_MS - 1)) == Judgement(try_links=True)
    assert judged(replace(TRIED, asking=True)) == Judgement()


def test_sound_links_leave_the_run_where_it_is():
    """And the reason says that they were tried."""
    verdict = judged(replace(TRIED, standing=Standing(text="all 6 links are sound"))).verdict
    assert verdict is not None
    assert (verdict.kind, verdict.action, verdict.hosts) == (
        "collective_error",
        Action.RESTART,
        (),
    )
    assert verdict.reason.endswith("no rank has ended by itself, all 6 links are sound")


def test_where_nobody_can_be_asked_it_is_as_before():
    """An inventory that is away must not keep a run from starting again."""
    for view in (None, TRIED):
        verdict = judged(view).verdict
        assert verdict is not None
        assert verdict.reason.endswith("no rank has ended by itself")


@pytest.mark.parametrize(
    ("partly", "action"), [(False, Action.REPLACE), (True, Action.REPLACE_IF_SPARE)]
)
def test_host_that_is_cut_is_the_root_of_the_echoes(partly, action):
    """With its ranks, the counts, and the time of the first echo."""
    standing = Standing(cut=("h0001",), partly=partly, text="h0001 cut")
    verdict = judged(replace(TRIED, standing=standing)).verdict
    assert verdict is not None
    assert (verdict.kind, verdict.action) == ("partitioned", action)
    assert (verdict.hosts, verdict.ranks) == (("h0001",), (2, 3))
    assert verdict.reason == "h0001 cut; 1 collective errors"
    assert verdict.failed_at_ms == ECHO_MS


def test_name_that_is_new_is_asked_for_again_and_nobody_is_evicted():
    """Not at once: what is late must have time to come."""
    fresh = replace(TRIED, asked_ms=NOW - 100, standing=Standing(look_again=True, text="h1 cut"))
    assert judged(fresh) == Judgement()
    due = replace(fresh, asked_ms=NOW - LIMITS.links_again_ms)
    assert judged(due) == Judgement(try_links=True)


def test_tie_is_said_and_asked_again():
    """Half of the hosts do not reach the other half: neither half is to blame."""
    tie = Standing(tie=True, look_again=True, text="two halves")
    judgement = judged(replace(TRIED, asked_ms=NOW - LIMITS.links_again_ms, standing=tie))
    assert judgement.try_links
    assert judgement.verdict is not None
    assert (judgement.verdict.kind, judgement.verdict.action, judgement.verdict.hosts) == (
        "partition_undecided",
        Action.NOTE,
        (),
    )


def test_tie_that_lasts_ends_in_a_start_in_place():
    """Nobody waits for ever for a network; nobody is evicted either."""
    old_ms = NOW - LIMITS.links_tie_ms_max - 1
    tie = LinkView(asked_ms=NOW, standing=Standing(tie=True, look_again=True, text="two halves"))
    verdict = judged(tie, echo_ms=old_ms).verdict
    assert verdict is not None
    assert (verdict.kind, verdict.action, verdict.hosts) == (
        "collective_error",
        Action.RESTART,
        (),
    )


def test_host_that_is_gone_explains_more_than_links():
    """Its agent answers nobody: whoever does not reach it is no news."""
    hosts = (*HOSTS[:3], host("h0003", 6, Probe.NO_RESPONDERS))
    standing = Standing(cut=("h0001",), text="h0001 cut")
    verdict = judged(replace(TRIED, standing=standing), hosts=hosts).verdict
    assert verdict is not None
    assert (verdict.kind, verdict.hosts) == ("host_lost", ("h0003",))
