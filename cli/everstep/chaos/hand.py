"""Carries faults out on a stack of this machine, from outside, and takes them back.

``strike`` says what was done, when and to whom; what it leaves to be done later (a host that comes
back, a line that is let go) it returns as appointments, so that whoever runs a campaign has one
clock for all of it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath
from typing import Any, Final

from everstep.chaos.campaign import Planned
from everstep.chaos.kinds import KINDS, By, Whom
from everstep.chaos.truth import Done
from everstep.cli.client import Client
from everstep.core.errors import EverstepError, NotFoundError, RefusedError
from everstep.core.system import Clock
from everstep.local import launch
from everstep.local.relay import Line
from everstep.local.state import StatePaths
from everstep.memory.damage import flip_snapshot
from everstep.memory.layout import rank_dir, slot_path
from everstep.memory.slot import read_preamble

START_TIMEOUT_S: Final = 120.0  # a host's agent is up within seconds; the machine may be busy


@dataclass(frozen=True, slots=True, kw_only=True)
class Appointment:
    """Something to be done later."""

    in_s: float
    what: str
    act: Callable[[], Sequence[Appointment]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Struck:
    """What was done, and what is still to be done."""

    done: Done
    later: tuple[Appointment, ...] = ()


@dataclass(slots=True, kw_only=True)
class Hand:
    """The means to disturb one job."""

    paths: StatePaths
    client: Client
    job_id: str
    clock: Clock
    down: set[str] = field(default_factory=set)

    def strike(self, planned: Planned) -> Struck:
        """Do it.

        Raises:
            EverstepError: it cannot be done now: the rank does not run, nothing is stored yet.
        """
        act = ACTS[planned.kind.name]
        return act(self, planned)

    def heal(self) -> None:
        """End whatever lasts: lines, stopped and slowed processes, hosts and services down."""
        self._chaos(what="heal")
        for name in sorted(self.down):
            self._bring_back(name)

    # ---- what is done

    def _kill_rank(self, planned: Planned) -> Struck:
        done = self._order(command="kill", what="rank", rank=planned.rank, job=self.job_id)
        return self._struck(planned, done["at_ms"], hosts=(done["host"],))

    def _stop_rank(self, planned: Planned) -> Struck:
        done = self._signal("rank", str(planned.rank), "stop", job=self.job_id)
        return self._struck(planned, done["at_ms"], hosts=(done["name"],))

    def _kill_host(self, planned: Planned) -> Struck:
        host = self._host(planned)
        done = self._lose(host)
        return self._struck(planned, done["at_ms"], hosts=(host,))

    def _stop_host(self, planned: Planned) -> Struck:
        host = self._host(planned)
        done = self._signal("host", host, "stop")
        back = self._later(planned.for_s, f"{host} goes on", lambda: self._go_on("host", host))
        return self._struck(planned, done["at_ms"], hosts=(host,), later=(back,))

    def _slow_host(self, planned: Planned) -> Struck:
        host = self._host(planned)
        done = self._chaos(what="slow", host=host, percent=planned.options["percent"])
        end = self._later(
            planned.for_s,
            f"{host} is fast again",
            lambda: self._chaos(what="slow", host=host, percent=0),
        )
        return self._struck(planned, done["at_ms"], hosts=(host,), later=(end,))

    def _flaky_host(self, planned: Planned) -> Struck:
        host = self._host(planned)
        done = self._lose(host)

        def again() -> Sequence[Appointment]:
            self._lose(host)
            return ()

        def back() -> Sequence[Appointment]:
            self._bring_back(host)
            return (Appointment(in_s=planned.for_s, what=f"{host} is gone again", act=again),)

        later = Appointment(in_s=planned.for_s, what=f"{host} is back", act=back)
        return self._struck(planned, done["at_ms"], hosts=(host,), later=(later,))

    def _partition_host(self, planned: Planned) -> Struck:
        """Hold all lines, and the ranks: on one machine nothing else can hold their collectives."""
        host = self._host(planned)
        ranks = [
            one for seat in self._placement() if seat["host_id"] == host for one in seat["ranks"]
        ]
        rule = {"cut": True} if planned.options["cut"] else {"held": True}
        struck = self._on_lines(planned, dict.fromkeys((Line.NATS, Line.PEERS), rule), host=host)
        for rank in ranks:
            self._signal("rank", str(rank), "stop", job=self.job_id)
        back = self._later(
            planned.for_s, f"the ranks of {host} go on", lambda: self._go_on("host", host)
        )
        return replace(struck, later=(*struck.later, back))

    def _isolate_agent(self, planned: Planned) -> Struck:
        options = planned.options
        rule = {"cut": True} if options["cut"] else {"held": True}
        lines = [line for line in (Line.NATS, Line.PEERS) if options[line.value]]
        return self._on_lines(planned, dict.fromkeys(lines, rule))

    def _kill_agent(self, planned: Planned) -> Struck:
        host = self._host(planned)
        done = self._order(command="kill", what="agent", name=host)
        return self._struck(planned, done["at_ms"], hosts=(host,))

    def _kill_service(self, planned: Planned) -> Struck:
        done = self._order(command="kill", what="service", name=planned.service, down=False)
        return self._struck(planned, done["at_ms"])

    def _stop_service(self, planned: Planned) -> Struck:
        name = planned.service
        done = self._order(command="kill", what="service", name=name, down=True)
        self.down.add(name)
        back = self._later(planned.for_s, f"{name} is back", lambda: self._bring_back(name))
        return self._struck(planned, done["at_ms"], later=(back,))

    def _freeze_service(self, planned: Planned) -> Struck:
        name = planned.service
        done = self._signal("service", name, "stop")
        back = self._later(planned.for_s, f"{name} goes on", lambda: self._go_on("service", name))
        return self._struck(planned, done["at_ms"], later=(back,))

    def _s3_errors(self, planned: Planned) -> Struck:
        return self._on_lines(planned, {Line.S3: self._share(planned, "error_share")})

    def _drop_messages(self, planned: Planned) -> Struck:
        return self._on_lines(planned, {Line.NATS: self._share(planned, "drop_share")})

    def _duplicate_messages(self, planned: Planned) -> Struck:
        return self._on_lines(planned, {Line.NATS: self._share(planned, "duplicate_share")})

    def _delay_messages(self, planned: Planned) -> Struck:
        return self._on_lines(planned, {Line.NATS: {"delay_ms": planned.options["delay_ms"]}})

    def _damage_snapshot(self, planned: Planned) -> Struck:
        """Stop the rank first, so that it does not write over the damage."""
        host = self._signal("rank", str(planned.rank), "stop", job=self.job_id)["name"]
        tensor = planned.options["tensor"]
        try:
            path = newest_snapshot(self._memory_of(host), self.job_id, planned.rank)
            damage = flip_snapshot(path, seed=f"{planned.number} {planned.rank}", tensor=tensor)
        except EverstepError:
            self._signal("rank", str(planned.rank), "continue", job=self.job_id)
            raise
        done = self._order(command="kill", what="rank", rank=planned.rank, job=self.job_id)
        details = {"snapshot_step": damage.step, "tensor": damage.tensor, "bit": damage.bit}
        return self._struck(planned, done["at_ms"], hosts=(host,), details=details)

    def _damage_object(self, planned: Planned) -> Struck:
        known = self.client.checkpoints(self.job_id)
        stored = max(known, key=lambda one: int(one["step"]), default=None)
        if stored is None or not stored["complete"]:  # a later one would be restored instead
            raise NotFoundError(f"the newest checkpoint of job {self.job_id} is not complete yet")
        key = str(PurePosixPath(stored["manifest_uri"]).parent / f"rank-{planned.rank:05d}.shard")
        damage_object(self.paths, key)
        seat = self._seat_of(planned.rank)
        hosts = (seat["host_id"], seat["replica_host_id"])
        at_ms = self.clock.now_ms()
        for host in hosts:
            self._lose(host)
        details = {"uri": key, "checkpoint_step": stored["step"]}
        return self._struck(planned, at_ms, hosts=hosts, details=details)

    # ---- how

    def _share(self, planned: Planned, of: str) -> Mapping[str, Any]:
        """Return the rule of a share; the campaign's seed says which messages it meets."""
        return {of: planned.options["share"], "seed": f"{planned.number} {planned.seat}"}

    def _struck(
        self,
        planned: Planned,
        at_ms: int,
        *,
        hosts: tuple[str, ...] = (),
        details: Mapping[str, Any] | None = None,
        later: tuple[Appointment, ...] = (),
    ) -> Struck:
        kind = planned.kind
        done = Done(
            number=planned.number,
            kind=kind.name,
            right=kind.right,
            at_ms=at_ms,
            rank=planned.rank if kind.whom is Whom.RANK else -1,
            hosts=hosts,
            details={
                **planned.options,
                **({"service": planned.service} if planned.service else {}),
                **({"for_s": planned.for_s} if planned.for_s else {}),
                **(details or {}),
            },
        )
        return Struck(done=done, later=later)

    def _on_lines(
        self, planned: Planned, rules: Mapping[Line, Mapping[str, Any]], *, host: str = ""
    ) -> Struck:
        host = host or self._host(planned)
        at_ms = self.clock.now_ms()
        for line, rule in rules.items():
            self._chaos(what="line", host=host, line=line.value, rule=dict(rule))

        def let_go() -> None:
            for line in rules:
                self._chaos(what="line", host=host, line=line.value, rule={})

        end = self._later(planned.for_s, f"{host} is reached as before", let_go)
        return self._struck(planned, at_ms, hosts=(host,), later=(end,))

    def _later(self, in_s: float, what: str, act: Callable[[], Any]) -> Appointment:
        def do() -> Sequence[Appointment]:
            act()
            return ()

        return Appointment(in_s=in_s, what=what, act=do)

    def _lose(self, host: str) -> Any:
        done = self._order(command="kill", what="host", name=host)
        self.down.add(host)
        return done

    def _bring_back(self, name: str) -> None:
        known = {host.host_id for host in launch.require_stack(self.paths).hosts}
        what = "host" if name in known else "service"
        self._order(command="start", what=what, name=name)
        self.down.discard(name)

    def _go_on(self, of: str, name: str) -> None:
        self._signal(of, name, "continue")

    def _signal(self, of: str, name: str, number: str, *, job: str = "") -> Any:
        return self._chaos(what="signal", of=of, name=name, signal=number, job=job)

    def _chaos(self, **request: Any) -> Any:
        return self._order(command="chaos", **request)

    def _order(self, **request: Any) -> Any:
        return launch.order(self.paths, request, timeout_s=START_TIMEOUT_S)

    def _host(self, planned: Planned) -> str:
        """Return the host that is meant, among those that the job has now."""
        if planned.host:
            return planned.host
        if planned.rank >= 0:
            return str(self._seat_of(planned.rank)["host_id"])
        hosts = sorted(host["host_id"] for host in self._placement())
        return str(hosts[planned.seat % len(hosts)])

    def _seat_of(self, rank: int) -> dict[str, Any]:
        return next(host for host in self._placement() if rank in host["ranks"])

    def _placement(self) -> list[dict[str, Any]]:
        placement = self.client.job(self.job_id).get("placement") or {}
        hosts: list[dict[str, Any]] = placement.get("hosts") or []
        if not hosts:
            raise RefusedError("not_placed", f"job {self.job_id} runs on no host now")
        return hosts

    def _memory_of(self, host: str) -> Path:
        return Path(launch.require_stack(self.paths).memory_root) / host


def newest_snapshot(memory: Path, job_id: str, rank: int) -> Path:
    """Return the slot of a host's memory that holds a rank's newest snapshot.

    Raises:
        NotFoundError: there is none.
    """
    paths = [slot_path(rank_dir(memory, job_id, rank), slot) for slot in (0, 1)]
    found = [(held.step, path) for path in paths if (held := read_preamble(path)) is not None]
    if not found:
        raise NotFoundError(f"rank {rank} of {job_id} has no snapshot in {memory}")
    return max(found)[1]


def damage_object(paths: StatePaths, key: str) -> None:
    """Flip a byte in the middle of a stored object."""
    from everstep.cli.demo_state import open_store  # numpy: only where it is needed

    stack = launch.require_stack(paths)

    async def damage() -> None:
        async with open_store(stack)() as store:
            data = bytearray(await store.get(key))
            data[len(data) // 2] ^= 0x40
            await store.put(key, bytes(data))

    asyncio.run(damage())


ACTS: Final[Mapping[str, Callable[[Hand, Planned], Struck]]] = {
    name: getattr(Hand, f"_{name}") for name, kind in KINDS.items() if kind.by is By.STACK
}
