"""The keys of a checkpoint's objects."""

from __future__ import annotations


def prefix_of(job_id: str, step: int, generation: int) -> str:
    """Return the folder of a checkpoint's objects, with a slash at the end."""
    return f"jobs/{job_id}/step-{step:08d}/gen-{generation}/"


def manifest_key(job_id: str, step: int, generation: int) -> str:
    """Return the manifest's key; nothing else makes a checkpoint usable."""
    return prefix_of(job_id, step, generation) + "manifest.json"
