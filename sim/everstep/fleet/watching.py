"""The monitor's judgement on simulated evidence.

The signs of a failure are made up: when they come, and what probes answer. What follows from them
is the real ``judge`` and the real decider's; the rounds are those of ``monitor.watcher``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from everstep.core.record import changed
from everstep.core.system import Clock, IdSource
from everstep.fleet.services import JOB_ID, Services
from everstep.monitor.commands import ObserveExit, ObserveProgress, OpenIncident
from everstep.monitor.detectors.root_cause import Echo, Evidence, HostView, Probe, judge
from everstep.monitor.detectors.verdict import Verdict
from everstep.monitor.events import Action, ExitClass
from everstep.monitor.opening import open_incident
from everstep.monitor.policy import TICK_S, Limits
from everstep.monitor.state import Watch

LIMITS: Final = Limits()
SIGKILL: Final = 9
# A judgement that takes longer than this waits for something that never comes: the limits are
# seconds, and there is one round of probes in each.
ROUNDS_MAX: Final = 1_000


class Watching:
    """Finds out what has failed; at most one inquiry a generation."""

    def __init__(
        self,
        services: Services,
        clock: Clock,
        ids: IdSource,
        *,
        unreachable: Callable[[], frozenset[str]],
        probe_s: float,
        control_is_there: Callable[[], Awaitable[None]],
    ) -> None:
        """``unreachable`` are the hosts that do not answer now."""
        self._services = services
        self._clock = clock
        self._ids = ids
        self._unreachable = unreachable
        self._probe_s = probe_s
        self._control_is_there = control_is_there

    async def rank_died(self, rank: int, host_id: str, generation: int, step: int) -> None:
        """An agent reports the end of a process."""
        await self._services.watches.handle(
            ObserveExit(
                job_id=JOB_ID,
                generation=generation,
                rank=rank,
                host_id=host_id,
                exit_class=ExitClass.KILLED,
                signal=SIGKILL,
                step=step,
                at_ms=self._clock.now_ms(),
            )
        )

    async def progressed(self, generation: int, step: int) -> None:
        """Every host reports the first step of a generation."""
        await self._control_is_there()
        await self._services.watches.handle(
            ObserveProgress(
                job_id=JOB_ID, generation=generation, step=step, at_ms=self._clock.now_ms()
            )
        )

    async def inquire(
        self, generation: int, *, echo_rank: int | None, failed_ms: int, step: int
    ) -> None:
        """Judge until there is a verdict, or the generation is over.

        Args:
            generation: that shows signs of trouble.
            echo_rank: whose collective failed first; None if a host has only gone silent.
            failed_ms: when, by the clock.
            step: the last one that was seen.
        """
        await self._control_is_there()
        signs_ms = self._clock.now_ms()
        silent: frozenset[str] | None = None
        asked_ms = 0
        for _ in range(ROUNDS_MAX):
            watch = await self._services.watch()
            if watch.generation != generation or watch.judged_generation >= generation:
                return
            evidence = _evidence(
                watch, silent, asked_ms, echo_rank, signs_ms, failed_ms, self._clock.now_ms()
            )
            judgement = judge(self._clock.now_ms(), evidence, LIMITS)
            if judgement.verdict is not None:
                await self._open(watch, judgement.verdict, step)
                return
            if judgement.probe:
                asked_ms = self._clock.now_ms()
                await asyncio.sleep(self._probe_s)
                silent = self._unreachable()
            else:
                await asyncio.sleep(TICK_S)
        raise AssertionError(f"no verdict on generation {generation} after {ROUNDS_MAX} rounds")

    async def idle_host_is_gone(self, host_id: str, silent_ms: int) -> None:
        """A host that serves no job does not answer a probe."""
        await self._control_is_there()
        now_ms = self._clock.now_ms()
        await self._services.watches.handle(
            OpenIncident(
                incident_id=self._ids.new_id("i"),
                job_id="",
                generation=0,
                kind="host_lost",
                hosts=(host_id,),
                action=Action.REPLACE,
                reason=f"{host_id} serves no job, was silent for {silent_ms} ms and did not answer "
                "a probe",
                failed_at_ms=now_ms - silent_ms,
                detected_at_ms=now_ms,
            )
        )

    async def _open(self, watch: Watch, verdict: Verdict, step: int) -> None:
        now_ms = self._clock.now_ms()
        await self._services.watches.handle(
            open_incident(verdict, self._ids.new_id("i"), JOB_ID, watch.generation, step, now_ms)
        )


def _evidence(
    watch: Watch,
    silent: frozenset[str] | None,
    asked_ms: int,
    echo_rank: int | None,
    signs_ms: int,
    failed_ms: int,
    now_ms: int,
) -> Evidence:
    """Write down what the monitor would have gathered by now; ``silent`` None: nobody was asked."""
    echoes = () if echo_rank is None else (Echo(rank=echo_rank, host_id="", at_ms=failed_ms),)
    probe = Probe.NOT_ASKED if silent is None else Probe.ANSWERED
    hosts = [
        HostView(
            host_id=host.host_id, ranks=host.ranks, heard_ms=now_ms, probe=probe, asked_ms=asked_ms
        )
        for host in watch.hosts
    ]
    for at in [at for at, host in enumerate(hosts) if host.host_id in silent] if silent else ():
        hosts[at] = changed(
            hosts[at], heard_ms=failed_ms, dropped_ms=failed_ms, probe=Probe.NO_ANSWER
        )
    return Evidence(
        generation=watch.generation,
        hosts=tuple(hosts),
        ended=tuple(watch.ended[rank] for rank in sorted(watch.ended)),
        echoes=echoes,
        root_ms=signs_ms if watch.ended else 0,
        echo_ms=signs_ms if echoes else 0,
        stepped_ms=failed_ms,
        placed_ms=failed_ms,
        progressed=watch.progressed,
        deaths=watch.deaths,
    )
