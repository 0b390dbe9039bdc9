"""A rank without Everstep around it: the SDK's bare mode, which has no agent and no snapshots."""

from __future__ import annotations

import os
from typing import Final

from everstep.core.spec import parse_spec_json
from everstep.train.rank_main import run_bare

SPEC_VARIABLE: Final = "BENCH_SPEC"


def run() -> int:
    """Run the job spec's entry point with torchrun's variables only."""
    return run_bare(parse_spec_json(os.environ[SPEC_VARIABLE]))
