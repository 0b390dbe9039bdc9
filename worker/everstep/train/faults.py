"""Makes a rank do wrong on purpose, at a step: what detectors are tried with.

The faults themselves are values of ``everstep.faults.kinds``. Without the variable there is no
injector, and nothing is asked in a step.

That something has struck is noted in a file before it strikes, so that it does not strike again
when its step is made again: in the directory that EVERSTEP_FAULT_MARKS names, which all hosts must
share, or else in the host's memory. The latter outlives the rank and its agent but not the host,
and is not there on the host that a rank is moved to: name the fault's host then. The files are
also the truth about what was done, when and where.
"""

from __future__ import annotations

import hashlib
import os
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import msgspec
import torch
from torch import Tensor

from everstep.core.errors import InvalidInput
from everstep.core.spec import AuditSpec, LayoutSpec
from everstep.core.system import Clock, SystemClock
from everstep.faults.kinds import (
    EVERY_RANK,
    MARKS_VARIABLE,
    VARIABLE,
    WRONG,
    BlockLoader,
    Fault,
    Flip,
    How,
    Kill,
    Moment,
    NanGradient,
    Part,
    Place,
    Poison,
    Raise,
    Slow,
    Spike,
    Spin,
    Stop,
    as_environment,
    at,
    everywhere,
    read_faults,
)
from everstep.memory.layout import job_dir, rank_dir
from everstep.train.batches import Batch
from everstep.train.flips import Flips
from everstep.train.state import TrackedState

__all__ = [
    "EVERY_RANK", "MARKS_VARIABLE", "VARIABLE", "BlockLoader", "Fault", "Flip", "How",
    "InjectedError", "Injector", "Kill", "Marks", "NanGradient", "Part", "Place", "Poison",
    "Raise", "Slow", "Spike", "Spin", "Stop", "as_environment", "at", "everywhere", "injector",
    "read_faults",
]  # fmt: skip

BURN_SIZE: Final = 48  # a product of such matrices takes some microseconds: the grain of a delay
FOREVER_S: Final = 1e9
MARKS_DIR: Final = "faults"


class InjectedError(RuntimeError):
    """What a fault of kind ``raise`` raises."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Marks:
    """Files that say what has struck.

    Args:
        directory: where they lie; None: nowhere, each is on record as long as the process.
        rank: whose.
        where: what else every file says.
        clock: real time.
        campaign: whether somebody reads the files, and says of a fault that cannot happen that the
            campaign is wrong: the rank goes on without it.
    """

    directory: Path | None
    rank: int
    where: Mapping[str, Any]
    clock: Clock
    seen: set[str]
    campaign: bool = False

    def said(self, fault: Fault) -> dict[str, Any] | None:
        """Return what was noted when a fault struck; None: it has not."""
        path = self._path(fault)
        if path is None or not path.exists():
            return None
        found: dict[str, Any] = msgspec.json.decode(path.read_bytes())
        return found

    def _path(self, fault: Fault) -> Path | None:
        return self.directory / mark_name(fault, self.rank) if self.directory is not None else None

    def strikes(self, fault: Fault, details: Mapping[str, Any]) -> bool:
        """Say whether a fault may strike now, and note that it does."""
        name = mark_name(fault, self.rank)
        path = self._path(fault)
        struck = path is not None and path.exists()
        if isinstance(fault, Moment):
            if name in self.seen or (struck and not fault.every_generation):
                return False
        elif name in self.seen:
            return True
        self.seen.add(name)
        if path is not None and not struck:
            self._write(path, fault, details)
        sys.stderr.write(f"fault injected: {fault} {dict(details)}\n")
        return True

    def set_aside(self, fault: Fault, error: InvalidInput) -> None:
        """Note that a fault cannot happen.

        Raises:
            InvalidInput: nobody would read it; it says that the faults are wrong, not user code.
        """
        if self.directory is None or not self.campaign:
            raise InvalidInput(f"the faults in {VARIABLE} are wrong, not the code: {error}")
        self._write(
            self.directory / f"{WRONG}-{mark_name(fault, self.rank)}", fault, {WRONG: str(error)}
        )
        sys.stderr.write(f"fault set aside, the campaign is wrong: {fault}: {error}\n")

    def _write(self, path: Path, fault: Fault, details: Mapping[str, Any]) -> None:
        said = {
            "fault": msgspec.to_builtins(fault),
            "rank": self.rank,
            "at_ms": self.clock.now_ms(),
            **self.where,
            **details,
        }
        path.parent.mkdir(parents=True, exist_ok=True)
        fresh = path.with_name(f".{path.name}")
        fresh.write_bytes(msgspec.json.encode(said))
        fresh.replace(path)  # whole or not at all


def mark_name(fault: Fault, rank: int) -> str:
    """Return the file's name: readable, and another one for each fault."""
    digest = hashlib.sha256(msgspec.json.encode(fault)).hexdigest()[:8]
    kind = type(fault).__struct_config__.tag
    return f"{kind}-rank-{rank}-step-{fault.step}-{digest}.json"


class Injector:
    """Makes one rank obey its faults.

    Args:
        faults: this rank's.
        marks: what has struck.
        snapshots: the directory of the rank's snapshots, if it takes any.
    """

    def __init__(
        self, faults: Sequence[Fault], marks: Marks, *, snapshots: Path | None = None
    ) -> None:
        self._faults = tuple(faults)
        self._marks = marks
        flips = [one for one in faults if isinstance(one, Flip)]
        self._flips = Flips(flips, marks.strikes, snapshots, set_aside=marks.set_aside)
        self._state: TrackedState | None = None
        self._position = 0

    @property
    def count(self) -> int:
        """How many faults it has, each step of a lasting flip one."""
        return len(self._faults)

    def watch(self, state: TrackedState, step: int) -> None:
        """Take the tracked state as it is after a restore.

        Raises:
            InvalidInput: a flip names what this rank has not, and no campaign is told of it.
        """
        self._state = state
        self._flips.watch(state, step)

    def loaded(self, step: int, batch: Batch) -> Batch:
        """Act on a batch that has just been read."""
        self._position = batch.position
        for fault in self._faults:
            match fault:
                case BlockLoader() if fault.is_on(step) and self._marks.strikes(fault, {}):
                    time.sleep(fault.seconds or FOREVER_S)
                case Poison() if fault.is_on(batch.position):
                    self._marks.strikes(fault, {"position": batch.position})
                    batch = poisoned(batch)
                case _:
                    pass
        return batch

    def computed(self, step: int, own_ms: float, gradients: Sequence[Tensor]) -> None:
        """Act between backward and the step's agreement.

        Args:
            step: completed ones.
            own_ms: what the rank's work has taken so far.
            gradients: the rank's parts.

        Raises:
            InjectedError: as told.
        """
        self._flips.reduced(step)
        for fault in self._faults:
            if isinstance(fault, Slow):
                if fault.is_on(step):
                    self._marks.strikes(fault, {})
                    _take(own_ms * fault.percent / 100, fault.how)
            elif isinstance(fault, Kill | Stop | Spin | Raise | NanGradient):
                strikes = fault.is_on(step) and self._marks.strikes(fault, {})
                if strikes:
                    _strike(fault, gradients)

    def updated(self, step: int) -> None:
        """Act behind the update, when the snapshot before it is whole."""
        self._flips.updated(step)
        for fault in self._faults:
            if isinstance(fault, Spike) and fault.is_on(self._position):
                self._marks.strikes(fault, {"position": self._position})
                self._wreck(fault.factor)
        self._position = step + 1  # of loops that take their batches from elsewhere

    @torch.no_grad()
    def _wreck(self, factor: float) -> None:
        for optimizer in self._state.optimizers.values() if self._state is not None else ():
            for group in optimizer.param_groups:
                for parameter in group["params"]:
                    parameter.mul_(factor)


def injector(
    env: Mapping[str, str],
    rank: int,
    layout: LayoutSpec | None = None,
    *,
    audit: AuditSpec | None = None,
) -> Injector | None:
    """Return what makes this rank obey, None when no fault is meant for it.

    An audit's ranks have the numbers of others, and its spec their faults: it obeys only those
    that are meant for its host by name.

    Raises:
        InvalidInput: a fault cannot be read.
    """
    host = env.get("EVERSTEP_HOST_ID", "")
    shape = layout if layout is not None else LayoutSpec()
    hosts = ("", host) if audit is None else (host,)
    found = [one for one in read_faults(env) if one.host in hosts]
    told_of = [one for one in found if _concerns(one, rank, shape)]
    if not told_of:
        return None
    memory, job_id = env.get("EVERSTEP_MEMORY_DIR", ""), env.get("EVERSTEP_JOB_ID", "")
    in_memory = job_dir(Path(memory), job_id) / MARKS_DIR if memory else None
    told = env.get(MARKS_VARIABLE, "")
    marks = Marks(
        directory=Path(told) / job_id if told else in_memory,
        rank=rank,
        where={"host": host, "generation": int(env.get("EVERSTEP_GENERATION", "0"))},
        clock=SystemClock(),
        seen=set(),
        campaign=bool(told),
    )
    mine = [each for one in told_of for each in _here(one, marks)]
    return Injector(mine, marks, snapshots=rank_dir(Path(memory), job_id, rank) if memory else None)


def poisoned(batch: Batch) -> Batch:
    """Return a batch whose targets are tokens that it has not, the same on all who share it.

    As a damaged file gives: what a model has hardly seen costs it more than what is only misplaced.
    """
    chance = torch.Generator().manual_seed(batch.position)
    has_targets = isinstance(batch.targets, Tensor)
    right = batch.targets if has_targets else batch.inputs
    if right.is_floating_point():
        wrong = torch.empty(right.shape, dtype=right.dtype).normal_(generator=chance)
    else:
        every = torch.arange(int(right.max()) + 1, device=right.device)
        absent = every[~torch.isin(every, right)].cpu()
        tokens = absent if absent.numel() else every.cpu()
        chosen = torch.randint(tokens.numel(), right.shape, generator=chance)
        wrong = tokens[chosen].to(right.dtype)
    wrong = wrong.to(right.device)
    return replace(batch, targets=wrong) if has_targets else replace(batch, inputs=wrong)


def _here(fault: Fault, marks: Marks) -> tuple[Fault, ...]:
    """Return what a fault still does to this rank, where it is now."""
    each: tuple[Fault, ...] = fault.each() if isinstance(fault, Flip) else (fault,)
    if len(each) == 1 and not (isinstance(fault, Slow) and fault.stays):
        return each
    said = marks.said(each[0])
    moved = said is not None and said["host"] != marks.where["host"]
    return () if moved else each


def _concerns(fault: Fault, rank: int, layout: LayoutSpec) -> bool:
    if fault.rank in (EVERY_RANK, rank):
        return True
    # Ranks that work on the same batch must all see the same: else they are out of step.
    return isinstance(fault, Poison) and _share(fault.rank, layout) == _share(rank, layout)


def _share(rank: int, layout: LayoutSpec) -> int:
    """Return the data-parallel group of a rank: ranks count pp, dp_replicate, dp_shard, tp."""
    return rank // layout.tp % layout.dp


def _strike(fault: Kill | Stop | Spin | Raise | NanGradient, gradients: Sequence[Tensor]) -> None:
    match fault:
        case Kill():
            os.kill(os.getpid(), signal.SIGKILL)
        case Stop():
            os.kill(os.getpid(), signal.SIGSTOP)
        case Spin():
            end_s = time.monotonic() + (fault.seconds or FOREVER_S)
            while time.monotonic() < end_s:
                pass
        case Raise():
            raise InjectedError(fault.message)
        case NanGradient():
            first = next(one for one in gradients if one.numel())
            first[(0,) * first.dim()] = float("nan")


def _take(extra_ms: float, how: How) -> None:
    if how is How.SLEEP:
        time.sleep(extra_ms / 1e3)
        return
    square = torch.ones(BURN_SIZE, BURN_SIZE)
    end_ns = time.thread_time_ns() + int(extra_ms * 1e6)
    while time.thread_time_ns() < end_ns:
        torch.mm(square, square)
