"""Work done again to compare the bits, and what it has shown: all that a run needs of it.

Another replica may do it in the same run (``shadow``), or spare hosts beside it: an audit, a job of
one replica's ranks that loads a stored checkpoint, does the step after it and says what that came
to. So ranks say what their own work comes to in each step that follows a durable snapshot.

Nothing is hooked, and no step costs anything, while the job spec asks for none of it, nor norms.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from torch import distributed as dist
from torch.distributed.device_mesh import DeviceMesh
from torch.optim import Optimizer

from everstep.core.errors import InvalidInput
from everstep.core.spec import CorruptionSpec, JobSpec
from everstep.memory.control import Phase
from everstep.train.batches import Batch, BatchSource
from everstep.train.control import Agreement
from everstep.train.local_gradients import LocalGradients
from everstep.train.own_time import OwnTime
from everstep.train.phases import PhaseNote
from everstep.train.report import Checked, StepWatch
from everstep.train.shadow import Shadow
from everstep.train.state import TrackedState


@dataclass(frozen=True, slots=True, kw_only=True)
class Meters:
    """What measures a step."""

    watch: StepWatch
    own_time: OwnTime
    phase: PhaseNote


class Recompute:
    """Of one rank.

    Args:
        rules: of the job.
        state: whose modules are watched.
        meters: of the run: shadow steps are no part of a rank's own time.
        mesh: the run's.
        group: all ranks, for CPU tensors.
        generation: pairs are rotated from another place after each restart.
        audit: the run is one: its first step is what it is for.
    """

    def __init__(
        self,
        rules: CorruptionSpec,
        state: TrackedState,
        meters: Meters,
        *,
        mesh: DeviceMesh,
        group: dist.ProcessGroup,
        generation: int,
        audit: bool,
    ) -> None:
        modules = list(state.modules.values())
        self._meters = meters
        optimized = [
            parameter
            for optimizer in state.optimizers.values()
            for group in optimizer.param_groups
            for parameter in group["params"]
        ]
        self._gradients = LocalGradients(modules, optimized, norms=rules.gradient_norms)
        self._shadow = Shadow(
            every=rules.recompute_every_steps,
            mesh=mesh,
            device=state.device,
            group=group,
            first_shift=generation,
            modules=modules,
            gradients=self._gradients,
        )
        self._is_audited = rules.audit_every_checkpoints > 0
        if audit:
            self._shadow.ask_own()

    @property
    def active(self) -> bool:
        """Whether another group's batch is on its way through the loop."""
        return self._shadow.active

    def batches(self, step: int, source: BatchSource, position: int) -> Iterator[Batch]:
        """Yield another group's share of the batch at ``position``, if that is due.

        Raises:
            InvalidInput: ``run.step`` was forgotten.
        """
        if not self._shadow.due(step):
            return
        watch, phase = self._meters.watch, self._meters.phase
        begun_ms = watch.now_ms()
        phase.enter(Phase.LOADING)
        group = self._shadow.begin()
        batch = source.batch(position, group)
        phase.enter(Phase.COMPUTING)
        yield replace(batch, shadow=True)
        if self._shadow.active:
            raise InvalidInput(
                f"shadow batch {position} was not followed by a call of run.step(): call it once "
                "for every batch"
            )
        watch.shadow_ms += watch.now_ms() - begun_ms
        self._meters.own_time.lap_ms()

    def own_begins(self) -> None:
        """Note that the loop gets this rank's own batch now."""
        self._shadow.own_begins()

    def completed(self, *, durable: bool) -> None:
        """Note the end of a step, and whether a durable snapshot was taken of it."""
        if durable and self._is_audited:
            self._shadow.ask_own()

    def end(self, optimizers: Iterable[Optimizer], loss: float | None) -> None:
        """End it, with everything as it was."""
        self._shadow.end(optimizers, loss)
        self._gradients.take_squared_norm()

    def computed(self, loss: float | None) -> int:
        """Take the rank's own gradients; returns what it adds to the sum over all ranks."""
        return self._shadow.own_done(loss)

    def agreed(self, agreement: Agreement) -> None:
        """Note what there is to tell of a step that all ranks have made."""
        rerun, own = self._shadow.agreed(differs=agreement.rerun_differs, asked=agreement.recompute)
        local_norm = self._gradients.take_squared_norm() ** 0.5
        if rerun is not None or own is not None or local_norm:
            self._meters.watch.checked = Checked(rerun=rerun, local_norm=local_norm, own=own)


def recompute_for(
    spec: JobSpec,
    state: TrackedState,
    meters: Meters,
    *,
    mesh: DeviceMesh,
    group: dist.ProcessGroup,
    generation: int,
) -> Recompute | None:
    """Return what the job asks for; None: nothing."""
    rules, is_audit = spec.corruption, spec.audit is not None
    replicas = mesh["dp_replicate"].size() * mesh["dp_shard"].size()
    wanted = rules.recompute_every_steps > 0 or (rules.gradient_norms and replicas > 1)
    wanted = wanted or rules.audit_every_checkpoints > 0 or is_audit
    if rules.on_corruption == "off" or not wanted:
        return None
    return Recompute(
        rules, state, meters, mesh=mesh, group=group, generation=generation, audit=is_audit
    )
