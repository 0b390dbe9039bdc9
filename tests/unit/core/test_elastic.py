"""Which smaller layouts will do, and in which order."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from everstep.core.elastic import (
    LAYOUTS_MAX,
    full_layout,
    larger_layouts,
    rate_of,
    smaller_layouts,
    spec_under,
)
from everstep.core.placement import Layout
from everstep.core.spec import JobSpec, parse_spec, parse_spec_json


def spec(*, batch: int = 0, dp_min: int = 1, no_spare: str = "elastic", **layout: int) -> JobSpec:
    """A job of micro-batches of two samples; without data if there is no batch."""
    data = {"path": "corpus", "sequence_tokens": 8, "global_batch": batch, "micro_batch": 2}
    return parse_spec(
        {
            "name": "tiny",
            "entry": "a:b",
            "steps": 3,
            "layout": layout,
            "data": data if batch else None,
            "recovery": {"no_spare": no_spare, "dp_min": dp_min},
        }
    )


def dp(layouts: tuple[Layout, ...]) -> list[tuple[int, int]]:
    """Their replicas and shards."""
    return [(one.dp_replicate, one.dp_shard) for one in layouts]


def test_job_that_waits_has_no_smaller_layout():
    """What a person has not asked for is not done."""
    assert smaller_layouts(spec(dp_shard=4, no_spare="wait")) == ()


def test_whole_replicas_go_before_shards_are_cut():
    """Each rank keeps what fitted its chip for as long as one replica fits."""
    assert dp(smaller_layouts(spec(dp_replicate=3, dp_shard=4, pp=2, tp=2))) == [
        (2, 4),
        (1, 4),
        (3, 3),
        (2, 3),
        (1, 3),
        (1, 2),
        (1, 1),
    ]


def test_groups_must_share_the_batch_equally():
    """Of eight micro-batches six groups cannot have equal shares."""
    assert dp(smaller_layouts(spec(dp_shard=8, batch=16))) == [(1, 4), (1, 2), (1, 1)]


def test_nothing_below_dp_min():
    """A person knows how many shards one chip's memory needs."""
    assert dp(smaller_layouts(spec(dp_shard=8, batch=16, dp_min=3))) == [(1, 4)]
    assert smaller_layouts(spec(dp_shard=8, batch=16, dp_min=8)) == ()


def test_job_wants_what_is_before_its_own_layout():
    """The whole one first; a layout that is none of its own wants nothing."""
    job = spec(dp_shard=4)
    assert dp(larger_layouts(job, Layout(dp_shard=2))) == [(1, 4), (1, 3)]
    assert larger_layouts(job, full_layout(job)) == ()
    assert larger_layouts(job, Layout(dp_shard=7)) == ()


def test_ranks_are_told_the_layout_that_they_have():
    """And everything else as it was; a whole job is told its very spec."""
    job = spec(dp_shard=4, pp=2)
    told = spec_under(job, Layout(pp=2, dp_shard=2))
    assert parse_spec_json(told.model_dump_json()) == told
    assert (told.layout.dp_shard, told.layout.pp) == (2, 2)
    assert told.model_copy(update={"layout": job.layout}) == job
    assert spec_under(job, full_layout(job)) is job


def scaled(**recovery: object) -> JobSpec:
    """Four groups of four samples each."""
    document = spec(dp_shard=4, batch=16).model_dump()
    document["recovery"] |= {"elastic_batch": "scale", **recovery}
    return parse_spec(document)


def test_scaled_batch_is_the_share_of_the_groups_that_are_left():
    """Any number of them will do: each keeps what it had."""
    job = scaled()
    assert dp(smaller_layouts(job)) == [(1, 3), (1, 2), (1, 1)]
    told = spec_under(job, Layout(dp_shard=3))
    assert told.data is not None
    assert (told.data.global_batch, told.data.micro_batch) == (12, 2)
    assert parse_spec_json(told.model_dump_json()) == told


def test_rate_follows_a_smaller_batch_as_the_optimizer_needs():
    """By the root for adaptive ones; a kept batch needs nothing."""
    assert rate_of(scaled(), 1) == 0.5
    assert rate_of(scaled(elastic_rate="linear"), 1) == 0.25
    assert rate_of(scaled(elastic_rate="keep"), 1) == 1.0
    assert rate_of(scaled(), 4) == 1.0
    assert rate_of(spec(dp_shard=4, batch=16), 1) == 1.0


@given(
    replicate=st.integers(1, 6),
    shard=st.integers(1, 40),
    per_group=st.integers(1, 3),
    dp_min=st.integers(1, 3),
)
def test_every_smaller_layout_is_one_and_comes_once(replicate, shard, per_group, dp_min):
    """Fewer groups, not too few, that share the batch; stages and tensor parallel are untouched."""
    batch = 2 * replicate * shard * per_group
    whole = replicate * shard
    job = spec(
        dp_replicate=replicate, dp_shard=shard, pp=2, tp=2, batch=batch, dp_min=min(dp_min, whole)
    )
    found = smaller_layouts(job)
    assert len(found) == len(set(found)) <= LAYOUTS_MAX
    for one in found:
        groups = one.dp_replicate * one.dp_shard
        assert (one.pp, one.tp) == (2, 2)
        assert job.recovery.dp_min <= groups < whole
        assert batch // 2 % groups == 0
        assert one.dp_replicate <= replicate
        assert one.dp_shard <= shard
        assert spec_under(job, one).layout.dp == groups
