"""Brings together what a rank needs of ranks of another layout.

Which old ranks those are is arithmetic (``core.resharding``); how long the dimensions are that
shards cut only a snapshot tells, so the first one to be brought is that of the elder. Several
ranks of a host need the same ones: each is brought once.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import Executor
from pathlib import Path
from typing import Final

from everstep.agent.restore import Damaged, Restorer
from everstep.agent.runs import Answer, OldSlot, Start
from everstep.core.errors import CorruptData, NotFoundError
from everstep.core.resharding import elder_of, sources_needed
from everstep.memory.parts import lengths_in, parts_in
from everstep.memory.reader import SlotReader

# The slowest kind that any of a rank's sources came from is what its restore is called.
_SLOWEST_LAST: Final = ("own_memory", "peer_memory", "object_store")


class Resharder:
    """Answers ranks whose state is put together from several old ones'."""

    def __init__(self, restorer: Restorer, executor: Executor) -> None:
        self._restorer = restorer
        self._executor = executor

    async def restore(
        self, start: Start, rank: int, *, damaged: Damaged | None = None, old_rank: int = -1
    ) -> Answer:
        """Return ``slots_ready`` or ``restore_failed``.

        Args:
            start: of the generation.
            rank: of the new layout.
            damaged: what was answered of ``old_rank`` before, and is not to be used again.
            old_rank: whose snapshot that is.
        """
        assert start.old_layout is not None
        assert start.layout is not None
        old, new, lost = start.old_layout, start.layout, frozenset(start.lost)

        async def bring(one: int) -> Answer:
            return await self._restorer.restore(
                start.job_id,
                start.generation,
                start.restore_step,
                start.restore_of(one),
                damaged if one == old_rank else None,
                old=True,
                of_job_id=start.restore_job_id,
            )

        elder = elder_of(old, new, rank, lost=lost).rank
        first = await bring(elder)
        brought = {elder: first}
        if first.kind == "slot_ready":
            lengths = await self._lengths(Path(first.path), old.tp)
            needed = sources_needed(old, new, rank, lengths=lengths, lost=lost)
            others = [one for one in needed if one != elder]
            brought.update(zip(others, await asyncio.gather(*map(bring, others)), strict=True))
        return _answer(start, brought)

    async def _lengths(self, path: Path, tp: int) -> frozenset[int] | None:
        """Return what dimensions shards cut; None, which is more to bring, if that is not told."""

        def read() -> frozenset[int] | None:
            try:
                with SlotReader(path) as reader:
                    told = parts_in(reader.header)
                    return lengths_in(reader.header, tp) if told else None
            except (CorruptData, NotFoundError):
                return None  # the rank will say so

        return await asyncio.get_running_loop().run_in_executor(self._executor, read)


def answered_of(answer: Answer, old_rank: int) -> Answer | None:
    """Return what a rank was answered of one of its old ranks, as the restore of that one was."""
    found = next((one for one in answer.slots if one.rank == old_rank), None)
    return None if found is None else found.answer


def _answer(start: Start, brought: dict[int, Answer]) -> Answer:
    failed = any(one.kind != "slot_ready" for one in brought.values())
    kinds = {one.source_kind for one in brought.values()}
    return Answer(
        kind="restore_failed" if failed else "slots_ready",
        step=start.restore_step,
        source_kind=max(kinds & set(_SLOWEST_LAST), key=_SLOWEST_LAST.index, default=""),
        problems=tuple(text for one in brought.values() for text in one.problems),
        refused=tuple(refused for one in brought.values() for refused in one.refused),
        slots=()
        if failed
        else tuple(
            OldSlot(rank=rank, path=one.path, answer=one) for rank, one in sorted(brought.items())
        ),
        old_layout=start.old_layout,
        new_layout=start.layout,
        lost=start.lost,
    )
