"""Brings a rank's snapshot of the plan's step into this host's memory.

The sources of the plan are tried in order, and nothing is believed that does not fit its checksums:
a copy that lies only costs the time to read it. Every refusal is kept as a sentence that names the
tensor, what was expected and what came, because the next question is always which copy was bad.
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
from typing import Final, TypeVar

import xxhash

from everstep.agent.peer_protocol import PeerConnection
from everstep.agent.runs import Answer, RankRestore, Refused, Source, SourceKind
from everstep.agent.store import HostMemory, invalidate
from everstep.core.errors import (
    CorruptData,
    EverstepError,
    NotFoundError,
    RefusedError,
    Unavailable,
)
from everstep.core.ports import ObjectStore
from everstep.memory import layout
from everstep.memory.reader import verify_slot
from everstep.memory.receive import SlotReceiver

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
    """What is to be brought here, and on whose behalf."""

    job_id: str
    generation: int
    rank: int
    step: int


class Restorer:
    """Restores ranks, each once a generation and step, all at the same time."""

    def __init__(
        self, host_id: str, memory: HostMemory, objects: ObjectStore | None, executor: Executor
    ) -> None:
        self._host_id = host_id
        self._memory = memory
        self._objects = objects
        self._executor = executor
        self._tasks: dict[tuple[str, int, int, int], asyncio.Task[Answer]] = {}

    async def restore(self, job_id: str, generation: int, step: int, plan: RankRestore) -> Answer:
        """Return ``slot_ready`` or ``restore_failed``; never raises for a bad source."""
        key = (job_id, generation, plan.rank, step)
        if key not in self._tasks:
            attempt = _Attempt(job_id=job_id, generation=generation, rank=plan.rank, step=step)
            self._tasks[key] = asyncio.create_task(self._restore(attempt, plan))
        # Shielded: a caller that goes away must not leave a thread that writes unobserved.
        answer = await asyncio.shield(self._tasks[key])
        if answer.kind == "restore_failed":
            self._tasks.pop(key, None)  # asked again, a peer or store may be back
        return answer

    def end(self, job_id: str, generation: int) -> None:
        """Forget older generations; the memory's fence has cut off their writers."""
        for key in [one for one in self._tasks if one[0] == job_id and one[1] < generation]:
            del self._tasks[key]

    async def _restore(self, attempt: _Attempt, plan: RankRestore) -> Answer:
        loop = asyncio.get_running_loop()
        began_s, pause_s = loop.time(), RETRY_S_MIN
        problems: dict[Source, str] = {}
        refused: list[Refused] = []
        left = list(plan.sources)
        while left:
            away: list[Source] = []
            for source in left:
                try:
                    slot = await self._load(attempt, source)
                except (EverstepError, OSError) as error:
                    what = f"rank {attempt.rank} step {attempt.step} {_name(source)}: {error}"
                    if problems.get(source) != what:
                        log.warning("restore source not usable: %s", what)
                    problems[source] = what
                    if isinstance(error, Unavailable):
                        away.append(source)
                    elif isinstance(error, (CorruptData, NotFoundError)):
                        refused.append(_refused(attempt.step, source, what))
                    continue
                return Answer(
                    kind="slot_ready",
                    step=attempt.step,
                    slot=slot,
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

    async def _load(self, attempt: _Attempt, source: Source) -> int:
        here = source.host_id in {"", self._host_id}
        match source.kind:
            case SourceKind.OWN_MEMORY if here:
                return await self._call(lambda: self._check(attempt, source.generation))
            case SourceKind.PEER_MEMORY if here:
                return await self._call(lambda: self._adopt(attempt, source.generation))
            case SourceKind.OBJECT_STORE:
                return await self._download(attempt, source)
            case _:
                return await self._call(lambda: self._pull(attempt, source))

    async def _call(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._executor, work)

    def _check(self, attempt: _Attempt, generation: int) -> int:
        """Use the rank's own copy where it lies."""
        held = self._memory.find(
            attempt.job_id, attempt.rank, attempt.step, own=True, generation=generation
        )
        if held is None:
            raise NotFoundError("not in this host's memory")
        try:
            verify_slot(held.path)
        except CorruptData:
            invalidate(held.path)  # it must not be offered to anyone again
            raise
        return held.slot

    def _adopt(self, attempt: _Attempt, generation: int) -> int:
        """Make a copy that this host kept for the rank's former host its own."""
        memory = self._memory
        directory = memory.directory(attempt.job_id, attempt.rank, own=True)
        with memory.writing(attempt.job_id, attempt.generation, directory, _nothing):
            held = memory.find(
                attempt.job_id, attempt.rank, attempt.step, own=False, generation=generation
            )
            if held is None:
                raise NotFoundError("no copy in this host's memory")
            directory.mkdir(parents=True, exist_ok=True)
            path = memory.slot_for(attempt.job_id, attempt.rank, attempt.step, own=True)
            held.path.replace(path)
        return self._check(attempt, generation)

    def _pull(self, attempt: _Attempt, source: Source) -> int:
        memory = self._memory
        directory = memory.directory(attempt.job_id, attempt.rank, own=True)
        with PeerConnection(source.address, source.peer_port) as connection:
            size = connection.ask(attempt.job_id, attempt.rank, attempt.step, source.generation)
            with memory.writing(attempt.job_id, attempt.generation, directory, connection.cut_off):
                path = memory.slot_for(attempt.job_id, attempt.rank, attempt.step, own=True)
                memory.require_room(path, size)
                with contextlib.closing(SlotReceiver(path, size)) as receiver:
                    connection.receive(receiver, size)
                    return self._commit(attempt, receiver)

    async def _download(self, attempt: _Attempt, source: Source) -> int:
        if self._objects is None:
            raise NotFoundError("this host has no object store")
        memory = self._memory
        directory = memory.directory(attempt.job_id, attempt.rank, own=True)
        cut = threading.Event()
        holding = memory.writing(attempt.job_id, attempt.generation, directory, cut.set)
        await self._call(holding.__enter__)
        try:
            path = memory.slot_for(attempt.job_id, attempt.rank, attempt.step, own=True)
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

    def _commit(self, attempt: _Attempt, receiver: SlotReceiver) -> int:
        receiver.commit(job_id=attempt.job_id, rank=attempt.rank, step=attempt.step)
        for slot in range(layout.SLOT_COUNT):
            if receiver.path == layout.slot_path(receiver.path.parent, slot):
                return slot
        raise AssertionError(f"{receiver.path} is not a slot")


def _nothing() -> None:
    """Cut off a rename: it is over before anybody could."""


def _refused(step: int, source: Source, detail: str) -> Refused:
    return Refused(
        step=step,
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
