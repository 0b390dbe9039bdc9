"""Runs ``everstep`` as a person would, but for the imports.

What runs is a process of its own, with its own arguments, directory, environment, streams and exit
code. It is forked from one that has imported the command line already: hundreds of commands would
otherwise spend most of a second each on that. That the command also starts cold is a test of its
own (``test_messages.py``), and the real stack's (``test_real_stack.py``).
"""

from __future__ import annotations

import atexit
import json
import os
import signal
import subprocess
import sys
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

ROOT = Path(__file__).resolve().parents[1]


def everstep(*arguments: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Run the command with the environment of the moment, and wait for its end."""
    with TemporaryDirectory(prefix="everstep-command-") as directory:
        streams = [Path(directory) / name for name in ("out", "err")]
        code = _warm().run(arguments, cwd or Path.cwd(), streams)
        out, err = (path.read_text() for path in streams)
    return subprocess.CompletedProcess(("everstep", *arguments), code, out, err)


class _Warm:
    """The process that forks, from the outside."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.command"],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        atexit.register(self._process.kill)

    def run(self, arguments: tuple[str, ...], cwd: Path, streams: list[Path]) -> int:
        """Have a command run; returns its exit code, or minus the signal that ended it."""
        asked = {
            "argv": ["everstep", *arguments],
            "cwd": str(cwd),
            "environment": dict(os.environ),
            "streams": [str(path) for path in streams],
        }
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(asked) + "\n")
        self._process.stdin.flush()
        pid = self._answer()
        try:
            return self._answer()
        except BaseException:  # the test's time is up: the next command is not to read this answer
            os.kill(pid, signal.SIGKILL)
            self._process.kill()
            _warm.cache_clear()
            raise

    def _answer(self) -> int:
        assert self._process.stdout is not None
        return int(self._process.stdout.readline())


@cache
def _warm() -> _Warm:
    return _Warm()


def _serve() -> None:
    """Fork a command for each line, one after the other, until nobody asks any more."""
    from everstep.cli import app  # noqa: F401 - this is what is spared
    from everstep.cli.__main__ import main

    for line in sys.stdin:
        asked = json.loads(line)
        pid = os.fork()
        if not pid:
            _become(asked)
            main()  # it exits, or the interpreter does so with its error
            return
        _tell(pid)
        _tell(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))


def _tell(number: int) -> None:
    sys.stdout.write(f"{number}\n")
    sys.stdout.flush()


def _become(asked: dict) -> None:
    """Be the process that was asked for."""
    for stream, path in enumerate((os.devnull, *asked["streams"])):
        opened = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        os.dup2(opened, stream)
        os.close(opened)
    os.environ.clear()
    os.environ.update(asked["environment"])
    os.chdir(asked["cwd"])
    sys.argv[:] = asked["argv"]
    sys.path[0] = asked["cwd"]
    sys.modules["__main__"].__package__ = ""  # usage names the command after its first word


if __name__ == "__main__":
    _serve()
