"""Learning rate: linear warm-up, then a cosine down to a tenth.

A function of the step alone, so a restart needs nothing but the step.
Source: Llama 2, arXiv:2307.09288, section 2.2 (cosine to 10 % of the peak).
"""

from __future__ import annotations

import math
from typing import Final

FINAL_SHARE: Final = 0.1


def rate_share(step: int, *, warmup_steps: int, total_steps: int) -> float:
    """Return the share of the peak rate at which step number ``step`` (from 0) is taken."""
    if step < warmup_steps:
        return (step + 1) / warmup_steps
    decay_steps = max(total_steps - warmup_steps, 1)
    progress = min((step - warmup_steps) / decay_steps, 1.0)
    return FINAL_SHARE + (1 - FINAL_SHARE) * 0.5 * (1 + math.cos(math.pi * progress))
