"""What a job may say in its ranks' environment, and what of it needs our help.

Which variables the launcher sets nobody else may: whoever sets ``RANK`` in a job spec means
something by it, and would never learn that it was overruled. Of ours all are the launcher's but the
ones by which a job asks for faults. ``PYTHONPATH`` is read when an interpreter begins, and ranks
are forked from one that runs.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

# torchrun's own: https://docs.pytorch.org/docs/stable/elastic/run.html#environment-variables
TORCHRUN: Final = frozenset({
    "GROUP_RANK", "GROUP_WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR",
    "MASTER_PORT", "RANK", "ROLE_NAME", "ROLE_RANK", "ROLE_WORLD_SIZE",
    "TORCHELASTIC_MAX_RESTARTS", "TORCHELASTIC_RESTART_COUNT", "TORCHELASTIC_RUN_ID", "WORLD_SIZE",
})  # fmt: skip
OURS: Final = frozenset({
    "EVERSTEP_AGENT_SOCKET", "EVERSTEP_CORRECTIONS", "EVERSTEP_GENERATION", "EVERSTEP_HOST_ID",
    "EVERSTEP_HOST_RANKS", "EVERSTEP_JOB_ID", "EVERSTEP_MEMORY_DIR", "EVERSTEP_REPLICA_COUNT",
    "EVERSTEP_SCHEDULE", "EVERSTEP_SEEK_POSITION", "EVERSTEP_SPEC",
})  # fmt: skip


def environment_problem(env: Mapping[str, str]) -> str:
    """Return which variables a job cannot set, and why; "" where it may set all.

    Args:
        env: the job spec's.
    """
    owned = sorted(env.keys() & (TORCHRUN | OURS))
    if owned:
        return f"{', '.join(owned)}: set by the launcher for each rank; leave out what it sets"
    unusable = next((name for name in env if not name or "=" in name), None)
    return "" if unusable is None else f"{unusable!r}: no variable of a process has such a name"


def python_path(env: Mapping[str, str]) -> list[str]:
    """Return the directories of ``PYTHONPATH``, as an interpreter that begins would take them."""
    return [path for path in env.get("PYTHONPATH", "").split(":") if path]
