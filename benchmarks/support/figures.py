"""Figures as JSON: summaries, the machine they were taken on, and where they are kept."""

from __future__ import annotations

import json
import os
import platform
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from statistics import median
from typing import Any, Final

import psutil

REPOSITORY: Final = Path(__file__).resolve().parents[2]
RESULTS: Final = REPOSITORY / "benchmarks" / "results"

Json = dict[str, Any]


def summary(values: Sequence[float], digits: int = 3) -> Json | None:
    """Return median, extremes and count; None when there is no value."""
    if not values:
        return None
    return {
        "median": round(median(values), digits),
        "min": round(min(values), digits),
        "max": round(max(values), digits),
        "repeats": len(values),
    }


def ratio(over: Json | None, under: Json | None) -> float | None:
    """Return the ratio of two summaries' medians, None when one is missing."""
    if not over or not under:
        return None
    return round(float(over["median"]) / float(under["median"]), 3)


def machine() -> Json:
    """Describe this machine and how busy it is now."""
    return {
        "system": f"{platform.system()} {platform.release()}",
        "processor": _processor(),
        "cores": os.cpu_count(),
        "memory_gib": round(psutil.virtual_memory().total / 2**30, 1),
        "python": platform.python_version(),
        "load_1_5_15_min": [round(load, 2) for load in os.getloadavg()],
    }


def versions(names: Sequence[str]) -> Json:
    """Return the installed versions of packages of this interpreter."""
    return {name: metadata.version(name) for name in names}


def kept(name: str) -> Json:
    """Return the figures that a whole run has kept; none if none has."""
    file = RESULTS / f"{name}.json"
    found: Json = json.loads(file.read_text()) if file.exists() else {}
    return found


def save(name: str, figures: Json, *, keep: bool) -> None:
    """Print the figures; ``keep`` them as ``results/<name>.json`` when the run was a whole one."""
    document = {
        "benchmark": name,
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": " ".join(["python", "-m", f"benchmarks.{name}", *sys.argv[1:]]),
        **figures,
    }
    text = json.dumps(document, indent=2)
    print(text)
    if keep:
        RESULTS.mkdir(exist_ok=True)
        (RESULTS / f"{name}.json").write_text(text + "\n")


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
