"""The reference model's training, with each step's own time noted."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from benchmarks.workload import probe

from everstep.models import pretrain
from everstep.train.report import StepReport
from everstep.train.run import Run


def main(run: Run) -> None:
    """Pre-train as the demo does."""
    notes = probe.Probe(run.rank, Path(os.environ[probe.DIRECTORY_VARIABLE]))
    step = run.step

    def noted(*arguments: Any, **options: Any) -> StepReport:
        report = step(*arguments, **options)
        notes.note(probe.STEP, report.step, own=report.own_ms)
        return report

    run.step = noted  # type: ignore[method-assign]  # to see reports that the loop drops
    pretrain.main(run)
