"""Plans that were stored by an older version still give the answer that they gave."""

from __future__ import annotations

from tests.unit.checkpoint_registry.words import report, shard, sources, stored

from everstep.checkpoint_registry.codec import CHECKPOINT_EVENTS, HISTORY_EVENTS
from everstep.checkpoint_registry.events import GenerationNoted, Holder, RestoreLaidOut
from everstep.core.spec import CheckpointSpec

OLD = {
    "job_id": "job",
    "generation": 3,
    "step": 20,
    "world_size": 3,
    "holders": [
        {"host_id": "h1", "address": "h1.net", "peer_port": 7000, "generation": 1},
        {"host_id": "h1", "address": "h1.net", "peer_port": 7000, "generation": 2},
        {"host_id": "h2", "address": "h2.net", "peer_port": 7000, "generation": 2},
        {"host_id": "h3", "address": "h3.net", "peer_port": 7000, "generation": 2},
    ],
    "memory": [[2, 0, 5], [4, 3], []],
    "shards": [{"rank": 2, "uri": shard(2).uri, "bytes": 100, "checksum": "aa"}],
    "shards_generation": 1,
    "at_ms": 50,
}


def test_plan_by_rank_is_read_as_a_plan_by_holder():
    """Every rank keeps its sources in their order; who holds nothing of the step is left out."""
    plan = HISTORY_EVENTS.decode("restore_laid_out.v1", OLD)
    assert plan == RestoreLaidOut(
        job_id="job",
        generation=3,
        step=20,
        world_size=3,
        holders=(
            holder("h1", 2, own=(0,), replicas=(1,)),
            holder("h2", 2, own=(1,), replicas=(0,)),
            holder("h1", 1, own=(0,)),
        ),
        shards=(shard(2),),
        shards_generation=1,
        at_ms=50,
    )
    assert sources(plan) == [["own h1", "own h1", "peer h2"], ["own h2", "peer h1"], ["object"]]


def test_generation_of_before_was_begun_from_no_step():
    """The step that a person goes back to was not noted with it."""
    old = {"job_id": "job", "generation": 3, "at_ms": 5}
    noted = HISTORY_EVENTS.decode("generation_noted.v1", old)
    assert noted == GenerationNoted(job_id="job", generation=3, at_ms=5, from_step=-1)


def test_report_of_one_host_is_read_as_one_of_several():
    """Reports that arrive together are one event now."""
    old = {
        "job_id": "job",
        "step": 20,
        "generation": 1,
        "host_id": "h1",
        "world_size": 2,
        "shards": [{"rank": 0, "uri": shard(0).uri, "bytes": 100, "checksum": "aa"}],
        "data_state": '{"position": 20}',
        "at_ms": 5,
    }
    assert CHECKPOINT_EVENTS.decode("shards_stored.v1", old) == stored(report(0))


def test_job_noted_before_there_were_days_keeps_as_many_as_a_spec_begins_with():
    """More is kept than was asked for then, and nothing is lost."""
    layout = {"pp": 1, "dp_replicate": 1, "dp_shard": 1, "tp": 2}
    old = {"job_id": "job", "keep_last": 2, "layout": layout, "at_ms": 1}
    noted = HISTORY_EVENTS.decode("job_noted.v1", old)
    assert (noted.keep_last, noted.keep_days) == (2, CheckpointSpec().keep_days)


def test_stored_plan_is_read_back_as_it_was():
    """The present version needs no rewriting."""
    plan = HISTORY_EVENTS.decode("restore_laid_out.v1", OLD)
    assert HISTORY_EVENTS.decode(*HISTORY_EVENTS.encode(plan)) == plan


def holder(host_id: str, generation: int, *, own=(), replicas=()) -> Holder:
    """A host with what it holds."""
    return Holder(
        host_id=host_id,
        address=f"{host_id}.net",
        peer_port=7000,
        generation=generation,
        own=own,
        replicas=replicas,
    )
