"""The end of a rank's process."""

from __future__ import annotations

import subprocess
import sys

import pytest

PROGRAM = """
import atexit, sys, threading
from everstep.train.leaving import leave_after

def main():
    threading.Thread(target=threading.Event().wait).start()  # as a library's thread that stays
    atexit.register(print, "said good-bye")
    print("worked")
    {end}

leave_after(main)
"""


@pytest.mark.parametrize(
    ("end", "code"),
    [
        ("return 0", 0),
        ("return 3", 3),
        ("sys.exit(4)", 4),
        ("sys.exit('no')", 1),
        ("raise ValueError", 1),
    ],
)
def test_process_leaves_with_its_code_whatever_threads_libraries_keep(end, code):
    """What it has printed is there, exit functions have run, and nothing is waited for."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(end=end)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == code, done.stderr
    assert done.stdout == "worked\nsaid good-bye\n"
