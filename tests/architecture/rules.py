"""The style rules that a machine can check; each takes a repository's root and returns complaints.

Sources are read, never imported, so a broken file is a complaint and not a crash of the checker.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

ROOTS = ("lib", "services", "worker", "sim", "cli")
MORE_CODE = ("scripts", "benchmarks")
MODULE_LINES_MAX = 400
FUNCTION_LINES_MAX = 60
LINE_CHARACTERS_MAX = 100
REASON_LETTERS_MIN = 6  # "as above" is the shortest reason that says anything
PAGE_LINES_MAX = 120  # two screens; what does not fit belongs in docs/

PURE_FILES = ("events", "commands", "state", "decider", "policy")
SERVICE_FILES = (*PURE_FILES, "codec", "projections", "api", "settings", "__main__")
IMPURE_STDLIB = {  # clocks, randomness, IO, the environment
    "asyncio", "concurrent", "contextvars", "datetime", "faulthandler", "fcntl", "http", "io",
    "logging", "multiprocessing", "os", "pathlib", "platform", "queue", "random", "secrets",
    "select", "selectors", "shutil", "signal", "socket", "socketserver", "sqlite3", "ssl",
    "subprocess", "sys", "tempfile", "threading", "time", "urllib", "uuid", "warnings",
    "zoneinfo",
}  # fmt: skip
SDK = "everstep/train/__init__.py"  # may re-export the names that user code imports
GENERATED = "everstep/wire/v1"

Rule = Callable[[Path], list[str]]


def sources(root: Path, *folders: str) -> Iterator[Path]:
    """Yield our own modules, the generated ones left out."""
    for folder in folders or (*ROOTS, *MORE_CODE):
        for path in sorted((root / folder).rglob("*.py")):
            if GENERATED not in path.as_posix():
                yield path


def no_package_at_namespace_levels(root: Path) -> list[str]:
    """One stray ``everstep/__init__.py`` would hide every other root."""
    return [f"{p}: remove it" for p in root.glob("*/**/everstep/__init__.py") if _ours(root, p)]


def inits_are_one_docstring(root: Path) -> list[str]:
    """Nothing happens on import."""
    wrong = []
    for path in sources(root, *ROOTS):
        if path.name != "__init__.py":
            continue
        body = _parse(path).body
        if not body or ast.get_docstring(_parse(path)) is None:
            wrong.append(f"{path}: needs a docstring")
        elif path.as_posix().endswith(SDK):
            wrong += [f"{path}:{n.lineno}: re-exports only" for n in body[1:] if not _re_export(n)]
        elif len(body) > 1:
            wrong.append(f"{path}:{body[1].lineno}: only a docstring belongs here")
    return wrong


def modules_are_short(root: Path) -> list[str]:
    """A module is read in one sitting."""
    return [
        f"{path}: {count} lines, more than {MODULE_LINES_MAX}"
        for path in sources(root)
        if (count := len(path.read_text().splitlines())) > MODULE_LINES_MAX
    ]


def functions_are_short(root: Path) -> list[str]:
    """A function fits a screen."""
    return [
        f"{path}:{node.lineno}: {node.name} has {count} lines, more than {FUNCTION_LINES_MAX}"
        for path in sources(root)
        for node in ast.walk(_parse(path))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and (count := _body_lines(node)) > FUNCTION_LINES_MAX
    ]


def lines_are_short(root: Path) -> list[str]:
    """Two files fit side by side; words to a linter at the end of a line do not count."""
    pragma = re.compile(r"\s*# (noqa|type: ignore).*$")
    return [
        f"{path}:{number}: {length} characters, more than {LINE_CHARACTERS_MAX}"
        for path in (*sources(root), *sources(root, "tests"))
        for number, line in enumerate(path.read_text().splitlines(), start=1)
        if (length := len(pragma.sub("", line))) > LINE_CHARACTERS_MAX
    ]


def modules_have_docstrings(root: Path) -> list[str]:
    """Every module says what it is for."""
    return [f"{p}: needs a docstring" for p in sources(root) if not ast.get_docstring(_parse(p))]


def services_look_alike(root: Path) -> list[str]:
    """Any path of a service can be guessed from another's."""
    wrong = []
    for folder in sorted(p for p in (root / "services").iterdir() if p.is_dir()):
        package = folder / "everstep" / folder.name.replace("-", "_")
        needed = [package / f"{name}.py" for name in SERVICE_FILES]
        needed += [package / "migrations", folder / "README.md"]
        wrong += [f"{path}: missing" for path in needed if not path.exists()]
    return wrong


def service_pages_are_pages(root: Path) -> list[str]:
    """A service's README is one page."""
    return [
        f"{path}: {count} lines, more than {PAGE_LINES_MAX}"
        for path in sorted((root / "services").glob("*/README.md"))
        if (count := len(path.read_text().splitlines())) > PAGE_LINES_MAX
    ]


def pure_files_import_only_pure_files(root: Path) -> list[str]:
    """What decides sees no clock, no randomness, no IO: only core and its own pure neighbours."""
    wrong = []
    for folder in sorted((root / "services").glob("*/everstep/*")):
        seen: set[Path] = set()
        open_ends = [path for name in PURE_FILES if (path := folder / f"{name}.py").exists()]
        while open_ends:
            path = open_ends.pop()
            if path in seen:
                continue
            seen.add(path)
            for line, module in _imports(path):
                neighbour = _module_file(folder, module)
                if neighbour is not None:
                    open_ends.append(neighbour)
                elif not _is_pure(module):
                    wrong.append(f"{path}:{line}: a pure file may not import {module}")
    return wrong


def core_is_pure(root: Path) -> list[str]:
    """Only core/system.py touches the clock and randomness; core imports nothing of ours."""
    return [
        f"{path}:{line}: core may not import {module}"
        for path in sorted((root / "lib/everstep/core").glob("*.py"))
        for line, module in _imports(path)
        if not _is_core(path, module)
    ]


def ignores_are_explained(root: Path) -> list[str]:
    """Every silenced linter says why, on the same line."""
    noqa = re.compile(r"#\s*noqa(?P<codes>:\s*[A-Z]+[0-9]+(,\s*[A-Z]+[0-9]+)*)?(?P<why>.*)")
    ignore = re.compile(r"#\s*type:\s*ignore(?P<codes>\[[\w-]+(,\s*[\w-]+)*\])?(?P<why>.*)")
    wrong = []
    for path in (*sources(root), *sources(root, "tests")):
        if "architecture" in path.parts:
            continue  # its examples of what is wrong
        for number, line in enumerate(path.read_text().splitlines(), start=1):
            for match in filter(None, (noqa.search(line), ignore.search(line))):
                if not match["codes"]:
                    wrong.append(f"{path}:{number}: name the code that is ignored")
                elif len(re.sub(r"[\W_]", "", match["why"])) < REASON_LETTERS_MIN:
                    wrong.append(f"{path}:{number}: say why it is ignored")
    return wrong


def no_test_is_skipped(root: Path) -> list[str]:
    """A test that does not run proves nothing."""
    skip = re.compile(r"pytest\.(skip|xfail|importorskip)\b|pytest\.mark\.(skip|skipif|xfail)\b")
    return [
        f"{path}:{number}: no skipped tests"
        for path in sources(root, "tests")
        if "architecture" not in path.parts
        for number, line in enumerate(path.read_text().splitlines(), start=1)
        if skip.search(line)
    ]


def tests_say_what_they_guard(root: Path) -> list[str]:
    """Every test has a docstring."""
    return [
        f"{path}:{node.lineno}: {node.name} needs a docstring"
        for path in sources(root, "tests")
        for node in ast.walk(_parse(path))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and node.name.startswith("test_")
        and not ast.get_docstring(node)
    ]


def wire_code_is_fresh(root: Path) -> list[str]:
    """The generated code is what the .proto files say."""
    script = root / "scripts" / "proto.py"
    done = subprocess.run(
        [sys.executable, str(script), "--check"], capture_output=True, text=True, check=False
    )
    return [] if done.returncode == 0 else [done.stdout.strip() or done.stderr.strip()]


RULES: dict[str, Rule] = {
    rule.__name__: rule
    for rule in (
        no_package_at_namespace_levels,
        inits_are_one_docstring,
        modules_are_short,
        functions_are_short,
        lines_are_short,
        modules_have_docstrings,
        services_look_alike,
        service_pages_are_pages,
        pure_files_import_only_pure_files,
        core_is_pure,
        ignores_are_explained,
        no_test_is_skipped,
        tests_say_what_they_guard,
        wire_code_is_fresh,
    )
}


def _ours(root: Path, path: Path) -> bool:
    return path.relative_to(root).parts[0] in ROOTS


def _parse(path: Path) -> ast.Module:
    return ast.parse(path.read_text(), filename=str(path))


def _re_export(node: ast.stmt) -> bool:
    names_all = isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__"
    return names_all or isinstance(node, ast.Import | ast.ImportFrom)


def _body_lines(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Count a function's own lines: without its docstring and without functions inside it."""
    count = _lines(node)
    if ast.get_docstring(node) is not None:
        count -= _lines(node.body[0])
    inside = [n for n in node.body if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)]
    return count - sum(_lines(n) for n in inside)


def _lines(node: ast.stmt) -> int:
    return (node.end_lineno or node.lineno) - node.lineno + 1


def _imports(path: Path) -> Iterator[tuple[int, str]]:
    """Yield every imported module; ``from a import b`` counts as ``a.b`` where that is a module."""
    for node in ast.walk(_parse(path)):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            module = "." * node.level + (node.module or "")
            for alias in node.names:
                below = f"{module}.{alias.name}"
                yield node.lineno, below if _is_module(path, below) else module


def _is_module(path: Path, name: str) -> bool:
    for parent in path.parents:
        if parent.name == "everstep":
            return (parent.parent / f"{name.replace('.', '/')}.py").exists()
    return False


def _module_file(folder: Path, module: str) -> Path | None:
    """Return the file of a module of the same service."""
    prefix = f"everstep.{folder.name}."
    if not module.startswith(prefix):
        return None
    below = folder / module.removeprefix(prefix).replace(".", "/")
    for path in (below.with_suffix(".py"), below / "__init__.py"):
        if path.exists():
            return path
    return None


def _is_pure(module: str) -> bool:
    top = module.partition(".")[0]
    if top == "everstep":
        return module.startswith("everstep.core.") and module != "everstep.core.system"
    return top in sys.stdlib_module_names and top not in IMPURE_STDLIB


def _is_core(path: Path, module: str) -> bool:
    top = module.partition(".")[0]
    if path.name == "system.py":
        return top in sys.stdlib_module_names
    if path.name == "spec.py" and top in ("pydantic", "pathlib"):
        return True  # people write specs: pydantic answers their mistakes
    if path.name == "record.py" and top == "msgspec":
        return True  # makes records ten times as fast as dataclasses
    return _is_pure(module)
