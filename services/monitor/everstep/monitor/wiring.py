"""Puts the monitor together on any shell: the real one, or the simulator's."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import asdict
from functools import partial
from typing import Final

from everstep.core.errors import NoResponders, Unavailable
from everstep.core.spec import LayoutSpec
from everstep.monitor import inputs
from everstep.monitor.audit_asking import AuditAsking
from everstep.monitor.auditing import Auditing
from everstep.monitor.checksums import ask_checksums
from everstep.monitor.codec import AGGREGATE, CODEC
from everstep.monitor.counting import Counting
from everstep.monitor.curves import Curves
from everstep.monitor.detectors.hang_verdict import Look
from everstep.monitor.detectors.links import LinkLook
from everstep.monitor.detectors.root_cause import Probe
from everstep.monitor.inputs import PROBE_S_MAX
from everstep.monitor.looking import look_at
from everstep.monitor.lookout import (
    Asking,
    LookAtRanks,
    ProbeHost,
    RecallDoubts,
    RecallSteps,
    TryLinks,
)
from everstep.monitor.measurements import Kept, Rollup
from everstep.monitor.policy import Limits
from everstep.monitor.reaching import try_links
from everstep.monitor.remaking import ask_audit, ask_recompute
from everstep.monitor.repair import Repairer, ask_steps
from everstep.monitor.siblings import Siblings
from everstep.monitor.state import Watch
from everstep.monitor.uncopied import UncopiedRanks
from everstep.monitor.untold import UntoldEnds
from everstep.monitor.watcher import Watcher
from everstep.service.commands import host_subject, request, send_command
from everstep.service.shell import Shell
from everstep.wire.v1.agents_pb2 import ProbeHost as ProbeMessage
from everstep.wire.v1.agents_pb2 import ProbeHostReply, StepMetrics
from everstep.wire.v1.hosts_pb2 import ListHosts, ListHostsReply

NAME: Final = "monitor"
CODECS: Final = (CODEC,)
CENSUS_S: Final = 1.0  # well within the time that a new monitor judges nobody


def make_watcher(
    shell: Shell,
    connected: Callable[[], bool],
    recall_doubts: RecallDoubts,
    recall_steps: RecallSteps,
) -> Watcher:
    """Return what judges.

    Args:
        shell: the monitor's.
        connected: whether the bus is there.
        recall_doubts: from what is stored of all jobs but one.
        recall_steps: from what is stored of one.
    """
    counting, untold = Counting(shell.clock), UntoldEnds()
    return Watcher(
        shell.handler(AGGREGATE),
        _prober(shell, counting, untold),
        _looker(shell),
        connected,
        shell.clock,
        shell.ids,
        Limits(),
        Asking(
            try_links=_link_trier(shell),
            ask_checksums=partial(ask_checksums, shell.bus),
            ask_recompute=partial(ask_recompute, shell.bus),
            recall_doubts=recall_doubts,
            recall_steps=recall_steps,
        ),
        counting,
        untold,
    )


async def wire_monitor(
    shell: Shell,
    watcher: Watcher,
    rollup: Rollup,
    watched: Mapping[str, Kept],
    uncopied: UncopiedRanks,
    position: int | None = None,
) -> None:
    """Hear hosts, follow events, and watch.

    Args:
        shell: the monitor's.
        watcher: from ``make_watcher``.
        rollup: takes the step metrics.
        watched: jobs that an earlier process watched, with what it has kept of their steps.
        uncopied: takes the heartbeats.
        position: of the store, from before ``watched`` was read; from there on, what other
            instances store is followed. None: there are no others.
    """
    curves = Curves()
    auditing = Auditing(
        handler=shell.handler(AGGREGATE),
        watcher=watcher,
        asking=AuditAsking(partial(ask_audit, shell.bus)),
        ask_recompute=partial(ask_recompute, shell.bus),
        ask_steps=partial(ask_steps, shell.bus),
        clock=shell.clock,
        ids=shell.ids,
    )

    def told_again(metrics: StepMetrics) -> None:
        watcher.told_again(metrics)
        auditing.told(metrics)

    repairer = Repairer(shell.bus, rollup, curves, shell.clock, told_again)
    for job_id, told in watched.items():
        watch = await watcher.adopt(job_id, told.generation, told.step, told.window)
        kept = told.step if told.generation == watch.generation else watch.restore_step or 0
        hosts = [host.host_id for host in watch.hosts]
        curves.adopt(job_id, watch.generation, kept, hosts)
    await shell.consume_events("controller", inputs.on_controller(watcher, repairer))
    await shell.consume_events("host_inventory", inputs.on_inventory(watcher))
    await shell.consume_events("checkpoint_registry", inputs.on_registry(auditing))
    heartbeats = inputs.on_heartbeat(watcher, uncopied)
    await shell.bus.subscribe(host_subject("*", "heartbeat"), heartbeats)
    metrics = inputs.on_metrics(watcher, repairer, auditing)
    await shell.bus.subscribe(host_subject("*", "metrics"), metrics)
    await shell.bus.consume(
        host_subject("*", "report"),
        inputs.on_report(watcher, shell.clock),
        durable="monitor-reports",
    )
    shell.spawn("watch", watcher.watch)
    shell.spawn("census", _census(shell, watcher))
    shell.spawn("repair", repairer.repair)
    shell.spawn("audits", auditing.follow)
    if position is not None:
        siblings = Siblings(shell.store, watcher, repairer, position)
        shell.spawn("siblings", siblings.follow)


def _census(shell: Shell, watcher: Watcher) -> Callable[[], Awaitable[None]]:
    async def ask() -> None:
        """Learn which hosts there are: one that died before this process began says nothing."""
        while True:
            try:
                reply = await send_command(
                    shell.bus, "host_inventory", ListHosts(), ListHostsReply, timeout_s=CENSUS_S
                )
            except Unavailable:
                await asyncio.sleep(CENSUS_S)  # the inventory starts up too
            else:
                watcher.expect(reply.hosts)
                return

    return ask


def _looker(shell: Shell) -> LookAtRanks:
    async def look(watch: Watch) -> Look:
        """Ask every host of a generation what its ranks do."""
        hosts = [host.host_id for host in watch.hosts]
        layout = LayoutSpec(**asdict(watch.layout))
        return await look_at(shell.bus, shell.clock, watch.job_id, watch.generation, hosts, layout)

    return look


def _link_trier(shell: Shell) -> TryLinks:
    async def ask(watch: Watch) -> LinkLook | None:
        """Let the hosts of a job try whether they reach one another."""
        hosts = [host.host_id for host in watch.hosts]
        return await try_links(shell.bus, shell.clock, hosts, shell.ids.new_id("n"))

    return ask


def _prober(shell: Shell, counting: Counting, untold: UntoldEnds) -> ProbeHost:
    async def probe(host_id: str) -> Probe:
        """Ask a host whether it is there."""
        nonce = shell.ids.new_id("n")
        try:
            reply = await request(
                shell.bus,
                host_subject(host_id, "cmd.probe"),
                ProbeMessage(nonce=nonce),
                ProbeHostReply,
                timeout_s=PROBE_S_MAX,
            )
        except NoResponders:
            return Probe.NO_RESPONDERS
        except Unavailable:
            return Probe.NO_ANSWER
        counting.told(host_id, reply.agent_epoch, reply.errors)
        untold.told(host_id, reply.jobs)
        return Probe.ANSWERED if reply.nonce == nonce else Probe.NO_ANSWER

    return probe
