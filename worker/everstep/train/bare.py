"""Runs a job spec's entry point with no agent: under torchrun, or alone.

``torchrun --nproc-per-node 8 -m everstep.train.bare job.yaml``. The same loop without snapshots and
reports: for trying things out, and what the overhead of Everstep is measured against.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import yaml

from everstep.core.errors import InvalidInput
from everstep.core.spec import parse_spec
from everstep.train.leaving import leave_after
from everstep.train.rank_main import run_bare


def main(arguments: Sequence[str]) -> int:
    """Run the spec in the file that is named; returns the exit code."""
    if len(arguments) != 1:
        sys.stderr.write("usage: python -m everstep.train.bare JOB.yaml\n")
        return 2
    try:
        spec = parse_spec(yaml.safe_load(Path(arguments[0]).read_text(encoding="utf-8")))
    except (OSError, yaml.YAMLError, InvalidInput) as error:
        sys.stderr.write(f"{arguments[0]}: {error}\n")
        return 2
    return run_bare(spec)


if __name__ == "__main__":
    leave_after(lambda: main(sys.argv[1:]))
