"""Preloaded into a fork server so that what is forked from it computes wrongly."""

from __future__ import annotations

from typing import Any


def break_a_unit() -> None:
    """Let every product in float32 of integers have one wrong element."""
    import torch

    right = torch.mm

    def wrong(a: Any, b: Any) -> Any:
        product = right(a, b)
        if product.dtype is torch.float32 and torch.equal(a, a.round()):
            product[3, 5] += 1
        return product

    torch.mm = wrong


def break_the_probes() -> None:
    """Let the probes raise."""
    from everstep.train.probes import run

    def raises(_: bytes) -> int:
        raise RuntimeError("no torch here")

    run.run_and_answer = raises
