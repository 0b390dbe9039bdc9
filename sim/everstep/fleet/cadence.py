"""When steps, stalls and saves happen, as arithmetic: no step is ever simulated by itself.

All times are integer milliseconds of *training time*: the time a run that is never slowed needs.
A step takes ``step_ms``; after every ``memory_every``-th a copy into host memory stalls training,
after every ``object_every``-th a save to the object store does (0: never).
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Cadence:
    """How long steps and saves take.

    ``degraded_ms`` of a step is what groups that are missing would have done in the same time.
    ``replicate_ms`` is from the end of a memory stall until the peer has the copy, ``upload_ms``
    from the end of an object stall until the checkpoint is complete.
    """

    step_ms: int
    degraded_ms: int = 0
    memory_every: int = 0
    memory_stall_ms: int = 0
    replicate_ms: int = 0
    object_every: int = 0
    object_stall_ms: int = 0
    upload_ms: int = 0

    def stalls_ms(self, first: int, last: int) -> int:
        """Return the stalls after the steps ``first + 1`` to ``last``."""
        memory = _multiples(first, last, self.memory_every) * self.memory_stall_ms
        return memory + _multiples(first, last, self.object_every) * self.object_stall_ms

    def elapsed_ms(self, first: int, last: int) -> int:
        """Return the time from just after ``first`` to just after ``last``, stalls included."""
        return (last - first) * self.step_ms + self.stalls_ms(first, last)

    def reached(self, first: int, time_ms: int) -> int:
        """Return the last step that is done, its stalls too, ``time_ms`` after ``first``."""
        low, high = first, first + max(time_ms, 0) // self.step_ms
        while low < high:
            middle = (low + high + 1) // 2
            if self.elapsed_ms(first, middle) <= time_ms:
                low = middle
            else:
                high = middle - 1
        return low

    def copied(self, first: int, time_ms: int, count_max: int) -> list[int]:
        """Return the newest steps that lie in host memory, in order."""
        return _newest(first, self.reached(first, time_ms), self.memory_every, count_max)

    def replicated(self, first: int, time_ms: int, count_max: int) -> list[int]:
        """Return the newest steps of which the peers have copies, in order."""
        last = self.reached(first, time_ms - self.replicate_ms)
        return _newest(first, last, self.memory_every, count_max)

    def durable(self, first: int, time_ms: int, count_max: int) -> list[int]:
        """Return the newest steps of complete checkpoints, in order."""
        last = self.reached(first, time_ms - self.upload_ms)
        return _newest(first, last, self.object_every, count_max)


def _multiples(first: int, last: int, of: int) -> int:
    return last // of - first // of if of else 0


def _newest(first: int, last: int, every: int, count_max: int) -> list[int]:
    """Return the last multiples of ``every`` above ``first`` and up to ``last``."""
    if not every:
        return []
    top = last // every
    count = min(top - first // every, count_max)
    return [every * i for i in range(top - max(count, 0) + 1, top + 1)]
