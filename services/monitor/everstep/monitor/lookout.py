"""Goes and asks about a run: what its ranks do, which hosts reach one another, what ranks hold.

What follows from the answers is decided in ``hanging.py``, ``linking.py``, ``corrupting.py`` and
the detectors.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Final

from everstep.core.system import Clock
from everstep.monitor.commands import MarkJob
from everstep.monitor.corrupting import AskChecksums, no_checksums
from everstep.monitor.counting import Counting
from everstep.monitor.detecting import Detecting
from everstep.monitor.detectors.corruption_course import Found
from everstep.monitor.detectors.hang_verdict import Look
from everstep.monitor.detectors.links import LinkLook
from everstep.monitor.detectors.local_norms import Suspicion
from everstep.monitor.detectors.root_cause import Probe
from everstep.monitor.detectors.verdict import Verdict
from everstep.monitor.doubts import Doubt
from everstep.monitor.events import SILENT_CORRUPTION, Action, Mark
from everstep.monitor.eyes import Eyes
from everstep.monitor.linking import Linking
from everstep.monitor.measurements import Kept
from everstep.monitor.state import Watch

ProbeHost = Callable[[str], Awaitable[Probe]]
LookAtRanks = Callable[[Watch], Awaitable[Look]]
TryLinks = Callable[[Watch], Awaitable[LinkLook | None]]
RecallDoubts = Callable[[str], Awaitable[tuple[Doubt, ...]]]  # of all jobs but this one
RecallSteps = Callable[[str], Awaitable[Kept]]  # that a job has made
AskRecompute = Callable[[Watch, int], Awaitable[None]]  # by the host of a rank


async def no_links(_: Watch) -> LinkLook | None:
    """Nobody can be asked."""
    return None


async def no_doubts(_: str) -> tuple[Doubt, ...]:
    """Nothing is kept."""
    return ()


async def no_steps(_: str) -> Kept:
    """Nothing is kept."""
    return Kept(generation=0, step=0)


async def no_recompute(_: Watch, __: int) -> None:
    """Nobody can be asked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asking:
    """How hosts, and what is stored, are asked about what is not told by itself."""

    try_links: TryLinks = no_links
    ask_checksums: AskChecksums = no_checksums
    ask_recompute: AskRecompute = no_recompute
    recall_doubts: RecallDoubts = no_doubts
    recall_steps: RecallSteps = no_steps


NOBODY_TO_ASK: Final = Asking()


class Lookout:
    """For all jobs."""

    def __init__(
        self, look: LookAtRanks, asking: Asking, counting: Counting, clock: Clock, eyes: Eyes
    ) -> None:
        self._eyes = eyes
        self._counting = counting
        self._look = look
        self._asking = asking
        self._clock = clock

    async def doubts(self, verdict: Verdict, job_id: str) -> tuple[Doubt, ...]:
        """Recall what doubts other jobs have left, if a verdict adds one. Raises Unavailable."""
        if verdict.kind != SILENT_CORRUPTION or verdict.action is not Action.RESTART:
            return ()
        return await self._asking.recall_doubts(job_id)

    async def steps(self, command: MarkJob) -> Kept | None:
        """Recall what a job has made that begins again after its end: it is measured against that.

        Raises Unavailable.
        """
        if command.mark is not Mark.BEGUN or command.generation < 2:
            return None
        return await self._asking.recall_steps(command.job_id)

    async def links(self, watch: Watch, linking: Linking) -> bool:
        """Let the hosts of a job try their links; says whether that was due."""
        if not linking.may_ask(self._clock.now_ms()):
            return False
        look = None
        try:
            look = await self._asking.try_links(watch)
        finally:
            linking.looked(look, self._clock.now_ms())
        return True

    async def answer(
        self, watch: Watch, detecting: Detecting, question: Found | Suspicion
    ) -> Verdict | None:
        """Ask about what was found; a suspicion has its answer in the next step."""
        if isinstance(question, Suspicion):
            await self._asking.ask_recompute(watch, question.rank)
            return None
        return await self._corruption(watch, detecting, question)

    async def _corruption(self, watch: Watch, detecting: Detecting, found: Found) -> Verdict | None:
        """Ask which tensors differ; nothing comes of a generation that is over by then."""
        told = await self._asking.ask_checksums(watch, found.step, found.holders)
        if detecting.corrupting.course.generation != watch.generation:
            return None
        return detecting.corrupting.verdict(found, told, watch, self._clock.now_ms())

    async def hang(
        self, watch: Watch, detecting: Detecting, now: Mapping[str, Watch]
    ) -> Verdict | None:
        """Look at ranks and links of a run whose step is overdue; ``now``: what is known after."""
        look, hanging, linking = None, detecting.hanging, detecting.linking
        try:
            look, _ = await asyncio.gather(self._look(watch), self.links(watch, linking))
        finally:
            watch, now_ms = now.get(watch.job_id, watch), self._clock.now_ms()
            verdict = hanging.looked(look, watch, now_ms)
        since_ms, all_wait = hanging.since_ms, hanging.all_wait
        if self._eyes.blind:
            return None
        verdict = self._counting.instead(verdict, watch, all_wait=all_wait, now_ms=now_ms)
        return linking.instead(
            verdict, watch, all_wait=all_wait, stepped_ms=since_ms, now_ms=now_ms
        )
