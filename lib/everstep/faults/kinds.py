"""Faults of ranks as values: what a rank is made to do wrong, on purpose, at a step.

Written ``at(rank=3, step=10).slow(percent=8)``. They travel as JSON in the environment of a job
(``env: {EVERSTEP_FAULTS: '[...]'}`` in its spec, or ``as_environment``); ``everstep.train.faults``
makes ranks obey, campaigns (``everstep chaos``) are put together of them.

A fault strikes within the step that begins with ``step`` completed ones, so the first state that
can be wrong is that of ``step + 1``. What happens at a moment (``Moment``) happens once in a job:
the step that is made again after a restart is made without it, unless ``every_generation`` is set.
What lies in the data (``Poison``, ``Spike``) belongs to a position in it instead, and is met
whenever that position is trained on: else a step that is made again would be another step.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

import msgspec

from everstep.core.errors import InvalidInput

VARIABLE: Final = "EVERSTEP_FAULTS"
# A directory that all hosts share: where it is noted what has struck. Without it that is noted in
# the host's memory, and a rank that is moved to another host meets its faults anew.
MARKS_VARIABLE: Final = "EVERSTEP_FAULT_MARKS"
WRONG: Final = "wrong"  # in such a note: why a fault cannot happen, so that the rank goes on
EVERY_RANK: Final = -1
CHOSEN: Final = -1  # of an element or bit: a choice that follows from the fault itself


class How(StrEnum):
    """What a slow rank does in its extra time."""

    COMPUTE = "compute"  # a chip that is throttled
    SLEEP = "sleep"  # a disk, a bus or a page that keeps it waiting


class Part(StrEnum):
    """Where a bit is flipped."""

    PARAMETER = "parameter"  # after the update
    MOMENT = "moment"  # of the optimizer, after the update
    GRADIENT = "gradient"  # of this rank, before it is reduced over data-parallel ranks
    REDUCED_GRADIENT = "reduced_gradient"  # behind the reduction: this rank's copy alone
    ACTIVATION = "activation"  # the output of a module in the step's first forward pass
    SNAPSHOT = "snapshot"  # the newest one in the host's memory


class _Fault(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What all have: ``rank`` (or EVERY_RANK), ``step``, and ``host`` ("": wherever it is)."""

    rank: int
    step: int
    host: str = ""

    def is_on(self, step: int) -> bool:
        """Whether it acts in the step that begins with ``step`` completed ones."""
        return step == self.step


class Slow(_Fault, frozen=True, kw_only=True, tag="slow"):
    """The rank takes ``percent`` more time than it needs, from the step after ``step`` on.

    Args:
        percent: of the rank's own time, added in each step.
        how: what it does meanwhile.
        steps: for how many; 0: to the end of the run.
        stays: on the host where it began: a rank that has been moved leaves it behind.
    """

    percent: float
    how: How = How.COMPUTE
    steps: int = 0
    stays: bool = False

    def is_on(self, step: int) -> bool:
        """Whether it acts in the step that begins with ``step`` completed ones."""
        return step >= self.step and (self.steps == 0 or step < self.step + self.steps)


class Poison(_Fault, frozen=True, kw_only=True, tag="poisoned_batch"):
    """Targets of these batches are garbage, for the rank's whole data-parallel group.

    Args:
        step: position of the first batch.
        batches: how many, one after the other.
    """

    batches: int = 1

    def is_on(self, step: int) -> bool:
        """Whether the batch at this position is poisoned."""
        return self.step <= step < self.step + self.batches


class Spike(_Fault, frozen=True, kw_only=True, tag="loss_spike"):
    """The update of the batch at position ``step`` wrecks the rank's parameters.

    Args:
        factor: they are multiplied by it.
    """

    factor: float = -6.0  # seen: a small Llama's loss stays raised by several nats


class Moment(_Fault, frozen=True, kw_only=True):
    """Happens once in a job, or in each generation that makes the step."""

    every_generation: bool = False


class Kill(Moment, frozen=True, kw_only=True, tag="kill"):
    """SIGKILL to itself."""


class Stop(Moment, frozen=True, kw_only=True, tag="stop"):
    """SIGSTOP to itself."""


class Spin(Moment, frozen=True, kw_only=True, tag="spin"):
    """Computes without end, or for ``seconds``."""

    seconds: float = 0.0


class BlockLoader(Moment, frozen=True, kw_only=True, tag="block_loader"):
    """Its batch does not come, or comes after ``seconds``."""

    seconds: float = 0.0


class Raise(Moment, frozen=True, kw_only=True, tag="raise"):
    """An error of user code."""

    message: str = "injected"


class NanGradient(Moment, frozen=True, kw_only=True, tag="nan_gradient"):
    """One of its gradients is not finite, behind the reduction."""


class Flip(Moment, frozen=True, kw_only=True, tag="flip"):
    """One bit of its state, or of what it computes, is another one.

    Args:
        part: of what.
        tensor: its name as in a snapshot (``model.layers.0.ffn.w1.weight``,
            ``optimizer.state.layers.0.ffn.w1.weight.exp_avg``), for activations the module's
            (``model.layers.0.ffn.w1``), or the end of one; "": chosen.
        element: of the rank's own part, flattened; CHOSEN: any.
        bit: of the element, 0 the least significant; CHOSEN: any.
        steps: in how many steps, one after the other, as a chip does that has become faulty. Such a
            chip stays where it is: a rank that has been moved leaves it behind.
    """

    part: Part
    tensor: str = ""
    element: int = CHOSEN
    bit: int = CHOSEN
    steps: int = 1

    def each(self) -> tuple[Flip, ...]:
        """Return it as one flip a step."""
        steps = range(self.step, self.step + self.steps)
        return tuple(msgspec.structs.replace(self, step=step, steps=1) for step in steps)


Fault = Slow | Poison | Spike | Kill | Stop | Spin | BlockLoader | Raise | NanGradient | Flip


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a fault strikes."""

    rank: int
    step: int
    host: str = ""
    every_generation: bool = False

    def slow(
        self, *, percent: float, how: How = How.COMPUTE, steps: int = 0, stays: bool = False
    ) -> Slow:
        """Be slower."""
        return Slow(**self._here, percent=percent, how=how, steps=steps, stays=stays)

    def poisoned_batch(self, *, batches: int = 1) -> Poison:
        """Get targets that are other tokens, from position ``step`` on."""
        return Poison(**self._here, batches=batches)

    def loss_spike(self, *, factor: float = -6.0) -> Spike:
        """Wreck the parameters in the update of the batch at position ``step``."""
        return Spike(**self._here, factor=factor)

    def kill(self) -> Kill:
        """Die by SIGKILL."""
        return Kill(**self._moment)

    def stop(self) -> Stop:
        """Stand still by SIGSTOP."""
        return Stop(**self._moment)

    def spin(self, *, seconds: float = 0.0) -> Spin:
        """Compute without end, or for a while."""
        return Spin(**self._moment, seconds=seconds)

    def block_loader(self, *, seconds: float = 0.0) -> BlockLoader:
        """Wait for a batch without end, or for a while."""
        return BlockLoader(**self._moment, seconds=seconds)

    def raise_error(self, message: str = "injected") -> Raise:
        """Fail as user code fails."""
        return Raise(**self._moment, message=message)

    def nan_gradient(self) -> NanGradient:
        """Come to a gradient that is no number."""
        return NanGradient(**self._moment)

    def flip(
        self,
        part: Part,
        *,
        tensor: str = "",
        element: int = CHOSEN,
        bit: int = CHOSEN,
        steps: int = 1,
    ) -> Flip:
        """Get one bit wrong."""
        return Flip(**self._moment, part=part, tensor=tensor, element=element, bit=bit, steps=steps)

    @property
    def _here(self) -> dict[str, Any]:
        return {"rank": self.rank, "step": self.step, "host": self.host}

    @property
    def _moment(self) -> dict[str, Any]:
        return {**self._here, "every_generation": self.every_generation}


def at(*, rank: int, step: int, host: str = "", every_generation: bool = False) -> Place:
    """Name a rank and how many steps it has completed when a fault strikes, and maybe its host."""
    return Place(rank=rank, step=step, host=host, every_generation=every_generation)


def everywhere(*, step: int) -> Place:
    """Name all ranks."""
    return Place(rank=EVERY_RANK, step=step)


def as_environment(*faults: Fault) -> dict[str, str]:
    """Return the variable that makes ranks obey."""
    return {VARIABLE: msgspec.json.encode(faults).decode()}


def read_faults(env: Mapping[str, str]) -> tuple[Fault, ...]:
    """Return all ranks' faults.

    Raises:
        InvalidInput: the variable holds something else.
    """
    text = env.get(VARIABLE, "")
    try:
        return msgspec.json.decode(text, type=tuple[Fault, ...]) if text else ()
    except msgspec.MsgspecError as error:
        raise InvalidInput(
            f"environment variable {VARIABLE} is no list of faults: {text!r}: {error}"
        ) from None
