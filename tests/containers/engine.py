"""Whether containers can be run here, and the commands that run them."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[2]
POSTGRES_IMAGE = "postgres:18"
COMPOSE_MIN = (2, 26)  # the oldest tried; 2.23.1 is the first to read config contents
PULL_TIMEOUT_S = 600.0
ASK_TIMEOUT_S = 60.0


def docker(*arguments: str, timeout_s: float = ASK_TIMEOUT_S) -> subprocess.CompletedProcess[str]:
    """Run a docker command."""
    return subprocess.run(
        ["docker", *arguments], capture_output=True, text=True, check=False, timeout=timeout_s
    )


def why_not() -> str:
    """Return what is missing for the container tests in one sentence; "" when nothing is."""
    try:
        engine = docker("version", "--format", "{{.Server.Version}}")
        compose = docker("compose", "version", "--short")
    except FileNotFoundError:
        return "there is no docker command on PATH"
    if engine.returncode != 0:
        return f"no Docker engine answers ({_last_line(engine.stderr)})"
    found = tuple(map(int, re.findall(r"\d+", compose.stdout)[:2]))
    if compose.returncode != 0 or found < COMPOSE_MIN:
        wanted = ".".join(map(str, COMPOSE_MIN))
        return (
            f"Docker Compose {wanted} or newer is needed, found {compose.stdout.strip() or 'none'}"
        )
    return _missing_image()


def images() -> list[str]:
    """Return the images that the stack is made from and that are not built here."""
    compose = (ROOT / "docker-compose.yml").read_text()
    served = re.findall(r"^ +image: (\S+:\S+)$", compose, re.MULTILINE)
    build = (ROOT / "Dockerfile").read_text()
    built_on = re.findall(r"^FROM (\S+:\S+) ", build, re.MULTILINE)
    return sorted({*served, *built_on, POSTGRES_IMAGE})


def _missing_image() -> str:
    for image in images():
        if docker("image", "inspect", image).returncode == 0:
            continue
        pulled = docker("pull", "--quiet", image, timeout_s=PULL_TIMEOUT_S)
        if pulled.returncode != 0:
            return f"image {image} is not here and cannot be pulled ({_last_line(pulled.stderr)})"
    return ""


def _last_line(text: str) -> str:
    return (text.strip().splitlines() or ["it said nothing"])[-1]
