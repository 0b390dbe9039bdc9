"""Choices that can be made again: they follow from a seed and from nothing else."""

from __future__ import annotations

import random


def seeded(seed: str) -> random.Random:
    """Return a source of choices; the same seed gives the same ones on every machine."""
    return random.Random(seed)  # noqa: S311 - nothing secret is made of it
