"""The life of a rank: hello, groups, user code, last words.

Called in the child that the fork server forked, with torch imported and the environment set. What
takes time is overlapped: the agent prepares the restore while groups are built and the user's code
makes its model.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import runpy
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from everstep.agent.exits import ExitClass
from everstep.core.errors import InvalidInput
from everstep.core.spec import JobSpec
from everstep.core.system import SystemClock
from everstep.train.endings import BadEntryPointError, Ending, RunStoppedError, classify
from everstep.train.session import Session, open_session

# An agent that was killed is restarted by its supervisor in a few seconds.
LAST_WORDS_WAIT_S: Final = 10.0


def run_rank() -> int:
    """Run this rank from environment to last words; returns the exit code of its class."""
    session = open_session(os.environ, SystemClock())
    spec = session.environment.spec
    if spec is None:
        raise InvalidInput("EVERSTEP_SPEC is not set: bare runs call train.init() themselves")
    ending = _run_entry(session, spec)
    _say_last_words(session, ending)
    return ending.exit_code


def run_bare(spec: JobSpec) -> int:
    """Run a job's entry point with torchrun's variables only: no agent, no snapshots."""
    session = open_session(os.environ, SystemClock())
    ending = _run_entry(session, spec)
    sys.stderr.write(ending.traceback)
    return ending.exit_code


def _run_entry(session: Session, spec: JobSpec) -> Ending:
    try:
        with _returning():
            if spec.is_script:
                _run_script(spec)
            else:
                entry = find_entry(spec.entry)
                entry(session.start_run(spec))
        if session.run is not None:
            session.run.finish()
    except (Exception, SystemExit, RunStoppedError, KeyboardInterrupt) as error:  # noqa: BLE001 - whatever user code raises becomes last words
        return classify(error)
    stopped = session.run is not None and session.run.stopped
    return Ending(exit_class=ExitClass.STOPPED if stopped else ExitClass.FINISHED)


@contextlib.contextmanager
def _returning() -> Iterator[None]:
    """Take for a return what is none but by its form.

    A loop without an end of its own calls ``step`` once too often, and scripts end with
    ``sys.exit(main())``: what comes after the entry must come then too.
    """
    try:
        yield
    except RunStoppedError:
        return
    except SystemExit as error:
        if error.code not in {None, 0}:
            raise


def find_entry(entry: str) -> Any:
    """Return the function that ``module:function`` names.

    Raises:
        BadEntryPointError: the module cannot be found, or has no such function.
    """
    module_name, _, function_name = entry.partition(":")
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        # Only the module itself: what it imports and cannot find is the user's error.
        if error.name is not None and (module_name + ".").startswith(error.name + "."):
            raise BadEntryPointError(
                f"entry {entry}: there is no module {error.name} (looked in {sys.path[0]} first)"
            ) from None
        raise
    function = getattr(module, function_name, None)
    if not callable(function):
        raise BadEntryPointError(f"entry {entry}: {module_name} has no function {function_name}")
    return function


def _run_script(spec: JobSpec) -> None:
    path = Path(spec.entry)
    if not path.is_file():
        raise BadEntryPointError(f"entry {spec.entry}: there is no such file in {Path.cwd()}")
    sys.argv = [str(path), *spec.argv]
    sys.path.insert(0, str(path.resolve().parent))
    runpy.run_path(str(path), run_name="__main__")


def _say_last_words(session: Session, ending: Ending) -> None:
    step = session.run.step_index if session.run is not None else 0
    if ending.exit_class in {ExitClass.FINISHED, ExitClass.STOPPED}:
        session.channel.last_words(
            "finished",
            timeout_s=LAST_WORDS_WAIT_S,
            exit_class=ending.exit_class.value,
            step=step,
        )
        return
    sys.stderr.write(ending.traceback)
    session.channel.last_words(
        "failed",
        timeout_s=LAST_WORDS_WAIT_S,
        exit_class=ending.exit_class.value,
        error=ending.error,
        traceback=ending.traceback,
        step=step,
    )
