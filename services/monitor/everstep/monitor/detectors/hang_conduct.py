"""Tells from several looks at one rank whether it stands still, spins, or may be at work."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Final

from everstep.monitor.detectors.hang_stacks import RankLook, State, is_library

# Looks that must agree. Two show that a rank stands still; that one function is met three times by
# chance, while other things are done too, is rare; what may be at work is watched for long.
STANDING_LOOKS: Final = 2
SPINNING_LOOKS: Final = 3
WORKING_LOOKS: Final = 8
# Of a core. A rank that waits uses a tick or none of the thirty of a look (seen); one that spins
# uses all of them, or its share where others want the core too: seen down to seven.
STILL_SHARE_MAX: Final = 0.1
# Read or written during a look of 0.3 s: less than 200 kB/s moves nothing that a step waits for.
IO_BYTES_MIN: Final = 65_536


class Conduct(StrEnum):
    """What a rank did from look to look."""

    STANDS = "stands still"
    SPINS = "does not leave one function"
    WORKS = "may be at work"


def conduct_of(seen: Sequence[RankLook]) -> Conduct:
    """Return what a rank did over these looks at it, oldest first."""
    two, three = seen[-STANDING_LOOKS:], seen[-SPINNING_LOOKS:]
    if len(two) == STANDING_LOOKS and all(_is_still(one, two[-1]) for one in two):
        return Conduct.STANDS
    if len(three) == SPINNING_LOOKS and all(_is_round(one, three[-1]) for one in three):
        return Conduct.SPINS
    return Conduct.WORKS


def _is_still(look: RankLook, last: RankLook) -> bool:
    """Whether the rank sleeps where it sleeps at the last look, and moves nothing."""
    return (
        look.answered
        and look.state is State.SLEEPING
        and look.frames == last.frames
        and look.cpu_share <= STILL_SHARE_MAX
        and look.io_bytes < IO_BYTES_MIN
    )


def _is_round(look: RankLook, last: RankLook) -> bool:
    """Whether the rank computes in the function of its own that it is in at the last look."""
    return (
        look.answered
        and look.state is State.RUNNING
        and _in_one_function(look.frames, last.frames)
        and look.cpu_share > STILL_SHARE_MAX
        and look.io_bytes < IO_BYTES_MIN
    )


def _in_one_function(frames: Sequence[str], others: Sequence[str]) -> bool:
    """Whether both stacks end in one function, or one of them in own code that it calls.

    Library functions do not count: work that takes long passes through the same few all the time.
    """
    shorter, longer = sorted((frames, others), key=len)
    called = longer[len(shorter) - 1 :]
    return (
        _functions(shorter) == _functions(longer[: len(shorter)])
        and bool(called)
        and not any(is_library(frame) for frame in called)
    )


def _functions(frames: Sequence[str]) -> list[str]:
    return [frame.rpartition(":")[0] for frame in frames]
