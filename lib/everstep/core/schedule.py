"""How often a job's ranks keep their state.

A value of its own, because it travels from the controller over an agent to the ranks and changes
while they run, which the job spec does not.
"""

from __future__ import annotations

from dataclasses import dataclass

from everstep.core.spec import CheckpointSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """Steps between two snapshots of each tier.

    ``version`` only grows within a job, and 0 is what its spec says. ``object_every_steps`` is 0
    when durable snapshots are taken on request only.
    """

    version: int = 0
    memory_every_steps: int = 1
    object_every_steps: int = 0


def first_schedule(spec: CheckpointSpec) -> Schedule:
    """Return what holds until another one is decided."""
    return Schedule(
        memory_every_steps=spec.memory_every_steps, object_every_steps=spec.object_every_steps
    )
