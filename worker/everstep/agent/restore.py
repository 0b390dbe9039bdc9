"""Brings a rank's snapshot of the plan's step into this host's memory.

The sources of the plan are tried in order, and nothing is believed that does not fit its checksums:
a copy that lies only costs the time to read it. What comes from elsewhere is checked while it
comes; what lies here is checked by the rank, which reads it anyway, and asks again when it is
damaged. Every refusal is kept as a sentence that names the tensor, what was expected and what came,
because the next question is always which copy was bad.
Only what was read and is wrong, or is not there, is refused for good; a store that is away is not.

The same step is restored once for a generation, whoever asks: ``cmd.restore`` ahead of a start and
the start itself share one task.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final, TypeVar

import xxhash

from everstep.agent.peer_protocol import PeerConnection
from everstep.agent.runs import Answer, RankRestore, Refused, Source, SourceKind
from everstep.agent.store import Held, HostMemory, held_in, invalidate, slot_among
from everstep.core.errors import (
    CorruptData,
    EverstepError,
    NotFoundError,
    RefusedError,
    Unavailable,
)
from everstep.core.ports import ObjectStore
from everstep.memory import layout
from everstep.memory.reader import SlotReader
from everstep.memory.receive import SlotReceiver, StreamReceiver
from everstep.memory.slot_file import WrittenSlotFile

log = logging.getLogger(__name__)

T = TypeVar("T")
# A source that does not answer is not bad: it is asked again for a while. A peer's agent that was
# killed is back in 2 s; a peer that is gone is the monitor's to find, and our failure is its sign.
# An object store may be all there is: other ranks wait for the collective timeout, two minutes.
PATIENCE_S: Final = {
    SourceKind.OWN_MEMORY: 2.0,
    SourceKind.PEER_MEMORY: 2.0,
    SourceKind.OBJECT_STORE: 60.0,
}
RETRY_S_MIN: Final = 0.25
RETRY_S_MAX: Final = 5.0
CHUNK_BYTES: Final = 4 << 20  # large against a request's overhead, small against the host's memory


@dataclass(frozen=True, slots=True, kw_only=True)
class _Attempt:
    """What is to be brought here, and on whose behalf.

    ``old``: of a rank of another layout; ``of_job_id``: of another job.
    """

    job_id: str
    generation: int
    rank: int
    step: int
    old: bool = False
    of_job_id: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Damaged:
    """A rank found the slot that ``answer`` names damaged."""

    answer: Answer
    problem: str


class Restorer:
    """Restores ranks, each once a generation and step, all at the same time."""

    def __init__(
        self, host_id: str, memory: HostMemory, objects: ObjectStore | None, executor: Executor
    ) -> None:
        self._host_id = host_id
        self._memory = memory
        self._objects = objects
        self._executor = executor
        self._tasks: dict[_Attempt, asyncio.Task[Answer]] = {}

    async def restore(
        self,
        job_id: str,
        generation: int,
        step: int,
        plan: RankRestore,
        damaged: Damaged | None = None,
        *,
        old: bool = False,
        of_job_id: str = "",
    ) -> Answer:
        """Return ``slot_ready`` or ``restore_failed``; never raises for a bad source.

        Args:
            job_id: whose.
            generation: on whose behalf.
            step: which.
            plan: where to look.
            damaged: what this was answered before, and is not to be used again.
            old: the rank is one of another layout: its snapshot is used where it lies, or brought
                beside those of the new ranks.
            of_job_id: whose snapshot it is, if not this job's.
        """
        key = _Attempt(
            job_id=job_id,
            generation=generation,
            rank=plan.rank,
            step=step,
            old=old,
            of_job_id=of_job_id,
        )
        if damaged is not None and self._answered(key) == damaged.answer:
            self._tasks.pop(key)  # else another rank has told before, and it is brought already
        if key not in self._tasks:
            self._tasks[key] = asyncio.create_task(self._restore(key, plan, damaged))
        # Shielded: a caller that goes away must not leave a thread that writes unobserved.
        answer = await asyncio.shield(self._tasks[key])
        if answer.kind == "restore_failed":
            self._tasks.pop(key, None)  # asked again, a peer or store may be back
        return answer

    def _answered(self, key: _Attempt) -> Answer | None:
        task = self._tasks.get(key)
        return task.result() if task is not None and task.done() else None

    def end(self, job_id: str, generation: int) -> None:
        """Forget older generations; the memory's fence has cut off their writers."""
        for key in list(self._tasks):
            if key.job_id == job_id and key.generation < generation:
                del self._tasks[key]

    async def _restore(
        self, attempt: _Attempt, plan: RankRestore, damaged: Damaged | None
    ) -> Answer:
        loop = asyncio.get_running_loop()
        began_s, pause_s = loop.time(), RETRY_S_MIN
        problems: dict[Source, str] = {}
        refused: list[Refused] = []
        left = list(plan.sources)
        if damaged is not None:
            left = [source for source in left if not self._is_here(source)]
            refused += damaged.answer.refused
            source = self._give_up(plan, damaged.answer)
            what = f"rank {attempt.rank} step {attempt.step} {_name(source)}: {damaged.problem}"
            problems[source] = what
            if self._is_here(source):  # what came from elsewhere was sound when it came
                refused.append(_refused(attempt, source, what))
        while left:
            away: list[Source] = []
            for source in left:
                try:
                    path = await self._load(attempt, source)
                except (EverstepError, OSError) as error:
                    what = f"rank {attempt.rank} step {attempt.step} {_name(source)}: {error}"
                    if problems.get(source) != what:
                        log.warning("restore source not usable: %s", what)
                    problems[source] = what
                    if isinstance(error, Unavailable):
                        away.append(source)
                    elif isinstance(error, (CorruptData, NotFoundError)):
                        refused.append(_refused(attempt, source, what))
                    continue
                return Answer(
                    kind="slot_ready",
                    step=attempt.step,
                    slot=slot_of(path),
                    path=str(path),
                    source_kind=source.kind.lower(),
                    problems=tuple(problems.values()),
                    refused=tuple(refused),
                )
            waited_s = loop.time() - began_s
            left = [source for source in away if waited_s < PATIENCE_S[source.kind]]
            if left:
                await asyncio.sleep(pause_s)
                pause_s = min(2 * pause_s, RETRY_S_MAX)
        nothing = f"rank {attempt.rank} step {attempt.step}: the plan has no source"
        return Answer(
            kind="restore_failed",
            step=attempt.step,
            problems=tuple(problems.values()) or (nothing,),
            refused=tuple(refused),
        )

    def _is_here(self, source: Source) -> bool:
        in_memory = source.kind is not SourceKind.OBJECT_STORE
        return in_memory and source.host_id in {"", self._host_id}

    def _give_up(self, plan: RankRestore, answer: Answer) -> Source:
        """Take the valid flag away from a damaged slot; returns where it was from."""
        if answer.path:
            invalidate(Path(answer.path))
        return next(one for one in plan.sources if one.kind.lower() == answer.source_kind)

    async def _load(self, attempt: _Attempt, source: Source) -> Path:
        match source.kind:
            case _ if attempt.old and self._is_here(source):
                return await self._call(lambda: self._stay(attempt, source.generation))
            case SourceKind.OWN_MEMORY if self._is_here(source):
                return await self._call(lambda: self._check(attempt, source.generation))
            case SourceKind.PEER_MEMORY if self._is_here(source):
                return await self._call(lambda: self._adopt(attempt, source.generation))
            case SourceKind.OBJECT_STORE:
                return await self._download(attempt, source)
            case _:
                return await self._call(lambda: self._pull(attempt, source))

    async def _call(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._executor, work)

    def _check(self, attempt: _Attempt, generation: int) -> Path:
        """Use the rank's own copy where it lies; the rank checks its tensors.

        It may have been set aside: the layout was another one in between.
        """
        held = self._find(attempt, generation, own=True)
        if held is None:
            raise NotFoundError("not in this host's memory")
        if held.path.parent != self._directory(attempt):
            return self._adopt(attempt, generation, own=True)
        return _readable(held)

    def _stay(self, attempt: _Attempt, generation: int) -> Path:
        """Use what is here of a rank of another layout where it lies."""
        for own in (True, False):
            held = self._find(attempt, generation, own=own)
            if held is not None:
                return _readable(held)
        raise NotFoundError("not in this host's memory")

    def _adopt(self, attempt: _Attempt, generation: int, *, own: bool = False) -> Path:
        """Make a copy that this host kept for the rank's former host its own."""
        memory, directory = self._memory, self._directory(attempt)
        with memory.writing(attempt.job_id, attempt.generation, directory, _nothing):
            held = self._find(attempt, generation, own=own)
            if held is None:
                raise NotFoundError("no copy in this host's memory")
            path = self._slot_for(attempt)
            if held.path.parent != directory:
                memory.adopt(held, path)
        return self._check(attempt, generation)

    def _find(self, attempt: _Attempt, generation: int, *, own: bool) -> Held | None:
        return self._memory.find(
            attempt.job_id, attempt.rank, attempt.step, own=own, generation=generation
        )

    def _directory(self, attempt: _Attempt) -> Path:
        """Return where the snapshot is brought to."""
        if attempt.old:
            return self._memory.old_directory(attempt.job_id, attempt.generation, attempt.rank)
        return self._memory.directory(attempt.job_id, attempt.rank, own=True)

    def _slot_for(self, attempt: _Attempt) -> Path:
        directory = self._directory(attempt)
        return slot_among(held_in(directory, attempt.rank, own=True), directory, attempt.step)

    def _pull(self, attempt: _Attempt, source: Source) -> Path:
        memory, directory = self._memory, self._directory(attempt)
        with PeerConnection(source.address, source.peer_port) as connection:
            coming = connection.ask(attempt.job_id, attempt.rank, attempt.step, source.generation)
            with memory.writing(attempt.job_id, attempt.generation, directory, connection.cut_off):
                path = self._slot_for(attempt)
                memory.require_room(path, coming.bytes)
                with contextlib.closing(WrittenSlotFile(path)) as file:
                    receiver = StreamReceiver(file, coming.bytes, coming.header_bytes)
                    connection.receive(receiver)
                    return self._commit(attempt, receiver)

    async def _download(self, attempt: _Attempt, source: Source) -> Path:
        if self._objects is None:
            raise NotFoundError("this host has no object store")
        memory, directory = self._memory, self._directory(attempt)
        cut = threading.Event()
        holding = memory.writing(attempt.job_id, attempt.generation, directory, cut.set)
        await self._call(holding.__enter__)
        try:
            path = self._slot_for(attempt)
            memory.require_room(path, source.bytes)
            receiver = await self._call(lambda: SlotReceiver(path, source.bytes))
            with contextlib.closing(receiver):
                await self._stream(source, receiver, cut)
                return await self._call(lambda: self._commit(attempt, receiver))
        finally:
            holding.__exit__(None, None, None)

    async def _stream(self, source: Source, receiver: SlotReceiver, cut: threading.Event) -> None:
        assert self._objects is not None
        digest = xxhash.xxh3_128()

        def take(chunk: bytes) -> None:
            digest.update(chunk)
            receiver.write(chunk)

        async for chunk in self._objects.chunks(source.uri, chunk_bytes=CHUNK_BYTES):
            if cut.is_set():
                raise RefusedError("stale_generation", "cut off by a newer generation")
            await self._call(partial(take, chunk))
        got = digest.hexdigest()
        if source.checksum not in {"", got}:
            raise CorruptData(f"object checksum expected {source.checksum}, got {got}")

    def _commit(self, attempt: _Attempt, receiver: SlotReceiver | StreamReceiver) -> Path:
        whose = attempt.of_job_id or attempt.job_id
        receiver.commit(job_id=whose, rank=attempt.rank, step=attempt.step)
        return receiver.path


def slot_of(path: Path) -> int:
    """Return which of a rank's slots a file is."""
    numbers = range(layout.SLOT_COUNT)
    return next(slot for slot in numbers if path == layout.slot_path(path.parent, slot))


def _readable(held: Held) -> Path:
    """Return where a snapshot lies, if its header can be read. Raises CorruptData."""
    try:
        SlotReader(held.path).close()
    except CorruptData:
        invalidate(held.path)  # it must not be offered to anyone again
        raise
    return held.path


def _nothing() -> None:
    """Cut off a rename: it is over before anybody could."""


def _refused(attempt: _Attempt, source: Source, detail: str) -> Refused:
    return Refused(
        step=attempt.step,
        rank=attempt.rank if attempt.old else None,
        kind=source.kind,
        host_id=source.host_id,
        uri=source.uri,
        detail=detail,
    )


def _name(source: Source) -> str:
    match source.kind:
        case SourceKind.OBJECT_STORE:
            return f"from object {source.uri}"
        case _:
            where = f" ({source.address}:{source.peer_port})" if source.address else ""
            return f"from {source.kind.lower().replace('_', ' ')} of {source.host_id}{where}"
