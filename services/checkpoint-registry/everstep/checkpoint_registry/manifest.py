"""The object that says a checkpoint is whole.

The manifest is a pure function of what was stored, without a clock or an instance's name in it: two
registries that complete the same checkpoint write the same bytes.
"""

from __future__ import annotations

import json
from typing import Any, Final

from everstep.checkpoint_registry.state import Checkpoint
from everstep.core.placement import Layout

FORMAT: Final = "everstep.manifest.v1"


def manifest_of(checkpoint: Checkpoint, layout: Layout | None) -> bytes:
    """Write the manifest of a checkpoint whose shards are all stored.

    Args:
        checkpoint: in phase ``STORED`` or later.
        layout: of the job's spec; None when it is not known.
    """
    document = {
        "format": FORMAT,
        "job_id": checkpoint.job_id,
        "step": checkpoint.step,
        "generation": checkpoint.generation,
        "world_size": checkpoint.world_size,
        "layout": sizes_of(layout),
        "shards": [
            {"rank": s.rank, "uri": s.uri, "bytes": s.bytes, "checksum": s.checksum}
            for s in checkpoint.sorted_shards
        ],
        "data_state": _json_or_text(checkpoint.data_state),
        "created_at_ms": checkpoint.stored_ms,
    }
    return (json.dumps(document, indent=1) + "\n").encode()


def sizes_of(layout: Layout | None) -> dict[str, int] | None:
    """Return the sizes of a layout by dimension; None when it is not known."""
    if layout is None:
        return None
    return {
        "pp": layout.pp,
        "dp_replicate": layout.dp_replicate,
        "dp_shard": layout.dp_shard,
        "tp": layout.tp,
    }


def _json_or_text(text: str) -> Any:
    """Return what the text says as JSON; the text itself when it is none; null when empty."""
    try:
        return json.loads(text) if text else None
    except json.JSONDecodeError:
        return text
