"""Finds an entry point without running any of it: its module or script, and the function in it.

The ranks would find out too, but only once hosts are placed and processes started, and whoever has
used ``--detach`` is gone by then. Nothing is imported: user code may take accelerators on import.
What the source alone cannot tell (a star import, a module's ``__getattr__``, code that is not
Python source) passes.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from typing import Final

SOURCE_SUFFIX: Final = ".py"


def entry_problem(entry: str, first: Sequence[Path]) -> str:
    """Return what is wrong with a ``module:function`` as far as its source tells; "" for nothing.

    Args:
        entry: as the job spec has it.
        first: where the ranks look before they look among what is installed.
    """
    name, _, function = entry.partition(":")
    found = _found(name.split("."), first)
    if isinstance(found, str):
        return found
    origin = Path(found.origin or "")
    if origin.suffix != SOURCE_SUFFIX or not origin.is_file():
        return ""
    return source_problem(origin, function)


def source_problem(file: Path, function: str = "") -> str:
    """Return why a file is no Python source, or binds no such name; "" for nothing."""
    try:
        tree = ast.parse(file.read_bytes(), filename=str(file))
    except SyntaxError as error:
        return f"{file}, line {error.lineno}: {error.msg}"
    except ValueError as error:  # a null byte
        return f"{file}: {error}"
    bound = _bound(tree)
    if not function or function in bound or bound & {"*", "__getattr__"}:
        return ""
    return f"{file} has no function {function}"


def _found(parts: list[str], first: Sequence[Path]) -> ModuleSpec | str:
    """Return where a module is, or the sentence that it is nowhere."""
    name = parts[0]
    finders = (finder.find_spec(name, None) for finder in sys.meta_path)
    spec = PathFinder.find_spec(name, [*map(str, first)]) or next(filter(None, finders), None)
    if spec is None:
        looked = ", ".join(map(str, first))
        return f"there is no module {name} in {looked}, nor in the Python of {sys.prefix}"
    for part in parts[1:]:
        inside, name = name, f"{name}.{part}"
        where = spec.submodule_search_locations
        spec = None if where is None else PathFinder.find_spec(name, list(where))
        if spec is None:
            return f"there is no module {part} in {inside}"
    return spec


def _bound(tree: ast.Module) -> set[str]:
    """Return all names that are bound anywhere in a module; too many rather than too few."""
    names: set[str] = set()
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                names.add(node.name)
            case ast.Name(ctx=ast.Store()):
                names.add(node.id)
            case ast.alias():
                names.add(node.asname or node.name)
    return names
