"""Lets the agent see where this rank is, whatever it is doing.

A thread waits for the question and writes all threads' stacks, holding the interpreter's lock, so
that none of them is changed while it is read. It answers while the main thread waits in a
collective or computes, and costs nothing until it is asked.

Where the lock is never given back (an extension that spins), the agent sends a signal, and
``faulthandler`` writes the main thread's stack within its handler: the thread is in C then, and its
frames lie still. System calls that the signal interrupts are restarted.

Rejected: all threads' stacks within the handler (a thread that runs Python meanwhile is read in the
middle of a change: 21 of 20,000 such signals ended a process that had one), ``ptrace`` as py-spy
does (rights that containers do not give), and SIGUSR1 (see ``agent/stack_file.py``).
"""

from __future__ import annotations

import faulthandler
import os
import threading
from pathlib import Path
from typing import Final, TextIO

from everstep.agent.stack_file import (
    QUESTION_BYTES_MAX,
    STACKS_SIGNAL,
    Owner,
    answered,
    question_path,
    stacks_path,
    thread_name,
)

_files: Final[list[TextIO]] = []  # faulthandler keeps the descriptor, and the file must stay open


def tell_stacks_when_asked(log_path: Path) -> None:
    """Write stacks beside the log when asked, from now on; call it in the main thread.

    It comes before any code that is not ours, and must be called once a process.
    """
    questions = question_path(log_path)
    path = stacks_path(log_path)
    for left in (questions, path):
        left.unlink(missing_ok=True)  # of an earlier process with this log
    file = path.open("a", encoding="utf-8")  # the agent cuts it, and the next stack is at the end
    owner = Owner(pid=os.getpid(), thread=thread_name(threading.get_ident()))
    file.write(owner.line())
    file.flush()
    faulthandler.register(STACKS_SIGNAL, file=file, all_threads=False)
    _files.append(file)
    os.mkfifo(questions, 0o600)
    asked = os.open(questions, os.O_RDWR)  # for writing, too: else reading ends with each question
    answering = threading.Thread(
        target=_answer, args=(asked, file.fileno()), name="everstep-stacks", daemon=True
    )
    answering.start()


def _answer(asked: int, told: int) -> None:
    while True:
        questions = os.read(asked, QUESTION_BYTES_MAX).split()
        faulthandler.dump_traceback(told, all_threads=True)
        for question in questions:
            os.write(told, answered(question.decode()).encode())
