"""The ``everstep`` command: runs it and turns every expected failure into one sentence.

Exit codes: 0 success, 1 failure, 2 wrong usage, 3 the job was stopped, 130 interrupted.
"""

from __future__ import annotations

import sys
import traceback

from everstep.cli.app import app
from everstep.cli.output import ERR
from everstep.core.errors import EverstepError

DEBUG_OPTION = "--debug"


def main() -> None:
    """Run the command line and exit."""
    try:
        app()
    except (EverstepError, OSError, ModuleNotFoundError) as error:
        if DEBUG_OPTION in sys.argv[1:]:
            traceback.print_exc()
        ERR.print("[bold red]error:[/]", end=" ")
        ERR.print(sentence(error), markup=False)
        sys.exit(1)


def sentence(error: Exception) -> str:
    """Return what went wrong as one sentence, never empty."""
    if isinstance(error, ModuleNotFoundError) and not str(error.name).startswith("everstep"):
        return f"this needs {error.name}, which is not installed: pip install 'everstep[all]'"
    return str(error).strip() or type(error).__name__


if __name__ == "__main__":
    main()
