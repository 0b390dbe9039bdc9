"""Looks at a step's stored objects before a person goes back to it.

What comes after that step is given up on request: if the step then turns out to be damaged and
nothing older is left, the run has lost all. So its objects are looked at first, while the run goes
on; what is bad is noted, and no restore takes it from then on.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Final

from everstep.checkpoint_registry import codec
from everstep.checkpoint_registry.catalog import Catalog
from everstep.checkpoint_registry.commands import CompleteFacts, Known, NoteCheck
from everstep.checkpoint_registry.judgements import Judgements
from everstep.checkpoint_registry.object_keys import prefix_of
from everstep.checkpoint_registry.reading import Look, look_at
from everstep.checkpoint_registry.retention import restorable
from everstep.checkpoint_registry.state import History
from everstep.core.decision import Rejected
from everstep.core.errors import Unavailable
from everstep.core.ports import ObjectStore
from everstep.core.system import Clock
from everstep.wire.v1 import checkpoints_pb2 as wire

# A person waits for the answer, and the run trains on meanwhile. Chosen: enough for small models,
# and of large ones for the first few objects; that all are there, and their sizes, takes one list.
READ_S_MAX: Final = 3.0
SAID_MAX: Final = 3  # objects in one sentence
LOOKED: Final = "the registry"  # who says so
WHY_CHARS_MAX: Final = 500

_log = logging.getLogger(__name__)


class Looks:
    """Answers ``CheckStep``."""

    def __init__(
        self,
        history_of: Callable[[str], Awaitable[History]],
        catalog: Catalog,
        objects: ObjectStore,
        judgements: Judgements,
        clock: Clock,
    ) -> None:
        """``history_of`` returns what is known of a job."""
        self._history_of = history_of
        self._catalog = catalog
        self._objects = objects
        self._judgements = judgements
        self._clock = clock

    async def restorable(self, job_id: str) -> list[Known]:
        """Return the complete checkpoints that a restore may go back to, sorted."""
        history = await self._history_of(job_id)
        removed = history.removed_ids
        good = restorable(await self._catalog.known(job_id), history)
        there = (one for one in good if (one.step, one.generation) not in removed)
        return sorted(there, key=lambda one: (one.step, one.generation))

    async def check_step(self, message: wire.CheckStep) -> wire.CheckStepReply:
        """Say what the objects of a step are like; a refusal says what there is instead."""
        job_id, step = message.job_id, message.step
        good = await self.restorable(job_id)
        newest = max((one.generation for one in good if one.step == step), default=0)
        facts = next(
            (
                one
                for one in await self._catalog.complete(job_id)
                if (one.step, one.generation) == (step, newest)
            ),
            None,
        )
        if facts is None:
            return _refused("no_such_step", _no_such_step(job_id, step, good))
        folder = prefix_of(job_id, step, facts.generation)
        try:
            look = await look_at(self._objects, folder, facts.shards, read_s_max=READ_S_MAX)
        except Unavailable as error:
            return _refused(
                "object_store_away",
                f"the checkpoint of step {step} cannot be looked at now, and nothing was begun: "
                f"{error}",
            )
        if look.faults:
            await self._note(job_id, facts, look)
            return _refused("damaged", _damaged(job_id, facts, look, good))
        return wire.CheckStepReply(
            outcome=codec.outcome(None), checked=f"step {step}: {look.described}"
        )

    async def _note(self, job_id: str, facts: CompleteFacts, look: Look) -> None:
        _log.warning("job %s step %d is damaged: %s", job_id, facts.step, look.faults)
        await self._judgements.decide(
            NoteCheck(
                job_id=job_id,
                step=facts.step,
                generation=facts.generation,
                bad_ranks=tuple(look.faults),
                whole=False,
                why=_faults(look)[:WHY_CHARS_MAX],
                by=LOOKED,
                at_ms=self._clock.now_ms(),
            )
        )


def _refused(why: str, detail: str) -> wire.CheckStepReply:
    return wire.CheckStepReply(outcome=codec.outcome(Rejected(why, detail)))


def _no_such_step(job_id: str, step: int, good: list[Known]) -> str:
    return (
        f"job {job_id!r} has no checkpoint of step {step} that may be restored (`everstep "
        f"checkpoints --job {job_id}` says what each one is worth); there are: {_steps(good)}"
    )


def _damaged(job_id: str, facts: CompleteFacts, look: Look, good: list[Known]) -> str:
    others = [one for one in good if one.step != facts.step]
    return (
        f"the checkpoint of step {facts.step} of job {job_id!r} is damaged, so nothing was begun: "
        f"{len(look.faults)} of {look.count} objects are bad ({_faults(look)}); steps that may be "
        f"restored: {_steps(others)}"
    )


def _steps(good: list[Known]) -> str:
    return ", ".join(str(step) for step in sorted({one.step for one in good})) or "none"


def _faults(look: Look) -> str:
    named = [f"rank {rank}: {fault}" for rank, fault in list(look.faults.items())[:SAID_MAX]]
    left = len(look.faults) - len(named)
    return "; ".join(named) + (f"; and {left} more" if left else "")
