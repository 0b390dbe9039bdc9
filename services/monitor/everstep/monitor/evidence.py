"""The volatile evidence about one generation of one job, gathered from what hosts say.

Lost with the process; a new monitor starts with every host heard just now, and what matters (a rank
that ended, a host that is silent) is told or found again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from everstep.core.record import changed
from everstep.monitor.detectors.counters import HostFault
from everstep.monitor.detectors.links import LinkView
from everstep.monitor.detectors.rank_ends import ROOTS, signature
from everstep.monitor.detectors.root_cause import Echo, Evidence, HostView, Probe
from everstep.monitor.state import Watch


@dataclass(slots=True)
class Gathered:
    """Mutable: the watcher's notebook for one job."""

    generation: int = 0
    hosts: dict[str, HostView] = field(default_factory=dict)
    echoes: dict[int, Echo] = field(default_factory=dict)
    root_ms: int = 0
    echo_ms: int = 0
    step: int = 0
    own_step: int = 0  # the newest that this generation was heard to make
    planned: int = 0  # the newest generation whose plan is taken into ``step``
    stepped_ms: int = 0
    placed_ms: int = 0  # since when ranks may be expected
    first_steps: dict[str, int] = field(default_factory=dict)
    seen_hosts: set[str] = field(default_factory=set)

    def begin(self, watch: Watch, now_ms: int) -> None:
        """Take up the watch's generation; evidence of an older one is dropped.

        ``step`` stays until a plan says where the run goes on from, or a new step is heard of.
        """
        if watch.generation != self.generation:
            self.own_step = 0
        if watch.restore_step is not None and self.planned < watch.generation:
            self.planned, self.step = watch.generation, max(watch.restore_step, self.own_step)
            self.placed_ms = now_ms  # before that nothing could be started
        if watch.generation != self.generation:
            self.generation = watch.generation
            self.hosts.clear()
            self.echoes.clear()
            self.first_steps.clear()
            self.seen_hosts.clear()
            self.root_ms = now_ms if watch.ended else 0  # ends were told before it had begun
            self.echo_ms = 0
            self.stepped_ms = now_ms
        wanted = {host.host_id: host for host in watch.hosts} if watch.placed else {}
        if wanted and not self.hosts:
            self.placed_ms = now_ms
        for host_id in [h for h in self.hosts if h not in wanted]:
            del self.hosts[host_id]
        for host_id, host in wanted.items():
            if host_id not in self.hosts:
                self.hosts[host_id] = HostView(host_id=host_id, ranks=host.ranks, heard_ms=now_ms)

    def heard(self, host_id: str, now_ms: int) -> None:
        """Note that a host spoke."""
        view = self.hosts.get(host_id)
        if view is not None:
            self.hosts[host_id] = changed(view, heard_ms=now_ms)

    def saw_ranks(self, host_id: str, seen: frozenset[int], now_ms: int) -> bool:
        """Note which ranks of this generation an agent sees; says whether all see all of theirs."""
        view = self.hosts.get(host_id)
        if view is not None:
            missing = tuple(rank for rank in view.ranks if rank not in seen)
            since_ms = view.missing_since_ms if view.missing else now_ms
            self.hosts[host_id] = changed(
                view, missing=missing, missing_since_ms=since_ms if missing else 0
            )
            self.seen_hosts.add(host_id)
        return bool(self.hosts) and all(
            host in self.seen_hosts and not view.missing for host, view in self.hosts.items()
        )

    def echoed(self, echoes: Sequence[Echo], now_ms: int) -> None:
        """Note collective errors, the first one of each rank."""
        for echo in echoes:
            self.echoes.setdefault(echo.rank, echo)
        if echoes:
            self.echo_ms = self.echo_ms or now_ms

    def dropped(self, host_id: str, now_ms: int) -> None:
        """Note that the bus lost a host's connection; earlier answers no longer count."""
        view = self.hosts.get(host_id)
        if view is not None:
            self.hosts[host_id] = changed(view, dropped_ms=now_ms, probe=Probe.NOT_ASKED)

    def asked(self, host_id: str, now_ms: int) -> None:
        """Note that a probe is on its way."""
        view = self.hosts[host_id]
        self.hosts[host_id] = changed(view, probe=Probe.ASKED, asked_ms=now_ms)

    def answered(self, host_id: str, asked_ms: int, answer: Probe, now_ms: int) -> None:
        """Note a probe's outcome, if it is of the probe asked last."""
        view = self.hosts.get(host_id)
        if view is None or view.asked_ms != asked_ms:
            return
        heard_ms = now_ms if answer is Probe.ANSWERED else view.heard_ms
        self.hosts[host_id] = changed(view, probe=answer, heard_ms=heard_ms)

    def stepped(self, host_id: str, step: int, now_ms: int) -> int | None:
        """Note a completed step; returns the generation's first step once every host has one."""
        self.reached(step)
        self.stepped_ms = now_ms
        self.first_steps.setdefault(host_id, step)
        if self.hosts and self.hosts.keys() <= self.first_steps.keys():
            return min(self.first_steps.values())
        return None

    def reached(self, step: int) -> None:
        """Note how far this generation has come; its plan may be told later."""
        self.own_step = max(self.own_step, step)
        unplanned = self.planned < self.generation and self.own_step
        self.step = self.own_step if unplanned else max(self.step, step)

    def has_made(self, step: int) -> bool:
        """Say whether this generation was heard to come as far."""
        return 0 < step <= self.own_step

    def reset_hearing(self, now_ms: int) -> None:
        """Forget silences: the monitor itself could not hear."""
        self.stepped_ms = max(self.stepped_ms, now_ms)
        self.placed_ms = max(self.placed_ms, now_ms)
        for host_id in self.hosts:
            self.heard(host_id, now_ms)

    def weigh(
        self,
        watch: Watch,
        untold: frozenset[int] = frozenset(),
        *,
        blind: bool,
        links: LinkView | None = None,
        broken: tuple[HostFault, ...] = (),
    ) -> Evidence:
        """Return the evidence for the judge."""
        ended = tuple(watch.ended[rank] for rank in sorted(watch.ended))
        return Evidence(
            generation=self.generation,
            hosts=tuple(self.hosts[h] for h in sorted(self.hosts)),
            ended=ended,
            echoes=tuple(self.echoes[r] for r in sorted(self.echoes)),
            root_ms=self.root_ms if any(e.exit_class in ROOTS for e in ended) else 0,
            echo_ms=self.echo_ms,
            step=self.step,
            stepped_ms=self.stepped_ms,
            placed_ms=self.placed_ms,
            planned=self.planned == self.generation,
            progressed=watch.progressed,
            blind=blind,
            user_errors_before=tuple(
                (step, signature(error))
                for generation, step, error in watch.user_errors
                if generation < self.generation
            ),
            deaths=watch.deaths,
            links=links,
            broken=broken,
            untold=untold - watch.ended.keys(),
        )
