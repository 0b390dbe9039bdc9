"""Real training under real agents: eight torch ranks on four hosts, one of which is lost."""

from __future__ import annotations

import json
import os
import shutil
import signal
from collections import defaultdict
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from tests.integration.agent.harness import (
    ROOT,
    RankRestore,
    held_ranks,
    hosts_on,
    new_plane,
    own,
    peer,
    placed,
    start_all,
)
from tests.waiting import until

from everstep.data.prepare import prepare
from everstep.memory.reader import SlotReader
from everstep.memory.receive import SlotReceiver
from everstep.wire.v1.agents_pb2 import FINISHED, RANK_EXITED, RANK_READY
from everstep.wire.v1.common_pb2 import Layout

pytestmark = pytest.mark.torch
STEPS = 9
LIMIT_S = 240.0  # eight ranks on two busy cores


def training_spec(corpus: Path) -> str:
    """A tiny model over pp 2 x dp 2 x tp 2."""
    return json.dumps(
        {
            "name": "training",
            "entry": "everstep.models.pretrain:main",
            "args": {"dim": 32, "layers": 2, "heads": 4, "kv_heads": 2, "ffn_dim": 64},
            "layout": {"pp": 2, "dp_shard": 2, "tp": 2},
            "steps": STEPS,
            "seed": 7,
            "data": {
                "path": str(corpus),
                "sequence_tokens": 32,
                "global_batch": 8,
                "micro_batch": 2,
            },
            "checkpoint": {"object_every_steps": 0},
            "cwd": str(ROOT),
        }
    )


async def final_state(plane, tmp_path, generation):
    """Wait for the end; returns every tensor's checksum of every rank, as uploaded."""
    ends = await until(
        lambda: len(got := plane.reported(RANK_EXITED, generation)) == 8 and got,
        limit_s=LIMIT_S,
        what="all ranks ended",
    )
    assert {one.exit_class for one in ends} == {FINISHED}, [one.traceback for one in ends]
    await until(
        lambda: sum(len(one.shards) for one in plane.shards) == 8, what="uploaded", limit_s=60
    )
    state = {}
    for report in plane.shards:
        assert report.step == STEPS
        for shard in report.shards:
            path = tmp_path / f"final-{shard.rank}"
            receiver = SlotReceiver(path, shard.bytes)
            receiver.write(await plane.objects.get(shard.uri))
            receiver.commit(job_id="job-1", rank=shard.rank, step=STEPS)
            receiver.close()
            with SlotReader(path) as reader:
                state |= {(shard.rank, one.name): one.checksum for one in reader.header.entries}
    return state


def laid_out(hosts):
    """Two ranks a host, in the order of the layout."""
    placement = placed(hosts, 2)
    placement.layout.CopyFrom(Layout(pp=2, dp_replicate=1, dp_shard=2, tp=2))
    return placement


def held_without(plane, host_id):
    """The newest step that all ranks have on hosts other than one, by what these said last."""
    newest = {one.host_id: one for one in plane.metrics if one.host_id != host_id}
    there = defaultdict(set)
    for message in newest.values():
        for held in message.held:
            there[held.step].update(held.ranks)
    return max((step for step, ranks in there.items() if len(ranks) == 8), default=-1)


async def test_lost_host_is_replaced_and_nothing_is_different(tmp_path):
    """Kill one host with its memory; a spare takes its ranks from the peer; the bits are equal."""
    corpus = tmp_path / "corpus"
    prepare([ROOT / "lib" / "everstep" / "core"], corpus, suffixes=(".py",))
    spec = training_spec(corpus)
    async with (
        hosts_on(tmp_path, "a", "b", "c", "d", "spare") as hosts,
        new_plane() as plane,
        AsyncExitStack() as agents,
    ):
        for host in hosts:
            await agents.enter_async_context(host.up(plane, fork_arguments=()))
        *first, spare = hosts
        replies = await start_all(plane, laid_out(first), 1, spec)
        assert all(one.outcome.accepted for one in replies), replies
        lost = hosts[1]
        said = await until(
            lambda: (step := held_without(plane, lost.host_id)) >= 3 and step,
            limit_s=LIMIT_S,
            what="all ranks' step 3 on the other hosts",
        )
        os.kill(lost.fork_server_pid, signal.SIGKILL)
        # Its agent is up and takes copies: at one stroke, where it cannot write in between.
        gone = lost.settings.memory_dir.rename(lost.settings.memory_dir.with_name("gone"))
        shutil.rmtree(gone)
        survivors = [hosts[0], hosts[2], hosts[3]]
        held = {}
        for host in [*survivors, spare]:
            reply = await plane.stop(host.host_id, 2)
            assert reply.outcome.accepted
            for rank, step, is_own in held_ranks(reply.held):
                source = own(host.host_id) if is_own else peer(host)
                held.setdefault((rank, step), []).append(source)
        steps = {step for _, step in held}
        common = max(s for s in steps if all((rank, s) in held for rank in range(8)))
        assert common >= said, "what hosts say they hold is there"
        placement = laid_out([hosts[0], spare, hosts[2], hosts[3]])
        restores = [RankRestore(rank=rank, sources=held[rank, common]) for rank in range(8)]
        await start_all(plane, placement, 2, spec, restore_step=common, restores=restores)
        ready = await until(
            lambda: len(got := plane.reported(RANK_READY, 2)) == 8 and got, limit_s=LIMIT_S
        )
        kinds = sorted((one.rank, one.source_kind) for one in ready)
        assert [kind for _, kind in kinds].count("peer_memory") == 2
        recovered = await final_state(plane, tmp_path, 2)
        losses = losses_of(plane)

        for host in hosts:
            assert (await plane.stop(host.host_id, 3, forget=True)).outcome.accepted
        plane.shards.clear()
        plane.metrics.clear()
        undisturbed = await undisturbed_state(plane, tmp_path, first, spec)
        assert losses == losses_of(plane)
        assert recovered == undisturbed


async def undisturbed_state(plane, tmp_path, hosts, spec):
    """The same job from the beginning, in a generation of its own."""
    await start_all(plane, laid_out(hosts), 10, spec)
    return await final_state(plane, tmp_path, 10)


def losses_of(plane):
    """The loss of every step; the same on every rank, and in every generation that told it."""
    losses = {}
    for message in plane.metrics:
        for one in message.ranks:
            assert losses.setdefault(one.step, one.loss) == one.loss
    return losses
