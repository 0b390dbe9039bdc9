"""Shadow steps: forward and backward of another replica's micro-batches, to compare the bits.

Every data-parallel group starts a step from the same parameters. So a group can make, from the same
samples and random numbers, the very gradient that another group makes: before ranks add gradients
up, both have the same bits, or one of the two has computed wrong. A shadow step has the user's own
loop do that: it is given the other group's share of the next global batch, and what comes of it is
fingerprinted and thrown away. Then the loop is given its own share, as if nothing had been. It goes
with pipelines, tensor parallelism and loops of any kind, because the loop itself runs again; ranks
pass on nothing but 10 KB of random states.

Whose work is re-run is rotated, so with three replicas or more whoever is wrong is soon in two
pairs that differ, and nobody else is. That something differed all ranks learn in the step's
collective; then the next steps are shadowed too, with other pairs (of two groups each makes its own
work again: chips that are wrong seldom make the same mistake twice). Who it is the monitor says.

What a loop must bear: its body runs once more now and then (``batch.shadow`` says so), between two
calls of ``run.step()``. Buffers and random states are put back; what else the body changes is not.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import torch
import xxhash
from torch import Tensor, nn
from torch import distributed as dist
from torch.distributed.device_mesh import DeviceMesh
from torch.optim import Optimizer
from torch.utils import _pytree as pytree

from everstep.core.rounds import Rounds
from everstep.train import randomness
from everstep.train.bits import Digest
from everstep.train.local_gradients import LocalGradients

RANDOM_BYTES: Final = 16_384  # of a message; torch's, Python's and numpy's states take 10 KB
TAG: Final = 7_207  # of the message: not one that user code has under way in the same group
# Of what is summed over all ranks in the step's collective: float64 holds 2**14 of them exactly.
SUM_BITS: Final = 36


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """Fingerprints of one group's micro-batches on one rank: outputs and loss, and gradients."""

    forward: int
    gradient: int

    def summand(self) -> int:
        """Return a number for the sum over all ranks."""
        both = xxhash.xxh3_64_intdigest(struct.pack("<QQ", self.forward, self.gradient))
        return both >> (64 - SUM_BITS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rerun:
    """What one rank found at a step.

    Args:
        of: whose work it made too, from the same parameters.
        own: of its own micro-batches.
        other: of those of ``of``.
    """

    of: int
    own: Work
    other: Work


class Outputs:
    """Fingerprints what the tracked modules return where autograd records it."""

    def __init__(self, modules: Iterable[nn.Module]) -> None:
        self._digest: Digest | None = None
        for module in modules:
            module.register_forward_hook(self._look)

    def begin(self) -> None:
        """Fingerprint outputs from now on, from scratch."""
        self._digest = Digest()

    def end(self, loss: float | None) -> int:
        """Return the fingerprint of outputs and loss, and stop."""
        assert self._digest is not None, "begin comes first"
        digest, self._digest = self._digest, None
        if loss is not None:
            digest.add_bytes(struct.pack("<d", loss))
        return digest.value()

    @torch.no_grad()
    def _look(self, _module: nn.Module, _args: Any, output: Any) -> None:
        # Not what a loop evaluates in between.
        if self._digest is None or not _records(output):
            return
        for one in pytree.tree_leaves(output):
            if isinstance(one, Tensor):
                self._digest.add(one)


class Shadow:
    """One rank's shadow steps.

    Args:
        every: how many steps apart; 0: only when somebody asks.
        mesh: the run's.
        device: of the rank.
        group: all ranks, for CPU tensors.
        first_shift: how far the first pairing reaches, less one; the same on all ranks.
        modules: the tracked ones.
        gradients: of them.
    """

    def __init__(
        self,
        *,
        every: int,
        mesh: DeviceMesh,
        device: torch.device,
        group: dist.ProcessGroup,
        first_shift: int,
        modules: Sequence[nn.Module],
        gradients: LocalGradients,
    ) -> None:
        self._device = device
        self._process_group = group
        self._replicas, self._index = replicas_of(mesh)
        self._rounds = Rounds(every=every, replicas=len(self._replicas), first_shift=first_shift)
        self._modules = modules
        self._gradients = gradients
        self._outputs = Outputs(modules)
        self._kept: _Kept | None = None
        self._own_is_asked = False
        self._of = 0  # whose work is made, or was last
        self._other: Work | None = None
        self._own: Work | None = None

    @property
    def active(self) -> bool:
        """Whether another group's batch is on its way through the loop."""
        return self._kept is not None

    def due(self, step: int) -> bool:
        """Whether the step that begins with ``step`` completed ones is to be shadowed."""
        return self._rounds.due(step)

    def ask_own(self) -> None:
        """Have the rank's own work of the next step fingerprinted, shadowed or not."""
        self._own_is_asked = True
        self._watch()

    def own_begins(self) -> None:
        """Leave out what has come since ``ask_own``: the loop gets its batch now."""
        if self._own_is_asked:
            self._watch()

    def begin(self) -> int:
        """Take the random states of another replica; returns its data-parallel group."""
        count = len(self._replicas)
        shift = self._rounds.next_shift()
        owner = (self._index + shift) % count
        self._of = self._replicas[owner]
        mine = randomness.packed(self._device)
        self._kept = _Kept(mine, self._modules)
        theirs = mine
        if shift:
            theirs = self._exchanged(mine, to=self._replicas[(self._index - shift) % count])
        randomness.unpack(self._device, theirs)
        self._watch()
        return owner

    def end(self, optimizers: Iterable[Optimizer], loss: float | None) -> None:
        """Note what has come of it, and put everything back."""
        assert self._kept is not None, "begin comes first"
        self._other = self._seen(loss)
        for optimizer in optimizers:
            optimizer.zero_grad()
        self._kept.put_back(self._device)
        self._kept = None
        self._watch()

    def own_done(self, loss: float | None) -> int:
        """Note what this rank's own batch has come to; returns its summand: 0 in all if all agree.

        Sums of fingerprints are equal when each replica's work came out alike where it was re-run,
        and with a chance of one in 2**36 otherwise.
        """
        if self._other is None and not self._own_is_asked:
            return 0
        self._own = self._seen(loss)
        return 0 if self._other is None else self._own.summand() - self._other.summand()

    def agreed(self, *, differs: bool, asked: bool) -> tuple[Rerun | None, Work | None]:
        """Take what all ranks have agreed on for this step; returns what there is to tell of it.

        That is what a shadow step has shown, and the rank's own work if it was asked for.
        """
        found = None
        if self._own is not None and self._other is not None:
            found = Rerun(of=self._of, own=self._own, other=self._other)
        own = self._own if self._own_is_asked else None
        self._own = self._other = None
        self._own_is_asked = False
        self._rounds.agreed(shadowed=found is not None, differs=differs, asked=asked)
        return found, own

    def _watch(self) -> None:
        self._outputs.begin()
        self._gradients.begin()

    def _seen(self, loss: float | None) -> Work:
        return Work(forward=self._outputs.end(loss), gradient=self._gradients.end())

    def _exchanged(self, mine: bytes, *, to: int) -> bytes:
        assert len(mine) + 4 <= RANDOM_BYTES, "random states are larger than they ever were"
        told = struct.pack("<I", len(mine)) + mine
        sent = torch.frombuffer(bytearray(told.ljust(RANDOM_BYTES, b"\0")), dtype=torch.uint8)
        received = torch.empty_like(sent)
        works = [
            dist.isend(sent, to, group=self._process_group, tag=TAG),
            dist.irecv(received, self._of, group=self._process_group, tag=TAG),
        ]
        for work in works:
            assert work is not None, "every rank is in the group of all ranks"
            work.wait()
        data = received.numpy().tobytes()
        (length,) = struct.unpack_from("<I", data)
        return data[4 : 4 + length]


class _Kept:
    """What a pass through the loop changes beside gradients, as it was."""

    def __init__(self, random: bytes, modules: Iterable[nn.Module]) -> None:
        self._random = random
        self._buffers: list[tuple[nn.Module, str, Tensor, Tensor]] = []
        self._bare: list[nn.Parameter] = []  # without a gradient
        self._others: list[tuple[nn.Parameter, Tensor]] = []
        for module in modules:
            for part in module.modules():
                for name, buffer in part.named_buffers(recurse=False):
                    self._buffers.append((part, name, buffer, buffer.clone()))
            for parameter in module.parameters():
                if parameter.grad is None:
                    self._bare.append(parameter)
                else:  # of no optimizer, or kept by the loop
                    self._others.append((parameter, parameter.grad.clone()))

    @torch.no_grad()
    def put_back(self, device: torch.device) -> None:
        for module, name, buffer, value in self._buffers:
            if getattr(module, name) is not buffer:
                setattr(module, name, buffer)
            buffer.copy_(value)  # always: autograd does not count what batch norm changes
        for parameter in self._bare:
            parameter.grad = None
        for parameter, gradient in self._others:
            parameter.grad = gradient
        randomness.unpack(device, self._random)


def replicas_of(mesh: DeviceMesh) -> tuple[tuple[int, ...], int]:
    """Return the ranks in this rank's place, one of each data-parallel group, and its own index."""
    pp, tp = mesh.get_local_rank("pp"), mesh.get_local_rank("tp")
    places = mesh.mesh[pp].flatten(0, 1)[:, tp].tolist()
    index = mesh.get_local_rank("dp_replicate") * mesh["dp_shard"].size()
    return tuple(places), index + mesh.get_local_rank("dp_shard")


def _records(output: Any) -> bool:
    tensors = (one for one in pytree.tree_leaves(output) if isinstance(one, Tensor))
    return any(one.requires_grad for one in tensors)
