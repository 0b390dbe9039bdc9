from __future__ import annotations

import json
from dataclasses import replace

import pytest
from tests.unit.checkpoint_registry.words import (
    CHECKPOINT,
    COMPLETED,
    complete,
    report,
    shard,
    stored,
)

from everstep.checkpoint_registry.commands import (
    DELETED_OVER,
    DeleteCheckpoint,
    NotePurge,
    RefuseShard,
    TakeReports,
)
from everstep.checkpoint_registry.events import (
    CheckpointDeleted,
    CheckpointPurged,
    ShardsRefused,
)
from everstep.checkpoint_registry.manifest import manifest_of
from everstep.checkpoint_registry.state import Phase
from everstep.core.placement import Layout

HALF = CHECKPOINT.given(stored(report(0)))
WHOLE = HALF.given(stored(report(1, host_id="h2")))
DONE = WHOLE.given(COMPLETED)
DELETE = DeleteCheckpoint(job_id="job", step=20, generation=1, why="retention", at_ms=30)
DELETED = CheckpointDeleted(job_id="job", step=20, generation=1, why="retention", at_ms=30)
REFUSE = RefuseShard(
    job_id="job",
    step=20,
    generation=1,
    uri=shard(1).uri,
    checksum="aa",
    why="expected 100 bytes, got 99",
    at_ms=8,
)
REFUSED = ShardsRefused(
    job_id="job", step=20, generation=1, uri=shard(1).uri, why=REFUSE.why, at_ms=8
)


def test_reported_shards_are_stored_once():
    """A repeated report decides nothing, also from another sender or later."""
    CHECKPOINT.when(report(0)).then(stored(report(0)))
    HALF.when(report(0, at_ms=99, host_id="h9")).then()


def test_report_of_known_and_new_shards_stores_the_new_ones():
    """An agent that lost its memory of what it had told tells all again."""
    HALF.when(report(0, 1)).then(stored(report(1)))


def test_reports_that_arrive_together_are_taken_one_after_the_other():
    """What contradicts an earlier one of them is left out, and refused when it asks again."""
    other = replace(report(0, host_id="h9"), shards=(shard(0, checksum="bb"),))
    reports = (report(0), other, report(1, host_id="h2"), report(1, newest_generation=2))
    together = TakeReports(job_id="job", step=20, generation=1, reports=reports)
    CHECKPOINT.when(together).then(stored(report(0), report(1, host_id="h2")))
    WHOLE.when(together).then()
    WHOLE.when(other).then_rejected("conflicting_shard")


def test_checkpoint_is_whole_when_every_rank_has_reported():
    """Only then is anything read back."""
    assert HALF.state.phase is Phase.COLLECTING
    assert WHOLE.state.phase is Phase.STORED


def test_another_checksum_for_a_stored_rank_is_refused():
    """Two states of one rank at one step cannot both be right."""
    other = replace(report(0), shards=(shard(0, checksum="bb"),))
    HALF.when(other).then_rejected("conflicting_shard")


def test_two_checksums_for_a_rank_in_one_report_are_refused():
    """A report must not contradict itself either."""
    both = replace(report(0), shards=(shard(0), shard(0, checksum="bb")))
    CHECKPOINT.when(both).then_rejected("conflicting_shard")


def test_shard_that_a_report_names_twice_is_stored_once():
    """A sender that repeats itself does not say two things."""
    twice = replace(report(0), shards=(shard(0), shard(0)))
    CHECKPOINT.when(twice).then(stored(report(0)))


def test_report_of_an_older_generation_is_refused():
    """The registry has heard of a newer generation: late writers are not taken."""
    CHECKPOINT.when(report(0, newest_generation=2)).then_rejected("stale_generation")


@pytest.mark.parametrize(("kept_to_step", "taken"), [(19, False), (20, True), (21, True)])
def test_late_report_counts_of_a_step_that_was_gone_on_from(kept_to_step, taken):
    """It is part of the job's history; what came after the restart step is an abandoned branch."""
    late = report(0, newest_generation=3, kept_to_step=kept_to_step)
    decided = CHECKPOINT.when(late)
    if taken:
        decided.then(stored(report(0)))
    else:
        decided.then_rejected("stale_generation")


@pytest.mark.parametrize(
    ("command", "why"),
    [
        (report(0, job_id="a.b"), "bad_job_id"),
        (report(0, step=-1), "bad_report"),
        (report(0, world_size=0), "bad_report"),
        (report(2), "bad_rank"),
        (replace(report(0), shards=(shard(0, step=21),)), "bad_key"),
        (replace(report(0), shards=(shard(0, generation=2),)), "bad_key"),
        (replace(report(0), shards=(shard(0, job_id="other"),)), "bad_key"),
        (
            replace(report(0), shards=(replace(shard(0), uri=COMPLETED.manifest_uri),)),
            "bad_key",
        ),
    ],
)
def test_report_with_bad_input_is_refused(command, why):
    """Keys outside the checkpoint's own folder would be deleted with it one day."""
    CHECKPOINT.when(command).then_rejected(why)


def test_hosts_that_disagree_on_the_world_size_are_refused():
    """Whole is a matter of counting, so the count must be one."""
    HALF.when(report(1, world_size=4)).then_rejected("world_size_changed")


def test_checkpoint_is_complete_once_all_it_has_was_read_back():
    """The second instance that did the same work decides nothing."""
    WHOLE.when(complete(shard(0), shard(1))).then(COMPLETED)
    assert DONE.state.phase is Phase.COMPLETE
    DONE.when(complete(shard(0), shard(1), at_ms=99)).then()


def test_checkpoint_is_not_completed_with_other_shards_than_it_has():
    """Somebody refused or uploaded meanwhile: what was read back is not what is stored."""
    HALF.when(complete(shard(0), shard(1))).then_rejected("shards_changed")
    other = complete(shard(0), shard(1, checksum="bb"))
    WHOLE.when(other).then_rejected("shards_changed")


def test_bad_shard_is_refused_and_leaves_the_checkpoint_incomplete():
    """The rank may upload again, with another checksum too."""
    WHOLE.when(REFUSE).then(REFUSED)
    given = WHOLE.given(REFUSED)
    assert given.state.phase is Phase.COLLECTING
    given.when(REFUSE).then()
    again = replace(report(1), shards=(shard(1, checksum="bb"),))
    given.when(again).then(stored(again))


def test_refusal_of_a_shard_that_was_replaced_decides_nothing():
    """The other instance's late finding is about an object that is gone."""
    again = replace(report(1), shards=(shard(1, checksum="bb"),))
    WHOLE.given(REFUSED, stored(again)).when(REFUSE).then()


def test_complete_checkpoint_is_not_refused_any_more():
    """Objects that rot later are found by the restore that reads them."""
    DONE.when(REFUSE).then()


def test_deleted_checkpoint_stays_deleted():
    """No report and no late completion brings it back."""
    DONE.when(DELETE).then(DELETED)
    given = DONE.given(DELETED)
    given.when(DELETE).then()
    given.when(report(0)).then_rejected("deleted")
    given.when(complete(shard(0), shard(1))).then_rejected("deleted")


def test_checkpoint_that_never_was_is_deleted_already():
    """Nothing to do."""
    CHECKPOINT.when(DELETE).then()


@pytest.mark.parametrize("given", [WHOLE, DONE])
def test_checkpoint_that_is_whole_meanwhile_is_not_over(given):
    """Whoever says that nobody completes it any more has looked earlier."""
    over = replace(DELETE, why=DELETED_OVER)
    given.when(over).then_rejected("not_over")
    HALF.when(over).then(replace(DELETED, why=DELETED_OVER))
    given.given(DELETED).when(over).then()
    CHECKPOINT.when(over).then()


def test_purge_follows_the_deletion():
    """Objects go after the event, so that nobody plans with half a checkpoint."""
    purge = NotePurge(job_id="job", step=20, generation=1, at_ms=31)
    DONE.when(purge).then_rejected("not_deleted")
    purged = CheckpointPurged(job_id="job", step=20, generation=1, at_ms=31)
    given = DONE.given(DELETED)
    given.when(purge).then(purged)
    given.given(purged).when(purge).then()


def test_manifest_names_every_shard_and_no_instance():
    """Two registries write the same bytes, whatever their clocks say."""
    text = manifest_of(WHOLE.state, Layout(tp=2))
    assert json.loads(text) == {
        "format": "everstep.manifest.v1",
        "job_id": "job",
        "step": 20,
        "generation": 1,
        "world_size": 2,
        "layout": {"pp": 1, "dp_replicate": 1, "dp_shard": 1, "tp": 2},
        "shards": [
            {
                "rank": rank,
                "uri": f"jobs/job/step-00000020/gen-1/rank-{rank:05d}.shard",
                "bytes": 100,
                "checksum": "aa",
            }
            for rank in (0, 1)
        ],
        "data_state": {"position": 20},
        "created_at_ms": 5,
    }
    backwards = CHECKPOINT.given(stored(report(1)), stored(report(0)))
    assert manifest_of(backwards.state, Layout(tp=2)) == text
