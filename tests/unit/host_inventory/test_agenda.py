"""What hosts need when: probes that are spread, retried and paired, returns, drains."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.host_inventory.fleet import FLEET_SPEC, after, fleet_of, join, joined, place
from tests.unit.host_inventory.test_care import BACK_MS, MAINTAIN, NEW, REJOINED, WARM, report

from everstep.core.probes import PAIR, Depth
from everstep.core.time import MINUTE_MS
from everstep.host_inventory.agenda import (
    RETRY_MS,
    RETRY_MS_MAX,
    Drain,
    Examine,
    Return,
    Tried,
    needs,
    round_of,
)
from everstep.host_inventory.care import CARE
from everstep.host_inventory.commands import RecordProbes

EVERY_MS = 10 * MINUTE_MS
HOST_IDS = [f"h{number}" for number in range(200)]


def passed(host_id: str) -> RecordProbes:
    """Return that a host's probes have passed."""
    return RecordProbes(host_id=host_id, agent_epoch="e1", report=report(), at_ms=20)


def asked(given, at_ms=100, tried=None, rounds=None):
    """Return what is to be done."""
    return needs(fleet_of(given), at_ms, CARE, tried or {}, rounds or {})


def test_host_that_joined_is_asked_until_it_answers():
    """Soon at first, then less often; a new agent at once."""
    [need] = asked(NEW)
    assert need == Examine(host_id="h1", agent_epoch="e1", depth=Depth.QUICK, partner=None)
    once = {"h1": Tried(agent_epoch="e1", at_ms=100, failures=1)}
    assert asked(NEW, 100 + 2 * RETRY_MS - 1, once) == ()
    assert asked(NEW, 100 + 2 * RETRY_MS, once) == (need,)
    often = {"h1": Tried(agent_epoch="e1", at_ms=100, failures=40)}
    assert asked(NEW, 100 + RETRY_MS_MAX - 1, often) == ()
    assert asked(NEW, 100 + RETRY_MS_MAX, often) == (need,)
    assert asked(NEW, 101, {"h1": Tried(agent_epoch="e0", at_ms=100, failures=9)}) == (need,)


def test_agent_that_cannot_probe_is_not_asked():
    """It would never answer."""
    assert asked(FLEET_SPEC.given(joined(join("h1")))) == ()


def test_idle_spare_is_probed_once_a_round_with_an_idle_partner():
    """A partner that the link has just failed to is not asked again."""
    two = after(WARM.given(joined(join("h2", probes=True))), passed("h2"))
    now_ms = 100 * EVERY_MS
    last = {host_id: round_of(host_id, now_ms, CARE) for host_id in ("h1", "h2")}
    assert asked(two, now_ms, rounds=last) == ()
    due = asked(two, now_ms + EVERY_MS, rounds=last)
    assert [(one.host_id, one.depth, one.partner.host_id) for one in due] == [
        ("h1", Depth.QUICK, "h2"),
        ("h2", Depth.QUICK, "h1"),
    ]
    assert asked(two, now_ms, rounds={}) == (), "a new inventory begins with the next round"


@pytest.mark.parametrize("turn", range(4))
def test_link_in_doubt_is_tried_with_another_partner_at_once(turn):
    """Whoever's turn it would be; with the same one again only if there is no other."""
    two = after(WARM.given(joined(join("h2", probes=True))), passed("h2"))
    three = after(two.given(joined(join("h3", probes=True))), passed("h3"))
    failed = RecordProbes(
        host_id="h1", agent_epoch="e1", report=report(PAIR, where="h2", number=2), at_ms=30
    )
    at_ms = turn * EVERY_MS
    assert [(one.host_id, one.partner.host_id) for one in asked(after(three, failed), at_ms)] == [
        ("h1", "h3")
    ]
    assert asked(after(two, failed), at_ms)[0].partner.host_id == "h2"


def test_host_at_work_is_not_probed():
    """Its ranks come first."""
    busy = after(WARM, place())
    assert asked(busy, 100 * EVERY_MS, rounds={"h1": 0}) == ()


@given(st.integers(0, 10**12))
def test_rounds_of_a_fleet_are_spread_over_the_whole_period(now_ms):
    """In no tenth of it are more than a fifth of the hosts probed."""
    before = [round_of(host_id, now_ms, CARE) for host_id in HOST_IDS]
    later = [round_of(host_id, now_ms + EVERY_MS // 10, CARE) for host_id in HOST_IDS]
    changed = sum(one != other for one, other in zip(before, later, strict=True))
    assert changed <= len(HOST_IDS) // 5


def test_host_that_was_held_out_returns_when_it_is_time():
    """Not before, and not twice."""
    back = Return(host_id="h1", agent_epoch="e2")
    assert asked(REJOINED, BACK_MS - 1) == ()
    assert asked(REJOINED, BACK_MS) == (back,)


def test_host_that_is_wanted_is_asked_for_until_its_job_has_left():
    """Every ten seconds: a job that comes up forgets."""
    wished = after(WARM, place(), MAINTAIN)
    want = Drain(host_id="h1", agent_epoch="e1", job_id="job", why="maintenance: firmware")
    assert asked(wished) == (want,)
    tried = {"h1": Tried(agent_epoch="e1", at_ms=100)}
    assert asked(wished, 10_099, tried) == ()
    assert asked(wished, 10_100, tried) == (want,)
