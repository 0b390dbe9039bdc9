"""Write constraints.txt: the exact version of everything that our extras need, as installed here.

Only what ``everstep[all,dev]`` reaches through its requirements is locked, so a tool that happens
to be installed in the same environment never becomes a pin. Local version parts (``2.13.0+cpu``)
are cut: which build of torch is taken is the installing machine's choice, its version is ours.
"""

from __future__ import annotations

import importlib.metadata
import sys
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

TARGET = Path(__file__).resolve().parent.parent / "constraints.txt"
HEAD = (
    "# Written by scripts/lock.py; install with: pip install -c constraints.txt -e '.[all,dev]'\n"
)
INSTALLER_OWNED = frozenset({"everstep", "setuptools", "pip"})


def requirements_of(name: str, extras: frozenset[str]) -> list[Requirement]:
    """Return the requirements of an installed distribution that hold on this machine."""
    wanted = []
    for line in importlib.metadata.distribution(name).requires or ():
        requirement = Requirement(line)
        environments = [{"extra": extra} for extra in sorted(extras)] or [{"extra": ""}]
        if requirement.marker is None or any(map(requirement.marker.evaluate, environments)):
            wanted.append(requirement)
    return wanted


def closure(name: str, extras: frozenset[str]) -> dict[str, str]:
    """Return canonical name -> version of everything that ``name[extras]`` reaches."""
    versions: dict[str, str] = {}
    seen: set[tuple[str, frozenset[str]]] = set()
    open_ends = [(canonicalize_name(name), extras)]
    while open_ends:
        end = open_ends.pop()
        if end in seen:
            continue
        seen.add(end)
        try:
            version = importlib.metadata.version(end[0])
        except importlib.metadata.PackageNotFoundError:
            sys.exit(f"{end[0]} is required but not installed: run make setup first")
        versions[end[0]] = version.partition("+")[0]
        open_ends += [
            (canonicalize_name(requirement.name), frozenset(requirement.extras))
            for requirement in requirements_of(*end)
        ]
    return versions


def main() -> None:
    """Write the file."""
    versions = closure("everstep", frozenset({"all", "dev"}))
    pins = [f"{name}=={versions[name]}\n" for name in sorted(versions.keys() - INSTALLER_OWNED)]
    TARGET.write_text(HEAD + "".join(pins))
    print(f"wrote {len(pins)} pins to {TARGET.name}")


if __name__ == "__main__":
    main()
