"""Keeps a copy of every rank's newest snapshot in the memory of the placement's peer host.

One task a rank with at most one snapshot under way; when it is through, the newest one is next, so
a slow peer makes copies rarer and never makes a queue. Training is told by the control word alone
and never waits for this: what the two-slot rule holds back are snapshots, not steps.

When the peer cannot keep copies (away for long, no room), replication is switched off for the rank
until the peer begins to receive again; from then on the rank holds still what is being sent, or a
push that takes longer than two steps would never arrive whole. Rejected: holding the rank's
snapshots back for as long as it takes. That would keep a common step in memory, but one that grows
older with every step, while a rank that dies (the common case) could go on from its own newest
snapshot, and a lost host still has the object store.
"""

from __future__ import annotations

import asyncio
import logging
from concurrent.futures import Executor
from dataclasses import dataclass, field
from typing import Final

from everstep.agent.peer_protocol import PeerConnection
from everstep.agent.runs import Peer, RankRun, Spawn
from everstep.agent.store import Held, HostMemory, invalidate
from everstep.core.errors import CorruptData, NotFoundError, RefusedError, Unavailable
from everstep.core.system import Clock
from everstep.memory.control import NO_STEP
from everstep.memory.reader import verify_slot
from everstep.memory.slot import read_preamble

log = logging.getLogger(__name__)

RETRY_MS_MIN: Final = 50  # an agent restarts in a second; the first tries find out quickly
RETRY_MS_MAX: Final = 2_000
# A peer agent that is away or stands still for longer than its restart takes is treated as no peer.
# Ten times what a restart needs; the monitor has judged a dead host long before.
PEER_AWAY_MS_MAX: Final = 30_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Uncopied:
    """Ranks that go on without copies, why, and for how long the first of them has."""

    ranks: tuple[int, ...]
    why: str
    age_ms: int


@dataclass(eq=False, slots=True, kw_only=True)
class _Link:
    """One rank's way to its peer."""

    job_id: str
    generation: int
    rank: RankRun
    peer: Peer
    acknowledged: int = NO_STEP
    wake: asyncio.Event = field(default_factory=asyncio.Event)
    connection: PeerConnection | None = None
    closed: bool = False
    begun_ms: float = 0.0  # the push under way
    failing_since_ms: float | None = None  # when the first push of those that failed was begun
    off_since_ms: float | None = None  # None: the rank waits for its copies
    why_off: str = ""
    retry_ms: int = RETRY_MS_MIN


class Replicator:
    """Pushes snapshots for all ranks of this host."""

    def __init__(self, memory: HostMemory, clock: Clock, executor: Executor, spawn: Spawn) -> None:
        self._memory = memory
        self._clock = clock
        self._executor = executor
        self._spawn = spawn
        self._links: dict[tuple[str, int], _Link] = {}

    def begin(self, job_id: str, generation: int, rank: RankRun, peer: Peer) -> None:
        """Keep ``rank`` replicated to ``peer``, until ``end``."""
        link = _Link(job_id=job_id, generation=generation, rank=rank, peer=peer)
        self._close(self._links.get((job_id, rank.rank)))
        self._links[job_id, rank.rank] = link
        self._spawn(self._run(link))

    def newest_changed(self, job_id: str, rank: int) -> None:
        """Say that a snapshot was taken or restored."""
        link = self._links.get((job_id, rank))
        if link is not None:
            link.wake.set()

    def damaged(self, job_id: str, rank: int) -> None:
        """Say that the newest snapshot is to be brought here again: its copy counts anew."""
        link = self._links.get((job_id, rank))
        if link is not None:
            link.acknowledged = link.rank.control.replicated_step = NO_STEP

    def uncopied(self, job_id: str, generation: int) -> Uncopied | None:
        """Say which ranks go on without copies; None if none does."""
        off = {
            link.rank.rank: (link.off_since_ms, link.why_off)
            for link in self._links_of(job_id, generation)
            if link.off_since_ms is not None and link.rank.alive
        }
        if not off:
            return None
        age_ms = self._clock.monotonic_ms() - min(since_ms for since_ms, _ in off.values())
        _, why = off[min(off)]
        return Uncopied(ranks=tuple(sorted(off)), why=why, age_ms=round(age_ms))

    def is_failing(self, job_id: str, generation: int) -> bool:
        """Say whether a generation's peer could not be reached at the last try."""
        return any(link.failing_since_ms is not None for link in self._links_of(job_id, generation))

    def move(self, job_id: str, generation: int, peer: Peer) -> None:
        """Push to the peer at another address from now on."""
        for link in self._links_of(job_id, generation):
            link.peer, link.retry_ms = peer, RETRY_MS_MIN
            if link.connection is not None:
                link.connection.cut_off()  # whoever took the old port may have taken it too

    def end(self, job_id: str, generation: int) -> None:
        """Stop pushing for older generations."""
        for key, link in list(self._links.items()):
            if link.job_id == job_id and link.generation < generation:
                self._close(self._links.pop(key))

    def close(self) -> None:
        """Stop all."""
        for link in self._links.values():
            self._close(link)
        self._links.clear()

    def _links_of(self, job_id: str, generation: int) -> list[_Link]:
        wanted = (job_id, generation)
        links = [link for link in self._links.values() if not link.closed]
        return [link for link in links if (link.job_id, link.generation) == wanted]

    def _close(self, link: _Link | None) -> None:
        if link is None:
            return
        link.closed = True
        if link.connection is not None:
            link.connection.cut_off()
        link.wake.set()

    async def _run(self, link: _Link) -> None:
        loop = asyncio.get_running_loop()
        while not link.closed:
            await link.wake.wait()
            link.wake.clear()
            held = self._memory.newest(link.job_id, link.rank.rank)
            if link.closed or held is None or held.step <= link.acknowledged:
                continue
            link.begun_ms = self._clock.monotonic_ms()
            try:
                await loop.run_in_executor(self._executor, self._push, link, held)
            except RefusedError as refusal:
                await self._refused(link, held, refusal)
            except Unavailable as error:
                self._failed(link, str(error))
            except FileNotFoundError:
                continue  # the job was forgotten meanwhile
            else:
                self._arrived(link, held)
                continue
            await self._pause(link)
        if link.connection is not None:
            link.connection.close()

    def _push(self, link: _Link, held: Held) -> None:
        """Runs in a thread; nothing else touches the connection but ``cut_off``."""
        if link.connection is None:
            link.connection = PeerConnection(link.peer.address, link.peer.peer_port)
        head = {
            "job_id": link.job_id,
            "generation": link.generation,
            "rank": link.rank.rank,
            "host_id": link.peer.host_id,
        }

        def taken() -> None:
            if not link.closed:
                link.rank.control.replication_off = False

        try:
            link.connection.push(head, held.path, held.preamble, taken)
        except Unavailable:
            link.connection.close()
            link.connection = None
            raise

    def _arrived(self, link: _Link, held: Held) -> None:
        if link.closed:
            return
        link.acknowledged = held.step
        control = link.rank.control
        control.replicated_step = max(held.step, control.replicated_step)
        if link.off_since_ms is not None:
            log.warning("rank %d of job %s is replicated again", link.rank.rank, link.job_id)
        link.off_since_ms, control.replication_off = None, False
        link.failing_since_ms = None
        link.retry_ms = RETRY_MS_MIN
        link.wake.set()  # a newer one may have come while this one was under way

    async def _refused(self, link: _Link, held: Held, refusal: RefusedError) -> None:
        if refusal.why == "stale_generation":
            log.warning("replication of job %s ends: %s", link.job_id, refusal)
            link.closed = True
        elif refusal.why == "no_space":
            self._switch_off(link, str(refusal))
        elif refusal.why == "wrong_host":  # our peer is somewhere else now: ``peers`` looks for it
            self._failed(link, str(refusal))
        elif await asyncio.get_running_loop().run_in_executor(self._executor, _is_corrupt, held):
            # Our copy went bad in memory. It is no snapshot any more; telling the rank that the
            # step is safe lets it take the next one, which is the only thing that helps.
            log.error("rank %d: %s: dropped", link.rank.rank, refusal)
            invalidate(held.path)
            self._arrived(link, held)
        else:
            self._failed(link, str(refusal))

    def _failed(self, link: _Link, why: str) -> None:
        if link.closed:
            return
        if link.failing_since_ms is None:
            link.failing_since_ms = link.begun_ms
            log.warning("rank %d is not replicated, trying again: %s", link.rank.rank, why)
        if self._clock.monotonic_ms() - link.failing_since_ms > PEER_AWAY_MS_MAX:
            self._switch_off(link, why)

    def _switch_off(self, link: _Link, why: str) -> None:
        if link.closed:
            return
        if link.off_since_ms is None:
            log.error("rank %d goes on without a copy elsewhere: %s", link.rank.rank, why)
            link.off_since_ms = self._clock.monotonic_ms()
        link.why_off, link.rank.control.replication_off = why, True

    async def _pause(self, link: _Link) -> None:
        if not link.closed:
            await asyncio.sleep(link.retry_ms / 1_000)
            link.retry_ms = min(2 * link.retry_ms, RETRY_MS_MAX)
            link.wake.set()


def _is_corrupt(held: Held) -> bool:
    """Say whether the snapshot went bad where it lies, not because it is being replaced."""
    try:
        verify_slot(held.path)
    except CorruptData:
        return read_preamble(held.path) == held.preamble  # a writer would have cleared it first
    except (NotFoundError, FileNotFoundError):
        return False
    return False
