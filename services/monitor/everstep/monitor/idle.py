"""Watches hosts that serve no job: one that falls silent and does not answer is lost.

Nobody waits for the verdict, so there is time to ask twice.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from everstep.monitor.commands import OpenIncident
from everstep.monitor.detectors.root_cause import Probe
from everstep.monitor.events import HOST_LOST, Action
from everstep.monitor.policy import Limits


@dataclass(slots=True)
class _Silence:
    """Since when a host has said nothing, and how many probes it has not answered."""

    heard_ms: int
    probes_count: int = 0


class IdleHosts:
    """When each host of the fleet that is not cordoned was last heard."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._heard_ms: dict[str, int] = {}
        self._silences: dict[str, _Silence] = {}
        self._left: set[str] = set()

    @property
    def heard_ms(self) -> Sequence[int]:
        """When each was last heard, or asked in its silence."""
        return tuple(self._heard_ms.values())

    @property
    def hosts(self) -> Collection[str]:
        """All of the fleet that are not cordoned, busy ones too."""
        return self._heard_ms.keys()

    def heard(self, host_id: str, now_ms: int) -> None:
        """Note any sign of life; a late one of a host that has left is none."""
        if host_id in self._left:
            return
        self._heard_ms[host_id] = now_ms
        self._silences.pop(host_id, None)

    def expect(self, host_ids: Iterable[str], now_ms: int) -> None:
        """Take hosts that should be there for heard just now, unless they were heard already."""
        present = dict.fromkeys(host_ids, now_ms)
        self._left.difference_update(present)
        self._heard_ms = present | self._heard_ms

    def forget(self, host_id: str, *, left: bool = False) -> None:
        """Stop listening for a host that is cordoned, or that left: then until it is expected."""
        if left:
            self._left.add(host_id)
        self._heard_ms.pop(host_id, None)
        self._silences.pop(host_id, None)

    def forget_silences(self, now_ms: int) -> None:
        """Begin anew: it was the monitor that could not hear."""
        self._heard_ms = dict.fromkeys(self._heard_ms, now_ms)
        self._silences.clear()

    def to_ask(self, now_ms: int, busy: Collection[str]) -> list[str]:
        """Return silent hosts that serve no job: asked once a second, not once a tick."""
        limits = self._limits
        asked = []
        for host_id, heard_ms in self._heard_ms.items():
            if host_id in busy or now_ms - heard_ms <= limits.silence_ms:
                continue
            self._heard_ms[host_id] = now_ms - limits.silence_ms + limits.probe_again_ms
            self._silences.setdefault(host_id, _Silence(heard_ms))
            asked.append(host_id)
        return asked

    def answered(
        self, host_id: str, answer: Probe, now_ms: int, incident_id: str
    ) -> OpenIncident | None:
        """Take a probe's outcome; returns the incident if the host is lost.

        Only ``forget`` ends the silence then: what could not be stored is found once more.
        """
        silence = self._silences.get(host_id)
        if silence is None:
            return None  # it has spoken meanwhile
        silence.probes_count += 1
        if answer is Probe.NO_ANSWER and silence.probes_count < self._limits.idle_probes:
            return None
        return OpenIncident(
            incident_id=incident_id,
            job_id="",
            generation=0,
            kind=HOST_LOST,
            hosts=(host_id,),
            action=Action.REPLACE,
            reason=f"{host_id} serves no job, was silent for {now_ms - silence.heard_ms} ms and "
            "did not answer a probe",
            failed_at_ms=silence.heard_ms,
            detected_at_ms=now_ms,
        )
