"""A simulated run as the record of a real one: what ``everstep events --json`` would print.

So the planner's counterfactuals can be tried on simulated runs: replayed under another policy, and
compared with a simulation of that policy.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from everstep.core.time import HOUR_MS
from everstep.fleet.scenario import Scenario
from everstep.sim.loop import EPOCH_MS

JOB_ID: Final = "sim"
_LISTS: Final = ("hosts", "lost_hosts", "replacements")
_EVENT: Final = re.compile(r"(\d+) (\S+) \d+ ([A-Z]\w+) ?(.*)")
_OUT: Final = re.compile(r"(\d+) (host-\d+) is out for (\d+) ms")


def events_of(trace: str, scenario: Scenario, *, days: float) -> str:
    """Return the events of a trace of ``simulate``, one JSON object a line.

    Args:
        trace: what it wrote.
        scenario: of the run.
        days: that it was simulated for; what comes later is left out.
    """
    return "\n".join(_Export(scenario, round(days * 24 * HOUR_MS)).lines_of(trace))


class _Export:
    """Turns a trace's lines into events."""

    def __init__(self, scenario: Scenario, end_ms: int) -> None:
        self._scenario = scenario
        self._end_ms = end_ms
        self._broke: dict[str, int] = {}
        self._waiting = False  # then the real monitor tells of lost hosts, the simulation does not
        self._replacements: Sequence[str] = ()
        self._joined: list[str] = []
        self._seated: list[str] = []
        self._lost: set[str] = set()  # since they were placed
        self._back: set[str] = set()
        self._lines: list[str] = []

    def lines_of(self, trace: str) -> list[str]:
        """Return the events."""
        for line in trace.splitlines():
            if out := _OUT.fullmatch(line):
                self._out(int(out[1]), out[2])
            elif (found := _EVENT.fullmatch(line)) and int(found[1]) <= self._end_ms:
                fields = dict(part.split("=", 1) for part in found[4].split(" ") if "=" in part)
                self._event(int(found[1]), found[2], found[3], fields)
        self._add(self._end_ms, "job_stopped", job_id=JOB_ID, generation="0")
        return self._lines

    def _out(self, at_ms: int, host_id: str) -> None:
        self._broke[host_id] = at_ms
        if self._waiting and at_ms <= self._end_ms:
            self._incident(at_ms, "watch-host", {"kind": "host_lost"}, [host_id], {})

    def _event(self, at_ms: int, stream: str, kind: str, fields: Mapping[str, str]) -> None:
        lists = {name: fields[name].split(",") if fields.get(name) else [] for name in _LISTS}
        job = {"job_id": JOB_ID, "generation": fields.get("generation", "0")}
        match kind:
            case "HostJoined" | "HostUncordoned" | "HostCordoned":
                name = re.sub(r"(?<!^)([A-Z])", r"_\1", kind).lower()
                if kind == "HostJoined" and at_ms == 0:
                    self._joined.append(fields["host_id"])
                elif kind != "HostCordoned":
                    self._back.add(fields["host_id"])
                self._add(at_ms, name, host_id=fields["host_id"])
            case "JobSubmitted":
                self._add(at_ms, "job_submitted", job_id=JOB_ID, spec_json=self._spec())
            case "GenerationBegun":
                lost = lists["lost_hosts"]
                self._lost.update(lost)
                self._add(at_ms, "generation_begun", cause=fields["cause"], lost_hosts=lost, **job)
            case "HostsShort":
                self._waiting = True
                self._add(at_ms, "hosts_short", **job)
            case "PlacementDecided":
                self._waiting, self._replacements = False, lists["replacements"]
            case "JobMarked" if fields["mark"] == "placed":
                seated = self._seats(lists["hosts"])
                placement = {"hosts": [{"host_id": host} for host in seated]}
                changes = {"placement": placement, "replacements": self._replacements}
                self._add(at_ms, "placement_decided", **changes, **job)
            case "RestoreDecided":
                self._add(at_ms, "restore_decided", step=fields["step"], **job)
            case "GenerationProgressed":
                self._add(at_ms, "generation_progressed", step=fields["step"], **job)
            case "IncidentOpened":
                self._incident(at_ms, stream, fields, lists["hosts"], job)
            case _:
                pass

    def _seats(self, named: list[str]) -> list[str]:
        """Return all hosts of a placement: a trace names the first few and counts the others."""
        last, _, more = named[-1].partition("+")
        if not more:
            seated = named
        elif not self._seated:
            seated = sorted(self._joined)[: len(named) + int(more)]
        else:
            stay = [host for host in self._seated if host not in self._lost]
            # One that was lost and is back before the placement may have its seat again.
            back = [host for host in self._seated if host in self._lost & self._back]
            seated = list(dict.fromkeys([*stay, *self._replacements, *back]))
            seated = sorted(seated[: len(named) + int(more)])
            assert len(seated) == len(named) + int(more), f"{named} are {len(seated)} hosts"
        first = [*named[:-1], last]
        assert {*first} <= {*seated}, f"{first} are not all of the placement"
        self._seated, self._lost, self._back = seated, set(), set()
        return seated

    def _spec(self) -> str:
        job, cadence = self._scenario.job, self._scenario.cadence()
        spec = {
            "layout": {"pp": job.pp, "dp_shard": job.dp_shard, "tp": job.tp},
            "checkpoint": {
                "memory_every_steps": cadence.memory_every,
                "object_every_steps": cadence.object_every,
            },
        }
        return json.dumps(spec)

    def _incident(
        self,
        at_ms: int,
        stream: str,
        fields: Mapping[str, str],
        hosts: list[str],
        job: Mapping[str, str],
    ) -> None:
        idle = stream != f"watch-{JOB_ID}"
        detection = self._scenario.detection
        lost = fields["kind"] == "host_lost"
        failed_ms = self._broke[hosts[0]] if lost else at_ms - 1_000 * detection.rank_s
        self._add(
            at_ms,
            "incident_opened",
            kind=fields["kind"],
            hosts=hosts,
            step=fields.get("step", "0"),
            failed_at_ms=str(EPOCH_MS + round(failed_ms)),
            detected_at_ms=str(EPOCH_MS + at_ms),
            **({"job_id": "", "generation": "0"} if idle else job),
        )

    def _add(self, at_ms: int, name: str, /, **payload: Any) -> None:
        at = str(EPOCH_MS + at_ms)
        event = {"type": f"{name}.v1", "recorded_at_ms": at, name: {**payload, "at_ms": at}}
        self._lines.append(json.dumps(event))
