"""What a forked child does before it is a rank: its own session, log, environment and path.

From here on nothing of the fork server's loop may run again: the child leaves by ``os._exit``.
"""

from __future__ import annotations

import ctypes
import faulthandler
import os
import signal
import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NoReturn

from everstep.core.rank_variables import python_path
from everstep.train.leaving import call
from everstep.train.stacks import tell_stacks_when_asked

_PR_SET_PDEATHSIG: Final = 1  # linux/prctl.h
_libc: Final = ctypes.CDLL(None, use_errno=True)  # loaded before the fork


@dataclass(frozen=True, slots=True, kw_only=True)
class ForkRequest:
    """One rank to fork. ``env`` is added to the server's own environment."""

    job_id: str
    generation: int
    rank: int
    env: dict[str, str]
    cwd: str
    argv: list[str]
    log_path: str

    @property
    def slot(self) -> tuple[str, int, int]:
        """What there is at most one live process of."""
        return (self.job_id, self.generation, self.rank)

    def names(self) -> dict[str, Any]:
        """Return the identifying fields, for answers."""
        return {"job_id": self.job_id, "generation": self.generation, "rank": self.rank}


def become_rank(request: ForkRequest, server_pid: int, run: Callable[[], Any]) -> NoReturn:
    """Turn this freshly forked process into the rank, run it and leave.

    Args:
        request: who to be.
        server_pid: the parent; when it is already gone, the rank ends at once.
        run: returns the exit code, or None for 0.
    """
    code = 1
    try:
        os.setsid()
        die_with(server_pid)
        for number in (signal.SIGCHLD, signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_DFL)
        redirect(Path(request.log_path))
        tell_stacks_when_asked(Path(request.log_path))
        os.environ.update(request.env)
        os.chdir(request.cwd)
        sys.path[:1] = [request.cwd, *python_path(request.env)]
        sys.argv = list(request.argv) or [""]
        _refresh_libraries(request.env)
        code = call(run)
    except BaseException:  # noqa: BLE001 - the process ends here: whatever it was goes to the log
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def die_with(server_pid: int) -> None:
    """Ask the kernel to kill us when the server dies."""
    if _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG)")
    if os.getppid() != server_pid:  # it died between the fork and the line above
        os._exit(1)


def redirect(log_path: Path) -> None:
    """Let standard output and error go to a log, and a crash too."""
    log_path.parent.mkdir(parents=True, exist_ok=True)
    log = os.open(log_path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.close(log)
    os.close(nothing)
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]  # is a TextIOWrapper
    faulthandler.enable()


def _refresh_libraries(env: dict[str, str]) -> None:
    """Redo what libraries did at import, where a fresh process would differ from a forked one."""
    if "numpy" in sys.modules:
        import numpy as np

        np.random.seed()  # noqa: NPY002 - the global generator is the one that all forks share
    if "torch" in sys.modules and "OMP_NUM_THREADS" in env:
        import torch

        torch.set_num_threads(int(env["OMP_NUM_THREADS"]))  # read at import, by the server
