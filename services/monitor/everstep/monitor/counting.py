"""Remembers what hosts have counted, and how their clocks stand; says what is new of it.

Totals come with every heartbeat and with the answers to probes. What an earlier monitor has seen is
not known here, but each count says how old it is.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from everstep.core.system import Clock
from everstep.monitor.commands import SettleNote
from everstep.monitor.detectors.clocks import MINUTE_MS, MINUTES_MAX, ClockMinute, clock_fault
from everstep.monitor.detectors.counters import (
    LASTING_WINDOWS,
    WINDOW_MS,
    Growth,
    HostFault,
    blamed,
    fatal,
    faults_of,
    verdict_of,
)
from everstep.monitor.detectors.verdict import Verdict
from everstep.monitor.events import Action
from everstep.monitor.state import Watch
from everstep.wire.v1.agents_pb2 import ErrorCount, Heartbeat

HISTORY_MS: Final = LASTING_WINDOWS * WINDOW_MS
STEPS_MAX: Final = 64  # of one count; those of one minute are one step
LOOK_MS: Final = 1_000  # as heartbeats come
NOTES: Final = ("errors_rising", "host_remark", "clock_off")

Key = tuple[str, str]


@dataclass(slots=True)
class _Host:
    agent_epoch: str = ""  # of whoever told the totals
    totals: dict[Key, int] = field(default_factory=dict)
    steps: dict[Key, list[tuple[int, int]]] = field(default_factory=dict)
    minutes: list[ClockMinute] = field(default_factory=list)
    unsynchronised: bool = False

    def grew(self, key: Key, by: int, at_ms: int) -> None:
        steps = self.steps.setdefault(key, [])
        if steps and at_ms // MINUTE_MS == steps[-1][0] // MINUTE_MS:
            steps[-1] = (at_ms, steps[-1][1] + by)
        else:
            steps.append((at_ms, by))
        del steps[:-STEPS_MAX]

    def faults(self, host_id: str, now_ms: int) -> tuple[HostFault, ...]:
        growths = [
            Growth(kind=kind, part=part, steps=tuple(steps))
            for (kind, part), steps in self.steps.items()
        ]
        return faults_of(now_ms, host_id, growths)


class Counting:
    """Of all hosts that have counted anything. Mutable: lost with the process."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._hosts: dict[str, _Host] = {}
        self._said: dict[str, dict[tuple[str, str], Action]] = {}  # job -> kind, host -> action
        self._looked_ms: dict[str, int] = {}

    def heard(self, heartbeat: Heartbeat) -> None:
        """Take a heartbeat: what the host has counted, and what its clock says."""
        host_id, at_ms = heartbeat.host_id, heartbeat.at_ms
        self.told(host_id, heartbeat.agent_epoch, heartbeat.errors)
        self.beat(host_id, at_ms, unsynchronised=heartbeat.clock_unsynchronised)

    def told(self, host_id: str, agent_epoch: str, errors: Iterable[ErrorCount]) -> None:
        """Take a host's totals.

        One agent's only grow: fewer than it has told before were overtaken on their way, as a
        heartbeat may be by the answer to a probe.
        """
        now_ms = self._clock.now_ms()
        known = self._hosts.get(host_id)
        another = known is None or known.agent_epoch != agent_epoch
        for error in errors:
            host = self._hosts.setdefault(host_id, _Host())
            key = (error.kind, error.part)
            host.agent_epoch = agent_epoch
            before = host.totals.get(key, 0)
            if error.count < before and not another:
                continue
            host.totals[key] = error.count
            # Fewer than before by another agent: the host was booted, and everything is new.
            growth = error.count - before if error.count >= before else error.count
            if growth and error.age_ms <= HISTORY_MS:
                host.grew(key, growth, now_ms - max(0, error.age_ms))

    def beat(self, host_id: str, at_ms: int, *, unsynchronised: bool) -> None:
        """Take what a host's clock said when it sent a heartbeat."""
        now_ms = self._clock.now_ms()
        host = self._hosts.setdefault(host_id, _Host())
        host.unsynchronised = unsynchronised
        minute, off_ms = now_ms // MINUTE_MS, now_ms - at_ms
        last = host.minutes[-1] if host.minutes else None
        if last is not None and last.minute == minute:
            if off_ms < last.off_ms:
                host.minutes[-1] = ClockMinute(minute=minute, off_ms=off_ms)
            return
        host.minutes = [*host.minutes, ClockMinute(minute=minute, off_ms=off_ms)][-MINUTES_MAX:]

    def forget(self, host_id: str) -> None:
        """Drop what a host did before it was cordoned, or left; its totals stay known."""
        host = self._hosts.get(host_id)
        if host is not None:
            host.steps.clear()
            host.minutes.clear()

    def fatal(self, hosts: Iterable[str], now_ms: int) -> tuple[HostFault, ...]:
        """Return what is broken on any of these hosts."""
        return tuple(
            fault
            for host_id in sorted(hosts)
            if (host := self._hosts.get(host_id)) is not None and host.steps
            for fault in fatal(host.faults(host_id, now_ms))
        )

    def news(self, watch: Watch, now_ms: int) -> list[Verdict | SettleNote]:
        """Return what is new of a job's hosts, at most once a second: moves, notes, ends of notes.

        A whole minute of heartbeats is heard before a clock is judged.
        """
        if watch.over or now_ms - self._looked_ms.get(watch.job_id, 0) < LOOK_MS:
            return []
        self._looked_ms[watch.job_id] = now_ms
        found: list[Verdict] = []
        for placed in watch.hosts:
            host = self._hosts.get(placed.host_id)
            if host is not None and host.steps:
                verdict = verdict_of(host.faults(placed.host_id, now_ms), placed.ranks)
                found += [verdict] if verdict is not None else []
        clocks = self._clocks(watch, now_ms)
        found += [clocks] if clocks is not None else []
        now_said = {(one.kind, host): one.action for one in found for host in one.hosts}
        said = self._said.get(watch.job_id, {})
        self._said[watch.job_id] = now_said
        fresh = [
            one
            for one in found
            if any(said.get((one.kind, host)) is not one.action for host in one.hosts)
        ]
        over = {kind for kind, _ in said} - {kind for kind, _ in now_said}
        return [
            *fresh,
            *(
                SettleNote(job_id=watch.job_id, kind=kind, lost_ms=0, lost_steps=0, at_ms=now_ms)
                for kind in NOTES
                if kind in over
            ),
        ]

    def idle(self, hosts: Collection[str], busy: Collection[str], now_ms: int) -> list[Verdict]:
        """Return verdicts against hosts that serve no job and are broken: they give no spares."""
        idle = [host for host in self._hosts if host in hosts and host not in busy]
        faults = self.fatal(idle, now_ms)
        return [
            blamed([fault for fault in faults if fault.host_id == host_id], {}, "it serves no job")
            for host_id in sorted({fault.host_id for fault in faults})
        ]

    def instead(
        self, hang: Verdict | None, watch: Watch, *, all_wait: bool, now_ms: int
    ) -> Verdict | None:
        """Return the verdict about a run that hangs, given what its hosts have counted."""
        if not all_wait or (hang is not None and hang.hosts):
            return hang
        ranks = {host.host_id: host.ranks for host in watch.hosts}
        faults = self.fatal(ranks, now_ms)
        return blamed(faults, ranks, "no step comes, all ranks wait") if faults else hang

    def _clocks(self, watch: Watch, now_ms: int) -> Verdict | None:
        minute = now_ms // MINUTE_MS
        off = {}
        for placed in watch.hosts:
            host = self._hosts.get(placed.host_id)
            whole = _whole(host.minutes, minute) if host is not None else ()
            if host is not None and whole:
                fault = clock_fault(whole, unsynchronised=host.unsynchronised)
                if fault:
                    off[placed.host_id] = fault
        if not off:
            return None
        return Verdict(
            kind="clock_off",
            action=Action.NOTE,
            ranks=(),
            hosts=tuple(sorted(off)),
            reason="; ".join(f"{host_id}: {off[host_id]}" for host_id in sorted(off)),
            failed_at_ms=now_ms,
        )


def _whole(minutes: Sequence[ClockMinute], now: int) -> tuple[ClockMinute, ...]:
    """Return the minutes that are over, without the first one: it may have begun late."""
    return tuple(one for one in minutes[1:] if one.minute < now)
