"""How a rank ends: the class, its exit code, and which exceptions mean what.

A collective that fails because a peer died is an echo of something elsewhere, and must not be
taken for an error of this rank's code: the class is decided from the exception's type and message,
anywhere in its chain, because libraries wrap and user code re-raises.

The chain is read from its beginning: user code that raises and whose clean-up (``finally:
dist.barrier()``) then fails on a peer that has left has raised by itself. Exceptions that a library
caught on its way into a collective are no beginning: they never passed through user code.
"""

from __future__ import annotations

import re
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from torch.distributed import DistError

from everstep.agent.exits import EXIT_CODES, ExitClass
from everstep.core.errors import Unavailable

LIBRARIES: Final = frozenset({"everstep", "torch", *sys.stdlib_module_names})
USER_PACKAGE: Final = "everstep.models."
ERROR_CHARS_MAX: Final = 500  # one line for tables; the traceback has the rest
TRACEBACK_CHARS_MAX: Final = 32_000  # fits a bus message many times over

# gloo raises plain RuntimeErrors with its source location in front, and so do torch's stores.
_PEER_LOST: Final = re.compile(
    r"gloo/transport|gloo::|Gloo (?:connectFullMesh|AllReduce)|"
    r"Connection closed by peer|Connection reset by peer|Broken pipe|"
    r"NCCL (?:error|communicator)|ncclRemoteError|ncclSystemError|"
    r"Timed out waiting \d+ ?ms for (?:recv|send|barrier)|wait timeout after \d+ ?ms|"
    r"Application timeout caused pair closure|Socket Timeout"
)


# PyTorch says how to allow one operation; what our jobs have to say about it, it cannot know.
_NO_FIXED_BITS: Final = "does not have a deterministic implementation"
_FIXED_BITS_ADVICE: Final = (
    "; `deterministic: false` in the job spec allows it, and resumed runs are then not bit-equal"
)


class RunStoppedError(BaseException):
    """Ends user code after all ranks have agreed to stop; not meant to be caught."""


class RestoreFailedError(Exception):
    """The state of the restore plan could not be put back."""


class StateMismatchError(RestoreFailedError):
    """What the code tracks is not what was kept: no other copy will fit either.

    The user's to mend, so it ends the rank as an error of user code does.
    """


class BadEntryPointError(Exception):
    """The job's entry point cannot be found or is not callable."""


class HostTooSmallError(Exception):
    """The host's memory does not hold the snapshots of its ranks and the copies of its peer's."""


@contextmanager
def too_small_without_room() -> Iterator[None]:
    """Let a memory directory that is full be the host's fault, not the user's."""
    try:
        yield
    except Unavailable as error:
        raise HostTooSmallError(str(error)) from None


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """How the rank ended, as its last words say it."""

    exit_class: ExitClass
    error: str = ""
    traceback: str = ""

    @property
    def exit_code(self) -> int:
        """The process's exit code."""
        return EXIT_CODES[self.exit_class]


def classify(error: BaseException) -> Ending:
    """Return what an exception that ended the rank's code means."""
    root = _root(error)
    if isinstance(root, RunStoppedError):
        return Ending(exit_class=ExitClass.STOPPED)
    if isinstance(error, SystemExit) and error.code in {None, 0}:
        return Ending(exit_class=ExitClass.FINISHED)
    return Ending(
        exit_class=_class_of(root),
        error=_one_line(root),
        traceback="".join(traceback.format_exception(error))[-TRACEBACK_CHARS_MAX:],
    )


def is_peer_lost(error: BaseException) -> bool:
    """Say whether the exception is a collective's or store's complaint about another rank."""
    if isinstance(error, DistError):
        return True
    return isinstance(error, RuntimeError) and _PEER_LOST.search(str(error)) is not None


def _class_of(error: BaseException) -> ExitClass:
    if isinstance(error, BadEntryPointError):
        return ExitClass.BAD_ENTRY_POINT
    if isinstance(error, HostTooSmallError):
        return ExitClass.HOST_TOO_SMALL
    if isinstance(error, StateMismatchError):
        return ExitClass.USER_ERROR
    if isinstance(error, RestoreFailedError):
        return ExitClass.RESTORE_FAILED
    if is_peer_lost(error):
        return ExitClass.COLLECTIVE
    return ExitClass.USER_ERROR


def _root(error: BaseException) -> BaseException:
    """Return the exception of the chain that says what happened.

    Without a collective error it is the last one raised, which is what a person sees. With one it
    is what user code raised before the first of them, or else that first one.
    """
    chain = list(_chain(error))
    echoes = [index for index, one in enumerate(chain) if is_peer_lost(one)]
    if not echoes:
        return error
    before = chain[echoes[-1] + 1 :]
    return next((one for one in before if _passed_user_code(one)), chain[echoes[-1]])


def _passed_user_code(error: BaseException) -> bool:
    """Whether an exception was raised in user code or came up through it."""
    frames = traceback.walk_tb(error.__traceback__)
    return any(not _is_library(frame.f_globals.get("__name__", "")) for frame, _ in frames)


def _is_library(module: str) -> bool:
    """Whether a module is ours, PyTorch's or Python's; the models that we bring are user code."""
    if f"{module}.".startswith(USER_PACKAGE):
        return False
    return module.partition(".")[0] in LIBRARIES


def _chain(error: BaseException) -> Iterator[BaseException]:
    seen: set[int] = set()
    current: BaseException | None = error
    while current is not None and id(current) not in seen:
        seen.add(id(current))
        yield current
        hidden = current.__suppress_context__
        current = current.__cause__ or (None if hidden else current.__context__)


def _one_line(error: BaseException) -> str:
    if isinstance(error, SystemExit):
        return f"SystemExit: exited with {error.code!r}"[:ERROR_CHARS_MAX]
    text = f"{type(error).__name__}: {' '.join(str(error).split())}"
    if _NO_FIXED_BITS in text:
        what, _, _ = text.partition(_NO_FIXED_BITS)
        text = what + _NO_FIXED_BITS + _FIXED_BITS_ADVICE
    return text[:ERROR_CHARS_MAX]
