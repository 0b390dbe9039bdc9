"""deploy/agent.sh: what a host's container does when its agent ends."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.waiting import LIMIT_S, until

SCRIPT = Path(__file__).parents[3] / "deploy" / "agent.sh"
AGENT = """#!/bin/sh
trap 'exit 0' TERM
echo $$ >"$EVERSTEP_RUN_DIR/agent.pid"
echo $$ >>"$STARTS"
{body}
"""
WAITS = "while :; do sleep 0.05; done"


class Host:
    """A container's worth of processes, with a stand-in for the agent."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.starts = root / "starts"
        self.starts.touch()
        self.environment = {
            "PATH": f"{root}:{os.environ['PATH']}",
            "STARTS": str(self.starts),
            "EVERSTEP_RUN_DIR": str(root),
        }
        self.sessions: list[int] = []

    def pids(self) -> list[int]:
        """Of every agent that was started."""
        return [int(line) for line in self.starts.read_text().split()]

    async def run(self, body: str) -> asyncio.subprocess.Process:
        """Start the script with an agent that does this."""
        self.install("python", AGENT.format(body=body))
        script = await asyncio.create_subprocess_exec(
            SCRIPT, env=self.environment, start_new_session=True
        )
        self.sessions.append(script.pid)
        return script

    async def health(self) -> int:
        """Return the exit code of the health check."""
        asked = await asyncio.create_subprocess_exec(SCRIPT, "--healthy", env=self.environment)
        return await ended(asked)

    async def started(self, count: int) -> list[int]:
        """Wait until that many agents have been started."""
        return list(await until(lambda: len(self.pids()) >= count and self.pids()))

    def let_agents_seem_old(self) -> None:
        """Let the script's clock say of every agent that it has lived for long."""
        self.install("date", '#!/bin/sh\necho $(($(wc -l <"$STARTS") * 1000))\n')

    def install(self, name: str, text: str) -> None:
        """Put a program before all others of its name."""
        program = self.root / name
        program.write_text(text)
        program.chmod(0o755)


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Host]:
    """Leaves no process behind."""
    made = Host(tmp_path)
    yield made
    for session in made.sessions:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(session, signal.SIGKILL)


async def ended(process: asyncio.subprocess.Process) -> int:
    """Return the exit code of a process that ends by itself."""
    return await asyncio.wait_for(process.wait(), LIMIT_S)


def is_running(pid: int) -> bool:
    """Whether a process is there."""
    return Path(f"/proc/{pid}").exists()


async def test_agent_that_was_killed_is_started_again(host: Host) -> None:
    """Its ranks, beside it, are taken up by the next one."""
    host.let_agents_seem_old()
    script = await host.run(WAITS)
    (first,) = await host.started(1)
    os.kill(first, signal.SIGKILL)
    second = (await host.started(2))[1]
    assert second != first
    script.terminate()
    assert await ended(script) == 0


async def test_script_told_to_end_tells_the_agent_and_waits_for_it(host: Host) -> None:
    """An idle host leaves the cluster in good order."""
    host.let_agents_seem_old()
    script = await host.run(WAITS)
    (agent,) = await host.started(1)
    script.terminate()
    assert await ended(script) == 0
    assert not is_running(agent)
    assert host.pids() == [agent]


async def test_agent_that_ends_in_good_order_ends_the_script(host: Host) -> None:
    """Nothing is left to run."""
    host.let_agents_seem_old()
    assert await ended(await host.run("exit 0")) == 0
    assert len(host.pids()) == 1


async def test_agent_that_dies_at_once_ends_the_script_with_its_code(host: Host) -> None:
    """A wrong setting is left to the container's restart policy, which waits longer each time."""
    assert await ended(await host.run("exit 7")) == 7
    assert len(host.pids()) == 1


@pytest.mark.parametrize(("alive", "code"), [(True, 0), (False, 1)])
async def test_health_is_that_of_the_agent(host: Host, alive: bool, code: int) -> None:
    """A container whose agent is gone is not healthy."""
    await host.run(WAITS)
    await host.started(1)
    if not alive:
        (host.root / "agent.pid").write_text("4194305\n")  # above the largest pid of Linux
    assert await host.health() == code
