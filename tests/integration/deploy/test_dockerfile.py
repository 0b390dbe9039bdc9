"""The Dockerfile and .dockerignore, beside what the package is made of."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[3]
STAGES = ("services", "agent")  # of the Dockerfile: each installs the whole package


def folders() -> set[str]:
    """The top folders that hold a part of the package."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    parts = project["tool"]["hatch"]["build"]["targets"]["wheel"]["only-include"]
    return {Path(part).parts[0] for part in parts}


def test_images_hold_every_part_of_the_package() -> None:
    """A part that is not copied is missing only when somebody imports it."""
    stages = dict.fromkeys(STAGES, "")
    for text in re.split(r"^FROM ", (ROOT / "Dockerfile").read_text(), flags=re.MULTILINE):
        name = text.partition("\n")[0].rpartition(" ")[2]
        if name in stages:
            stages[name] = text
    copied = {
        name: set(re.findall(r"^COPY (\w+) \1$", text, re.MULTILINE))
        for name, text in stages.items()
    }
    assert copied == dict.fromkeys(STAGES, folders())


def test_builder_is_sent_only_what_it_needs() -> None:
    """Data, states of stacks and secrets in the checkout stay out of the images."""
    lines = (ROOT / ".dockerignore").read_text().splitlines()
    sent = {line[1:] for line in lines if line.startswith("!")}
    assert lines[1] == "*"
    files = {"constraints.txt", "pyproject.toml", "README.md", "deploy/agent.sh"}
    assert sent == folders() | files
