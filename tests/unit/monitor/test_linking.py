"""What is remembered of a job's links, and what a hang's verdict becomes."""

from __future__ import annotations

import pytest
from tests.unit.monitor.test_links import look, names, without

from everstep.monitor.commands import SettleNote
from everstep.monitor.detectors.links import LOOKS_MAX
from everstep.monitor.detectors.verdict import Verdict
from everstep.monitor.events import Action, WatchedHost
from everstep.monitor.linking import LIMITS, Linking
from everstep.monitor.state import Watch

HOSTS = names(4)
WATCH = Watch(
    job_id="j",
    hosts=tuple(WatchedHost(host_id=h, ranks=(2 * i, 2 * i + 1)) for i, h in enumerate(HOSTS)),
)
NOBODY = Verdict(
    kind="hang", action=Action.RESTART, ranks=(), hosts=(), reason="all wait", failed_at_ms=0
)
AGAIN_MS = LIMITS.links_again_ms


def seen(*cuts: tuple[str, ...], hosts: tuple[str, ...] = HOSTS) -> Linking:
    """Looks that follow one another, each with these hosts cut; the first at ``AGAIN_MS``."""
    linking = Linking()
    for i, cut in enumerate(cuts, start=1):
        at_ms = i * AGAIN_MS
        assert linking.may_ask(at_ms)
        linking.looked(look(hosts, without(*cut), at_ms=at_ms), at_ms)
    return linking


def instead(
    linking: Linking,
    hang: Verdict | None = NOBODY,
    *,
    all_wait: bool = True,
    stepped_ms: int = 0,
    now_ms: int = 10_000,
) -> Verdict | None:
    """The verdict about a run that hangs."""
    return linking.instead(hang, WATCH, all_wait=all_wait, stepped_ms=stepped_ms, now_ms=now_ms)


def test_one_question_at_a_time():
    """And the next one no sooner than what was late has come."""
    linking = Linking()
    assert linking.may_ask(AGAIN_MS)
    assert not linking.may_ask(10 * AGAIN_MS)
    linking.looked(None, 10 * AGAIN_MS)
    assert linking.may_ask(10 * AGAIN_MS)
    linking.looked(None, 10 * AGAIN_MS)
    assert not linking.may_ask(11 * AGAIN_MS - 1)


def test_host_that_is_cut_is_named_instead_of_nobody():
    """All ranks wait for it, and no stack tells."""
    linking = seen(("h0001",), ("h0001",))
    verdict = instead(linking)
    assert verdict is not None
    assert (verdict.kind, verdict.action, verdict.hosts, verdict.ranks) == (
        "partitioned",
        Action.REPLACE,
        ("h0001",),
        (2, 3),
    )
    assert verdict.reason.endswith("seen 2 times; no step for 10000 ms, all ranks wait")
    early = instead(linking, None)
    assert early == verdict


def test_first_name_holds_the_verdict_back():
    """Starting again in the same places would hang again."""
    linking = seen(("h0001",))
    assert instead(linking) is None


@pytest.mark.parametrize("cuts", [((),), (("h0001",), ())])
def test_sound_links_change_nothing(cuts):
    """Whatever the stacks say holds."""
    assert instead(seen(*cuts)) == NOBODY
    assert instead(seen(*cuts), None) is None


def test_rank_that_stands_out_is_the_cause():
    """Its host is not to blame for what it does, nor another one for its network."""
    outlier = Verdict(
        kind="rank_stopped",
        action=Action.RESTART,
        ranks=(0,),
        hosts=("h0000",),
        reason="",
        failed_at_ms=0,
    )
    assert instead(seen(("h0001",), ("h0001",)), outlier) == outlier
    assert instead(seen(("h0001",), ("h0001",)), all_wait=False) == NOBODY


def test_links_that_were_tried_before_the_last_step_say_nothing_of_now():
    """The run has stepped since."""
    assert instead(seen(("h0001",), ("h0001",)), stepped_ms=2 * AGAIN_MS + 1) == NOBODY


def test_tie_is_noted_and_the_run_is_not_started_again():
    """Until it has lasted for long; the note ends with the next step."""
    halves = seen(("h0000", "h0001"))
    note = instead(halves)
    assert note is not None
    assert (note.kind, note.action, note.hosts) == ("partition_undecided", Action.NOTE, ())
    assert instead(halves, now_ms=LIMITS.links_tie_ms_max + 1) == NOBODY
    settled = halves.stepped("j", 5)
    assert settled == SettleNote(
        job_id="j", kind="partition_undecided", lost_ms=0, lost_steps=0, at_ms=5
    )
    assert halves.stepped("j", 6) is None


def test_links_that_could_not_be_tried_say_nothing():
    """Nor does what was seen before that."""
    linking = seen(("h0001",), ("h0001",))
    assert linking.may_ask(3 * AGAIN_MS)
    linking.looked(None, 3 * AGAIN_MS)
    assert instead(linking) == NOBODY


def test_few_looks_are_kept():
    """A tie is looked at for minutes."""
    linking = seen(("h0001",), *[()] * LOOKS_MAX)
    assert linking.may_ask(100 * AGAIN_MS)
    linking.looked(look(HOSTS, without("h0001"), at_ms=100 * AGAIN_MS), 100 * AGAIN_MS)
    assert linking.view.standing.look_again
