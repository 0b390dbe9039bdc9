"""deploy/agent.sh: what a host's container does when its agent ends."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

import pytest
from tests.waiting import until

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

    def __init__(self, root: Path, body: str) -> None:
        program = root / "python"
        program.write_text(AGENT.format(body=body))
        program.chmod(0o755)
        self.starts = root / "starts"
        self.starts.touch()
        self.environment = {
            "PATH": f"{root}:{os.environ['PATH']}",
            "STARTS": str(self.starts),
            "EVERSTEP_RUN_DIR": str(root),
        }
        # Agents that have lived for long are told by the clock: here every one has.
        (root / "date").write_text('#!/bin/sh\necho $(($(wc -l <"$STARTS") * 1000))\n')
        (root / "date").chmod(0o755)

    def pids(self) -> list[int]:
        """Of every agent that was started."""
        return [int(line) for line in self.starts.read_text().split()]

    async def run(self, *arguments: str) -> asyncio.subprocess.Process:
        """Start the script."""
        return await asyncio.create_subprocess_exec(SCRIPT, *arguments, env=self.environment)


def is_running(pid: int) -> bool:
    """Whether a process is there."""
    return Path(f"/proc/{pid}").exists()


async def started(host: Host, count: int) -> list[int]:
    """Wait until that many agents have been started."""
    return list(await until(lambda: len(host.pids()) >= count and host.pids()))


async def test_agent_that_was_killed_is_started_again(tmp_path: Path) -> None:
    """Its ranks, beside it, are taken up by the next one."""
    host = Host(tmp_path, WAITS)
    script = await host.run()
    (first,) = await started(host, 1)
    os.kill(first, signal.SIGKILL)
    second = (await started(host, 2))[1]
    assert second != first
    script.terminate()
    assert await script.wait() == 0


async def test_script_told_to_end_tells_the_agent_and_waits_for_it(tmp_path: Path) -> None:
    """An idle host leaves the cluster in good order."""
    host = Host(tmp_path, WAITS)
    script = await host.run()
    (agent,) = await started(host, 1)
    script.terminate()
    assert await script.wait() == 0
    assert not is_running(agent)
    assert host.pids() == [agent]


async def test_agent_that_ends_in_good_order_ends_the_script(tmp_path: Path) -> None:
    """Nothing is left to run."""
    host = Host(tmp_path, "exit 0")
    assert await (await host.run()).wait() == 0
    assert len(host.pids()) == 1


async def test_agent_that_dies_at_once_ends_the_script_with_its_code(tmp_path: Path) -> None:
    """A wrong setting is left to the container's restart policy, which waits longer each time."""
    host = Host(tmp_path, "exit 7")
    (tmp_path / "date").unlink()  # the real clock: it has lived for no time
    assert await (await host.run()).wait() == 7
    assert len(host.pids()) == 1


@pytest.mark.parametrize(("alive", "code"), [(True, 0), (False, 1)])
async def test_health_is_that_of_the_agent(tmp_path: Path, alive: bool, code: int) -> None:
    """A container whose agent is gone is not healthy."""
    host = Host(tmp_path, WAITS)
    script = await host.run()
    (agent,) = await started(host, 1)
    if not alive:
        (tmp_path / "agent.pid").write_text("4194305\n")  # above the largest pid of Linux
    assert await (await host.run("--healthy")).wait() == code
    os.kill(agent, signal.SIGTERM)
    assert await script.wait() == 0
