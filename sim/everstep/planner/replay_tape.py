"""Lays a replayed run's time under causes, and remembers what of its training could still be lost.

Training is laid when it ends, because only then is it known what a save had caught. Until then it
is a list of pieces of equal pace. A slow pace is paid for under ``straggler``, missing replicas
under ``degraded``, a save's stall under ``checkpoint_stall``; what no save had caught is
``lost_work``, whole. Work that is kept counts for the block it was done in, which is a stretch
between two failures of the record.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from everstep.monitor.ledger import Cause
from everstep.planner.history import CAUSES, STRAGGLER

STEPPING: Final = Cause.USEFUL.value  # before it is split into useful steps and waits for data


@dataclass(frozen=True, slots=True, kw_only=True)
class _Piece:
    """Training of one pace."""

    wall_ms: int
    factor: float  # a step takes so many times as long as usual
    capacity: float  # share of the replicas that train
    block: int

    @property
    def work_ms(self) -> float:
        """What it amounts to at the usual pace."""
        return self.wall_ms * self.capacity / self.factor


class Tape:
    """Times are milliseconds since the job was submitted."""

    def __init__(
        self,
        interval_ms: int,
        stall_ms: int,
        *,
        stored_every_ms: int = 0,
        stored_after_ms: int = 0,
    ) -> None:
        """Begin at 0; saves in memory and, unless 0, to the object store are so much work apart."""
        self.at_ms = 0
        self.causes: dict[str, float] = dict.fromkeys(CAUSES, 0.0)
        self.kept_ms: list[float] = [0.0]  # stepping that was kept, by block
        self.block_walls_ms: list[int] = [0]
        self._stored_every_ms = stored_every_ms
        self._stored_after_ms = stored_after_ms
        self._interval_ms = interval_ms
        self._cycle_ms = interval_ms + stall_ms
        self._pieces: list[_Piece] = []

    def save_every(self, interval_ms: int, stored_every_ms: int) -> None:
        """Saves are another time apart from here on; the first such one is made now."""
        self.saved()
        self._cycle_ms = interval_ms + self._cycle_ms - self._interval_ms
        self._interval_ms, self._stored_every_ms = interval_ms, stored_every_ms

    @property
    def trained_ms(self) -> float:
        """Training since the last restore, at the usual pace."""
        return sum(piece.work_ms for piece in self._pieces)

    def cut(self) -> None:
        """Begin the next block."""
        self.kept_ms.append(0.0)
        self.block_walls_ms.append(0)

    def lay(self, until_ms: int, cause: str) -> None:
        """Put the time up to a moment under a cause."""
        self.causes[cause] += self._forward(until_ms)

    def train(self, until_ms: int, *, factor: float, capacity: float) -> None:
        """Train up to a moment; what it was good for, ``saved`` or ``lost`` will say."""
        wall_ms = self._forward(until_ms)
        if wall_ms:
            self._pieces.append(
                _Piece(
                    wall_ms=wall_ms,
                    factor=factor,
                    capacity=capacity,
                    block=len(self.kept_ms) - 1,
                )
            )

    def saved(self) -> None:
        """Training stops after a save: nothing is lost."""
        self._keep(self.trained_ms)

    def broke(self, settle_ms: int) -> None:
        """Training breaks: what the last save that had settled did not catch is lost.

        Args:
            settle_ms: how old a save has to be before a restart can use it.
        """
        usable_ms = self.trained_ms - settle_ms
        in_memory_ms = usable_ms // self._cycle_ms * self._cycle_ms
        self._keep(max(in_memory_ms, self._stored_ms(), 0.0))

    def rolled_back(self, lost_ms: float) -> None:
        """Training stops and so much of it is thrown away, of earlier stretches too."""
        trained_ms = self.trained_ms
        self._keep(max(trained_ms - lost_ms, 0.0))
        earlier_ms = min(max(lost_ms - trained_ms, 0.0), self.causes[STEPPING])
        self.causes[STEPPING] -= earlier_ms
        self.causes[Cause.LOST_WORK] += earlier_ms
        self.kept_ms[-1] -= earlier_ms

    def _stored_ms(self) -> float:
        """Return the training up to the newest complete checkpoint; negative: it is older.

        Checkpoints are so many steps apart from the first one on, wherever a restart went back to.
        """
        if not self._stored_every_ms:
            return 0.0
        share = self._interval_ms / self._cycle_ms
        before_ms = self.causes[STEPPING]
        reached_ms = before_ms + (self.trained_ms - self._stored_after_ms) * share
        stored_ms = reached_ms // self._stored_every_ms * self._stored_every_ms
        return (stored_ms - before_ms) / share

    def _forward(self, until_ms: int) -> int:
        assert until_ms >= self.at_ms, f"time goes back from {self.at_ms} to {until_ms} ms"
        passed_ms = until_ms - self.at_ms
        self.at_ms = until_ms
        self.block_walls_ms[-1] += passed_ms
        return passed_ms

    def _keep(self, kept_ms: float) -> None:
        """Lay the pieces: the first ``kept_ms`` of work under what it was, the rest as lost."""
        left_ms = kept_ms
        stalls = self._stalls_ms(kept_ms) / kept_ms if kept_ms > 0 else 0.0
        for piece in self._pieces:
            work_ms = min(piece.work_ms, left_ms)
            left_ms -= work_ms
            wall_ms = piece.wall_ms * (work_ms / piece.work_ms)
            stepping_ms = work_ms * (1 - stalls)
            self.causes[Cause.LOST_WORK] += piece.wall_ms - wall_ms
            self.causes[Cause.DEGRADED] += wall_ms * (1 - piece.capacity)
            self.causes[STRAGGLER] += wall_ms * piece.capacity * (1 - 1 / piece.factor)
            self.causes[Cause.CHECKPOINT_STALL] += work_ms * stalls
            self.causes[STEPPING] += stepping_ms
            self.kept_ms[piece.block] += stepping_ms
        self._pieces = []

    def _stalls_ms(self, work_ms: float) -> float:
        """Return the stalls in so much training from a save on."""
        saves, rest_ms = divmod(work_ms, self._cycle_ms)
        stall_ms = self._cycle_ms - self._interval_ms
        return saves * stall_ms + max(rest_ms - self._interval_ms, 0.0)
