"""Finds the one root cause among the signals of a failure.

A failed rank or host shows itself many times over: every other rank's collective fails. So nothing
is believed at once. A first sign makes every host of the job a suspect for one bus round trip: the
probe. Then, in this order: a host that is gone explains everything; a device that its host says is
broken explains the ends of the host's ranks, and echoes; a rank that ended by itself (killed,
restore failed, user error) explains the echoes; if there are only echoes, the hosts try their
links, and one that is cut from the others explains them; else the run is restarted where it is and
nobody is cordoned.

Synchronous training helps: as long as *any* rank completes steps, *every* rank lives, so an agent
that has gone silent while its job steps on is only an agent (its supervisor brings it back).

Windows are measured on the monitor's own clock (``*_ms`` of ``Evidence`` and ``HostView``); hosts'
clocks (``RankEnded.at_ms``) only order and date what is reported.

Rejected: condemning a host on its dropped bus connection alone (a bus restart drops all of them),
and waiting for a collective's timeout (the survivors would idle for minutes).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from everstep.core.record import Record
from everstep.monitor.detectors.counters import HostFault, blamed
from everstep.monitor.detectors.links import LinkView, partitioned, undecided
from everstep.monitor.detectors.rank_ends import (
    ROOTS,
    bad_entry_point,
    host_too_small,
    killed,
    restore_failed,
    user_error,
)
from everstep.monitor.detectors.verdict import COLLECTIVE_ERROR, Verdict
from everstep.monitor.events import HOST_LOST, Action, ExitClass, RankEnded
from everstep.monitor.policy import Limits


class Probe(StrEnum):
    """What a host answered when it was asked."""

    NOT_ASKED = "not_asked"
    ASKED = "asked"
    ANSWERED = "answered"
    NO_RESPONDERS = "no_responders"
    NO_ANSWER = "no_answer"


class HostView(Record, frozen=True, kw_only=True):
    """What is known of a host right now; ``missing`` are its ranks that its agent does not see."""

    host_id: str
    ranks: tuple[int, ...]
    heard_ms: int
    dropped_ms: int | None = None
    probe: Probe = Probe.NOT_ASKED
    asked_ms: int = 0
    missing: tuple[int, ...] = ()
    missing_since_ms: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Echo:
    """A rank's collective failed through a fault elsewhere; ``at_ms`` by the host's clock."""

    rank: int
    host_id: str
    at_ms: int
    error: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """Everything that speaks about one generation of one job.

    ``stepped_ms`` is when a step was last seen to complete (or when ranks were started), ``step``
    the newest one; ``root_ms`` and ``echo_ms`` are when the first report of each kind came in.
    Ranks are expected from ``placed_ms`` on, and not before a restore is ``planned``.
    ``user_errors_before`` are the step and signature of user errors in earlier generations.
    ``blind`` says that the monitor itself cannot see: bus away, or just back. ``links`` are what
    hosts say of their ways to one another; None where they cannot be asked. ``broken`` is what the
    hosts' own error counters say of their devices. ``untold`` are ranks that have ended by the word
    of their hosts, whose reports are still on their way.
    """

    generation: int
    hosts: tuple[HostView, ...]
    ended: tuple[RankEnded, ...] = ()
    echoes: tuple[Echo, ...] = ()
    root_ms: int = 0
    echo_ms: int = 0
    step: int = 0
    stepped_ms: int = 0
    placed_ms: int = 0
    planned: bool = True
    progressed: bool = False
    blind: bool = False
    user_errors_before: tuple[tuple[int, str], ...] = ()
    deaths: tuple[tuple[str, int], ...] = ()
    links: LinkView | None = None
    broken: tuple[HostFault, ...] = ()
    untold: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """Hosts to ask now, or links to be tried, or a verdict, or nothing: wait."""

    probe: tuple[str, ...] = ()
    try_links: bool = False
    verdict: Verdict | None = None


NOT_YET: Final = Judgement()
MUTE: Final = frozenset({Probe.NO_RESPONDERS, Probe.NO_ANSWER})
# How a rank may end on a device that breaks under it: by a signal, or by an error of its library.
BY_A_DEVICE: Final = frozenset({ExitClass.KILLED, ExitClass.USER_ERROR, ExitClass.RESTORE_FAILED})


def judge(now_ms: int, evidence: Evidence, limits: Limits) -> Judgement:
    """Weigh the evidence at ``now_ms`` [ms since epoch].

    Returns:
        ``probe`` while answers are missing; a ``verdict`` when the root is known.
    """
    roots = [end for end in evidence.ended if end.exit_class in ROOTS]
    bad_entry = [end for end in roots if end.exit_class is ExitClass.BAD_ENTRY_POINT]
    if bad_entry:
        return Judgement(verdict=bad_entry_point(bad_entry))
    too_large = [end for end in roots if end.exit_class is ExitClass.HOST_TOO_SMALL]
    if too_large:
        return Judgement(verdict=host_too_small(too_large))
    # Of 2,048 hosts only what matters is looked at: while a run is down, seconds count.
    vanished = () if roots or evidence.echoes else _vanished(now_ms, evidence, limits)
    broken = bool(roots or evidence.echoes or vanished)
    silent = frozenset[str]() if broken else _silent(now_ms, evidence, limits)
    if evidence.blind or not (broken or silent or _dropped(now_ms, evidence, limits)):
        return NOT_YET
    to_ask = _unasked(now_ms, evidence, limits)
    if to_ask:
        return Judgement(probe=to_ask)
    answered = Probe.ANSWERED
    unanswered = [host for host in evidence.hosts if host.probe is not answered]
    if any(host.probe is Probe.ASKED for host in unanswered):
        return NOT_YET
    mute = [host for host in unanswered if host.probe in MUTE]
    gone = _gone(now_ms, mute, silent, limits, broken=broken)
    if any(_is_doubtful(now_ms, host, limits) for host in mute):
        return NOT_YET  # asked again every second; it speaks, or has been silent for long enough
    if gone:
        return Judgement(verdict=_host_lost(now_ms, evidence, gone))
    faults = _explaining(evidence, roots)
    if faults:
        ranks = {host.host_id: host.ranks for host in evidence.hosts}
        seen = f"{len(roots)} ranks ended there, {len(evidence.echoes)} collective errors"
        return Judgement(verdict=blamed(faults, ranks, seen))
    if roots:
        return _rank_root(now_ms, roots, evidence, limits)
    if evidence.echoes:
        return _only_echoes(now_ms, evidence, limits)
    if vanished:
        return Judgement(verdict=_ranks_vanished(now_ms, vanished))
    return NOT_YET


def _explaining(evidence: Evidence, roots: list[RankEnded]) -> list[HostFault]:
    """Broken devices that explain the failure: where ranks ended, or anywhere if none did."""
    if not roots:
        return list(evidence.broken)
    places = {end.host_id for end in roots if end.exit_class in BY_A_DEVICE}
    return [fault for fault in evidence.broken if fault.host_id in places]


def _silent(now_ms: int, evidence: Evidence, limits: Limits) -> frozenset[str]:
    """Hosts not heard for too long, unless the job's steps prove that their ranks live."""
    if now_ms - evidence.stepped_ms <= limits.silence_ms:
        return frozenset()
    return frozenset(
        host.host_id for host in evidence.hosts if now_ms - host.heard_ms > limits.silence_ms
    )


def _dropped(now_ms: int, evidence: Evidence, limits: Limits) -> bool:
    """Whether a connection dropped just now: a reason to ask, not to condemn."""
    return any(
        host.dropped_ms is not None
        and now_ms - host.dropped_ms <= limits.silence_ms
        and host.heard_ms <= host.dropped_ms
        for host in evidence.hosts
    )


def _unasked(now_ms: int, evidence: Evidence, limits: Limits) -> tuple[str, ...]:
    """Hosts whose last answer is older than the trouble."""
    since = min(
        (at for at in (evidence.root_ms, evidence.echo_ms) if at),
        default=now_ms - limits.probe_again_ms,
    )
    fresh_ms = max(since, now_ms - limits.probe_again_ms)
    never, asked = Probe.NOT_ASKED, Probe.ASKED
    return tuple(
        [
            host.host_id
            for host in evidence.hosts
            if host.probe is never or (host.probe is not asked and host.asked_ms < fresh_ms)
        ]
    )


def _gone(
    now_ms: int, mute: list[HostView], silent: frozenset[str], limits: Limits, *, broken: bool
) -> tuple[HostView, ...]:
    """Hosts that do not answer, where the run has broken or they have long been silent."""
    return tuple(
        host
        for host in mute
        if (broken or host.host_id in silent)
        and (host.probe is Probe.NO_RESPONDERS or _is_unheard(now_ms, host, limits))
    )


def _is_unheard(now_ms: int, host: HostView, limits: Limits) -> bool:
    """Whether a host has neither answered a probe nor spoken when it should have."""
    unanswered = host.probe is Probe.NO_ANSWER and host.heard_ms <= host.asked_ms
    return unanswered and now_ms - host.heard_ms > limits.unanswered_silence_ms


def _is_doubtful(now_ms: int, host: HostView, limits: Limits) -> bool:
    """Whether a host has not answered, but was heard so lately that only the probe may be late."""
    unanswered = host.probe is Probe.NO_ANSWER and host.heard_ms <= host.asked_ms
    return unanswered and now_ms - host.heard_ms <= limits.unanswered_silence_ms


def _host_lost(now_ms: int, evidence: Evidence, gone: tuple[HostView, ...]) -> Verdict:
    signs = [echo.at_ms for echo in evidence.echoes]
    signs += [host.dropped_ms for host in gone if host.dropped_ms is not None]
    signs += [end.at_ms for end in evidence.ended if end.exit_class in ROOTS]
    failed_ms = min(signs, default=max(host.heard_ms for host in gone))
    sign = {True: "no agent on the bus", False: "no answer to a probe"}
    parts = [
        f"{host.host_id}: {sign[host.probe is Probe.NO_RESPONDERS]}"
        f", last heard {max(0, now_ms - host.heard_ms)} ms ago"
        for host in gone
    ]
    return Verdict(
        kind=HOST_LOST,
        action=Action.REPLACE,
        ranks=tuple(sorted(rank for host in gone for rank in host.ranks)),
        hosts=tuple(sorted(host.host_id for host in gone)),
        reason=f"{'; '.join(parts)}; {len(evidence.echoes)} collective errors elsewhere",
        failed_at_ms=failed_ms,
    )


def _rank_root(
    now_ms: int, roots: list[RankEnded], evidence: Evidence, limits: Limits
) -> Judgement:
    """A rank ended by itself; deaths and failed restores come before errors they may cause."""
    for exit_class in (ExitClass.KILLED, ExitClass.RESTORE_FAILED, ExitClass.USER_ERROR):
        ends = sorted(
            (end for end in roots if end.exit_class is exit_class),
            key=lambda end: (end.at_ms, end.rank),
        )
        if not ends:
            continue
        if exit_class is ExitClass.USER_ERROR:
            if now_ms - evidence.root_ms < limits.user_error_group_ms:
                return NOT_YET
            return Judgement(verdict=user_error(ends, evidence.user_errors_before))
        if now_ms - evidence.root_ms < limits.death_group_ms:
            return NOT_YET
        if exit_class is ExitClass.KILLED:
            return Judgement(verdict=killed(ends, evidence.deaths, limits.deaths_per_hour_max))
        return Judgement(verdict=restore_failed(ends))
    raise AssertionError("roots hold only the classes above")


def _vanished(now_ms: int, evidence: Evidence, limits: Limits) -> tuple[HostView, ...]:
    """Hosts whose agents have not seen some of their ranks for too long, with no word of an end."""
    ended = {end.rank for end in evidence.ended}
    if not evidence.progressed:
        if not evidence.planned:
            return ()  # a plan may wait for a person, for as long as that takes
        if now_ms - evidence.placed_ms < limits.missing_before_first_step_ms:
            return ()
    elif now_ms - evidence.stepped_ms <= limits.missing_ms:
        return ()  # the run steps: what an agent does not see lives all the same
    return tuple(
        host
        for host in evidence.hosts
        if host.missing
        and set(host.missing) - ended
        and now_ms - host.missing_since_ms >= limits.missing_ms
    )


def _ranks_vanished(now_ms: int, vanished: tuple[HostView, ...]) -> Verdict:
    since_ms = min(host.missing_since_ms for host in vanished)
    return Verdict(
        kind="ranks_vanished",
        action=Action.RESTART,
        ranks=tuple(sorted(rank for host in vanished for rank in host.missing)),
        hosts=tuple(sorted(host.host_id for host in vanished)),
        reason=f"the agents of {', '.join(sorted(host.host_id for host in vanished))} have not "
        f"seen these ranks for {now_ms - since_ms} ms, and nobody reported their end",
        failed_at_ms=since_ms,
    )


def _only_echoes(now_ms: int, evidence: Evidence, limits: Limits) -> Judgement:
    echoes = sorted(evidence.echoes, key=lambda echo: (echo.at_ms, echo.rank))
    first = echoes[0]
    if evidence.untold and now_ms - evidence.echo_ms < limits.untold_patience_ms:
        return NOT_YET
    by_links = _by_links(now_ms, evidence, first, limits)
    if by_links is not None:
        return by_links
    if now_ms - evidence.echo_ms < limits.echo_patience_ms:
        return NOT_YET
    tried = evidence.links is not None and evidence.links.standing.text
    return Judgement(
        verdict=Verdict(
            kind=COLLECTIVE_ERROR,
            action=Action.RESTART,
            ranks=tuple(sorted({echo.rank for echo in echoes})),
            hosts=(),
            reason=f"collectives failed on {len(echoes)} ranks (first: rank {first.rank} on "
            f"{first.host_id}: {first.error}), every host answers, {_returned(evidence)}"
            f"{f', {tried}' if tried else ''}",
            failed_at_ms=first.at_ms,
        )
    )


def _by_links(now_ms: int, evidence: Evidence, first: Echo, limits: Limits) -> Judgement | None:
    """Judge by the links between the hosts; None when they do not explain the echoes."""
    links = evidence.links
    if links is None:
        return None
    if links.asking:
        return NOT_YET
    if links.asked_ms < evidence.echo_ms:
        return Judgement(try_links=True)
    standing = links.standing
    if standing.cut:
        seen = f"{len(evidence.echoes)} collective errors"
        ranks = {host.host_id: host.ranks for host in evidence.hosts}
        verdict = partitioned(standing, ranks, failed_at_ms=first.at_ms, seen=seen)
        return Judgement(verdict=verdict)
    if not standing.look_again or now_ms - evidence.echo_ms > limits.links_tie_ms_max:
        return None
    if now_ms - links.asked_ms < limits.links_again_ms:
        return NOT_YET
    note = undecided(standing, failed_at_ms=first.at_ms) if standing.tie else None
    return Judgement(try_links=True, verdict=note)


def _returned(evidence: Evidence) -> str:
    """Say which rank returned first while others still waited for it, if one did."""
    finished = [end for end in evidence.ended if end.exit_class is ExitClass.FINISHED]
    if not finished:
        return "no rank has ended by itself"
    first = min(finished, key=lambda end: (end.step, end.rank))
    return (
        f"{len(finished)} ranks had returned from the entry point, rank {first.rank} at step "
        f"{first.step}: all ranks must make the same number of steps"
    )
