"""Says how a rank ended, from two witnesses: the kernel's status and the rank's last words.

The status is always there but says little; the words say what happened but may be missing (a
kill) or come before a status that contradicts them (a crash while the interpreter tears down).
Words win where there are any, because they name a cause and the status only a consequence.
"""

from __future__ import annotations

import signal as signals
from dataclasses import dataclass
from enum import StrEnum
from typing import Final


class ExitClass(StrEnum):
    """Spelled as ``ExitClass`` in agents.proto."""

    FINISHED = "FINISHED"
    STOPPED = "STOPPED"
    KILLED = "KILLED"
    USER_ERROR = "USER_ERROR"
    COLLECTIVE = "COLLECTIVE"
    BAD_ENTRY_POINT = "BAD_ENTRY_POINT"
    RESTORE_FAILED = "RESTORE_FAILED"
    HOST_TOO_SMALL = "HOST_TOO_SMALL"


# What ranks exit with, so that the class is known even if the last words were lost. Above what
# interpreters (1, 2), shells (126 and up) and sysexits.h (64 to 78) use.
EXIT_CODES: Final = {
    ExitClass.FINISHED: 0,
    ExitClass.STOPPED: 40,
    ExitClass.USER_ERROR: 41,
    ExitClass.COLLECTIVE: 42,
    ExitClass.BAD_ENTRY_POINT: 43,
    ExitClass.RESTORE_FAILED: 44,
    ExitClass.HOST_TOO_SMALL: 45,
}
_CLASS_OF_CODE: Final = {code: exit_class for exit_class, code in EXIT_CODES.items()}


class Intent(StrEnum):
    """What this host wanted of the rank when it ended."""

    RUN = "run"
    STOP = "stop"  # asked to stop at an agreed step, and killed if it did not
    KILL = "kill"  # fenced off: nobody waits for its report


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    """What the kernel said; ``signal`` is 0 for none."""

    exit_code: int
    signal: int

    @property
    def left(self) -> bool:
        """Whether it ended as one that is through, or has made the last step asked of it."""
        codes = EXIT_CODES[ExitClass.FINISHED], EXIT_CODES[ExitClass.STOPPED]
        return not self.signal and self.exit_code in codes


@dataclass(frozen=True, slots=True, kw_only=True)
class LastWords:
    """What the rank said before it ended."""

    exit_class: ExitClass
    error: str = ""
    traceback: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """How the rank ended, both witnesses merged."""

    exit_class: ExitClass
    exit_code: int
    signal: int
    error: str
    traceback: str


def merge(status: Status, words: LastWords | None, intent: Intent, log_tail: str) -> Ending | None:
    """Return how a rank ended; None when we ended it on purpose and nobody waits for it.

    Args:
        status: of the process.
        words: its last ones, if it had any.
        intent: what this host wanted of it.
        log_tail: the end of its log, shown when there are no words.
    """
    if intent is Intent.KILL:
        return None
    if words is not None:
        return _ending(status, words.exit_class, words.error, words.traceback)
    through = not status.signal and status.exit_code == EXIT_CODES[ExitClass.FINISHED]
    if intent is Intent.STOP and not through:
        how = "killed" if status.signal else f"ended with code {status.exit_code}"
        return _ending(status, ExitClass.STOPPED, f"{how} while it was asked to stop", "")
    if status.signal:
        return _ending(status, ExitClass.KILLED, f"ended by {signal_name(status.signal)}", log_tail)
    exit_class = _CLASS_OF_CODE.get(status.exit_code, ExitClass.USER_ERROR)
    if exit_class in {ExitClass.FINISHED, ExitClass.STOPPED}:
        return _ending(status, exit_class, "", "")
    error = f"exited with code {status.exit_code} without a word; its log ends as shown"
    return _ending(status, exit_class, error, log_tail)


def signal_name(number: int) -> str:
    """Return e.g. ``SIGKILL``, or ``signal 64`` for one without a name."""
    try:
        return signals.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _ending(status: Status, exit_class: ExitClass, error: str, traceback: str) -> Ending:
    return Ending(
        exit_class=exit_class,
        exit_code=status.exit_code,
        signal=status.signal,
        error=error,
        traceback=traceback,
    )
