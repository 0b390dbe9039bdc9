"""The same training as an Everstep job spec."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks.support.figures import REPOSITORY
from benchmarks.workload import probe
from benchmarks.workload.training import SEED, Sizes


def job_spec(sizes: Sizes, notes: Path, corpus: Path, *, steps: int) -> dict[str, Any]:
    """Return the job: model, layout and batches of ``sizes``, a snapshot after every step.

    Args:
        sizes: of model, layout and batch.
        notes: directory of the probe.
        corpus: token shards.
        steps: after which it ends.
    """
    return {
        "name": "bench",
        "entry": "benchmarks.workload.everstep_entry:main",
        "args": asdict(sizes.model),
        "layout": {
            "pp": sizes.pp,
            "dp_replicate": sizes.dp_replicate,
            "dp_shard": sizes.dp_shard,
            "tp": sizes.tp,
        },
        "steps": steps,
        "seed": SEED,
        "data": {
            "path": str(corpus),
            "sequence_tokens": sizes.model.sequence_tokens,
            "global_batch": sizes.global_batch,
            "micro_batch": sizes.micro_batch,
        },
        "checkpoint": {"memory_every_steps": 1, "object_every_steps": 100},
        "recovery": {"restarts_per_hour_max": 1000},
        "env": {probe.DIRECTORY_VARIABLE: str(notes), "PYTHONWARNINGS": "ignore"},
        "cwd": str(REPOSITORY),
    }
