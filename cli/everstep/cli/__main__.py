"""The ``everstep`` command: runs it and turns every expected failure into one sentence.

Exit codes: 0 success, 1 failure, 2 wrong usage, 3 the job was stopped, 124 a campaign
ran out of time, 130 interrupted.

Nothing of ours or of others is imported on top: half a second of imports would otherwise be a time
in which Ctrl-C prints a traceback.
"""

import os
import sys

DEBUG_OPTION = "--debug"
EXIT_INTERRUPTED = 130  # as every program that Ctrl-C ended


def main() -> None:
    """Run the command line and exit."""
    if sys.stdout is None:  # closed by who started us (``>&-``): print to nobody
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115, PTH123 - open until the process ends
    try:
        _run()
    except KeyboardInterrupt:
        sys.exit(EXIT_INTERRUPTED)


def _run() -> None:
    from everstep.core.errors import EverstepError

    try:
        from everstep.cli.app import app

        app()
    except (EverstepError, OSError, ModuleNotFoundError) as error:
        if DEBUG_OPTION in sys.argv[1:]:
            import traceback

            traceback.print_exc()
        from everstep.cli.output import ERR

        ERR.print("[bold red]error:[/]", end=" ")
        ERR.print(sentence(error), markup=False)
        sys.exit(1)


def sentence(error: Exception) -> str:
    """Return what went wrong as one sentence, never empty."""
    if isinstance(error, ModuleNotFoundError) and not str(error.name).startswith("everstep"):
        return f"this needs {error.name}, which is not installed: pip install 'everstep[all]'"
    if isinstance(error, OSError) and error.filename is not None and error.strerror:
        return f"cannot use {error.filename}: {error.strerror}"
    return str(error).strip() or type(error).__name__


if __name__ == "__main__":
    main()
