"""Looks at what each rank of this host is doing, whether it can answer or not.

The kernel tells whether a rank is stopped, and how much processor time and how many bytes it uses
during the look; the rank's own stacks tell where it is. All ranks are looked at side by side.

A rank is asked through a pipe that a thread of it reads. One that cannot answer, because something
in it holds the interpreter's lock, is sent a signal. That would end a process that does not expect
it: so only one that catches it gets it, through a handle that cannot come to mean another process.
One that is stopped is not asked, for it would answer when it goes on, to nobody.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import signal
from pathlib import Path
from typing import Final

from everstep.agent import procfs
from everstep.agent.procfs import GONE, STOPPED, TRACED, Glance, Signals
from everstep.agent.runs import JobRun, RankRun
from everstep.agent.stack_file import (
    FILE_BYTES_MAX,
    STACKS_SIGNAL,
    Owner,
    Stacks,
    answered,
    question_path,
    read_owner,
    read_stacks,
    stacks_path,
)
from everstep.wire.v1 import agents_pb2
from everstep.wire.v1.agents_pb2 import RankPhase, RankStack, ThreadStack

# Thirty ticks of processor time: enough to tell a rank that spins (all of them, or its share of a
# busy core) from one that waits (none or one).
LOOK_S: Final = 0.3
# A thread gets the interpreter's lock within 5 ms of asking for it. Where it does not for so long,
# though all cores may be busy, something holds the lock.
THREAD_S: Final = 0.4
# Stacks are written within milliseconds; where all cores are busy, a rank that sleeps may have to
# wait some tenths of a second for its turn. With the rest of the answer that stays below 1 s.
ANSWER_S_MAX: Final = 0.8
POLL_S: Final = 0.01

_numbers: Final = itertools.count(1)  # no two questions of this agent are alike
_MASK: Final = 1 << (STACKS_SIGNAL - 1)
_STATES: Final = {
    "R": agents_pb2.PROCESS_RUNNING,
    "S": agents_pb2.PROCESS_SLEEPING,
    "D": agents_pb2.PROCESS_DISK_WAIT,
    "I": agents_pb2.PROCESS_SLEEPING,
    STOPPED: agents_pb2.PROCESS_STOPPED,
    TRACED: agents_pb2.PROCESS_TRACED,
    GONE: agents_pb2.PROCESS_GONE,
}


class StackLooks:
    """Looks at runs; who asks during a look gets the same one."""

    def __init__(self) -> None:
        self._looks: dict[tuple[str, int], asyncio.Task[list[RankStack]]] = {}

    async def look(self, run: JobRun) -> list[RankStack]:
        """Return what every rank of the run is doing, by rank."""
        key = (run.job_id, run.generation)
        task = self._looks.get(key)
        if task is None:
            task = asyncio.create_task(_look_at_all(run))
            self._looks[key] = task
            task.add_done_callback(lambda _: self._looks.pop(key))
        return await asyncio.shield(task)


async def _look_at_all(run: JobRun) -> list[RankStack]:
    ranks = [rank for _, rank in sorted(run.ranks.items())]
    return await asyncio.gather(*(_look_at(run, rank) for rank in ranks))


async def _look_at(run: JobRun, rank: RankRun) -> RankStack:
    loop = asyncio.get_running_loop()
    begun_s = loop.time()
    before = procfs.glance(rank.pid) if rank.alive and rank.pid else Glance(state=GONE)
    question = _Question(rank.pid, run.log_path(rank))
    question.ask(before)
    after = before
    if before.state != GONE:
        await _listen(question, begun_s)
        after = procfs.glance(rank.pid)
    stacks = question.answer()
    return RankStack(
        rank=rank.rank,
        step=rank.last_step,
        state=_STATES.get(after.state, agents_pb2.PROCESS_STATE_UNSPECIFIED),
        phase=RankPhase.Name(rank.control.phase),
        answered=bool(stacks.main),
        silence="" if stacks.main else question.silence,
        look_ms=round((loop.time() - begun_s) * 1_000),
        cpu_ms=max(0, after.cpu_ms - before.cpu_ms),
        process_cpu_ms=max(0, after.process_cpu_ms - before.process_cpu_ms),
        io_bytes=max(0, after.io_bytes - before.io_bytes - question.answer_bytes),
        wchan=procfs.waits_in(rank.pid) if after.state != GONE else "",
        frames=stacks.main,
        threads=[ThreadStack(frames=frames) for frames in stacks.others],
    )


async def _listen(question: _Question, begun_s: float) -> None:
    """Let the look take its time, and a late answer a little more."""
    loop = asyncio.get_running_loop()
    while (now_s := loop.time() - begun_s) < LOOK_S or (question.is_open and now_s < ANSWER_S_MAX):
        await asyncio.sleep(POLL_S)  # another process's file: nothing would wake us
        question.listen()
        if now_s > THREAD_S:
            question.ask_again()


class _Question:
    """One question to one rank, and what comes of it.

    The answer of the rank's thread ends with the question. That of the signal is complete when the
    kernel says that the handler has returned: the signal neither waits nor is blocked, as it is
    while its own handler runs.
    """

    def __init__(self, pid: int, log_path: Path) -> None:
        self._pid = pid
        self._path = stacks_path(log_path)
        self._pipe = question_path(log_path)
        self._word = f"{next(_numbers)}"
        self._owner: Owner | None = None
        self._told = b""
        self._signalled = False
        self.is_open = False
        self.silence = ""

    @property
    def answer_bytes(self) -> int:
        """What the rank has written for us."""
        return len(self._told) - len(self._owner.line()) if self._owner is not None else 0

    def ask(self, rank: Glance) -> None:
        """Ask the rank's thread, or note why not."""
        if rank.state == GONE:
            self.silence = "it has ended, or is not forked yet"
            return
        if rank.state == STOPPED:
            self.silence = "it is stopped"
            return
        try:
            self._ask()
        except OSError as error:
            self.silence = f"it does not listen for the question: {error.strerror}"

    def ask_again(self) -> None:
        """Send the signal, once, if the rank expects it; its thread has not answered."""
        if not self.is_open or self._signalled:
            return
        self._signalled = True
        try:
            handle = os.pidfd_open(self._pid)
            try:
                known = procfs.signals(self._pid)
                expected = known.caught & _MASK and not _waits_or_answers(known)
                if expected and procfs.glance(self._pid).state != STOPPED:
                    signal.pidfd_send_signal(handle, STACKS_SIGNAL)
            finally:
                os.close(handle)
        except OSError as error:
            self.silence = f"it cannot be asked: {error.strerror}"

    def listen(self) -> None:
        """Note whether the answer is complete."""
        if not self.is_open or self._owner is None:
            return
        before = self._told
        try:
            with self._path.open("rb") as file:
                self._told = file.read(FILE_BYTES_MAX)
        except FileNotFoundError:  # the logs were cleared away meanwhile
            return
        if self._told.endswith(answered(self._word).encode()):
            self.is_open = False
        elif self._signalled and self._told == before and self.answer_bytes:
            self.is_open = _waits_or_answers(procfs.signals(self._pid))

    def answer(self) -> Stacks:
        """Return the stacks, none when no answer has come."""
        if self._owner is None:
            return Stacks()
        if self.is_open:
            self.silence = self.silence or "it did not answer in time"
            return Stacks()
        return read_stacks(self._told.decode(errors="replace"), self._owner)

    def _ask(self) -> None:
        with self._path.open(encoding="utf-8", errors="replace") as file:
            owner = read_owner(file.readline())
        if owner is None or owner.pid != self._pid:
            self.silence = "it does not listen for the question yet"
            return
        os.truncate(self._path, len(owner.line()))
        pipe = os.open(self._pipe, os.O_WRONLY | os.O_NONBLOCK)
        try:
            os.write(pipe, f"{self._word} ".encode())
        finally:
            os.close(pipe)
        self._owner = owner
        self.is_open = True


def _waits_or_answers(known: Signals) -> bool:
    return bool((known.pending | known.blocked) & _MASK)
