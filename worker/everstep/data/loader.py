"""Which samples a step trains on: a pure function of seed, batch number and the corpus size.

The global batch of a step is a fixed list of micro-batches. Data-parallel groups take contiguous
blocks of that list, so another number of groups re-splits the same samples in the same order, and
the gradient of a step is a sum of the same terms. Nothing but ``DataState`` has to be kept.

Words: a *sample* is one sequence of the corpus; *position* is the number of the next global batch
in the endless stream of batches, where every epoch has its own order. Position and step are the
same number until batches are skipped.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Self

from everstep.core.errors import InvalidInput
from everstep.data.permutation import Permutation


@dataclass(frozen=True, slots=True, kw_only=True)
class DataState:
    """Where in the stream of batches a run is; all that a checkpoint keeps of the loader.

    Args:
        position: number of the next global batch.
        skipped: half-open ranges of positions that are left out, sorted and disjoint.
    """

    position: int = 0
    skipped: tuple[tuple[int, int], ...] = ()

    def advanced(self) -> Self:
        """Return the state after the batch at ``position`` was trained on."""
        return replace(self, position=_past_skipped(self.position + 1, self.skipped))

    def skipping(self, start: int, stop: int) -> Self:
        """Return the state with the positions ``start <= p < stop`` left out from now on."""
        if not 0 <= start <= stop:
            raise InvalidInput(f"cannot skip positions {start} to {stop}: not a range")
        merged = _merged([*self.skipped, (start, stop)])
        return replace(self, position=_past_skipped(self.position, merged), skipped=merged)

    def seek(self, step: int) -> Self:
        """Return the state after ``step`` steps from the beginning of the stream."""
        if step < 0:
            raise InvalidInput(f"cannot seek to step {step}: steps count from 0")
        position = step
        for start, stop in self.skipped:
            if start <= position:
                position += stop - start
        return replace(self, position=position)

    def at_position(self, position: int) -> Self:
        """Return the state whose next batch is ``position``, or the first not skipped after it."""
        if position < 0:
            raise InvalidInput(f"cannot go to position {position}: positions count from 0")
        return replace(self, position=_past_skipped(position, self.skipped))

    def to_json(self) -> dict[str, Any]:
        """Return JSON values."""
        return {"position": self.position, "skipped": [list(item) for item in self.skipped]}

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> Self:
        """Read what ``to_json`` wrote.

        Raises:
            InvalidInput: it is something else.
        """
        try:
            skipped = _merged((int(start), int(stop)) for start, stop in value.get("skipped", ()))
            return cls(position=int(value["position"]), skipped=skipped)
        except (KeyError, TypeError, ValueError) as error:
            raise InvalidInput(f"not a data state: {value!r} ({error!r})") from None


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchPlan:
    """What fixes every batch of a run.

    Args:
        seed: keys the shuffle.
        samples: sequences in the corpus.
        global_batch: samples a step, over all data-parallel groups.
        micro_batch: samples a micro-batch; divides ``global_batch``.
        sizes: if the batch has not always been as large: (position, samples) from which on it was,
            sorted, from position 0 on. The stream of samples has no gap where the size changes.
    """

    seed: int
    samples: int
    global_batch: int
    micro_batch: int
    sizes: tuple[tuple[int, int], ...] = ()

    def __post_init__(self) -> None:
        if self.samples < 1:
            raise InvalidInput("the corpus holds no whole sample")
        if self.global_batch % self.micro_batch:
            raise InvalidInput(
                f"global batch {self.global_batch} is not a multiple of micro-batch "
                f"{self.micro_batch}"
            )

    @property
    def micro_batches(self) -> int:
        """Micro-batches a step, over all data-parallel groups."""
        return self.global_batch // self.micro_batch

    def sample_at(self, number: int) -> int:
        """Return the sample at place ``number`` of the endless stream; each epoch is re-keyed."""
        epoch, place = divmod(number, self.samples)
        return _order(self.samples, self.seed, epoch)(place)

    def first_of(self, position: int) -> int:
        """Return the place in the stream of samples at which a batch begins.

        Raises:
            InvalidInput: the batch at this position is not one of ``global_batch`` samples.
        """
        place, at, size = 0, 0, self.global_batch
        for begin, samples in self.sizes:
            if begin > position:
                break
            place, at, size = place + (begin - at) * size, begin, samples
        if size != self.global_batch:
            raise InvalidInput(
                f"the batch at position {position} is one of {size} samples, and batches of "
                f"{self.global_batch} are asked for"
            )
        return place + (position - at) * size

    def batch(self, position: int) -> tuple[tuple[int, ...], ...]:
        """Return the micro-batches of a global batch: sample numbers, in their fixed order."""
        return self._block(position, 0, self.micro_batches)

    def share(self, position: int, group: int, groups: int) -> tuple[tuple[int, ...], ...]:
        """Return the micro-batches of one data-parallel group: its contiguous block of the list.

        Raises:
            InvalidInput: the micro-batches cannot be shared equally by ``groups``.
        """
        count, rest = divmod(self.micro_batches, groups)
        if rest or not 0 <= group < groups:
            raise InvalidInput(
                f"group {group} of {groups} cannot get an equal share of {self.micro_batches} "
                f"micro-batches (global batch {self.global_batch}, micro-batch {self.micro_batch})"
            )
        return self._block(position, group * count, (group + 1) * count)

    def _block(self, position: int, start: int, stop: int) -> tuple[tuple[int, ...], ...]:
        first = self.first_of(position)
        size = self.micro_batch
        return tuple(
            tuple(self.sample_at(first + micro * size + item) for item in range(size))
            for micro in range(start, stop)
        )


@lru_cache(maxsize=4)  # a batch touches two epochs at most; keys are cheap but not free
def _order(samples: int, seed: int, epoch: int) -> Permutation:
    return Permutation(samples, seed, epoch)


def _merged(ranges: Iterable[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    result: list[tuple[int, int]] = []
    for start, stop in sorted(item for item in ranges if item[0] < item[1]):
        if result and start <= result[-1][1]:
            result[-1] = (result[-1][0], max(stop, result[-1][1]))
        else:
            result.append((start, stop))
    return tuple(result)


def _past_skipped(position: int, skipped: tuple[tuple[int, int], ...]) -> int:
    for start, stop in skipped:
        if start <= position < stop:
            position = stop
    return position
