"""One number for each circle of ranks that must hold the same bits, from a snapshot's checksums.

Replicas under ``dp_replicate`` hold the same parameters and moments, tensor-parallel ranks the same
of what is not cut for them: what was summed over all is stepped on by all alike. A snapshot has a
checksum of each tensor anyway, made beside training, so a fingerprint costs one small hash and no
look at the tensors.

What belongs to a circle is read off the parameters' placements, by the convention that the norm of
the gradients goes by (``gradients``): a dimension that a tensor's mesh does not have holds copies.
Moments lie as their parameter does. Buffers, random states and objects are a rank's own.

Rejected: a number for each tensor, which at 16,384 ranks is 100 MB a step; a pass over the tensors
at every n-th step, which stalls training and looks too seldom.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

import xxhash
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor

from everstep.core.circles import Over, circle_of, neighbour_of, word_of
from everstep.core.placement import Layout
from everstep.core.spec import CorruptionSpec
from everstep.memory.control import NO_STEP
from everstep.memory.parts import encoded_circles
from everstep.memory.reader import outline_in

NOTHING_SAID: Final = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """The fingerprints of one step, by the dimensions that their circles reach over."""

    step: int = NO_STEP
    values: Mapping[int, int] = field(default_factory=dict)


class Fingerprints:
    """A rank's, of its newest snapshot.

    Args:
        layout: of the job.
        rank: whose.
        every_steps: only steps that this divides are compared; 0: none.
    """

    def __init__(self, layout: Layout, rank: int, every_steps: int) -> None:
        self._layout = layout
        self._rank = rank
        self._every_steps = every_steps
        self._members: dict[int, list[int]] = {}  # over -> numbers of its tensors
        self.encoded = encoded_circles({})  # what belongs to which circle, for a snapshot's header
        self.begun_step = NO_STEP
        self.shown = Shown()

    def plan(self, names: Sequence[str], shared: Mapping[str, Tensor]) -> None:
        """Take the tensors of snapshots in their order, and the parameter that each lies as."""
        members: dict[int, list[int]] = {}
        for number, name in enumerate(names):
            like = shared.get(name)
            over = over_of(self._layout, self._rank, like) if like is not None else 0
            if over:
                members.setdefault(over, []).append(number)
        self._members = members
        circles = {over: [names[one] for one in ones] for over, ones in sorted(members.items())}
        self.encoded = encoded_circles(circles)

    def begin(self, step: int) -> None:
        """Note that a snapshot of a step is under way."""
        self.begun_step = step

    def take(self, step: int, checksums: Sequence[str]) -> None:
        """Fold the checksums of a snapshot that is whole; called in the thread that made it so."""
        if step == self.shown.step:
            return
        values: dict[int, int] = {}
        if self._every_steps and step % self._every_steps == 0:
            for over, numbers in self._members.items():
                joined = "".join([checksums[number] for number in numbers])
                values[over] = xxhash.xxh3_64_intdigest(joined.encode())
        self.shown = Shown(step=step, values=values)

    def take_kept(self, path: Path, names: Sequence[str]) -> None:
        """Fold those of a snapshot that lies in a slot file, as far as it has these tensors.

        After a change of layout nothing lies there: the step is in old ranks' slots, where nobody
        compares it, and nothing is to be waited for.
        """
        outline = outline_in(path)
        if outline is None:
            self.begin(self.shown.step)
        else:
            checksums = {one.name: one.checksum for one in outline.entries}
            self.take(outline.step, [checksums.get(name, "") for name in names])

    @property
    def word(self) -> float | None:
        """What this rank adds to the step's sum; None while its newest snapshot is not whole."""
        shown = self.shown
        if shown.step != self.begun_step:
            return None
        return word_of(self._layout, self._rank, shown.values) if shown.values else NOTHING_SAID

    @property
    def compared(self) -> bool:
        """Whether the newest snapshot has any."""
        return bool(self.shown.values)

    def told(self) -> dict[str, Any]:
        """Return what the monitor is told."""
        shown = self.shown
        if not shown.values:
            return {}
        return {"compared_step": shown.step, "fingerprints": sorted(shown.values.items())}


def fingerprints_of(mesh: DeviceMesh, rank: int, rules: CorruptionSpec) -> Fingerprints:
    """Return what makes a rank's, as the job wants them."""
    off = rules.on_corruption == "off"
    sizes = {name: mesh[name].size() for name in ("pp", "dp_replicate", "dp_shard", "tp")}
    return Fingerprints(Layout(**sizes), rank, 0 if off else rules.check_every_steps)


def over_of(layout: Layout, rank: int, tensor: Tensor) -> int:
    """Return over which dimensions a rank's part of a tensor is held by others, too."""
    if isinstance(tensor, DTensor):
        return _over(layout, rank, tensor.device_mesh, tensor.placements)
    return _over(layout, rank, None, ())


@lru_cache(maxsize=256)
def _over(layout: Layout, rank: int, mesh: DeviceMesh | None, placements: tuple[Any, ...]) -> int:
    found = 0
    for over in Over:
        other = neighbour_of(layout, rank, over)
        if other is not None and _alike(mesh, placements, rank, other):
            found |= over
    assert not found or len(circle_of(layout, rank, found)) > 1, "a circle has others in it"
    return found


def _alike(mesh: DeviceMesh | None, placements: Iterable[Any], rank: int, other: int) -> bool:
    """Whether two ranks hold the same part: where their coordinates differ, nothing is cut."""
    if mesh is None:
        return True
    here, there = (mesh.mesh == one for one in (rank, other))
    if not bool(there.any()):
        return True
    pairs = zip(here.nonzero()[0].tolist(), there.nonzero()[0].tolist(), placements, strict=True)
    return all(mine == its or placement.is_replicate() for mine, its, placement in pairs)
