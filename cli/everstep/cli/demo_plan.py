"""What the demo runs, and what a seed decides about it. Pure: no clock, no files.

The seed draws the victim and the step; the same seed on the same machine gives the same run.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import Any, Final

HOSTS: Final = 4
CHIPS: Final = 2
SPARES: Final = 1
PODS: Final = 2
LAYOUT: Final = {"pp": 2, "dp_replicate": 1, "dp_shard": 2, "tp": 2}
WORLD_SIZE: Final = 8
STEPS_MIN: Final = 12  # fewer leave no room before, between and after the kill
OBJECT_TIER_PARTS: Final = 3  # durable checkpoints at each third; the last is the final state
TIER_DISTANCE_MIN: Final = 2  # steps between the kill and a durable checkpoint; see draw
SEED_MAX: Final = 2**31


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoPlan:
    """The run that the demo makes."""

    seed: int
    steps: int
    kill_step: int  # the host is killed when this step has been seen completed
    kill_seat: int  # which of the placement's hosts


def draw(seed: int, steps: int) -> DemoPlan:
    """Draw the kill from the middle half of the run.

    Steps at which a durable checkpoint is being written are left out, so that nobody can think that
    the state came from there.
    """
    random = Random(seed)  # noqa: S311 - a plan to be repeated, not a secret
    every = object_every(steps)
    middle = range(steps // 4, steps - steps // 4)
    fitting = [s for s in middle if TIER_DISTANCE_MIN <= s % every <= every - TIER_DISTANCE_MIN]
    return DemoPlan(
        seed=seed,
        steps=steps,
        kill_step=random.choice(fitting or list(middle)),
        kill_seat=random.randrange(HOSTS),
    )


def object_every(steps: int) -> int:
    """Return how many steps lie between durable checkpoints; the last step is one of them."""
    return next(n for n in range(max(1, steps // OBJECT_TIER_PARTS), steps + 1) if steps % n == 0)


def job_spec(plan: DemoPlan, *, name: str, corpus: str, cwd: str) -> dict[str, Any]:
    """Return the job: a small Llama in pp 2 x dp 2 x tp 2; dropout makes RNG state matter."""
    return {
        "name": name,
        "entry": "everstep.models.pretrain:main",
        "args": {
            "dim": 64, "layers": 4, "heads": 4, "kv_heads": 2, "ffn_dim": 128, "vocab_size": 264,
            "dropout": 0.1, "lr": 3e-3, "warmup_steps": 5,
        },
        "layout": LAYOUT,
        "steps": plan.steps,
        "seed": plan.seed,
        "data": {"path": corpus, "sequence_tokens": 64, "global_batch": 16, "micro_batch": 2},
        "checkpoint": {"object_every_steps": object_every(plan.steps), "keep_last": 3},
        "cwd": cwd,
    }  # fmt: skip
