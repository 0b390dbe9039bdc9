"""The one collective of a step: everything the ranks must decide alike is decided from its sum.

Sums of float64 are exact for counts, and every rank receives the same bits, so every rank comes to
the same decision at the same step without another message. It runs before the optimizer: a
non-finite gradient anywhere is known everywhere before it can poison a parameter.

``Vote`` and ``tally`` are pure; ``StepCollective`` is the only part that communicates.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Final

import torch
from torch import distributed as dist

from everstep.core.errors import InvalidInput
from everstep.core.schedule import Schedule

WORDS: Final = 18


@dataclass(frozen=True, slots=True, kw_only=True)
class Vote:
    """What one rank contributes.

    Args:
        squared_norm: sum of squared gradients of the elements that this rank owns.
        loss: mean loss of its micro-batches; None on ranks that have none.
        tokens: of its micro-batches, on one rank of each data-parallel group, else 0.
        save: whether its agent asked for a durable snapshot.
        stop: whether its agent asked for a stop.
        replicated: whether its newest snapshot lies in its own and its peer's memory.
        durable_busy: whether its durable slot is still being uploaded.
        step: how many steps it has completed.
        finishing: whether it is through: its entry point has returned, or all steps are made.
        schedule: how often to snapshot, said by one rank for all; None on the others.
        rerun: fingerprint of its work less that of the work which it re-ran: 0 in all if all agree.
        recompute: whether its agent asked for work to be re-run.
        discord: its share in the sum that is zero if all who hold the same bits agree on their
            newest snapshot; None: it is not whole yet.
    """

    squared_norm: float = 0.0
    loss: float | None = None
    tokens: int = 0
    save: bool = False
    stop: bool = False
    replicated: bool = True
    durable_busy: bool = False
    step: int = 0
    finishing: bool = False
    schedule: Schedule | None = None
    rerun: int = 0
    recompute: bool = False
    discord: float | None = 0.0

    @property
    def finite(self) -> bool:
        """Whether this rank's own gradient and loss are."""
        return math.isfinite(self.squared_norm) and math.isfinite(self.loss or 0.0)

    def words(self) -> list[float]:
        """Return the numbers that are summed."""
        loss = 0.0 if self.loss is None else self.loss
        said = self.schedule
        return [
            self.squared_norm,
            loss,
            float(self.loss is not None),
            float(self.tokens),
            float(not self.finite),
            float(self.save),
            float(self.stop),
            float(self.replicated),
            float(self.durable_busy),
            float(self.step),
            float(self.finishing),
            float(self.rerun),
            float(self.recompute),
            float(self.discord is None),
            self.discord or 0.0,
            *(
                (said.version, said.memory_every_steps, said.object_every_steps)
                if said is not None
                else (0.0, 0.0, 0.0)
            ),
        ]


@dataclass(frozen=True, slots=True, kw_only=True)
class Agreement:
    """What follows for every rank alike.

    Args:
        grad_norm: of the whole model's gradient, before clipping.
        loss: mean over the global batch; NaN when no rank had one.
        tokens: of the global batch.
        skip: the gradient is not finite: do not apply it.
        save: somebody asked for a durable snapshot.
        stop: somebody asked for a stop.
        replicated: every rank's newest snapshot is in two hosts' memory.
        durable_free: no rank's durable slot is being uploaded.
        schedule: how often to snapshot, from this step on.
        rerun_differs: some work that was re-run has come out otherwise.
        recompute: somebody asked for work to be re-run.
        equal: in the newest snapshot all ranks hold the same of what they share; None: somebody's
            is not whole yet.
    """

    grad_norm: float
    loss: float
    tokens: int
    skip: bool
    save: bool
    stop: bool
    replicated: bool
    durable_free: bool
    schedule: Schedule
    rerun_differs: bool = False
    recompute: bool = False
    equal: bool | None = True


def noted(agreement: Agreement) -> dict[str, Any]:
    """Return what of it belongs to the step, and not to the moment that it was agreed in."""
    return {
        "grad_norm": agreement.grad_norm,
        "loss": agreement.loss,
        "tokens": agreement.tokens,
        "skip": agreement.skip,
    }


def from_notes(notes: dict[str, Any]) -> Agreement:
    """Return the agreement of a step that is over, with nothing asked for and nothing allowed."""
    return Agreement(
        grad_norm=notes["grad_norm"],
        loss=notes["loss"],
        tokens=notes["tokens"],
        skip=notes["skip"],
        save=False,
        stop=False,
        replicated=False,
        durable_free=False,
        schedule=Schedule(),
    )


def tally(words: list[float], world_size: int, mine: Vote) -> Agreement:
    """Read the summed words of all ranks.

    Args:
        words: the sums.
        world_size: how many ranks have voted.
        mine: this rank's vote.

    Raises:
        InvalidInput: the ranks do not vote on the same: one has returned while others train on.
    """
    *votes, rerun, recompute, unknown, discord, version, memory_every, object_every = words
    squared, loss, losses, tokens, non_finite, save, stop, replicated, busy, steps, through = votes
    if through not in {0, world_size}:
        raise InvalidInput(
            f"{int(through)} of {world_size} ranks have returned from the entry point while the "
            f"others train on (this one {'has returned' if mine.finishing else 'trains'}, after "
            f"step {mine.step}): all ranks must make the same number of steps"
        )
    if steps != world_size * mine.step:
        raise InvalidInput(
            f"this rank has completed {mine.step} steps, all together {int(steps)} and not "
            f"{world_size} times as many: every rank must call run.step() once for every batch"
        )
    return Agreement(
        grad_norm=math.sqrt(squared) if squared >= 0 else math.nan,
        loss=loss / losses if losses else math.nan,
        tokens=int(tokens),
        skip=non_finite > 0 or not math.isfinite(squared),
        save=save > 0,
        stop=stop > 0,
        replicated=replicated == world_size,
        durable_free=busy == 0,
        schedule=Schedule(
            version=int(version),
            memory_every_steps=int(memory_every),
            object_every_steps=int(object_every),
        ),
        rerun_differs=rerun != 0,
        recompute=recompute > 0,
        equal=None if unknown else discord == 0,
    )


class StepCollective:
    """Sums votes over all ranks, on CPU memory.

    Args:
        group: all ranks, with a backend for CPU tensors (gloo).
        world_size: ranks in it.
    """

    def __init__(self, group: dist.ProcessGroup, world_size: int) -> None:
        self.group = group
        self._world_size = world_size
        self._words = torch.zeros(WORDS, dtype=torch.float64)

    def agree(self, vote: Vote) -> Agreement:
        """Sum everybody's vote; blocks until all ranks have voted. Raises as ``tally`` does."""
        self._words.copy_(torch.tensor(vote.words(), dtype=torch.float64))
        if self._world_size > 1:
            dist.all_reduce(self._words, group=self.group)
        return tally(self._words.tolist(), self._world_size, vote)
