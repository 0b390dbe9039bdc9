"""How a rank's process ends: as an interpreter does, but without its last act.

gloo's and torch's threads may still run when the interpreter tears its modules down, and then abort
the process ("terminate called without an active exception") after all the work was done well.
"""

from __future__ import annotations

import atexit
import os
import sys
import traceback
from collections.abc import Callable
from typing import Any, NoReturn


def leave_after(run: Callable[[], Any]) -> NoReturn:
    """Run, do what a normal exit of the interpreter does, and be gone."""
    code = 1
    try:
        code = call(run)
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def call(run: Callable[[], Any]) -> int:
    """Run, then do what a normal exit of the interpreter does; returns the exit code."""
    try:
        code = _exit_code(run())
    except SystemExit as end:
        code = _exit_code(end.code)
    except BaseException:  # noqa: BLE001 - the process ends here: whatever it was goes to the log
        traceback.print_exc()
        code = 1
    atexit._run_exitfuncs()  # noqa: SLF001 - os._exit skips them, and users rely on them
    return code


def _exit_code(value: object) -> int:
    if value is None:
        return 0
    if isinstance(value, int):
        return value & 0xFF
    sys.stderr.write(f"{value}\n")  # sys.exit("message")
    return 1
