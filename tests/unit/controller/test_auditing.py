"""An audit is a job of its own that gives way to any other."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from tests.spec import spec
from tests.unit.controller.facts import JOB, RUNNING, SUBMITTED, begun, placement

from everstep.controller.auditing import Audits, launch_of
from everstep.controller.codec import AGGREGATE
from everstep.controller.commands import (
    EndAudit,
    LaunchJob,
    PauseJob,
    RecordFinished,
    RecordPlacement,
    RecordShort,
    RecoverJob,
    Verdict,
)
from everstep.controller.correcting import corrections_of
from everstep.controller.events import (
    JobFailed,
    JobStopped,
    JobSubmitted,
    JobSucceeded,
    PlacementDecided,
)
from everstep.controller.policy import Forget, next_actions
from everstep.controller.starting import plan_command, sources_by_host, turn_of
from everstep.core.corrections import BatchSpan, Corrections, PositionRange
from everstep.core.decision import Rejected
from everstep.core.elastic import full_layout
from everstep.core.ids import is_valid_id
from everstep.core.placement import HostPlacement, Layout, Placement
from everstep.core.spec import parse_spec_json
from everstep.core.time import HOUR_MS
from everstep.wire.v1.checkpoints_pb2 import PlanAudit, RestoreSources, Shard
from everstep.wire.v1.common_pb2 import Layout as WireLayout

JOBS = spec(AGGREGATE)
SPEC = {
    "name": "demo",
    "entry": "everstep.models.pretrain:main",
    "layout": {"pp": 2, "dp_replicate": 3},
    "steps": 10,
    "seed": 5,
    "recovery": {"no_spare": "elastic", "dp_min": 2},
    "corruption": {"recompute_every_steps": 5, "gradient_norms": True},
    "checkpoint": {"interval": "auto"},
}
FULL = Placement(
    layout=Layout(pp=2, dp_replicate=3), hosts=(HostPlacement(host_id="h0", ranks=tuple(range(6))),)
)
TRAINING = (
    replace(SUBMITTED, spec_json=json.dumps(SPEC)),
    begun(1, "launch"),
    replace(RUNNING[2], placement=FULL),
    *RUNNING[3:],
)
WORKS = ("0123456789abcdef:fedcba9876543210", "00000000000000aa:00000000000000bb")


def asked(*events: object, works: tuple[str, ...] = WORKS, number: int = 1) -> LaunchJob | Rejected:
    """Ask for an audit of replica 2 of step 4 of a job to which this has happened."""
    job = JOBS.given(*events).state
    return launch_of(job, step=4, replica=2, number=number, works=works, at_ms=9)


LAUNCH = asked(*TRAINING)
AUDIT = LAUNCH.job_id
AUDIT_EVENTS = (
    JobSubmitted(job_id=AUDIT, name="audit", spec_json=LAUNCH.spec_json, at_ms=9),
    replace(begun(1, "launch", 9), job_id=AUDIT),
)


def test_audit_has_the_ranks_of_one_replica_and_ends_after_one_step():
    """The job's spec otherwise, as far as it says what a step comes to."""
    made = parse_spec_json(LAUNCH.spec_json)
    assert full_layout(made) == Layout(pp=2, dp_replicate=1)
    assert made.layout.dp_replicate == 3, "by which its loop shares the batch"
    assert (made.last_step, made.steps, made.seed) == (5, 10, 5)
    assert made.audit is not None
    assert (made.audit.job_id, made.audit.step, made.audit.replica) == (JOB, 4, 2)
    assert made.audit.works == WORKS
    assert made.recovery.restarts_per_hour_max == 0
    assert (made.recovery.no_spare, made.recovery.slow_hosts) == ("wait", "off")
    assert (made.numerics.on_spike, made.corruption.recompute_every_steps) == ("off", 0)
    assert (made.checkpoint.interval, made.checkpoint.object_every_steps) == ("steps", 0)


def test_asked_for_twice_it_is_one_job_and_the_next_is_another():
    """And however long the job's id is, the audit has one of its own that is valid."""
    assert asked(*TRAINING) == LAUNCH
    assert asked(*TRAINING, number=2).job_id != AUDIT
    long = [replace(one, job_id="j" * 63 + end) for end in "ab" for one in TRAINING]
    ids = [asked(*long[:6]).job_id, asked(*long[6:]).job_id]
    assert all(map(is_valid_id, ids))
    assert len(set(ids)) == 2


def test_audit_is_not_launched_by_hand():
    """From a copy of its spec, whatever the job has made anew since, somebody would be named."""
    JOBS.when(LAUNCH).then(
        replace(AUDIT_EVENTS[0], name=f"audit of {JOB}: step 5, replica 2"), AUDIT_EVENTS[1]
    )
    copied = LaunchJob(job_id="copied", spec_json=LAUNCH.spec_json, at_ms=9)
    JOBS.when(copied).then_rejected("invalid_spec")


@pytest.mark.parametrize(
    ("events", "works", "why"),
    [
        ((), WORKS, "unknown_job"),
        ((*TRAINING, JobSucceeded(job_id=JOB, generation=1, step=10, at_ms=1)), WORKS, "job_ended"),
        (TRAINING[:2], WORKS, "other_layout"),
        (TRAINING, WORKS[:1], "invalid_spec"),
        (TRAINING, ("no work", *WORKS[1:]), "invalid_spec"),
    ],
)
def test_audit_that_cannot_be_is_refused(events, works, why):
    """Before anything is begun."""
    refused = asked(*events, works=works)
    assert isinstance(refused, Rejected)
    assert refused.why == why


def test_audit_is_not_made_for_who_does_not_know_where_the_job_is():
    """What it says that ranks came to may be undone, and the checkpoint another one by now."""
    job = JOBS.given(*TRAINING, begun(2, "recovery")).state
    about = {"step": 4, "replica": 2, "number": 1, "works": WORKS, "at_ms": 9}
    stale = launch_of(job, generation=1, **about)
    assert isinstance(stale, Rejected)
    assert stale.why == "stale_generation"
    launch = launch_of(job, generation=2, **about)
    assert isinstance(launch, LaunchJob)
    audit = parse_spec_json(launch.spec_json).audit
    assert audit is not None
    assert audit.generation == 2  # by which it is known later whether the step was undone since
    assert isinstance(launch_of(job, **about), LaunchJob)


def test_job_that_has_shrunk_is_not_audited():
    """Its checkpoints are of another layout than its spec's."""
    fewer = replace(FULL, layout=Layout(pp=2, dp_replicate=2))
    shrunk = replace(RUNNING[2], placement=fewer)
    assert asked(*TRAINING[:2], shrunk, *TRAINING[3:]).why == "other_layout"


def test_audit_reads_the_samples_that_the_job_has_read():
    """A job that was smaller for a while, and leaves batches out, is at other samples by now."""
    data = {"path": "/corpus", "sequence_tokens": 8, "global_batch": 6, "micro_batch": 1}
    scaling = {**SPEC, "data": data}
    scaling["recovery"] = {**SPEC["recovery"], "elastic_batch": "scale"}
    two = replace(FULL, layout=Layout(pp=2, dp_replicate=2))
    skipped = (PositionRange(first=5, end=7),)

    def goes_on(generation: int, there: Placement, step: int, **fields: object) -> list[object]:
        """Go on under a layout from a step."""
        return [
            begun(generation, "recovery", **fields),
            PlacementDecided(job_id=JOB, generation=generation, placement=there),
            replace(RUNNING[3], generation=generation, step=step),
        ]

    events = [
        replace(TRAINING[0], spec_json=json.dumps(scaling)),
        *TRAINING[1:],
        *goes_on(2, two, 3),
        *goes_on(3, FULL, 5, before_step=6, skipped=skipped),
    ]
    launch = asked(*events)
    submitted = JobSubmitted(job_id=AUDIT, name="audit", spec_json=launch.spec_json, at_ms=9)
    audit = JOBS.given(submitted, AUDIT_EVENTS[1]).state
    sizes = ((0, 6), (3, 4), (5, 6))
    expected = Corrections(
        skipped=skipped,
        batches=tuple(BatchSpan(after_step=step, samples=size) for step, size in sizes),
    )
    assert corrections_of(JOBS.given(*events).state).batches == expected.batches
    assert corrections_of(audit) == expected


def test_audit_does_not_wait_for_hosts():
    """Nobody needs it; an ordinary job waits."""
    short = RecordShort(job_id=AUDIT, generation=1, missing=2, at_ms=12)
    end = JobStopped(job_id=AUDIT, generation=1, at_ms=12, detail="no spare hosts are free for it")
    given = JOBS.given(*AUDIT_EVENTS)
    given.when(short).then(end)
    assert next_actions(given.given(end).state) == ()


def test_audit_gives_its_hosts_back_when_asked():
    """Wherever it is; its ranks are ended and forgotten. Nobody ends a job like that."""
    placed = RecordPlacement(job_id=AUDIT, generation=1, placement=placement("s0"), at_ms=11)
    given = JOBS.given(*AUDIT_EVENTS)
    given = given.given(*given.when(placed).decision.events)
    command = EndAudit(job_id=AUDIT, why="job demo wants the hosts", at_ms=13)
    end = JobStopped(job_id=AUDIT, generation=1, at_ms=13, detail="job demo wants the hosts")
    given.when(command).then(end)
    over = given.given(end)
    assert next_actions(over.state) == (Forget(generation=2, hosts=("s0",)),)
    over.when(command).then()
    JOBS.given(*TRAINING).when(replace(command, job_id=JOB)).then_rejected("no_audit")


@pytest.mark.parametrize("verdict", [Verdict.REPLACE, Verdict.REPLACE_IF_SPARE, Verdict.RESTART])
def test_audit_is_not_begun_again(verdict):
    """Whatever ends a rank ends it; the incident names the host as ever.

    It has had no restarts, so that none of its hosts has to be taken out to save it more of them.
    """
    placed = RecordPlacement(job_id=AUDIT, generation=1, placement=placement("s0"), at_ms=11)
    given = JOBS.given(*AUDIT_EVENTS)
    given = given.given(*given.when(placed).decision.events)
    broken = RecoverJob(
        job_id=AUDIT,
        generation=1,
        incident_id="i",
        verdict=verdict,
        hosts=("s0",),
        at_ms=2 * HOUR_MS,
    )
    (failed,) = given.when(broken).decision.events
    assert isinstance(failed, JobFailed)


def test_audit_cannot_be_paused():
    """It would keep its hosts, and be waited for before its job is audited again."""
    pause = PauseJob(job_id=AUDIT, at_ms=13)
    JOBS.given(*AUDIT_EVENTS).when(pause).then_rejected("nothing_to_pause")


def test_audit_that_has_made_its_step_has_not_ended_early():
    """Its spec has more steps: the job's."""
    done = RecordFinished(job_id=AUDIT, generation=1, step=5, at_ms=20)
    JOBS.given(*AUDIT_EVENTS).when(done).then(
        JobSucceeded(job_id=AUDIT, generation=1, step=5, at_ms=20)
    )


def test_audits_end_for_a_job_that_lacks_hosts_and_not_for_one_another():
    """Those that have ended are forgotten."""
    audits, job = Audits(), JOBS.given(*TRAINING).state
    audit = JOBS.given(*AUDIT_EVENTS).state
    audits.note(job)
    audits.note(audit)
    (ended,) = audits.ended_for(job, 7)
    assert (ended.job_id, ended.at_ms) == (AUDIT, 7)
    assert JOB in ended.why
    assert audits.ended_for(audit, 7) == []
    audits.note(JOBS.given(*AUDIT_EVENTS, JobStopped(job_id=AUDIT, generation=1, at_ms=8)).state)
    assert audits.ended_for(job, 7) == []


def test_every_later_audit_is_to_have_other_hosts_than_the_first():
    """Those in between may have had none; with two hosts a second turn would be the first again."""
    numbers = [asked(*TRAINING, number=number).spec_json for number in (1, 2, 3, 4)]
    assert [turn_of(parse_spec_json(one)) for one in numbers] == [0, 1, 1, 1]
    assert turn_of(parse_spec_json(json.dumps(SPEC))) == 0


def test_registry_is_asked_for_the_other_job_s_replica():
    """Under the other job's layout, and each host is told whose snapshots they are."""
    seats = tuple(HostPlacement(host_id=f"s{rank}", ranks=(rank,)) for rank in (0, 1))
    there = Placement(layout=Layout(pp=2), hosts=seats)
    placed = RecordPlacement(job_id=AUDIT, generation=1, placement=there, at_ms=11)
    given = JOBS.given(*AUDIT_EVENTS)
    job = given.given(*given.when(placed).decision.events).state
    layout = WireLayout(pp=2, dp_replicate=3, dp_shard=1, tp=1)
    assert plan_command(job, [], -1, 5) == PlanAudit(job_id=JOB, step=4, replica=2, layout=layout)
    sources = RestoreSources(
        shards=[Shard(rank=2, uri="two"), Shard(rank=5, uri="five")],
        shards_generation=1,
        old_layout=layout,
        lost=[0, 1, 3, 4],
        of_job_id=JOB,
    )
    told = sources_by_host(there, sources)
    assert [(one.of_job_id, [s.uri for s in one.shards]) for one in told.values()] == [
        (JOB, ["two"]),
        (JOB, ["five"]),
    ]
