"""Starts the pipeline's processes by forking one that has imported everything already.

A test that kills fifty processes would otherwise spend its time on imports. What is forked is a
process of its own: it can be killed as any other, and only it.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from contextlib import contextmanager
from pathlib import Path

from tests.integration.agent.harness import ROOT
from tests.waiting import until


class Zygote:
    """The test's end of it."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    async def start(self, program: str, environment: Mapping[str, str], log: Path) -> int:
        """Fork ``program`` (a name in ``PROGRAMS``); returns its process id."""
        return await asyncio.to_thread(self._start, program, environment, log)

    def _start(self, program: str, environment: Mapping[str, str], log: Path) -> int:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        asked = {"program": program, "environment": dict(environment), "log": str(log)}
        self._process.stdin.write(json.dumps(asked) + "\n")
        self._process.stdin.flush()
        return int(self._process.stdout.readline())


@contextmanager
def open_zygote():
    """Run it until the block ends; what it started has to be killed before."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.integration.checkpoints.zygote"],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        yield Zygote(process)
    finally:
        process.kill()
        process.communicate()


async def kill(pid: int) -> None:
    """SIGKILL, and wait until all its threads are gone, and with them its locks."""
    if pid and is_there(pid):
        os.kill(pid, signal.SIGKILL)
        await until(lambda: not is_there(pid), what=f"{pid} is gone")


def is_there(pid: int) -> bool:
    """Say whether anything is left of a process; the zygote leaves no zombies."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def serve() -> None:
    """Fork what is asked for, until nobody asks any more."""
    from tests.integration.checkpoints import programs

    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for them: no zombies
    for line in sys.stdin:
        asked = json.loads(line)
        pid = os.fork()
        if pid:
            sys.stdout.write(f"{pid}\n")
            sys.stdout.flush()
            continue
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        os.environ.update(asked["environment"])
        log = os.open(asked["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        for descriptor in (1, 2):
            os.dup2(log, descriptor)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        logging.basicConfig(level="INFO")
        asyncio.run(programs.PROGRAMS[asked["program"]]())
        os._exit(0)


if __name__ == "__main__":
    serve()
