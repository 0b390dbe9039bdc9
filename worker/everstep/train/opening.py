"""Opens a rank's place for snapshots in its host's memory."""

from __future__ import annotations

from pathlib import Path

from torch.distributed.device_mesh import DeviceMesh

from everstep.core.spec import JobSpec
from everstep.memory.writer import Owner
from everstep.train.environment import RankEnvironment
from everstep.train.fingerprints import fingerprints_of
from everstep.train.restoring import refuse_fenced
from everstep.train.snapshots import Snapshots
from everstep.train.state import TrackedState


def open_snapshots(
    environment: RankEnvironment,
    spec: JobSpec,
    mesh: DeviceMesh,
    *,
    directory: Path,
    state: TrackedState,
) -> Snapshots:
    """Return the snapshots of ``state`` in ``directory``, nothing of them written yet.

    Raises:
        RestoreFailedError: this host was fenced at a later generation.
    """
    refuse_fenced(environment)
    owner = Owner(
        job_id=environment.job_id,
        rank=environment.rank,
        world_size=environment.world_size,
        generation=environment.generation,
    )
    return Snapshots(
        directory,
        owner,
        state,
        overlap=spec.checkpoint.overlap,
        fingerprints=fingerprints_of(mesh, environment.rank, spec.corruption),
    )
