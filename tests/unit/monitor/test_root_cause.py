"""Which of many signals is the root."""

from __future__ import annotations

from dataclasses import replace

import pytest

from everstep.core.record import changed
from everstep.monitor.detectors.root_cause import (
    Echo,
    Evidence,
    HostView,
    Judgement,
    Probe,
    judge,
)
from everstep.monitor.events import Action, ExitClass, RankEnded
from everstep.monitor.policy import Limits

NOW = 100_000
LIMITS = Limits()


def host(name: str, first_rank: int, probe: Probe = Probe.NOT_ASKED, **fields: int) -> HostView:
    """A host with two ranks that was heard just now."""
    values = {"heard_ms": NOW - 100, "asked_ms": 0 if probe is Probe.NOT_ASKED else NOW}
    values |= fields
    return HostView(host_id=name, ranks=(first_rank, first_rank + 1), probe=probe, **values)


def ended(rank: int, exit_class: ExitClass, host_id: str = "h0", **fields: object) -> RankEnded:
    """A rank's end, 500 ms ago."""
    values = {"at_ms": NOW - 500, "step": 7} | fields
    return RankEnded(
        job_id="j", generation=3, rank=rank, host_id=host_id, exit_class=exit_class, **values
    )


ECHO = Echo(rank=0, host_id="h0", at_ms=NOW - 20, error="connection closed by peer")
QUIET = Evidence(generation=3, hosts=(host("h0", 0), host("h1", 2)), step=7, stepped_ms=NOW - 300)


def answered(*probes: Probe) -> tuple[HostView, ...]:
    """Both hosts with probe outcomes."""
    return (host("h0", 0, probes[0]), host("h1", 2, probes[1]))


def test_quiet_run_is_left_alone():
    """No sign, no probe, no verdict."""
    assert judge(NOW, QUIET, LIMITS) == Judgement()


def test_first_echo_asks_every_host_and_judges_nobody():
    """A collective error says that something is wrong, not where."""
    evidence = replace(QUIET, echoes=(ECHO,), echo_ms=NOW)
    assert judge(NOW, evidence, LIMITS) == Judgement(probe=("h0", "h1"))


def test_verdict_waits_for_every_answer():
    """Two hosts may have died together: the second answer counts too."""
    hosts = answered(Probe.ASKED, Probe.NO_RESPONDERS)
    evidence = replace(QUIET, hosts=hosts, echoes=(ECHO,), echo_ms=NOW)
    assert judge(NOW, evidence, LIMITS) == Judgement()


def test_host_without_an_agent_is_the_root_of_the_echoes():
    """The host that does not answer is lost with all its ranks, and is replaced."""
    hosts = answered(Probe.ANSWERED, Probe.NO_RESPONDERS)
    evidence = replace(QUIET, hosts=hosts, echoes=(ECHO,), echo_ms=NOW)
    verdict = judge(NOW, evidence, LIMITS).verdict
    assert verdict is not None
    assert (verdict.kind, verdict.action, verdict.hosts, verdict.ranks) == (
        "host_lost",
        Action.REPLACE,
        ("h1",),
        (2, 3),
    )


def test_two_silent_hosts_are_one_incident():
    """One verdict names both."""
    hosts = (
        host("h0", 0, Probe.NO_ANSWER, heard_ms=NOW - 2_501),
        host("h1", 2, Probe.NO_RESPONDERS),
    )
    evidence = replace(QUIET, hosts=hosts, echoes=(ECHO,), echo_ms=NOW)
    verdict = judge(NOW, evidence, LIMITS).verdict
    assert verdict is not None
    assert verdict.hosts == ("h0", "h1")


def test_late_answer_of_a_host_that_was_just_heard_condemns_nobody():
    """Our own network may be slow; a host that is gone misses its next heartbeat too."""
    doubtful = host("h0", 0, Probe.NO_ANSWER, heard_ms=NOW - 500, asked_ms=NOW - 400)
    well = host("h1", 2, Probe.ANSWERED, asked_ms=NOW - 400)
    evidence = replace(QUIET, hosts=(doubtful, well), echoes=(ECHO,), echo_ms=NOW - 410)
    assert judge(NOW, evidence, LIMITS) == Judgement()
    assert judge(NOW, replace(evidence, echo_ms=NOW - 2_000), LIMITS) == Judgement()
    again = judge(NOW + 700, evidence, LIMITS)
    assert again.verdict is None
    assert "h0" in again.probe
    silent = changed(doubtful, heard_ms=NOW - 2_501)
    lost = judge(NOW, replace(evidence, hosts=(silent, evidence.hosts[1])), LIMITS).verdict
    assert lost is not None
    assert (lost.kind, lost.hosts) == ("host_lost", ("h0",))


def test_host_that_speaks_after_an_unanswered_probe_lives():
    """A heartbeat is as good an answer as the one that was lost."""
    heard = host("h0", 0, Probe.NO_ANSWER, heard_ms=NOW - 100, asked_ms=NOW - 400)
    evidence = replace(
        QUIET,
        hosts=(heard, host("h1", 2, Probe.ANSWERED)),
        echoes=(ECHO,),
        echo_ms=NOW - 1_000,
    )
    asked = replace(evidence, hosts=tuple(changed(h, asked_ms=NOW - 400) for h in evidence.hosts))
    verdict = judge(NOW, asked, LIMITS).verdict
    assert verdict is not None
    assert verdict.kind == "collective_error"


def test_answer_from_before_the_trouble_does_not_count():
    """A host that answered a second ago may have died since."""
    hosts = (host("h0", 0, Probe.ANSWERED, asked_ms=NOW - 50), host("h1", 2, Probe.ANSWERED))
    evidence = replace(QUIET, hosts=hosts, echoes=(ECHO,), echo_ms=NOW - 10)
    assert judge(NOW, evidence, LIMITS) == Judgement(probe=("h0",))


def test_killed_rank_restarts_on_its_host_and_echoes_are_ignored():
    """A signal to one process says nothing against its host."""
    evidence = replace(
        QUIET,
        hosts=answered(Probe.ANSWERED, Probe.ANSWERED),
        ended=(ended(2, ExitClass.KILLED, "h1", signal=9),),
        root_ms=NOW - 40,
        echoes=(ECHO,),
        echo_ms=NOW - 40,
    )
    verdict = judge(NOW, evidence, LIMITS).verdict
    assert verdict is not None
    assert (verdict.kind, verdict.action, verdict.ranks, verdict.hosts) == (
        "rank_killed",
        Action.RESTART,
        (2,),
        ("h1",),
    )


def test_echoes_of_ranks_that_returned_early_name_the_first_to_leave():
    """Its peers wait for it in vain: user code that makes unequal numbers of steps."""
    evidence = replace(
        QUIET,
        hosts=answered(Probe.ANSWERED, Probe.ANSWERED),
        ended=(ended(2, ExitClass.FINISHED, "h1"), ended(3, ExitClass.FINISHED, "h1", step=6)),
        echoes=(ECHO,),
        echo_ms=NOW - LIMITS.echo_patience_ms,
    )
    verdict = judge(NOW, evidence, LIMITS).verdict
    assert verdict is not None
    assert (verdict.kind, verdict.action) == ("collective_error", Action.RESTART)
    assert "2 ranks had returned from the entry point, rank 3 at step 6" in verdict.reason


def test_third_death_within_an_hour_replaces_the_host_if_there_is_a_spare():
    """Ranks that keep dying on one host make it a suspect; but it answers, so it can serve on."""
    evidence = replace(
        QUIET,
        hosts=answered(Probe.ANSWERED, Probe.ANSWERED),
        ended=(ended(2, ExitClass.KILLED, "h1", signal=9),),
        root_ms=NOW - 40,
        deaths=(("h1", NOW - 9_000), ("h1", NOW - 5_000), ("h1", NOW - 500), ("h0", NOW)),
    )
    verdict = judge(NOW, evidence, LIMITS).verdict
    assert verdict is not None
    assert (verdict.action, verdict.hosts) == (Action.REPLACE_IF_SPARE, ("h1",))


def test_rank_killed_on_a_host_that_is_gone_is_a_lost_host():
    """The last report of a dying host must not send ranks back to it."""
    evidence = replace(
        QUIET,
        hosts=answered(Probe.ANSWERED, Probe.NO_RESPONDERS),
        ended=(ended(2, ExitClass.KILLED, "h1", signal=9),),
        root_ms=NOW - 40,
    )
    verdict = judge(NOW, evidence, LIMITS).verdict
    assert verdict is not None
    assert (verdict.kind, verdict.hosts) == ("host_lost", ("h1",))


def test_user_error_restarts_once_and_fails_the_second_time():
    """The same error at the same step is the user's bug; addresses in the text do not matter."""
    evidence = replace(
        QUIET,
        hosts=answered(Probe.ANSWERED, Probe.ANSWERED),
        ended=(ended(1, ExitClass.USER_ERROR, error="ValueError: bad <X at 0x7f12>"),),
        root_ms=NOW - 300,
        echoes=(ECHO,),
        echo_ms=NOW - 300,
    )
    first = judge(NOW, evidence, LIMITS).verdict
    assert first is not None
    assert (first.kind, first.action, first.hosts) == ("user_error", Action.RESTART, ())
    known = replace(evidence, user_errors_before=((7, "ValueError: bad <X at 0x?>"),))
    second = judge(NOW, known, LIMITS).verdict
    assert second is not None
    assert second.action is Action.FAIL
    elsewhere = replace(evidence, user_errors_before=((6, "ValueError: bad <X at 0x?>"),))
    other = judge(NOW, elsewhere, LIMITS).verdict
    assert other is not None
    assert other.action is Action.RESTART


def test_user_errors_of_all_ranks_are_gathered_first():
    """One program runs everywhere: give its other ranks a moment to fail too."""
    evidence = replace(
        QUIET,
        hosts=answered(Probe.ANSWERED, Probe.ANSWERED),
        ended=(ended(1, ExitClass.USER_ERROR, error="ValueError"),),
        root_ms=NOW - 10,
    )
    assert judge(NOW, evidence, LIMITS) == Judgement()


def test_bad_entry_point_fails_at_once():
    """No restart can find a function that is not there; no probe is needed to say so."""
    evidence = replace(
        QUIET, ended=(ended(0, ExitClass.BAD_ENTRY_POINT, error="no module named x"),)
    )
    verdict = judge(NOW, evidence, LIMITS).verdict
    assert verdict is not None
    assert (verdict.kind, verdict.action) == ("bad_entry_point", Action.FAIL)


@pytest.mark.parametrize(
    ("step", "action", "hosts"), [(0, Action.FAIL, ()), (40, Action.REPLACE, ("h0",))]
)
def test_host_too_small_fails_a_launch_and_is_replaced_later(step, action, hosts):
    """A job that never fitted its hosts is told so; one that did is not ended by a smaller host."""
    small = ended(0, ExitClass.HOST_TOO_SMALL, error="100 GB in all, where df allows 60", step=step)
    echo = ended(1, ExitClass.USER_ERROR, error="whatever follows from it")
    verdict = judge(NOW, replace(QUIET, ended=(echo, small)), LIMITS).verdict
    assert verdict is not None
    assert (verdict.kind, verdict.action, verdict.hosts) == ("host_too_small", action, hosts)
    assert "100 GB in all" in verdict.reason


def test_echoes_alone_restart_in_place_after_patience():
    """If every host answers and no rank ended, nobody is to blame."""
    evidence = replace(
        QUIET,
        hosts=answered(Probe.ANSWERED, Probe.ANSWERED),
        echoes=(ECHO,),
        echo_ms=NOW - LIMITS.echo_patience_ms + 1,
    )
    assert judge(NOW, evidence, LIMITS) == Judgement()
    verdict = judge(NOW + 1, evidence, LIMITS).verdict
    assert verdict is not None
    assert (verdict.kind, verdict.action, verdict.hosts) == (
        "collective_error",
        Action.RESTART,
        (),
    )


def test_dropped_connection_asks_but_does_not_condemn():
    """An agent that was killed alone comes back; its ranks step on."""
    hosts = (host("h0", 0), host("h1", 2, dropped_ms=NOW - 5))
    evidence = replace(QUIET, hosts=hosts)
    assert judge(NOW, evidence, LIMITS) == Judgement(probe=("h0", "h1"))
    hosts = (
        host("h0", 0, Probe.ANSWERED),
        host("h1", 2, Probe.NO_RESPONDERS, dropped_ms=NOW - 5),
    )
    assert judge(NOW, replace(evidence, hosts=hosts), LIMITS) == Judgement()


def test_silent_host_whose_job_steps_on_is_not_lost():
    """Synchronous steps prove that every rank lives, whatever its agent does."""
    hosts = (host("h0", 0), host("h1", 2, heard_ms=NOW - 60_000))
    assert judge(NOW, replace(QUIET, hosts=hosts), LIMITS) == Judgement()


def test_silent_host_whose_job_stands_still_is_asked_then_lost():
    """No heartbeat, no step, no answer: gone, even without a single echo."""
    hosts = (host("h0", 0), host("h1", 2, heard_ms=NOW - 4_000))
    evidence = replace(QUIET, hosts=hosts, stepped_ms=NOW - 4_000)
    assert judge(NOW, evidence, LIMITS) == Judgement(probe=("h0", "h1"))
    hosts = (
        host("h0", 0, Probe.ANSWERED),
        host("h1", 2, Probe.NO_ANSWER, heard_ms=NOW - 4_000),
    )
    verdict = judge(NOW, replace(evidence, hosts=hosts), LIMITS).verdict
    assert verdict is not None
    assert (verdict.kind, verdict.hosts) == ("host_lost", ("h1",))


def test_ranks_that_no_agent_sees_any_more_restart_the_run():
    """Hosts came back without their ranks: nobody will ever report their end."""
    gone = {"missing": (2, 3), "missing_since_ms": NOW - 3_000}
    standing = replace(QUIET, progressed=True, stepped_ms=NOW - 60_000)
    hosts = (host("h0", 0), changed(host("h1", 2), **gone))
    assert judge(NOW, replace(standing, hosts=hosts), LIMITS) == Judgement(probe=("h0", "h1"))
    hosts = (host("h0", 0, Probe.ANSWERED), changed(host("h1", 2, Probe.ANSWERED), **gone))
    evidence = replace(standing, hosts=hosts)
    verdict = judge(NOW, evidence, LIMITS).verdict
    assert verdict is not None
    assert (verdict.kind, verdict.action, verdict.ranks, verdict.hosts) == (
        "ranks_vanished",
        Action.RESTART,
        (2, 3),
        ("h1",),
    )
    steps_on = replace(evidence, stepped_ms=NOW - 100)
    assert judge(NOW, steps_on, LIMITS) == Judgement()
    coming_up = replace(evidence, progressed=False, placed_ms=NOW - 5_000)
    assert judge(NOW, coming_up, LIMITS) == Judgement()
    waiting = replace(evidence, progressed=False, placed_ms=NOW - 900_000, planned=False)
    assert judge(NOW, waiting, LIMITS) == Judgement()
    assert judge(NOW, replace(waiting, planned=True), LIMITS).verdict is not None


def test_blind_monitor_judges_nobody():
    """What cannot be seen is not evidence."""
    hosts = answered(Probe.NO_RESPONDERS, Probe.NO_RESPONDERS)
    evidence = replace(QUIET, hosts=hosts, echoes=(ECHO,), echo_ms=NOW, blind=True)
    assert judge(NOW, evidence, LIMITS) == Judgement()
