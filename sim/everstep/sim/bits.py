"""Wrong bits in a simulated training's state: who has them, what comes of them, what ranks show.

A host whose memory flips a bit has one rank that holds other bits than all who must hold the same.
Whatever is made with its help from then on is tainted, and so is every state that comes of that.
What ranks do about it is the SDK's own (``everstep.memory.gate``).

A state's name says which generation made it. Its bits do not: a step that is made again, from the
same bits and with the same batches, comes to the same bits (``like``).
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Final

from everstep.core.circles import Over, circle_of
from everstep.core.placement import Layout
from everstep.core.spec import CorruptionSpec
from everstep.memory.gate import Gate
from everstep.wire.v1.agents_pb2 import Fingerprint

if TYPE_CHECKING:
    from everstep.sim.host import HostRun

SHOWN_STEPS: Final = 4  # memory holds two
TENSOR: Final = "weights"
LINGER_S: Final = 120.0  # as everstep.train.saving


class Bits:
    """Of all jobs of a world."""

    def __init__(self) -> None:
        self.flips: dict[tuple[str, int], set[str]] = {}  # job, step -> hosts; each strikes once
        self.tainted: dict[str, int] = {}  # states by name, each with the first wrong step
        self.wrong: dict[str, frozenset[int]] = {}  # whose snapshots of a state are wrong
        self.proved: set[str] = set()  # jobs of which all is known to be held alike if it is right
        self.never_equal: set[str] = set()  # jobs of which it was not from the beginning
        self._like: dict[str, str] = {}  # states by name, each with what tells its bits

    def like(self, state: str) -> str:
        """Return what two states have in common whose bits are the same."""
        return self._like.get(state, state)

    def made(self, before: str, state: str, how: str) -> None:
        """Note how a state came to its bits."""
        text = f"{self.like(before)}/{how}"
        self._like[state] = hashlib.sha256(text.encode()).hexdigest()[:16]

    def strike(self, job_id: str, step: int, runs: Mapping[str, HostRun]) -> set[int]:
        """Return the ranks whose state of this step has a wrong bit, and has no other again."""
        hosts = self.flips.pop((job_id, step), set())
        return {min(runs[host].ranks) for host in hosts if host in runs}


class Sharing:
    """What the ranks of one generation hold alike, or should."""

    def __init__(
        self, bits: Bits, job_id: str, layout: Layout, rules: CorruptionSpec, *, data: str
    ) -> None:
        self._bits = bits
        self._data = data  # tells which batches are left out
        self._job_id = job_id
        self._layout = layout
        self._gate = Gate(hold=rules.on_corruption == "replace")
        self._wrong: set[int] = set()
        self.wrong_since = 0  # the first step of which a wrong snapshot was kept that shows; or 0
        self._shown: dict[int, tuple[str, frozenset[int]]] = {}
        # What tensor-parallel ranks cut is nearly all there is: replicas alone hold it alike.
        self._over = int(Over.REPLICATE if layout.dp_replicate > 1 else Over.TP)
        if layout.dp_replicate == layout.tp == 1:
            self._over = 0
        if rules.on_corruption == "off":
            self._over = 0

    def made(
        self,
        step: int,
        before: str,
        state: str,
        runs: Mapping[str, HostRun],
        *,
        bent: Collection[int],
    ) -> None:
        """Note a state that was made from another one, with ``bent`` ranks' work in it."""
        wrong = sorted(self._wrong)
        self._bits.made(before, state, f"{step}/{self._layout}/{self._data}/{wrong}/{sorted(bent)}")
        self._wrong |= self._bits.strike(self._job_id, step, runs)
        if before in self._bits.tainted or self._wrong:
            self._bits.tainted[state] = self._bits.tainted.get(before, step)
        if self._wrong:
            self._bits.wrong[state] = frozenset(self._wrong)

    def may_keep(self, step: int) -> bool:
        """Say whether a snapshot may be taken over the older one."""
        if not self._shown:
            return True
        held = max(self._shown)
        equal = not self._shown[held][1]
        opens = self._gate.opens(step, held_step=held, compared=bool(self._over), equal=equal)
        if self.verified_step:
            self._bits.proved.add(self._job_id)
        return opens

    def restored(self, step: int, state: str, wrong: Collection[int]) -> None:
        """Go on from snapshots, those of some ranks wrong."""
        self._wrong |= set(wrong)
        if self._job_id not in self._bits.never_equal:
            self._bits.proved.add(self._job_id)
        self.kept(step, state)

    def kept(self, step: int, state: str) -> None:
        """Note a snapshot."""
        self._shown[step] = state, frozenset(self._wrong)
        if self._wrong and self._over and not self.wrong_since:
            self._differ(step)
        self._shown.pop(min(self._shown), None) if len(self._shown) > SHOWN_STEPS else None

    def _differ(self, step: int) -> None:
        """Note the first wrong snapshot, unless nothing shows that it is one.

        What was never equal may be none that must be: the monitor says so and leaves it at that.
        """
        if self._job_id in self._bits.proved:
            self.wrong_since = step
        else:
            self._bits.never_equal.add(self._job_id)

    def shows(self, step: int) -> bool:
        """Say whether ranks hold a snapshot of a step."""
        return step in self._shown

    @property
    def verified_step(self) -> int:
        """The newest step that was found equal everywhere."""
        return max(self._gate.verified_step, 0)

    def fingerprints(self, step: int, rank: int) -> list[Fingerprint]:
        """Return what a rank tells of its snapshot of a step."""
        if step not in self._shown or not self._over:
            return []
        digest = hashlib.sha256(self.checksum(step, rank).encode()).digest()
        return [Fingerprint(over=self._over, value=int.from_bytes(digest[:8], "big"))]

    def checksums(self, step: int, ranks: Collection[int]) -> dict[int, tuple[int, str]]:
        """Return what ranks hold of a step: over which dimensions alike, and its checksum."""
        if step not in self._shown or not self._over:
            return {}
        return {rank: (self._over, self.checksum(step, rank)) for rank in ranks}

    def checksum(self, step: int, rank: int) -> str:
        """Return the checksum of what a rank holds of a step."""
        state, wrong = self._shown[step]
        circle = circle_of(self._layout, rank, self._over)
        return f"{self._bits.like(state)} {circle} {rank in wrong and rank}"
