"""Writes what the tests keep of a recorded run: each rank's own time of each step.

    .venv/bin/python scripts/straggler_sample.py trace-AR.parquet tests/unit/monitor/data/ar.csv

The traces themselves are published by ByteDance with "Understanding Stragglers in Large Model
Training Using What-if Analysis" (OSDI 2025); a row of theirs is one operation. Needs pyarrow.
"""

from __future__ import annotations

import csv
import sys
from pathlib import Path

from everstep.planner.recorded_steps import read_trace

DIGITS = 6  # significant: a millionth of a step is beyond what is measured


def main() -> None:
    """Read the trace that the first argument names, and write the sample."""
    trace, out = Path(sys.argv[1]), Path(sys.argv[2])
    recorded = read_trace(trace)
    out.parent.mkdir(parents=True, exist_ok=True)
    with out.open("w", newline="") as file:
        rows = csv.writer(file, lineterminator="\n")
        rows.writerow(("step", "rank", "stage", "own"))
        for step, own in recorded.own.items():
            for rank, value in sorted(own.items()):
                rows.writerow((step, rank, recorded.stages[rank], f"{value:.{DIGITS}g}"))


if __name__ == "__main__":
    main()
