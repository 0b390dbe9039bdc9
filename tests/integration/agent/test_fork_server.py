"""The fork server alone, as an agent sees it through its socket."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from tests.waiting import until

from everstep.agent import framing
from everstep.agent.processes import is_running

ROOT = Path(__file__).resolve().parents[3]


class Agent:
    """A connection to the fork server."""

    def __init__(self, path: Path) -> None:
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(60)
        self.socket.connect(str(path))

    def say(self, kind: str, **fields: object) -> None:
        """Send a frame."""
        framing.send(self.socket, {"kind": kind, **fields})

    def hear(self, kind: str) -> framing.Frame:
        """Return the next frame of a kind; others are passed over."""
        while True:
            frame = framing.receive(self.socket)
            assert frame is not None, f"closed while waiting for {kind}"
            if frame["kind"] == kind:
                return frame

    def fork(self, tmp_path: Path, rank: int = 0, generation: int = 1, **env: str) -> int:
        """Fork a rank and return its pid."""
        self.say(
            "fork",
            job_id="job-1",
            generation=generation,
            rank=rank,
            env={"RANK": str(rank), **env},
            cwd=str(tmp_path),
            argv=["entry.py", "--flag"],
            log_path=str(tmp_path / "logs" / f"rank-{rank}.log"),
        )
        pid = self.hear("forked")["pid"]
        assert isinstance(pid, int)
        return pid

    def close(self) -> None:
        """Hang up."""
        self.socket.close()


def start_server(tmp_path: Path) -> subprocess.Popen[bytes]:
    """Start a server that runs ``forked_program.run``."""
    return subprocess.Popen(
        [
            sys.executable,
            "-m",
            "everstep.train.fork_server",
            "--socket",
            str(tmp_path / "fork.sock"),
            "--pid-file",
            str(tmp_path / "fork.pid"),
            "--preload",
            "",
            "--run",
            "tests.integration.agent.forked_program:run",
        ],
        cwd=ROOT,
        start_new_session=True,
    )


@pytest.fixture
async def server(tmp_path):
    """A running server."""
    process = start_server(tmp_path)
    await until((tmp_path / "fork.sock").exists)
    yield process
    with contextlib.suppress(ProcessLookupError):
        process.kill()
    process.wait()


@pytest.fixture
async def agent(server, tmp_path):
    """A connected agent that has heard that the server is warm."""
    agent = await until(lambda: connect(tmp_path))
    agent.hear("warm")
    yield agent
    agent.close()


def connect(tmp_path: Path) -> Agent | None:
    """Connect, or return None when nobody listens."""
    try:
        return Agent(tmp_path / "fork.sock")
    except OSError:
        return None


def log_of(tmp_path: Path, rank: int = 0) -> str:
    """What a rank has printed."""
    path = tmp_path / "logs" / f"rank-{rank}.log"
    return path.read_text() if path.exists() else ""


def test_forked_rank_has_its_own_surroundings(agent, tmp_path):
    """Directory, path, arguments, environment, session, output: all are the rank's own."""
    pid = agent.fork(tmp_path, DO="describe", PYTHONPATH="/of/the/job")
    end = agent.hear("exit")
    assert (end["pid"], end["exit_code"], end["signal"]) == (pid, 0, 0)
    log = log_of(tmp_path)
    assert f"cwd={tmp_path}" in log
    assert f"path0={tmp_path}\n" in log
    assert "path1=/of/the/job\n" in log
    assert "argv=['entry.py', '--flag']" in log
    assert "rank=0" in log
    assert f"session={pid}" in log
    assert "exit function ran" in log


@pytest.mark.parametrize(
    ("what", "code"), [("exit 5", 5), ("raise", 1), ("message", 1), ("return 40", 40)]
)
def test_exit_code_is_that_of_a_fresh_interpreter(agent, tmp_path, what, code):
    """Return values, sys.exit and exceptions end the process as they would anywhere."""
    agent.fork(tmp_path, DO=what)
    assert agent.hear("exit")["exit_code"] == code


async def test_exit_is_repeated_until_it_is_acknowledged(agent, tmp_path):
    """A rank that dies while no agent is there is told to the next one."""
    pid = agent.fork(tmp_path, DO="wait")
    agent.close()
    os.kill(pid, signal.SIGKILL)
    await until(lambda: not Path(f"/proc/{pid}").exists())  # reaped: the server knows of it
    second = Agent(tmp_path / "fork.sock")
    end = second.hear("exit")
    assert (end["pid"], end["signal"]) == (pid, signal.SIGKILL)
    assert second.hear("ranks")["ranks"] == []
    second.close()
    third = Agent(tmp_path / "fork.sock")
    assert third.hear("exit")["pid"] == pid
    third.hear("ranks")  # the greeting ends with them
    third.say("ack_exit", pid=pid)
    third.say("list")
    third.hear("ranks")
    third.close()
    fourth = Agent(tmp_path / "fork.sock")
    assert fourth.hear("warm")["pid"] > 0
    frame = framing.receive(fourth.socket)
    assert frame == {"kind": "ranks", "ranks": []}
    fourth.close()


def test_newest_agent_wins(agent, tmp_path):
    """A new connection takes over; the old one is closed; the ranks go on."""
    pid = agent.fork(tmp_path, DO="wait")
    newer = Agent(tmp_path / "fork.sock")
    assert [one["pid"] for one in newer.hear("ranks")["ranks"]] == [pid]
    frame = framing.receive(agent.socket)
    while frame is not None:
        frame = framing.receive(agent.socket)
    newer.say("kill", job_id="job-1", generation_below=2, signal=int(signal.SIGKILL))
    assert newer.hear("exit")["pid"] == pid
    newer.close()


def test_same_rank_is_forked_once(agent, tmp_path):
    """A repeated request is answered with the process that is there."""
    first = agent.fork(tmp_path, DO="wait")
    assert agent.fork(tmp_path, DO="wait") == first


def test_kill_ends_older_generations_only_and_fences(agent, tmp_path):
    """The younger rank lives; the older generation cannot be forked any more."""
    old = agent.fork(tmp_path, rank=0, generation=1, DO="wait")
    young = agent.fork(tmp_path, rank=1, generation=2, DO="wait")
    agent.say("kill", job_id="job-1", generation_below=2, signal=int(signal.SIGKILL))
    assert agent.hear("exit")["pid"] == old
    agent.say("list")
    assert [one["pid"] for one in agent.hear("ranks")["ranks"]] == [young]
    agent.say("fork", job_id="job-1", generation=1, rank=0, env={}, cwd="/", argv=[], log_path="/x")
    assert "fenced off" in agent.hear("fork_failed")["error"]


async def test_ranks_die_with_the_server(agent, server, tmp_path):
    """A killed server takes its ranks along, however it dies."""
    pid = agent.fork(tmp_path, DO="wait")
    await until(lambda: "waiting" in log_of(tmp_path))
    server.kill()
    server.wait()
    await until(lambda: not is_running(pid))


async def test_sigterm_ends_server_and_ranks(agent, server, tmp_path):
    """A polite end is an end of all."""
    pid = agent.fork(tmp_path, DO="wait")
    server.send_signal(signal.SIGTERM)
    assert server.wait(60) == 0
    assert not is_running(pid)


async def test_second_server_of_a_host_gives_way(server, tmp_path):
    """Two agents that start a server at once end up with one."""
    second = start_server(tmp_path)
    assert second.wait(60) == 3
    assert server.poll() is None


def test_log_takes_what_native_code_prints(agent, tmp_path):
    """Output that bypasses Python's streams lands in the rank's log."""
    agent.fork(tmp_path, DO="native")
    agent.hear("exit")
    assert "from the file descriptor" in log_of(tmp_path)


def test_garbled_agent_is_dropped_and_the_next_served(agent, tmp_path):
    """Nonsense on the socket costs the connection and nothing else."""
    pid = agent.fork(tmp_path, DO="wait")
    agent.socket.sendall(b"\xff\xff\xff\xffnonsense")
    while framing.receive(agent.socket) is not None:
        pass
    newer = Agent(tmp_path / "fork.sock")
    assert [one["pid"] for one in newer.hear("ranks")["ranks"]] == [pid]
    newer.close()
