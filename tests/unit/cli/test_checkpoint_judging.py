"""What people say about checkpoints on the command line, and what they are told."""

from __future__ import annotations

import json

import httpx
import pytest
from typer.testing import CliRunner

from everstep.cli.app import app
from everstep.cli.checkpoint_judging import told
from everstep.core.errors import EverstepError, NotFoundError, RefusedError

PLAN = {
    "job_id": "j",
    "generation": 2,
    "world_size": 4,
    "restorable": True,
    "refused": "",
    "step": 30,
    "own_memory": 2,
    "peer_memory": 1,
    "object_store": 1,
    "passed_over": ["step 31: rank 3 has no source"],
    "ranks": [
        {"rank": 0, "sources": ["own h0", "peer h1"]},
        {"rank": 1, "sources": ["own h0", "peer h1"]},
        {"rank": 2, "sources": ["peer h2"]},
        {"rank": 3, "sources": ["object jobs/j/rank-00003.shard"]},
    ],
}
CHECKPOINT = {
    "job_id": "j",
    "step": 30,
    "generation": 1,
    "state": "complete",
    "restorable": False,
    "unusable_why": "suspect",
    "deleted_why": "",
    "trust": "suspect",
    "trust_why": "loss_spike from step 28",
    "checked_at_ms": None,
    "checked_by": "",
    "bad_ranks": [],
    "damage": "",
    "pinned": True,
    "pin_note": "paper",
    "pinned_by": "ann",
    "layout": {"pp": 2, "dp_replicate": 1, "dp_shard": 1, "tp": 2},
    "world_size": 4,
    "bytes": 4096,
    "data_state": {"position": 30},
    "completed_at_ms": 0,
    "manifest_uri": "jobs/j/manifest.json",
    "shards": [],
}


class Services:
    """Answers what it was told to, and remembers what it was asked."""

    def __init__(self) -> None:
        self.answers: dict[tuple[str, str], tuple[int, object]] = {}
        self.asked: list[tuple[str, str, object]] = []

    def on(self, method: str, path: str, body: object, status: int = 200) -> None:
        """Answer a request."""
        self.answers[method, path] = (status, body)

    def __call__(self, request: httpx.Request) -> httpx.Response:
        """Answer as a service would."""
        body = json.loads(request.content) if request.content else None
        self.asked.append((request.method, request.url.path, body))
        missing = {"error": {"code": "not_found", "message": f"no {request.url.path}"}}
        status, answer = self.answers.get((request.method, request.url.path), (404, missing))
        return httpx.Response(status, json=answer)


@pytest.fixture
def services(monkeypatch) -> Services:
    """Services without a socket."""
    fake = Services()
    made = httpx.Client

    def client_of(*args, **kwargs):
        return made(*args, **{**kwargs, "transport": httpx.MockTransport(fake)})

    monkeypatch.setattr(httpx, "Client", client_of)
    for name in ("CONTROLLER", "MONITOR", "CHECKPOINT_REGISTRY", "HOST_INVENTORY"):
        monkeypatch.setenv(f"EVERSTEP_{name}_URL", "http://nowhere")
    return fake


def run(*arguments: str):
    """Run the command line; what it raises is raised."""
    result = CliRunner().invoke(app, list(arguments))
    if isinstance(result.exception, EverstepError):
        raise result.exception
    return result


def test_plan_is_told_in_plain_words():
    """Ranks that load alike are one line; object keys are left to --json."""
    assert told(PLAN) == [
        (
            "job j would go on from step 30: of 4 ranks, 2 from own memory, 1 from a peer's "
            "memory, 1 from the object store"
        ),
        "  rank 0-1: own h0, then peer h1",
        "  rank 2: peer h2",
        "  rank 3: object store",
        "not taken:",
        "  step 31: rank 3 has no source",
    ]


def test_plan_of_nothing_is_a_fresh_start():
    """Before the first checkpoint."""
    assert told({**PLAN, "step": -1, "passed_over": []}) == [
        "job j would begin anew: nothing of it can be restored"
    ]


def test_plan_that_is_refused_says_why_and_fails(services):
    """So that a script can ask before it restarts."""
    refused = {**PLAN, "restorable": False, "refused": "no step can be loaded", "step": -1}
    services.on("GET", "/v1/jobs/j/restore-plan", refused)
    result = run("checkpoints", "plan", "j")
    assert (result.exit_code, result.stdout) == (
        1,
        "nothing can be restored now: no step can be loaded\n",
    )


@pytest.mark.parametrize("group", ["checkpoints", "checkpoint"])
@pytest.mark.parametrize("command", ["show", "inspect"])
def test_checkpoint_is_shown_under_each_name(services, group, command):
    """Step, layout, sizes, data, trust, pin."""
    services.on("GET", "/v1/checkpoints/j/30", CHECKPOINT)
    shown = run(group, command, "j", "30").stdout
    for line in (
        "step       30, made by generation 1",
        "state      suspect",
        "trust      suspect (loss_spike from step 28)",
        "pinned     by ann: paper",
        "layout     pp 2 x tp 2",
        "size       4.0 KiB of 4 ranks",
    ):
        assert line in shown


def test_checkpoint_that_was_looked_at_again_says_what_was_found(services):
    """And when nobody has looked since it was completed."""
    services.on("GET", "/v1/checkpoints/j/30", CHECKPOINT)
    assert (
        "objects    read back when it was completed" in run("checkpoints", "show", "j", "30").stdout
    )
    looked = {**CHECKPOINT, "checked_at_ms": 1_000, "checked_by": "ann"}
    for found, said in (
        (looked, "objects    all sound, ann found, "),
        (
            {**looked, "damage": "ann found the object of rank 1 bad"},
            "objects    ann found the obj",
        ),
    ):
        services.on("GET", "/v1/checkpoints/j/30", found)
        assert said in run("checkpoints", "show", "j", "30").stdout


def test_purged_checkpoint_says_what_became_of_it(services):
    """Shown, and verified."""
    gone = {**CHECKPOINT, "state": "purged", "deleted_why": "retention"}
    services.on("GET", "/v1/checkpoints/j/30", gone)
    shown = run("checkpoints", "show", "j", "30").stdout
    assert "state      purged (retention): no object of it is left" in shown
    with pytest.raises(NotFoundError, match=r"was deleted \(retention\)"):
        run("checkpoints", "verify", "j", "30")


@pytest.mark.parametrize(
    ("arguments", "method", "path", "sent"),
    [
        (
            ("pin", "j", "30", "--note", "paper"), "PUT", "/v1/checkpoints/j/30/pin",
            {"note": "paper"},
        ),
        (("unpin", "j", "30"), "DELETE", "/v1/checkpoints/j/30/pin", {}),
        (
            ("trust", "j", "30", "clean", "--why", "seen"), "POST", "/v1/checkpoints/j/30/trust",
            {"trust": "clean", "why": "seen"},
        ),
        (
            ("suspect", "j", "--from-step", "5"), "POST", "/v1/jobs/j/suspicions",
            {"from_step": 5, "to_step": -1},
        ),
        (
            ("resolve", "j", "s1", "--false-alarm"), "POST", "/v1/jobs/j/suspicions/s1/end",
            {"false_alarm": True},
        ),
    ],
)  # fmt: skip
def test_word_of_a_person_is_sent_with_who_says_it(services, arguments, method, path, sent):
    """The registry keeps it for those who ask later."""
    services.on(method, path, {"suspicions": []})
    services.on("GET", "/v1/jobs/j/restore-plan", {"restorable": True})
    assert run("checkpoints", *arguments).exit_code == 0
    _, asked, body = services.asked[0]
    assert asked == path
    assert sent.items() <= (body or {}).items()
    assert method == "DELETE" or body["by"]


def test_plan_that_restores_nothing_is_an_error_for_programs_too(services):
    """The same exit code with and without JSON, and the JSON is there."""
    refused = {"restorable": False, "refused": "all suspect"}
    services.on("GET", "/v1/jobs/j/restore-plan", refused)
    told = run("checkpoints", "plan", "j", "--json")
    assert (told.exit_code, json.loads(told.output)) == (1, refused)
    assert run("checkpoints", "plan", "j").exit_code == 1


def test_suspicion_that_leaves_nothing_to_restore_says_so(services):
    """The next failure would make the job wait for a person."""
    services.on("POST", "/v1/jobs/j/suspicions", {"suspicions": []})
    services.on("GET", "/v1/jobs/j/restore-plan", {"restorable": False, "refused": "all suspect"})
    told = run("checkpoints", "suspect", "j", "--from-step", "0")
    assert told.exit_code == 0
    assert "nothing that may be restored is left now" in told.output


def test_pin_of_what_was_deleted_is_refused_in_the_registrys_words(services):
    """Naming the checkpoint and why it is gone."""
    words = "job j step 30 generation 1 was deleted (retention): nothing of it is left"
    error = {"error": {"code": "deleted", "message": words}}
    services.on("PUT", "/v1/checkpoints/j/30/pin", error, 409)
    with pytest.raises(RefusedError, match="was deleted"):
        run("checkpoints", "pin", "j", "30")


def test_unknown_job_is_named_and_a_job_without_checkpoints_has_none_yet(services):
    """An empty list does not say which of the two it is."""
    services.on("GET", "/v1/checkpoints", {"checkpoints": []})
    services.on("GET", "/v1/jobs/new", {"job_id": "new"})
    assert run("checkpoints", "--job", "new").stdout == "no checkpoints yet\n"
    with pytest.raises(NotFoundError, match="/v1/jobs/nosuch"):
        run("checkpoints", "--job", "nosuch")


def test_job_that_the_registry_has_not_heard_of_yet_has_no_checkpoints(services):
    """In the moment after its launch; the controller knows it."""
    error = {"error": {"code": "not_found", "message": "no job 'new'"}}
    services.on("GET", "/v1/checkpoints", error, 404)
    services.on("GET", "/v1/jobs/new", {"job_id": "new"})
    assert run("checkpoints", "--job", "new").stdout == "no checkpoints yet\n"
    with pytest.raises(NotFoundError, match="/v1/jobs/nosuch"):
        run("checkpoints", "--job", "nosuch")


def test_step_beyond_64_bits_is_wrong_usage(services):
    """No checkpoint can have it."""
    result = run("checkpoints", "show", "j", str(2**63))
    assert (result.exit_code, services.asked) == (2, [])
