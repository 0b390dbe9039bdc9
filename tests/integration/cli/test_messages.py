"""What a newcomer is told when something is not as they thought."""

import json
import subprocess
import sys

import pytest
import typer.main
from tests.command import everstep
from tests.integration.cli.conftest import FakeServices, serving, stack_of
from tests.integration.cli.test_commands import JOB, SPEC
from tests.integration.cli.test_supervisor import bring_up

from everstep.cli.app import app
from everstep.local import launch
from everstep.local.state import ProcessRecord, StatePaths, save_stack

DEAD = ProcessRecord(name="supervisor", pid=1, start_ticks=0, boot_id="of an earlier boot")
ENTRY = "everstep.models.pretrain:main"
SCRIPT_SPEC = "{name: s, entry: train.py, layout: {}, steps: 3}"


def commands(group, path=()):
    """Yield every command with its words, groups included."""
    yield path, group
    for name, command in getattr(group, "commands", {}).items():
        yield from commands(command, (*path, name))


@pytest.mark.parametrize(
    ("path", "command"),
    [pytest.param(path, command, id=" ".join(path)) for path, command in commands(
        typer.main.get_command(app)
    )],
)  # fmt: skip
def test_every_command_and_every_option_has_a_help_text(path, command):
    """Its first sentence fits the list of commands, and what takes arguments has an example."""
    first = command.help.partition(".")[0]
    assert first
    assert not path or len(first) <= 57
    assert [p.name for p in command.params if not getattr(p, "help", "")] == []
    grouped = bool(getattr(command, "commands", None))
    assert grouped or path == ("version",) or "Example" in command.help


def test_version_is_told_as_an_option_too():
    """The first thing that many people type; here the command starts cold, as they start it."""
    cold = [sys.executable, "-m", "everstep.cli", "--version"]
    done = subprocess.run(cold, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (0, everstep("version").stdout)
    assert done.stdout.startswith("everstep 0.")


def test_closed_standard_output_is_no_failure():
    """A script that wants the exit code alone may close it."""
    command = f"{sys.executable} -m everstep.cli version --json >&-"
    done = subprocess.run(
        ["sh", "-c", command], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_interrupt_while_modules_are_imported_is_no_traceback():
    """Half a second of imports is time enough for a change of mind."""
    code = (
        "import sys\n"
        "class Interrupting:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name == 'everstep.cli.app': raise KeyboardInterrupt\n"
        "sys.meta_path.insert(0, Interrupting())\n"
        "from everstep.cli.__main__ import main\n"
        "main()\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stderr) == (130, "")


def test_state_that_is_a_file_is_told_with_what_to_do(tmp_path):
    """Whether the file is named or lies above what is named."""
    file = tmp_path / "stack"
    file.touch()
    for named in (file, file / "below"):
        done = everstep("--state", str(named), "status")
        assert (done.returncode, done.stderr) == (
            1,
            (
                f"error: {file} is a file, but a stack keeps its state in a directory: name one "
                "with --state or EVERSTEP_STATE\n"
            ),
        )


def test_home_directory_of_nobody_is_told(tmp_path):
    """As a stack's directory and as a job's."""
    (tmp_path / "job.yaml").write_text(SPEC + "cwd: ~nobody-of-that-name/x")
    for arguments in (["--state", "~nobody-of-that-name/x", "status"], ["run", "job.yaml"]):
        done = everstep(*arguments, cwd=tmp_path)
        told = "error: ~nobody-of-that-name/x: this machine knows no such home directory\n"
        assert (done.returncode, done.stderr) == (1, told)


def test_stack_whose_supervisor_is_dead_says_so_and_what_to_do(tmp_path):
    """Its services may still answer; what has died must not look as if it had never been."""
    paths = StatePaths(root=tmp_path / "state")
    paths.create()
    save_stack(paths, stack_of(DEAD))
    done = everstep("--state", str(paths.root), "status")
    assert done.returncode == 1
    assert done.stderr.startswith(f"error: the supervisor of the stack in {paths.root} is dead")
    assert "`everstep up` starts the stack again" in done.stderr


def test_supervisor_that_does_not_answer_is_told_with_what_to_do(local):
    """Its process lives, but nobody listens."""
    done = everstep("status")
    assert done.returncode == 1
    assert "does not answer (No such file or directory): if it stays so, `everstep d" in done.stderr


def test_logs_where_no_stack_has_run_says_so(tmp_path):
    """An empty list may as well be a mistyped directory."""
    done = everstep("--state", str(tmp_path), "logs")
    told = f"no logs in {tmp_path}: no stack has run there\n"
    assert (done.returncode, done.stdout, done.stderr) == (0, "", told)


@pytest.mark.parametrize("wipe", [[], ["--wipe"]])
def test_down_where_nothing_is_claims_to_have_done_nothing(tmp_path, wipe):
    """Above all not that data is deleted."""
    done = everstep("--state", str(tmp_path / "none"), "down", *wipe)
    assert (done.returncode, done.stdout) == (
        0,
        f"no stack runs in {tmp_path / 'none'}: there is nothing to take down\n",
    )


@pytest.mark.parametrize(
    ("wipe", "told"),
    [
        ([], "job tiny-1 is interrupted, and will go on after `everstep up`\n"),
        (["--wipe"], "job tiny-1 is lost with all data\n"),
    ],
)
def test_down_names_the_jobs_that_are_cut_short(tmp_path, wipe, told):
    """Those that have ended are not its business."""
    paths = StatePaths(root=tmp_path / "state")
    fake = FakeServices()
    fake.on("GET", "/v1/jobs", {"jobs": [{**JOB, "phase": "running"}, {**JOB, "job_id": "old"}]})
    try:
        stack = bring_up(paths).stack
        with serving(fake, port=stack.service_ports["controller"]):
            done = everstep("--state", str(paths.root), "down", *wipe)
    finally:
        launch.down(paths, wipe=True)
    assert (done.returncode, done.stderr) == (0, told)


@pytest.mark.parametrize(
    ("kept", "told"),
    [
        ([(40, True), (20, True), (60, False)], ", from step 40, its newest checkpoint"),
        ([], ", from its beginning"),
        ([(20, False)], ""),
    ],
)
def test_down_says_from_where_a_job_will_go_on(tmp_path, kept, told):
    """What is in hosts' memory only goes with them; a suspect checkpoint is not gone on from."""
    paths = StatePaths(root=tmp_path / "state")
    controller, registry = FakeServices(), FakeServices()
    controller.on("GET", "/v1/jobs", {"jobs": [{**JOB, "phase": "running"}]})
    checkpoints = [{"step": s, "complete": True, "restorable": usable} for s, usable in kept]
    registry.on("GET", "/v1/checkpoints", {"checkpoints": checkpoints})
    try:
        ports = bring_up(paths).stack.service_ports
        with (
            serving(controller, port=ports["controller"]),
            serving(registry, port=ports["checkpoint_registry"]),
        ):
            done = everstep("--state", str(paths.root), "down")
    finally:
        launch.down(paths, wipe=True)
    assert done.stderr.endswith(f"will go on after `everstep up`{told}\n")


@pytest.mark.parametrize(
    ("phase", "told"),
    [
        ("launching", "job tiny-1 is launched\n"),
        ("running", "job tiny-1 was launched before and is running\n"),
        ("succeeded", "job tiny-1 has succeeded already: nothing is launched"),
    ],
)
def test_run_of_a_job_that_exists_does_not_claim_to_launch_it(services, tmp_path, phase, told):
    """The same spec under the same id is harmless, and that is what is told."""
    services.on("POST", "/v1/jobs", {"job_id": "tiny-1", "phase": phase, "generation": 1}, 201)
    services.on("GET", "/v1/jobs/tiny-1", JOB)
    services.on("GET", "/v1/jobs/tiny-1/metrics", {"points": []})
    services.on("GET", "/v1/incidents", {"incidents": []})
    services.on("GET", "/v1/jobs/tiny-1/goodput", {"wall_ms": 0, "causes": {}})
    (tmp_path / "job.yaml").write_text(SPEC)
    detached = everstep("run", str(tmp_path / "job.yaml"), "--job-id", "tiny-1", "--detach")
    assert detached.stdout.startswith(told.strip())
    assert ("everstep attach" in detached.stdout) == (phase != "succeeded")


@pytest.mark.parametrize(
    ("phase", "told"),
    [
        ("stopping", "job tiny-1 stops; follow it with `everstep attach tiny-1`\n"),
        ("succeeded", "job tiny-1 has succeeded: there is nothing to stop\n"),
    ],
)
def test_stop_of_a_job_that_has_ended_does_not_claim_to_stop_it(services, phase, told):
    """Harmless too, but nothing happens any more."""
    services.on("POST", "/v1/jobs/tiny-1/stop", {"job_id": "tiny-1", "phase": phase}, 202)
    done = everstep("jobs", "stop", "tiny-1")
    assert (done.returncode, done.stdout) == (0, told)


@pytest.mark.parametrize("command", [["jobs", "show"], ["hosts", "uncordon"]])
@pytest.mark.parametrize("name", ["", "..", "tiny-1?x", "a/b", "a\nb"])
def test_name_that_would_be_another_address_is_refused(services, command, name):
    """Who mistypes a name asks for nothing else instead."""
    done = everstep(*command, name)
    assert done.returncode == 2
    assert f"expected letters, digits, - and _, got {name!r}" in done.stderr
    assert services.asked == []


def test_events_of_a_service_that_does_not_exist_are_an_error():
    """Silence would look like peace."""
    done = everstep("events", "--service", "nope")
    assert (done.returncode, done.stderr) == (
        1,
        (
            "error: there is no service 'nope': expected one of controller, monitor, "
            "checkpoint-registry, host-inventory\n"
        ),
    )


@pytest.mark.parametrize("listing", ["incidents", "checkpoints"])
def test_listing_of_a_job_that_does_not_exist_is_an_error(services, listing):
    """An empty one would look like peace."""
    services.on("GET", f"/v1/{listing}", {listing: []})
    services.refuse("GET", "/v1/jobs/tyni-1", 404, "there is no job 'tyni-1'")
    done = everstep(listing, "--job", "tyni-1", "--json")
    assert (done.returncode, done.stderr) == (1, "error: there is no job 'tyni-1'\n")
    services.on("GET", "/v1/jobs/tyni-1", JOB)
    assert everstep(listing, "--job", "tyni-1", "--json").stdout == "[]\n"


def test_checkpoint_that_no_restart_takes_is_not_listed_as_complete(services):
    """The one of an abandoned history is there, but must not be chosen."""
    one = {
        "job_id": "j", "step": 40, "generation": 1, "state": "complete", "bytes": 1,
        "manifest_uri": "jobs/j/manifest.json", "restorable": True, "unusable_why": "",
    }  # fmt: skip
    left = {**one, "step": 60, "restorable": False, "unusable_why": "abandoned"}
    services.on("GET", "/v1/checkpoints", {"checkpoints": [left, one]})
    _, first, second = everstep("checkpoints").stdout.splitlines()
    assert "abandoned" in first
    assert "complete" not in first
    assert "complete" in second
    assert json.loads(everstep("checkpoints", "--json").stdout) == [left, one]


@pytest.mark.parametrize(
    ("spec", "files", "told"),
    [
        (SPEC + "cwd: nowhere", [], "cwd: expected a directory, found nothing at {here}/nowhere"),
        (SPEC + "cwd: job.yaml", [], "cwd: expected a directory, found a file at {here}/job.yaml"),
        (SCRIPT_SPEC, [], "entry: expected a script, found none at {here}/train.py"),
        (SCRIPT_SPEC, ["train.py"], "entry: {here}/train.py, line 1: invalid syntax"),
        (
            SCRIPT_SPEC.replace("train.py", '"nosuch:main"'), [],
            f"entry: there is no module nosuch in {{here}}, nor in the Python of {sys.prefix}",
        ),
        (
            SCRIPT_SPEC.replace("}, st", "}, env: {PYTHONPATH: lib}, st").replace(
                "train.py", '"own:train"'
            ),
            ["lib/own.py"], "entry: {here}/lib/own.py, line 1: invalid syntax",
        ),
        (
            SPEC, [],
            ("data.path: expected token shards, found nothing at {here}/corpus: "
            "`everstep data prepare SRC... --out {here}/corpus` makes them of text"),
        ),
        (
            SPEC, ["corpus/notes.txt"],
            ("data.path: {here}/corpus has no index.json: make the corpus with "
            "`everstep data prepare`, or name a single .bin file"),
        ),
        (
            SPEC.replace("path: corpus, ", ""), [],
            "data.path: expected token shards, got nothing",
        ),
        (
            SPEC.replace("path: corpus, sequence_tokens: 8", "path: t.bin"), ["t.bin"],
            "data.sequence_tokens: token shards need at least 1, got nothing",
        ),
        (
            SPEC.replace("path: corpus", "path: t.bin"), ["t.bin"],
            ("data.path: the corpus has 5 tokens, but one sample needs 9 (sequence_tokens 8 and "
            "the next token) (at {here}/t.bin)"),
        ),
    ],
)  # fmt: skip
def test_path_that_is_wrong_on_this_machine_is_told_before_the_launch(
    local, tmp_path, spec, files, told
):
    """Not by the ranks, after two launches."""
    for name in files:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("ten bytes.")
    (tmp_path / "job.yaml").write_text(spec)
    done = everstep("run", "job.yaml", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (1, f"error: {told.format(here=tmp_path)}\n")
    assert local.asked == []


@pytest.mark.parametrize(
    "spec",
    [
        SPEC.replace("path: corpus", "path: s3://bucket/corpus").replace(ENTRY, "my.own:main"),
        SPEC.replace("path: corpus", "path: pictures").replace(ENTRY, "my.own:main"),
        SPEC.replace("path: corpus", "path: whole"),
        SPEC.replace("path: corpus, sequence_tokens: 8, ", "").replace(ENTRY, "my.own:main"),
    ],
    ids=["an address", "a form of the user's own", "token shards", "in the user's code"],
)
def test_path_that_may_be_right_is_let_through(local, tmp_path, spec):
    """A data set of the user's own need not be token shards."""
    (tmp_path / "pictures").mkdir()
    (tmp_path / "my").mkdir()
    (tmp_path / "my" / "own.py").write_text("def main(run): ...")
    (tmp_path / "text").write_text("enough text for a sample")
    assert everstep("data", "prepare", "text", "--out", "whole", cwd=tmp_path).returncode == 0
    local.on("POST", "/v1/jobs", {"job_id": "tiny-1"}, 201)
    (tmp_path / "job.yaml").write_text(spec)
    done = everstep("run", "job.yaml", "--detach", cwd=tmp_path)
    assert done.returncode == 0, done.stderr


def test_paths_of_a_job_for_a_cluster_are_the_clusters(services, tmp_path):
    """What is not here may well be there."""
    services.on("POST", "/v1/jobs", {"job_id": "tiny-1"}, 201)
    (tmp_path / "job.yaml").write_text(SPEC + "cwd: /srv/on/the/cluster")
    done = everstep("run", "job.yaml", "--detach", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
