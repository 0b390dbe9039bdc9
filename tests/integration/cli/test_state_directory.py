"""Whose a state directory is: a copy of one, one of nobody's, and one that is being made."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.command import everstep
from tests.integration.cli.test_supervisor import FAKE, bring_up, living, wait_for

from everstep.core.errors import InvalidInput, NotFoundError, RefusedError, Unavailable
from everstep.local import launch, processes
from everstep.local.state import StatePaths
from everstep.local.state_lock import holder, only_us

INTERRUPTED = """
import signal, sys
from pathlib import Path
from everstep.local import launch
from everstep.local.state import StatePaths

signal.signal(signal.SIGINT, signal.default_int_handler)  # tests in the background ignore it

def tell(status):
    print(status)
    if repr(sys.argv[1]) in str(status):
        signal.raise_signal(signal.SIGINT)

launch.up(
    StatePaths(root=Path(sys.argv[2])), launch.Plan(hosts=1, spares=0), tell,
    supervisor=sys.argv[3:],
)
"""


@pytest.fixture
def paths(tmp_path):
    """A state directory that is cleaned up whatever happens."""
    paths = StatePaths(root=tmp_path / "state")
    yield paths
    launch.down(paths, wipe=True)


@pytest.fixture
def copy(tmp_path):
    """Where a copy may lie; it is cleaned up too."""
    copy = StatePaths(root=tmp_path / "copy")
    yield copy
    launch.down(copy, wipe=True)


def copied(paths, copy):
    """Copy a state directory as ``cp -r`` does; sockets of the original lead nowhere."""
    sockets = shutil.ignore_patterns("*.sock")
    shutil.copytree(paths.root, copy.root, ignore=sockets)


def test_down_in_a_copy_leaves_the_original_alone(paths, copy):
    """The copied table names its processes, its memory and its pid files."""
    stack = bring_up(paths).stack
    before = living(paths)
    copied(paths, copy)
    assert launch.running_stack(copy) is None
    with pytest.raises(NotFoundError, match=f"is a copy of {paths.root}: "):
        launch.require_stack(copy)
    for wipe in (False, True):
        assert not launch.down(copy, wipe=wipe)
    assert not copy.root.exists()
    assert living(paths) == before
    assert Path(stack.memory_root).exists()
    assert launch.require_stack(paths).supervisor == stack.supervisor


def test_up_in_a_copy_of_a_stack_that_is_up_is_refused(paths, copy):
    """Its databases were copied while they were written."""
    bring_up(paths)
    before = living(paths)
    copied(paths, copy)
    with pytest.raises(RefusedError, match=f"is a copy of {paths.root}, whose stack was up"):
        bring_up(copy)
    assert living(paths) == before


def test_up_in_a_copy_starts_a_stack_beside_the_original(paths, copy):
    """It has the same secrets, which its databases know, and an identity of its own."""
    bring_up(paths)
    launch.down(paths, wipe=False)
    copied(paths, copy)
    first, second = bring_up(paths).stack, bring_up(copy).stack
    assert second.credentials == first.credentials
    assert second.stack_id != first.stack_id
    assert second.memory_root != first.memory_root
    before = living(paths)
    assert launch.down(copy, wipe=False)
    assert living(paths) == before
    assert bring_up(copy).stack.stack_id == second.stack_id


def test_directory_that_was_moved_is_still_the_stacks(paths, copy):
    """Down finds what runs, wherever the directory is by now."""
    stack = bring_up(paths).stack
    os.kill(stack.supervisor.pid, signal.SIGKILL)
    wait_for(lambda: not processes.is_alive(stack.supervisor))
    paths.root.rename(copy.root)
    assert launch.down(copy, wipe=False)
    assert processes.marked(stack.stack_id) == []


def test_wipe_where_no_stack_has_run_deletes_nothing(tmp_path):
    """Anybody may have logs."""
    for name in ("logs", "postgres"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "mine").touch()
    before = sorted(tmp_path.rglob("*"))
    paths = StatePaths(root=tmp_path)
    assert not launch.has_data(paths)
    assert not launch.down(paths, wipe=True)
    assert sorted(tmp_path.rglob("*")) == before
    with pytest.raises(InvalidInput, match="holds logs, postgres of no stack"):
        bring_up(paths)
    assert sorted(tmp_path.rglob("*")) == before


def test_wipe_that_was_cut_short_can_be_done_again(paths, monkeypatch):
    """The file that says whose all this is goes last; what else holds passwords goes before."""
    bring_up(paths)
    launch.down(paths, wipe=False)
    (paths.root / "stack-abcd1234.json").touch()
    (paths.root / "stack-of-books.json").touch()
    remove = shutil.rmtree

    def interrupted(path, *arguments, **named):
        if path == paths.data("postgres"):
            raise KeyboardInterrupt
        remove(path, *arguments, **named)

    with monkeypatch.context() as patched:
        patched.setattr(shutil, "rmtree", interrupted)
        paths.data("postgres").mkdir()
        with pytest.raises(KeyboardInterrupt):
            launch.down(paths, wipe=True)
    assert launch.has_data(paths)
    launch.down(paths, wipe=True)
    assert [path.name for path in paths.root.iterdir()] == ["stack-of-books.json"]


def test_up_that_is_interrupted_takes_down_what_it_had_started(paths):
    """Whenever: also while the supervisor has not yet said that it is one."""
    for wanted in ("supervisor", "servers"):
        arguments = [sys.executable, "-c", INTERRUPTED, wanted, str(paths.root), *FAKE]
        up = subprocess.run(arguments, capture_output=True, text=True, timeout=120, check=False)
        assert f"'doing': '{wanted}'" in up.stdout
        assert "stopping" in up.stdout
        assert "KeyboardInterrupt" in up.stderr
        assert living(paths) == []
        assert supervisors_of(paths) == []


def supervisors_of(paths):
    """Return the pids of all processes that supervise the directory."""
    wanted = b"\0".join((b"--state", bytes(paths.root)))
    found = []
    for line in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if line.read_bytes().rstrip(b"\0").endswith(wanted):
                found.append(line.parent.name)
        except OSError:
            continue
    return found


def test_stack_that_is_being_started_is_told_as_such(paths):
    """In its first second nobody supervises it yet, and `up` is not what is missing."""
    paths.create()
    with only_us(paths, "up"):
        with pytest.raises(Unavailable, match="is being started: ask again in a few seconds"):
            launch.require_stack(paths)
        with pytest.raises(Unavailable, match="another `everstep up` is at work"):
            launch.down(paths, wipe=True)
    assert holder(paths) == ""
    with pytest.raises(NotFoundError, match="no stack runs in"):
        launch.require_stack(paths)


def test_lock_of_a_start_that_was_killed_holds_nobody_back(paths):
    """What the file still says is of a process that is gone."""
    paths.create()
    script = (
        "import os, sys; from pathlib import Path; from everstep.local.state import StatePaths; "
        "from everstep.local.state_lock import only_us; "
        "held = only_us(StatePaths(root=Path(sys.argv[1])), 'up'); held.__enter__(); os.abort()"
    )
    subprocess.run([sys.executable, "-c", script, str(paths.root)], check=False)
    assert paths.lock.read_bytes()
    assert holder(paths) == ""
    assert not bring_up(paths).was_up


def test_commands_say_whose_the_directory_is(paths, copy):
    """A wipe of nobody's, a stop in a copy and a status too early each get a sentence of theirs."""
    paths.root.mkdir()
    done = everstep("--state", str(paths.root), "down", "--wipe")
    told = f"no stack has run in {paths.root}: nothing there is deleted\n"
    assert (done.returncode, done.stdout) == (0, told)
    bring_up(paths)
    copied(paths, copy)
    done = everstep("--state", str(copy.root), "down")
    of = f"which is a copy of {paths.root}"
    told = f"no stack runs in {copy.root}, {of}: there is nothing to take down\n"
    assert (done.returncode, done.stdout) == (0, told)
    launch.down(paths, wipe=False)
    with only_us(paths, "up"):
        done = everstep("--state", str(paths.root), "status")
    told = f"error: the stack in {paths.root} is being started: ask again in a few seconds\n"
    assert (done.returncode, done.stderr) == (1, told)
