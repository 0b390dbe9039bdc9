"""What the errors that hosts count mean, and what is done about them."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.monitor.test_root_cause import ECHO, LIMITS, NOW, QUIET, answered, ended, host

from everstep.core.counters import ErrorKind, xid_kind
from everstep.monitor.detectors.counters import (
    FRESH_MS,
    RULES,
    WINDOW_MS,
    Growth,
    HostFault,
    Severity,
    blamed,
    fatal,
    faults_of,
    verdict_of,
)
from everstep.monitor.detectors.hang_verdict import Confidence
from everstep.monitor.detectors.root_cause import Echo, Judgement, Probe, judge
from everstep.monitor.events import Action, ExitClass

AT = 10 * WINDOW_MS


def grew(kind: str, *ago_and_by: tuple[int, int], part: str = "gpu0") -> Growth:
    """A count that grew by so much so long ago, the newest last."""
    return Growth(kind=kind, part=part, steps=tuple((AT - ago, by) for ago, by in ago_and_by))


def faults(*growths: Growth) -> tuple[HostFault, ...]:
    """What they mean."""
    return faults_of(AT, "h1", growths)


def broken(host_id: str, at_ms: int = NOW - 100) -> HostFault:
    """A GPU that has fallen off the bus."""
    return HostFault(
        host_id=host_id,
        kind="gpu_xid_79",
        part="gpu3",
        severity=Severity.FATAL,
        confidence=Confidence.CERTAIN,
        count=1,
        limit=1,
        window_ms=FRESH_MS,
        at_ms=at_ms,
        lasting=False,
        means="the GPU has fallen off the bus",
    )


@pytest.mark.parametrize(
    ("kind", "confidence"),
    [
        (ErrorKind.GPU_UNCORRECTED, Confidence.CERTAIN),
        (ErrorKind.MEMORY_UNCORRECTED, Confidence.CERTAIN),
        (ErrorKind.GPU_ROW_REMAP_FAILED, Confidence.CERTAIN),
        (ErrorKind.GPU_LOST, Confidence.CERTAIN),
        (ErrorKind.DISK_READ_ONLY, Confidence.LIKELY),
        *((xid_kind(xid), Confidence.CERTAIN) for xid in (48, 64, 79, 95, 140)),
        *((xid_kind(xid), Confidence.LIKELY) for xid in (46, 62, 74, 94, 119, 120)),
    ],
)
def test_one_fatal_error_moves_the_run_off_its_host(kind, confidence):
    """At the next snapshot: while the run goes on nothing is lost."""
    [fault] = fatal(faults(grew(kind, (1_000, 1))))
    assert fault.confidence is confidence
    verdict = verdict_of([fault], (4, 5))
    assert verdict is not None
    assert (verdict.kind, verdict.action, verdict.hosts, verdict.ranks) == (
        "host_faulty",
        Action.DRAIN,
        ("h1",),
        (4, 5),
    )
    assert f"{kind}: 1 in 10 min, {confidence}" in verdict.reason


def test_fatal_error_that_is_old_says_nothing_of_now():
    """Whoever looks at it an hour later repairs the host, and does not move the run."""
    assert faults(grew(ErrorKind.GPU_UNCORRECTED, (FRESH_MS, 1))) == ()


@pytest.mark.parametrize("xid", [13, 31, 43, 45, 63, 69])
def test_xids_that_programs_cause_are_nobodys_fault(xid):
    """Nor is a row that was remapped."""
    assert faults(grew(xid_kind(xid), (0, 5))) == ()


RISING = sorted(kind for kind, rule in RULES.items() if rule.severity is Severity.RISING)


@pytest.mark.parametrize("kind", RISING)
def test_rising_errors_below_their_limit_mean_nothing(kind):
    """Repaired each time."""
    assert faults(grew(kind, (0, RULES[kind].limit - 1))) == ()


@pytest.mark.parametrize("kind", RISING)
def test_rising_errors_are_noted_first_and_move_the_run_when_they_last(kind):
    """A burst is a cable that was touched; half an hour is not."""
    limit = RULES[kind].limit
    burst = verdict_of(faults(grew(kind, (0, limit))), (1,))
    assert burst is not None
    assert (burst.kind, burst.action) == ("errors_rising", Action.NOTE)
    lasting = [(2 * WINDOW_MS, limit), (WINDOW_MS, limit), (0, limit)]
    steady = verdict_of(faults(grew(kind, *lasting)), (1,))
    assert steady is not None
    assert (steady.kind, steady.action) == ("errors_rising", Action.DRAIN)
    assert f"limit {limit}, for 3 times as long" in steady.reason
    gap = verdict_of(faults(grew(kind, (2 * WINDOW_MS, 3 * limit), (0, limit))), (1,))
    assert gap is not None
    assert gap.action is Action.NOTE


def test_remarks_never_move_a_run():
    """Not even when they last."""
    steps = [(2 * WINDOW_MS, 10**6), (WINDOW_MS, 10**6), (0, 10**6)]
    for kind in (ErrorKind.NIC_DROPS, ErrorKind.DISK_FULL, ErrorKind.GPU_ROW_REMAP_PENDING):
        verdict = verdict_of(faults(grew(kind, *steps)), (1,))
        assert verdict is not None
        assert (verdict.kind, verdict.action) == ("host_remark", Action.NOTE)


def test_worst_of_many_is_told_first():
    """One verdict a host."""
    found = faults(
        grew(ErrorKind.NIC_DROPS, (0, 10**6), part="eth0"),
        grew(ErrorKind.GPU_CORRECTED, (0, 500)),
        grew(xid_kind(94), (0, 1)),
        grew(xid_kind(79), (0, 1)),
    )
    assert [fault.kind for fault in found] == [
        "gpu_xid_79",
        "gpu_xid_94",
        "gpu_corrected",
        "nic_drops",
    ]
    verdict = verdict_of(found, (1,))
    assert verdict is not None
    assert verdict.action is Action.DRAIN
    assert verdict_of((), (1,)) is None


@settings(deadline=None, max_examples=50)
@given(st.permutations([*RULES]))
def test_order_of_counts_changes_nothing(kinds):
    """They come as the host lists them."""
    assert faults(*(grew(kind, (0, 10**6)) for kind in kinds)) == faults(
        *(grew(kind, (0, 10**6)) for kind in RULES)
    )


def test_every_kind_that_is_counted_has_a_rule():
    """What an agent tells is understood."""
    assert set(ErrorKind) <= set(RULES)


ECHOES = replace(
    QUIET, hosts=answered(Probe.ANSWERED, Probe.ANSWERED), echoes=(ECHO,), echo_ms=NOW - 100
)


def test_broken_host_is_the_root_of_echoes_that_have_none():
    """Every host answers, no rank ended by itself: rather this one than nobody."""
    verdict = judge(NOW, replace(ECHOES, broken=(broken("h1"),)), LIMITS).verdict
    assert verdict is not None
    assert (verdict.kind, verdict.action, verdict.hosts, verdict.ranks) == (
        "host_faulty",
        Action.REPLACE,
        ("h1",),
        (2, 3),
    )
    assert verdict.reason == (
        "h1: the GPU has fallen off the bus on gpu3 (gpu_xid_79: 1 in 10 min, certain); 0 ranks "
        "ended there, 1 collective errors"
    )


def test_thousands_of_echoes_have_one_broken_host():
    """Whatever order they come in."""
    hosts = tuple(host(f"h{i:04d}", 2 * i, Probe.ANSWERED) for i in range(2_048))
    echoes = tuple(
        Echo(rank=rank, host_id=f"h{rank // 2:04d}", at_ms=NOW - 50 + rank % 7)
        for rank in range(4_096)
    )
    one = replace(ECHOES, hosts=hosts, echoes=echoes, broken=(broken("h1234"),))
    other = replace(one, echoes=echoes[::-1])
    assert judge(NOW, one, LIMITS) == judge(NOW, other, LIMITS)
    verdict = judge(NOW, one, LIMITS).verdict
    assert verdict is not None
    assert verdict.hosts == ("h1234",)


@pytest.mark.parametrize("exit_class", [ExitClass.KILLED, ExitClass.USER_ERROR])
def test_rank_that_ends_on_a_broken_device_is_not_started_there_again(exit_class):
    """A GPU's error comes up as an exception of the library: no user's bug."""
    ends = (ended(2, exit_class, "h1", signal=6, error="CUDA error: uncorrectable ECC"),)
    evidence = replace(ECHOES, ended=ends, root_ms=NOW - 50, broken=(broken("h1"),))
    verdict = judge(NOW, evidence, LIMITS).verdict
    assert verdict is not None
    assert (verdict.kind, verdict.action, verdict.hosts) == (
        "host_faulty",
        Action.REPLACE,
        ("h1",),
    )


def test_rank_that_ends_elsewhere_is_its_own_root():
    """A broken device on another host did not kill it; the run moves off that one in its time."""
    ends = (ended(0, ExitClass.KILLED, "h0", signal=9),)
    evidence = replace(ECHOES, ended=ends, root_ms=NOW - 50, broken=(broken("h1"),))
    verdict = judge(NOW, evidence, LIMITS).verdict
    assert verdict is not None
    assert (verdict.kind, verdict.hosts) == ("rank_killed", ("h0",))


def test_broken_host_of_a_run_that_steps_is_not_judged_here():
    """Nothing has failed."""
    assert judge(NOW, replace(QUIET, broken=(broken("h1"),)), LIMITS) == Judgement()


def test_host_that_is_gone_explains_more_than_a_counter():
    """Its last heartbeat may even have said why."""
    hosts = answered(Probe.ANSWERED, Probe.NO_RESPONDERS)
    verdict = judge(NOW, replace(ECHOES, hosts=hosts, broken=(broken("h0"),)), LIMITS).verdict
    assert verdict is not None
    assert (verdict.kind, verdict.hosts) == ("host_lost", ("h1",))


def test_what_most_hosts_tell_of_at_once_costs_no_host_without_a_spare():
    """A power dip, or a driver: whoever works on is better than nobody."""
    ranks = {f"h{i}": (i,) for i in range(4)}
    two = blamed([broken("h0"), broken("h1")], ranks, "x")
    assert (two.action, two.hosts) == (Action.REPLACE, ("h0", "h1"))
    three = blamed([broken("h0"), broken("h1"), broken("h2")], ranks, "x")
    assert three.action is Action.REPLACE_IF_SPARE
