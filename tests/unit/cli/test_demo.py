import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from everstep.cli.demo_plan import HOSTS, STEPS_MIN, draw, job_spec, object_every
from everstep.cli.demo_report import Kill, Run, States, make_report, report_lines
from everstep.core.spec import parse_spec

PLAN = draw(7, 12)
SEATS = [
    {"host_id": host, "ranks": [2 * i, 2 * i + 1], "replica_host_id": ""}
    for i, host in enumerate(("h1", "h5", "h3", "h4"))
]
RECOVERY = {
    "generation": 2, "cause": "recovery", "incident_id": "i1", "lost_hosts": ["h2"],
    "replacements": ["h5"], "restore_step": 5, "begun_at_ms": 10_500, "running_at_ms": 12_900,
    "sources": {"own_memory": 6, "peer_memory": 2, "object_store": 0},
    "stages_ms": {"fence": 60, "place": 40, "plan": 20, "start": 120, "first_step": 2_000},
}  # fmt: skip
INCIDENT = {
    "incident_id": "i1", "kind": "host_lost", "hosts": ["h2"], "ranks": [2, 3], "step": 6,
    "detected_at_ms": 10_400, "lost_steps": 1, "reason": "no answer to probes",
}  # fmt: skip
KILL = Kill(host="h2", ranks=(2, 3), at_step=6, at_ms=10_000)
EQUAL = States(
    equal=True, tensors_compared=96, run_checksum="ab" * 16, reference_checksum="ab" * 16
)


def points(*, changed_step=0):
    """Return a loss for each of 12 steps; the second generation begins after step 5."""
    return [
        {
            "step": step, "generation": 1 if step <= 5 else 2,
            "loss": 5.5 - step / 10 + (1e-9 if step == changed_step else 0.0),
            "completed_at_ms": 4_000 + 1_000 * step if step <= 5 else 7_000 + 1_000 * step,
        }
        for step in range(1, 13)
    ]  # fmt: skip


def run(**changes):
    """Return the disturbed run as the services would tell it."""
    job = {
        "job_id": "demo-1", "phase": "succeeded", "placement": {"hosts": SEATS},
        "recoveries": [{"cause": "launch", "begun_at_ms": 1_000}, RECOVERY],
    }  # fmt: skip
    parts = {
        "job": job, "points": points(), "incidents": [INCIDENT],
        "goodput": {"wall_ms": 20_000, "causes": {"useful": 12_000, "restart": 8_000}},
    } | changes  # fmt: skip
    return Run(**parts)


def report_of(*, disturbed=None, reference=None, states=EQUAL, kill=KILL):
    """Return the report of a demo."""
    return make_report(
        plan=PLAN, kill=kill, run=disturbed or run(), reference=reference or run(), states=states,
        wall_s=100.0,
    )  # fmt: skip


def test_report_of_a_demo_that_held_has_every_figure():
    """The keys that others read, with the values that the services told."""
    report = report_of()
    assert report["ok"], report["checks"]
    expected = {
        "seed": 7, "steps": 12, "killed_host": "h2", "killed_at_step": 6, "restored_from_step": 5,
        "restore_sources": {"own_memory": 6, "peer_memory": 2, "object_store": 0},
        "detection_ms": 400, "recovery_ms": 4_000, "lost_steps": 1,
        "recovery_stages_ms": {
            "detect": 400, "fence": 60, "place": 40, "plan": 20, "start": 120, "first_step": 2_000,
        },
        "goodput": {"useful": 12_000, "restart": 8_000, "wall_ms": 20_000},
        "state_equal": True, "tensors_compared": 96,
        "run_checksum": "ab" * 16, "reference_checksum": "ab" * 16,
    }  # fmt: skip
    assert {key: report[key] for key in expected} == expected
    assert report["losses"]["1"] == 5.4
    assert len(report["losses"]) == 12
    json.dumps(report)


def test_page_of_a_demo_that_held_tells_it_shortly():
    """What died, from where it came back, how long it took, and the verdict."""
    page = "\n".join(report_lines(report_of()))
    for part in (
        "killed host h2 (ranks 2-3) after step 6; h5 took over",
        "restored step 5: 6 ranks from their own memory, 2 from a peer's, 0 from the object store",
        "next new step 4.0 s after the kill", "useful", "60.0 %",
        "96 tensors compared: the run that lost a host ended bit for bit equal",
    ):  # fmt: skip
        assert part in page


JOB = run().job


@pytest.mark.parametrize(
    ("changes", "failing"),
    [
        ({"disturbed": run(job={**JOB, "phase": "failed"})}, "the disturbed run succeeded"),
        ({"reference": run(job={**JOB, "phase": "failed"})}, "the undisturbed run succeeded"),
        ({"kill": None}, "a host was killed"),
        ({"disturbed": run(incidents=[])}, "one incident, for exactly that host"),
        (
            {"disturbed": run(incidents=[INCIDENT, {**INCIDENT, "incident_id": "i2"}])},
            "one incident, for exactly that host",
        ),
        (
            {"disturbed": run(incidents=[{**INCIDENT, "hosts": ["h3"]}])},
            "one incident, for exactly that host",
        ),
        (
            {"disturbed": run(job={**JOB, "recoveries": [{**RECOVERY, "replacements": []}]})},
            "a spare took over",
        ),
        (
            {
                "disturbed": run(
                    job={
                        **JOB,
                        "recoveries": [
                            {
                                **RECOVERY,
                                "sources": {"own_memory": 6, "peer_memory": 0, "object_store": 2},
                            }
                        ],
                    }
                )
            },
            "state came from memory alone",
        ),
        (
            {"disturbed": run(incidents=[{**INCIDENT, "lost_steps": 2}])},
            "at most one step was lost",
        ),
        ({"disturbed": run(points=points()[:-1])}, "every step has a loss"),
        ({"disturbed": run(points=points(changed_step=9))}, "both loss curves are equal"),
        (
            {
                "states": States(
                    equal=False, tensors_compared=96, run_checksum="a", reference_checksum="b",
                    differences=("rank 3, wte: x against y",),
                )
            },
            "final states are equal bit for bit",
        ),
        (
            {
                "states": States(
                    equal=True, tensors_compared=0, run_checksum="", reference_checksum=""
                )
            },
            "final states are equal bit for bit",
        ),
    ],
)  # fmt: skip
def test_report_of_a_demo_that_did_not_hold_names_what_failed(changes, failing):
    """One broken promise fails the whole demo, and the last line says which."""
    report = report_of(**changes)
    assert not report["ok"]
    assert report["checks"][failing] is False
    assert failing in report_lines(report)[-1]


@given(seed=st.integers(0, 2**31), steps=st.integers(STEPS_MIN, 300))
def test_any_seed_draws_a_kill_from_the_middle_half(seed, steps):
    """Enough steps before and after, and the same seed always draws the same."""
    plan = draw(seed, steps)
    assert steps // 4 <= plan.kill_step < steps - steps // 4
    assert 0 <= plan.kill_seat < HOSTS
    assert plan == draw(seed, steps)


@given(steps=st.integers(STEPS_MIN, 300))
def test_last_step_of_any_length_is_a_durable_checkpoint(steps):
    """The final states must be in the object store to be compared."""
    assert steps % object_every(steps) == 0


def test_demo_job_is_a_valid_spec_and_kills_keep_clear_of_checkpoints():
    """60 steps: durable at 20, 40 and 60, and no kill within a step of them."""
    spec = parse_spec(job_spec(draw(1, 60), name="demo", corpus="c", cwd="/"))
    assert spec.layout.world_size == 8
    assert spec.checkpoint.object_every_steps == 20
    assert all(draw(seed, 60).kill_step % 20 not in (0, 1, 19) for seed in range(200))
