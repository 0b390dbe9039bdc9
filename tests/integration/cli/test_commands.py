import json
import subprocess
import sys

import pytest
from tests.command import everstep

SPEC = """
name: tiny
entry: everstep.models.pretrain:main
layout: {pp: 2, dp_shard: 2, tp: 2}
steps: 3
data: {path: corpus, sequence_tokens: 8, global_batch: 4}
"""
JOB = {
    "job_id": "tiny-1", "name": "tiny", "phase": "succeeded", "generation": 2, "step": 3,
    "steps": 3, "world_size": 8, "layout": {"pp": 2, "dp_replicate": 1, "dp_shard": 2, "tp": 2},
    "placement": {"hosts": [{"host_id": "h1", "ranks": [0, 1], "replica_host_id": "h4"}]},
    "restore_step": 2, "detail": "", "why": "", "submitted_at_ms": 1_000, "ended_at_ms": 9_000,
    "recoveries": [{
        "generation": 2, "cause": "recovery", "incident_id": "i1", "lost_hosts": ["h2"],
        "replacements": ["h5"], "from_step": -1, "restore_step": 2,
        "sources": {"own_memory": 6, "peer_memory": 2, "object_store": 0}, "begun_at_ms": 5_000,
        "stages_ms": {"fence": 40, "place": 30, "plan": 20, "start": 100, "first_step": 2_000},
        "running_at_ms": 7_160, "remark": "h2 stays for want of a spare",
    }],
}  # fmt: skip
POINT = {
    "step": 3, "generation": 2, "loss": 5.25, "grad_norm": 1.0, "tokens": 32, "step_time_ms": 10,
    "completed_at_ms": 8_000, "data_wait_ms": 0, "stall_ms": 0, "health": "ok", "redone": False,
}  # fmt: skip
INCIDENT = {
    "incident_id": "i1", "job_id": "tiny-1", "step": 2, "kind": "host_lost", "ranks": [2, 3],
    "hosts": ["h2"], "action": "REPLACE", "reason": "no answer to probes", "detail": "",
    "failed_at_ms": 4_000, "detected_at_ms": 4_400, "recovered_at_ms": 7_160, "lost_ms": 3_160,
    "lost_steps": 1,
}  # fmt: skip
GOODPUT = {"wall_ms": 8_000, "causes": {"useful": 4_000, "restart": 4_000}}


@pytest.fixture
def job(services):
    """A job that has run and recovered once."""
    services.on("POST", "/v1/jobs", {"job_id": "tiny-1"}, 201)
    services.on("GET", "/v1/jobs", {"jobs": [JOB]})
    services.on("GET", "/v1/jobs/tiny-1", JOB)
    services.on("GET", "/v1/jobs/tiny-1/metrics", {"points": [POINT]})
    services.on("GET", "/v1/jobs/tiny-1/goodput", GOODPUT)
    services.on("GET", "/v1/incidents", {"incidents": [INCIDENT]})
    return services


def test_run_that_succeeds_exits_with_0_and_tells_the_last_step(job, tmp_path):
    """The exit code is the verdict; `cwd` reaches the ranks as an absolute path."""
    (tmp_path / "job.yaml").write_text(SPEC)
    done = everstep("run", "job.yaml", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "step 3/3  loss 5.2500" in done.stdout
    assert "incident host_lost at step 2 (hosts h2 ranks 2-3): recovered" in done.stdout
    (_, _, body) = next(one for one in job.asked if one[:2] == ("POST", "/v1/jobs"))
    assert body["spec"]["cwd"] == str(tmp_path)
    assert body["spec"]["layout"]["dp_shard"] == 2


@pytest.mark.parametrize(("phase", "code"), [("failed", 1), ("stopped", 3)])
def test_run_that_does_not_succeed_exits_with_its_own_code(job, tmp_path, phase, code):
    """A script can tell failure from a stop by a person."""
    detail = "rank 3 raised ValueError: no"
    job.on("GET", "/v1/jobs/tiny-1", {**JOB, "phase": phase, "detail": detail, "why": "user_error"})
    (tmp_path / "job.yaml").write_text(SPEC)
    done = everstep("run", str(tmp_path / "job.yaml"))
    assert done.returncode == code
    assert ("job tiny-1 failed (user_error): " + detail in done.stderr) == (phase == "failed")


def test_run_detached_prints_how_to_follow(job, tmp_path):
    """--detach returns at once; nothing is asked of the monitor."""
    (tmp_path / "job.yaml").write_text(SPEC)
    done = everstep("run", str(tmp_path / "job.yaml"), "--detach")
    assert (done.returncode, done.stdout) == (
        0, "job tiny-1 is launched; follow it with `everstep attach tiny-1`\n",
    )  # fmt: skip
    assert [path for _, path, _ in job.asked] == ["/v1/jobs"]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("steps: [", "job.yaml, line 1, column 9: expected a value"),
        ("just words", "holds no job spec"),
        (
            SPEC.replace("steps: 3", "steps: 0"),
            "error: invalid job spec: steps: expected a whole number of at least 1, got 0\n",
        ),
        (
            SPEC.replace("global_batch: 4", "global_batch: 3"),
            "data.global_batch: expected a multiple of 2",
        ),
        (SPEC + "stepz: 3", "stepz: unknown field; did you mean steps?"),
        (SPEC.replace("models.pretrain:main", "models pretrain"), "expected module:function or"),
    ],
)
def test_run_of_a_wrong_spec_is_one_sentence_and_nothing_is_launched(job, tmp_path, text, told):
    """What is wrong is said before anything is asked of the cluster."""
    (tmp_path / "job.yaml").write_text(text)
    done = everstep("run", str(tmp_path / "job.yaml"))
    assert done.returncode == 1
    assert told in done.stderr
    assert "Traceback" not in done.stderr
    assert job.asked == []


def test_run_of_a_missing_file_says_so():
    """The commonest mistake of all."""
    done = everstep("run", "nowhere.yaml")
    assert (done.returncode, done.stderr) == (
        1, "error: cannot read nowhere.yaml: No such file or directory\n",
    )  # fmt: skip


def test_refusal_of_the_controller_is_told_as_it_is(services, tmp_path):
    """The service's own sentence, a non-zero exit, no traceback."""
    services.refuse("POST", "/v1/jobs", 422, "the layout needs 8 chips; all hosts have 6")
    (tmp_path / "job.yaml").write_text(SPEC)
    done = everstep("run", str(tmp_path / "job.yaml"))
    assert (done.returncode, done.stderr) == (
        1, "error: the layout needs 8 chips; all hosts have 6\n",
    )  # fmt: skip


def test_debug_shows_the_traceback_as_well(services):
    """For those who mend us."""
    done = everstep("--debug", "jobs", "show", "ghost")
    assert done.returncode == 1
    assert "Traceback" in done.stderr
    assert "error: no /v1/jobs/ghost" in done.stderr


@pytest.mark.parametrize(
    ("command", "path", "body", "shown"),
    [
        (["jobs"], "/v1/jobs", {"jobs": [JOB]}, "tiny-1"),
        (["incidents"], "/v1/incidents", {"incidents": [INCIDENT]}, "host_lost"),
        (["hosts"], "/v1/hosts", {"hosts": [{"host_id": "h1", "state": "spare"}]}, "spare"),
        (
            ["checkpoints", "--job", "tiny-1"], "/v1/checkpoints",
            {"checkpoints": [{"job_id": "tiny-1", "step": 2, "generation": 1, "bytes": 4096}]},
            "4.0 KiB",
        ),
    ],
)  # fmt: skip
def test_listing_prints_a_table_for_people_and_json_for_programs(
    services, command, path, body, shown
):
    """Every listing takes --json and prints exactly what the service said."""
    services.on("GET", path, body)
    people, programs = everstep(*command), everstep(*command, "--json")
    assert (people.returncode, programs.returncode) == (0, 0), people.stderr + programs.stderr
    assert json.loads(programs.stdout) == next(iter(body.values()))
    assert shown in people.stdout


def test_audits_are_listed_when_they_are_asked_for(services):
    """There may be many more of them than jobs."""
    services.on("GET", "/v1/jobs", {"jobs": [JOB]})
    assert everstep("jobs", "--audits").returncode == 0
    assert services.asked[0][1] == "/v1/jobs?audits=true"


@pytest.mark.parametrize("command", ["jobs", "incidents", "hosts", "checkpoints"])
def test_empty_listing_is_a_sentence(services, command):
    """An empty table explains nothing."""
    services.on("GET", f"/v1/{command}", {command: []})
    done = everstep(command)
    assert done.returncode == 0
    assert done.stdout.startswith("no ")


def test_jobs_show_tells_placement_recovery_and_goodput(job):
    """One page on one job."""
    done = everstep("jobs", "show", "tiny-1")
    assert done.returncode == 0, done.stderr
    for part in (
        "pp 2 x dp_shard 2 x tp 2 (8 ranks)", "h4", "6 own_memory, 2 peer_memory",
        "fence 40 ms", "first_step 2.0 s, h2 stays for want of a spare", "50.0 %",
    ):  # fmt: skip
        assert part in done.stdout
    both = json.loads(everstep("jobs", "show", "tiny-1", "--json").stdout)
    assert both == {**JOB, "goodput": GOODPUT, "uncopied": [], "refused_sources": [], "audits": []}


RUNNING = {**JOB, "phase": "running", "step": 1, "steps": 200, "ended_at_ms": None}


def test_step_of_a_running_job_is_the_monitors_and_not_the_controllers_old_one(job):
    """The controller hears of a generation's first step; the curve knows the newest."""
    running = {**RUNNING, "recoveries": [{**JOB["recoveries"][0], "restore_step": 2}]}
    job.on("GET", "/v1/jobs", {"jobs": [running]})
    job.on("GET", "/v1/jobs/tiny-1", running)
    job.on("GET", "/v1/jobs/tiny-1/metrics", lambda query: {"points": curve_after(query, 137)})
    assert " 137/200 " in everstep("jobs").stdout
    assert "step 137 of 200\n" in everstep("jobs", "show", "tiny-1").stdout
    assert json.loads(everstep("jobs", "--json").stdout)[0]["step"] == 137
    assert json.loads(everstep("jobs", "show", "tiny-1", "--json").stdout)["step"] == 137


def test_jobs_are_told_when_the_monitor_is_away(job):
    """The controller's step is better than an error."""
    job.on("GET", "/v1/jobs", {"jobs": [RUNNING]})
    job.on("GET", "/v1/jobs/tiny-1", RUNNING)
    for path in ("metrics", "goodput"):
        job.refuse("GET", f"/v1/jobs/tiny-1/{path}", 503, "the database does not answer")
    listed, shown = everstep("jobs"), everstep("jobs", "show", "tiny-1")
    assert (listed.returncode, shown.returncode) == (0, 0), listed.stderr + shown.stderr
    assert " 1/200 " in listed.stdout
    assert "step 1 of 200\n" in shown.stdout


def test_job_that_waits_for_hosts_is_shown_with_how_many(job):
    """And with what to do; the phase alone leaves a person to guess."""
    waits = {
        "stage": "place", "since_ms": 1_000, "why": "1 more host: add, start or uncordon some",
        "trouble": "", "trouble_since_ms": None,
    }  # fmt: skip
    waiting = {**JOB, "phase": "waiting_for_hosts", "hosts_short": 1, "waits": waits}
    job.on("GET", "/v1/jobs/tiny-1", waiting)
    shown = everstep("jobs", "show", "tiny-1").stdout
    assert f"waits      for {waits['why']} (stage place, since " in shown


def curve_after(query, last):
    """Return the points of the second generation that a query asks for."""
    first = int(query["after_step"][0]) + 1
    stop = min(last + 1, first + int(query["limit"][0]))
    return [{**POINT, "step": step} for step in range(first, stop)]


@pytest.mark.parametrize(
    ("command", "path", "body"),
    [
        (["jobs", "pause", "j"], "/v1/jobs/j/pause", {}),
        (["jobs", "restart", "j", "--from-step", "4"], "/v1/jobs/j/restart", {"from_step": 4}),
        (["hosts", "cordon", "h3", "--reason", "fan"], "/v1/hosts/h3/cordon", {"reason": "fan"}),
    ],
)
def test_steering_commands_ask_for_exactly_that(services, command, path, body):
    """One request, and a sentence on what happens now."""
    services.on("POST", path, {}, 202)
    done = everstep(*command)
    assert done.returncode == 0, done.stderr
    assert services.asked == [("POST", path, body)]
    assert command[2] in done.stdout


OUT = {"host_id": "h3", "state": "cordoned", "job_id": "", "awaits": "", "maintenance": ""}


@pytest.mark.parametrize(
    ("command", "body"),
    [(["uncordon", "h3"], {}), (["uncordon", "h3", "--now"], {"now": True}), (["back", "h3"], {})],
)
@pytest.mark.parametrize(
    "host", [OUT, {**OUT, "state": "active", "job_id": "j", "maintenance": "maintenance: fan"}]
)
def test_host_that_is_out_or_wanted_is_asked_back(services, command, body, host):
    """By one request."""
    services.on("GET", "/v1/hosts/h3", host)
    services.on("POST", "/v1/hosts/h3/uncordon", {**host, "state": "spare", "maintenance": ""})
    done = everstep("hosts", *command)
    assert (done.returncode, done.stdout) == (0, "host h3 may be used again\n"), done.stderr
    assert services.asked[1:] == [("POST", "/v1/hosts/h3/uncordon", body)]


@pytest.mark.parametrize("command", ["uncordon", "back"])
def test_host_that_needs_no_bringing_back_is_said_to_need_none(services, command):
    """And nothing is asked."""
    services.on("GET", "/v1/hosts/h3", {**OUT, "state": "active", "job_id": "j"})
    done = everstep("hosts", command, "h3")
    said = "host h3 is active, neither cordoned nor in maintenance: there is nothing to bring it "
    assert (done.returncode, done.stdout) == (0, f"{said}back from\n")
    assert services.asked == [("GET", "/v1/hosts/h3", None)]


def test_commands_without_a_stack_say_how_to_start_one(tmp_path):
    """Whatever is asked first, the answer is the next step."""
    for command in (["status"], ["jobs"], ["events"], ["kill", "host", "h1"]):
        done = everstep("--state", str(tmp_path / "none"), *command)
        assert (done.returncode, done.stderr) == (
            1,
            (
                f"error: no stack runs in {tmp_path / 'none'}: `everstep up` starts one, --state "
                "names another\n"
            ),
        )


def test_command_line_imports_only_what_a_plain_installation_has():
    """No torch, whose import takes seconds, and nothing of the services' extra."""
    heavy = ("torch", "numpy", "fastapi", "sqlalchemy", "asyncpg")
    assert _imported("everstep.cli.app, everstep.cli.demo_command", heavy) == []


def test_simulated_fleet_starts_without_clients_of_servers_that_it_does_not_ask():
    """They would be half of the time until its first event."""
    clients = ("torch", "sqlalchemy", "minio", "nats", "httpx")
    assert _imported("everstep.cli.app, everstep.fleet.many", clients) == []


def _imported(modules: str, heavy: tuple[str, ...]) -> list[str]:
    code = f"import sys, {modules}\nprint(*[name for name in {heavy} if name in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    return done.stdout.split()
