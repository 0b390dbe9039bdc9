"""The file that a rank writes its stacks to when it is asked, as both sides need to know it.

It lies beside the rank's log, and so does the pipe that questions come through. One line says whose
it is; behind it follows what ``faulthandler`` writes, after each question once more and then the
question, until the agent cuts the file back to that line.

Frames are written ``file:function:line``, outermost first; those before the rank's own work are
left out. Files are cut to what is the same on every host: ``site-packages/torch/...``,
``python/threading.py``, ``everstep/train/run.py``. What keeps its path is the user's own code.
"""

from __future__ import annotations

import re
import signal
from dataclasses import dataclass
from pathlib import Path
from typing import Final

# A real-time signal, because every other one has a meaning that somebody uses: SIGUSR1 tells of
# preemption (Slurm, Lightning), SIGUSR2 too (submitit) and serves PyTorch's own crash handler
# (c10/util/signal_handler.h), SIGQUIT ends torchrun. glibc, PAPI and Android count theirs up from
# SIGRTMIN, Valgrind takes SIGRTMAX; nobody is known to take this one.
STACKS_SIGNAL: Final = int(signal.SIGRTMAX) - 3

# All that faulthandler writes of a thread (MAX_FRAME_DEPTH of Python's traceback.c), and bytes that
# keep the answer of a host with 16 ranks within half of the bus's message size of 1 MiB.
FRAMES_MAX: Final = 100
MAIN_BYTES_MAX: Final = 8_192
OTHER_THREADS_MAX: Final = 8  # a loader's and a copier's; a rank has three or four
OTHER_FRAMES_MAX: Final = 12
FRAME_BYTES_MAX: Final = 240
QUESTION_BYTES_MAX: Final = 1_024  # a pipe takes fewer than PIPE_BUF (4,096) bytes whole or not
FILE_BYTES_MAX: Final = 1 << 20  # faulthandler stops after 100 threads of 100 frames

# Outside of this frame every rank is the same: how the fork server came to fork it.
_BEGIN: Final = "everstep/train/leaving.py:call:"

_OWNER: Final = re.compile(r"rank process (?P<pid>\d+), main thread (?P<thread>0x[0-9a-f]{16})\n")
# "Stack" is the thread that was signalled: the main thread.
_THREAD: Final = re.compile(r"(?:Stack|(?:Current thread|Thread) (?P<thread>0x[0-9a-f]+))\b")
# The thread that answers is nobody's concern.
_ANSWERING: Final = "everstep/train/stacks.py:"
_FRAME: Final = re.compile(r'  File "?(?P<file>.*?)"?, line (?P<line>\S+) in (?P<function>.*)')
_SHORTENED: Final = (
    (re.compile(r"^.*/(?:site|dist)-packages/"), "site-packages/"),
    (re.compile(r"^.*/lib/python3\.\d+/"), "python/"),
    # Not models: the reference model is written as a user would, and is looked at as one's.
    (re.compile(r"^.*/everstep/(?=(?:train|data|memory|agent|core)/)"), "everstep/"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Owner:
    """Whose file it is; ``thread`` is the main thread as faulthandler writes it."""

    pid: int
    thread: str

    def line(self) -> str:
        """Return the first line."""
        return f"rank process {self.pid}, main thread {self.thread}\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class Stacks:
    """What the threads of a rank were doing; empty when nothing was written."""

    main: tuple[str, ...] = ()
    others: tuple[tuple[str, ...], ...] = ()


def stacks_path(log_path: Path) -> Path:
    """Return where the rank with this log writes its stacks."""
    return log_path.with_suffix(".stacks")


def question_path(log_path: Path) -> Path:
    """Return the pipe through which the rank with this log is asked."""
    return log_path.with_suffix(".asked")


def answered(question: str) -> str:
    """Return the line that stands behind the answer to a question, which is one word."""
    return f"answered {question}\n"


def thread_name(ident: int) -> str:
    """Return a thread's identity as faulthandler writes it."""
    return f"0x{ident:016x}"


def read_owner(text: str) -> Owner | None:
    """Return whose file it is, None for one that no rank has begun."""
    found = _OWNER.match(text)
    return Owner(pid=int(found["pid"]), thread=found["thread"]) if found else None


def read_stacks(text: str, owner: Owner) -> Stacks:
    """Read what faulthandler wrote, bounded; a stack that breaks off is read as far as it goes."""
    main: list[str] = []
    others: list[list[str]] = []
    frames = main
    for line in text.splitlines():
        if (thread := _THREAD.match(line)) is not None:
            frames = []
            if thread["thread"] in {owner.thread, None}:
                main = frames
            else:
                others.append(frames)
        elif (found := _FRAME.match(line)) is not None:
            frames.append(f"{shortened(found['file'])}:{found['function']}:{found['line']}")
    begins = next((at for at, frame in enumerate(main) if frame.startswith(_BEGIN)), len(main))
    return Stacks(
        main=_bounded(main[:begins], FRAMES_MAX),
        others=tuple(
            _bounded(frames, OTHER_FRAMES_MAX)
            for frames in others[:OTHER_THREADS_MAX]
            if frames and not frames[0].startswith(_ANSWERING)
        ),
    )


def shortened(file: str) -> str:
    """Return a file's name without what differs from host to host."""
    for pattern, stands_for in _SHORTENED:
        if pattern.match(file):
            return pattern.sub(stands_for, file)
    return file


def _bounded(innermost_first: list[str], frames_max: int) -> tuple[str, ...]:
    """Turn a stack around, and leave the outermost out when it is too much."""
    kept: list[str] = []
    size = 0
    for frame in innermost_first[:frames_max]:
        short = frame if len(frame) <= FRAME_BYTES_MAX else "..." + frame[3 - FRAME_BYTES_MAX :]
        size += len(short)
        if size > MAIN_BYTES_MAX:
            break
        kept.append(short)
    return tuple(reversed(kept))
