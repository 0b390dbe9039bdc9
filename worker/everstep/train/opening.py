"""Opens a rank's place for snapshots in its host's memory, and what fills it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from torch.distributed.device_mesh import DeviceMesh

from everstep.core.spec import JobSpec
from everstep.core.system import Clock
from everstep.memory.writer import Owner
from everstep.train.control import StepCollective
from everstep.train.environment import RankEnvironment
from everstep.train.fingerprints import fingerprints_of
from everstep.train.fitting import require_room
from everstep.train.restoring import Plan, refuse_fenced, require_checkpoint
from everstep.train.saving import Saver
from everstep.train.snapshots import Snapshots
from everstep.train.state import TrackedState


def open_saver(
    environment: RankEnvironment,
    spec: JobSpec,
    mesh: DeviceMesh,
    *,
    state: TrackedState,
    collective: StepCollective,
    clock: Clock,
    plan: Plan,
    restore: Callable[[Plan], Plan],
) -> tuple[Saver | None, Plan]:
    """Return what snapshots ``state``, with its memory taken, and what was restored in the end.

    Nothing is snapshotted in bare runs and audits.

    Args:
        environment: of the rank.
        spec: of the job.
        mesh: of the run.
        state: what is kept.
        collective: of the run's steps.
        clock: for what may not wait for ever.
        plan: what the agent said.
        restore: fills the state as a plan says, if there is something to restore.

    Raises:
        RestoreFailedError: this host was fenced at a later generation, or the state does not fit.
        HostTooSmallError: the host's memory is too small for its snapshots.
    """
    if spec.audit is not None:
        require_checkpoint(plan, spec.audit)
        return None, restore(plan)
    if environment.memory_dir is None:
        return None, plan
    refuse_fenced(environment)
    owner = Owner(
        job_id=environment.job_id,
        rank=environment.rank,
        world_size=environment.world_size,
        generation=environment.generation,
    )
    snapshots = Snapshots(
        environment.rank_dir,
        owner,
        state,
        overlap=spec.checkpoint.overlap,
        fingerprints=fingerprints_of(mesh, environment.rank, spec.corruption),
    )
    if plan.slot is not None:
        plan = restore(plan)
        assert plan.slot is not None
        snapshots.restored(slot=plan.slot, step=plan.step)
    else:
        snapshots.begun_afresh()
    snapshots.prepare(partial(require_room, environment))
    hold = spec.corruption.on_corruption == "replace"
    return Saver(snapshots, collective, clock, hold=hold), plan
