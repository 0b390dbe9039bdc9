"""PostgreSQL runs as nobody when we are root, and still reaches private directories."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from everstep.local import demote

NOBODY = "65534"


def test_demoted_program_may_use_what_lies_in_a_private_directory(tmp_path: Path):
    """access(2) is how initdb looks for its binaries: it must see what exec would.

    Not root: nothing is demoted, and the owner of the directory looks.
    """
    private = tmp_path / "private"
    private.mkdir(mode=0o700)
    program = private / "program"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    ask = [
        sys.executable,
        "-I",
        "-S",
        "-c",
        "import os, sys; print(os.geteuid(), os.access(sys.argv[1], os.R_OK | os.X_OK))",
        str(program),
    ]
    root = os.geteuid() == 0
    command = [sys.executable, "-I", "-S", demote.__file__, NOBODY, NOBODY, "--", *ask]
    done = subprocess.run(
        command if root else ask, capture_output=True, text=True, check=True, timeout=30
    )
    assert done.stdout.split() == [NOBODY if root else str(os.geteuid()), "True"]
