"""The peers' own virtual environment: made by the benchmark, never a dependency of ours.

Versions are pinned to what was newest for Python 3.11 when the scripts were written. Packages whose
own pins do not allow this torch are installed without their dependencies.
"""

from __future__ import annotations

import hashlib
import platform
import subprocess
import sys
from pathlib import Path
from typing import Final

from benchmarks.support.figures import REPOSITORY
from benchmarks.support.processes import say

VENV: Final = REPOSITORY / ".bench-venv"
PYTHON: Final = VENV / "bin" / "python"

TORCH: Final = ("torch==2.13.0", "numpy==2.4.6")
PARTS: Final = (
    # What Everstep's model and loader import.
    "xxhash==4.1.0",
    # What NVRx's launcher and local checkpoints import.
    "defusedxml==0.7.1",
    "nvidia-ml-py==13.615.71",
    "packaging==26.4",
    "psutil==7.2.2",
    "pynvml==13.0.1",
    "pyyaml==6.0.4",
    "httpx==0.28.1",
    # What dlrover-run and its master import; grpcio and protobuf serve NVRx too.
    "deprecated==1.3.1",
    "requests==2.34.2",
    "wrapt==2.5.2",
    "grpcio==1.85.3",
    "protobuf==7.36.2",
    "tornado==6.6.1",
    "kubernetes==37.0.2",
    "urllib3==2.8.0",
)
DLROVER: Final = "dlrover==0.6.1"
NVRX: Final = "nvidia-resiliency-ext==0.6.0"


def make() -> dict[str, str]:
    """Create the environment if it is not there; returns what could not be installed, and why."""
    recipe = "\n".join((*TORCH, *PARTS, DLROVER, NVRX, sys.version))
    digest = hashlib.sha256(recipe.encode()).hexdigest()
    stamp = VENV / ".everstep-bench"
    if stamp.exists() and stamp.read_text().startswith(digest):
        return dict(line.split("\t", 1) for line in stamp.read_text().splitlines()[1:])
    say(f"installing the peers into {VENV} (once; a few minutes on a slow line)")
    subprocess.run([sys.executable, "-m", "venv", "--clear", str(VENV)], check=True)
    _pip(*TORCH)
    _pip(*PARTS)
    failed = {}
    for name, install in (("dlrover", _install_dlrover), ("nvrx", _install_nvrx)):
        try:
            install()
        except subprocess.CalledProcessError as error:
            failed[name] = " ".join(error.stderr.decode(errors="replace").split())[-500:]
    lines = [digest, *(f"{name}\t{why}" for name, why in failed.items())]
    stamp.write_text("\n".join(lines) + "\n")
    return failed


def versions(names: tuple[str, ...]) -> dict[str, str]:
    """Return what is installed there."""
    code = (
        "import sys; from importlib.metadata import version, PackageNotFoundError\n"
        "for name in sys.argv[1:]:\n"
        "    try: print(name, version(name))\n"
        "    except PackageNotFoundError: print(name, 'absent')\n"
    )
    told = subprocess.run([str(PYTHON), "-c", code, *names], check=True, capture_output=True)
    return dict(line.split(" ", 1) for line in told.stdout.decode().splitlines())


def _pip(*arguments: str) -> None:
    command = [str(PYTHON), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*command, *arguments], check=True, stderr=subprocess.PIPE)


def _install_dlrover() -> None:
    _pip("--no-deps", DLROVER)


def _install_nvrx() -> None:
    """Install the wheel although it asks for glibc 2.39.

    Only its CUPTI module is native; launcher and checkpoints are Python and run on older ones.
    """
    site = next((VENV / "lib").glob("python3*")) / "site-packages"
    tag = f"manylinux_2_39_{platform.machine()}"
    target: list[str | Path] = ["--target", site, "--platform", tag, "--only-binary=:all:"]
    _pip("--no-deps", *map(str, target), NVRX)
