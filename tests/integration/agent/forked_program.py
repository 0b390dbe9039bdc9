"""What the fork server's tests run in the forked child, chosen by the variable ``DO``."""

from __future__ import annotations

import atexit
import os
import signal
import sys
from pathlib import Path


def run() -> int | None:
    """Do as ``DO`` says."""
    out = sys.stdout.write
    match os.environ.get("DO", "").split():
        case ["describe"]:
            atexit.register(out, "exit function ran\n")
            out(f"cwd={Path.cwd()}\npath0={sys.path[0]}\nargv={sys.argv}\n")
            out(f"path1={sys.path[1]}\n")
            out(f"rank={os.environ['RANK']}\nsession={os.getsid(0)}\n")
        case ["exit", code]:
            sys.exit(int(code))
        case ["message"]:
            sys.exit("a message")
        case ["raise"]:
            raise ValueError("told to")
        case ["return", code]:
            return int(code)
        case ["native"]:
            os.write(1, b"from the file descriptor\n")
        case ["wait"]:
            out("waiting\n")
            signal.pause()
    return None
