"""Finds before a launch what would fail on every host of this machine's stack: paths, the entry.

Without it a wrong path is found by the ranks, after two launches. Only for the stack of this
machine: a cluster's hosts may have other files than the machine at which somebody types.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from everstep.cli.entry_check import entry_problem, source_problem
from everstep.core.errors import EverstepError, InvalidInput
from everstep.core.rank_variables import python_path
from everstep.core.spec import DataSpec, JobSpec

INDEX_NAME: Final = "index.json"  # of a directory that `everstep data prepare` has made
REFERENCE_MODELS: Final = "everstep.models."  # they read token shards and nothing else


def check_paths(spec: JobSpec) -> None:
    """Look at what the ranks will open first.

    Args:
        spec: with an absolute ``cwd``.

    Raises:
        InvalidInput: one line for each path that is not what it should be.
    """
    cwd = Path(spec.cwd)
    if not cwd.is_dir():
        found = "a file" if cwd.exists() else "nothing"
        raise InvalidInput(f"cwd: expected a directory, found {found} at {cwd}")
    problems = []
    if problem := _entry_problem(spec, cwd):
        problems.append(f"entry: {problem}")
    if spec.data is not None:
        problem = _data_problem(spec.data, cwd, always=spec.entry.startswith(REFERENCE_MODELS))
        problems += [problem] if problem else []
    if problems:
        raise InvalidInput("\n".join(problems))


def _entry_problem(spec: JobSpec, cwd: Path) -> str:
    if not spec.is_script:
        return entry_problem(spec.entry, [cwd, *(cwd / path for path in python_path(spec.env))])
    script = cwd / spec.entry
    return (
        source_problem(script) if script.is_file() else f"expected a script, found none at {script}"
    )


def _data_problem(data: DataSpec, cwd: Path, *, always: bool) -> str:
    """Return what is wrong with the data; ``always``: not only if they look like token shards."""
    if "://" in data.path or not (data.path or always):
        return ""  # for a data set of the user's own
    if not data.path:
        return "data.path: expected token shards, got nothing"
    path = cwd / data.path
    if not path.exists():
        return (
            f"data.path: expected token shards, found nothing at {path}: "
            f"`everstep data prepare SRC... --out {path}` makes them of text"
        )
    if not (always or path.suffix == ".bin" or (path / INDEX_NAME).exists()):
        return ""  # the user's code reads it, in whatever form it is
    if not data.sequence_tokens:
        return "data.sequence_tokens: token shards need at least 1, got nothing"
    from everstep.data.shards import open_shards  # numpy: only where it is needed

    try:
        open_shards(path, dtype=data.dtype).samples(data.sequence_tokens)
    except EverstepError as error:
        where = "" if str(path) in str(error) else f" (at {path})"
        return f"data.path: {error}{where}"
    return ""
