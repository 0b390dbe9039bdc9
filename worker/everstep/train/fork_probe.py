"""What the fork server does for probes: one process at a time, that gives way at once.

The process is no rank: it has no job, nobody waits for its exit but the agent that asked, and what
it found is in the file that the request names.
"""

from __future__ import annotations

import os
import signal
import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NoReturn

from everstep.train.fork_child import die_with, redirect

RUN: Final = "everstep.train.probes.run:run_and_answer"


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeFork:
    """Probes to run; ``request`` is the JSON of ``probes.run.Request``."""

    examination_id: str
    request: str
    log_path: str


def become_probe(fork: ProbeFork, server_pid: int, load: Callable[[str], Any]) -> NoReturn:
    """Turn this freshly forked process into the probes', run them and leave."""
    code = 1
    try:
        os.setsid()
        die_with(server_pid)
        for number in (signal.SIGCHLD, signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_DFL)
        redirect(Path(fork.log_path))
        code = int(load(RUN)(fork.request.encode()))
    except BaseException:  # noqa: BLE001 - the process ends here: whatever it was goes to the log
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
