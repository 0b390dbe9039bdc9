"""Ranks without torch that make it hard to see where they are; ``args.how`` says in which way."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading

from everstep.agent.stack_file import STACKS_SIGNAL

DEPTH = 500
THREADS = 30
COUNT = 10**14  # hours


def run() -> None:
    """Do as told, say so in the log, and wait."""
    match json.loads(os.environ["EVERSTEP_SPEC"])["args"]["how"]:
        case "hold":
            hold()
        case "hold_deaf":
            signal.signal(STACKS_SIGNAL, signal.SIG_DFL)
            hold()
        case "hold_blocking":
            signal.pthread_sigmask(signal.SIG_BLOCK, {STACKS_SIGNAL})
            hold()
        case "many_threads":
            for _ in range(THREADS):
                threading.Thread(target=deep, args=(DEPTH // 10,), daemon=True).start()
        case "deep":
            deep(DEPTH)
        case "busy":
            threading.Thread(target=work, daemon=True).start()
        case _:
            pass
    wait()


def deep(depth: int) -> None:
    """Wait far down."""
    if depth:
        deep(depth - 1)
    else:
        wait()


def hold() -> None:
    """Compute in C, and never give the interpreter's lock back."""
    say()
    sum(range(COUNT))


def work() -> None:
    """Call, return, and make code, for ever."""
    while True:
        recurse(90)
        exec("def made(n):\n    return [one for one in range(n)]\nmade(20)", {})


def recurse(depth: int) -> int:
    """Go down and come back."""
    return recurse(depth - 1) if depth else 0


def wait() -> None:
    """Wait for ever."""
    say()
    threading.Event().wait()


def say() -> None:
    """Let the test know."""
    sys.stdout.write("ready\n")
    sys.stdout.flush()
