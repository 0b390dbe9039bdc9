"""What user code gets: the mesh, its state back, exactly the right batches, and one call a step.

``Run`` is the shell around pure parts: the loader says which samples, ``control`` what the ranks
agreed on. A step applies the gradient, or skips it on every rank when it is not finite anywhere;
then the state is snapshotted and reported. Without an agent (bare runs) everything works but
snapshots and reports.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

from torch import Tensor
from torch.optim import Optimizer

from everstep.core.errors import InvalidInput
from everstep.core.spec import JobSpec
from everstep.core.system import Clock
from everstep.data.loader import DataState
from everstep.memory.control import Phase
from everstep.train import faults, own_time, randomness, recomputing
from everstep.train.batches import Batch, Dataset, source_of
from everstep.train.beginning import Beginning, Sign
from everstep.train.channel import AgentChannel
from everstep.train.control import Agreement, StepCollective, Vote, from_notes, noted
from everstep.train.correcting import batch_sizes, corrected, scaled_rates
from everstep.train.endings import RunStoppedError
from everstep.train.environment import RankEnvironment
from everstep.train.gradients import GradientsOf
from everstep.train.groups import build_mesh, choose_device, control_group, join_world
from everstep.train.opening import open_saver
from everstep.train.phases import PhaseNote
from everstep.train.recompute import Meters, Recompute, recompute_for
from everstep.train.report import HEALTH_OK, HEALTH_SKIPPED, NO_SLOT, StepReport, StepWatch
from everstep.train.requests import Requests
from everstep.train.restoring import Plan, Restorer, restorer_for, wait_for_plan
from everstep.train.saving import Saver
from everstep.train.state import TrackedState
from everstep.train.tracked_optimizers import tracked_ones


class Run:
    """One rank's view of the run.

    Args:
        environment: who this rank is.
        spec: of the job.
        channel: to the host's agent.
        clock: real time.
    """

    def __init__(
        self, environment: RankEnvironment, spec: JobSpec, channel: AgentChannel, clock: Clock
    ) -> None:
        self.spec = spec
        self.args = dict(spec.args)
        self.rank, self.world_size = environment.rank, environment.world_size
        self.device = choose_device(environment.local_rank)
        if spec.deterministic:
            randomness.fix_kernels(self.device)
        join_world(environment, spec, self.device)
        self.mesh = build_mesh(spec, self.device)
        self.report: StepReport | None = None
        self._environment = environment
        self._channel = channel
        self._clock = clock
        self._step_index, self._ended = 0, False
        self._position, self._poisoned = 0, False  # of the step that was made last
        self._collective = StepCollective(control_group(spec, self.device), self.world_size)
        self._state: TrackedState | None = None
        self._saver: Saver | None = None
        self._scheduler: Any = None
        self._counts_tokens = self.mesh.get_local_rank("pp") == self.mesh.get_local_rank("tp") == 0
        self._restorer: Restorer | None = None
        self._gradients = GradientsOf(self.mesh)
        self._recompute: Recompute | None = None
        self._data_state = corrected(DataState(), spec, environment.corrections)
        self._watch = StepWatch(clock)
        self._own_time = own_time.measure(self.device, clock)
        self._injector = faults.injector(os.environ, self.rank, spec.layout, audit=spec.audit)
        self._phase = PhaseNote(environment)
        self._beginning = Beginning()
        self._last_is_written, self._first = False, True
        self._requests = Requests(channel, environment.schedule_for(spec))
        self.stopped = False
        randomness.seed_all(spec.seed)

    @property
    def ended(self) -> bool:
        """Whether the last step is done. Ask it before anything else in a loop of your own."""
        self._beginning.saw(Sign.ENDED)
        return self._ended

    @property
    def step_index(self) -> int:
        """How many steps are done, after a resume too."""
        self._beginning.saw(Sign.STEP_INDEX)
        return self._step_index

    @property
    def data_parallel_index(self) -> int:
        """Which share of the global batch this rank trains on."""
        replicate, shard = map(self.mesh.get_local_rank, ("dp_replicate", "dp_shard"))
        if self.spec.audit is not None:
            replicate = self.spec.audit.replica  # an audit has the ranks of this one
        return replicate * self.spec.layout.dp_shard + shard

    def seed_randomness(self) -> None:
        """Seed every generator for dropout.

        The seeds differ between pipeline stages and data-parallel groups, and are equal on the
        ranks of a tensor-parallel group, whose activations are equal.
        """
        index = self.data_parallel_index
        randomness.seed_all(self.spec.seed, self.mesh.get_local_rank("pp"), index)

    def track(self, **tracked: Any) -> None:
        """Name what a resume must put back, and put it back when there is something to restore.

        Call it once, with everything built: modules (or lists of them), optimizers, tensors, and
        anything with ``state_dict`` and ``load_state_dict``. The one named ``scheduler`` is stepped
        by ``step``. Random states come back where the loop begins: with the first of ``batches``,
        or in a loop of your own when it first asks for ``ended`` or ``step_index``.

        Raises:
            InvalidInput: called twice, or after the first batch or step.
            UnsupportedStateError: something cannot be kept.
            RestoreFailedError: what is to be restored does not fit or is damaged.
            HostTooSmallError: the host's memory is too small for its snapshots.
        """
        if self._state is not None or self._beginning.is_over:
            how = "twice" if self._state is not None else "after the first batch or step"
            raise InvalidInput(f"run.track() was called {how}: name everything in one call before")
        self._state = TrackedState(self.device, tracked)
        self._scheduler = tracked.get("scheduler")
        environment = self._environment
        plan = wait_for_plan(self._channel)
        self._saver, plan = open_saver(
            environment,
            self.spec,
            self.mesh,
            state=self._state,
            collective=self._collective,
            clock=self._clock,
            plan=plan,
            restore=self._restore,
        )
        self._recompute = recompute_for(
            self.spec,
            self._state,
            Meters(watch=self._watch, own_time=self._own_time, phase=self._phase),
            mesh=self.mesh,
            group=self._collective.group,
            generation=environment.generation,
        )
        if environment.seek_position is not None:
            self._data_state = self._data_state.at_position(environment.seek_position)
        if self._injector is not None:
            self._injector.watch(self._state, self._step_index)
        self._channel.remember(restored=True, step=self._step_index)
        self._channel.say(
            "ready",
            restored_step=self._step_index,
            source_kind=plan.source_kind,
            problems=list(plan.problems),
        )
        self._beginning.tracked(self._state, self._restorer)

    def batches(self, dataset: Dataset | None = None) -> Iterator[Batch]:
        """Yield this rank's share of each global batch, from exactly where the state stands.

        Ends after ``spec.steps`` or when all ranks have agreed to stop. Every batch must be
        followed by one ``step``.

        Args:
            dataset: a map-style dataset; None: the token shards of the job spec.

        Raises:
            InvalidInput: the spec or the corpus does not fit, or ``step`` was forgotten.
        """
        source = source_of(
            self.spec,
            group=self.data_parallel_index,
            device=self.device,
            dataset=dataset,
            sizes=batch_sizes(self._data_state, self._environment.corrections),
        )
        self._beginning.saw(Sign.BATCHES)
        self._begin()
        while not self._ended:
            before = self._step_index
            if self._recompute is not None and not self._first:
                yield from self._recompute.batches(before, source, self._data_state.position)
            begun_ms = self._watch.now_ms()
            self._phase.enter(Phase.LOADING)
            batch = source.batch(self._data_state.position)
            if self._injector is not None:
                batch = self._injector.loaded(before, batch)
            self._phase.enter(Phase.COMPUTING)
            self._watch.data_wait_ms += self._watch.now_ms() - begun_ms
            if self._recompute is not None:
                self._recompute.own_begins()
            yield batch
            if self._step_index != before + 1:
                raise InvalidInput(
                    f"batch {batch.position} was followed by {self._step_index - before} calls of "
                    "run.step(): call it once for every batch"
                )

    def step(
        self,
        optimizer: Optimizer | Sequence[Optimizer],
        *,
        loss: Tensor | float | None = None,
        tokens: int = 0,
        max_grad_norm: float | None = None,
    ) -> StepReport:
        """Finish a step: agree, clip, apply, schedule, zero the gradients, snapshot, report.

        Args:
            optimizer: whose gradients are ready; tracked, if anything is.
            loss: mean loss of this rank's share; None on ranks that do not compute one.
            tokens: in this rank's share; counted once for each data-parallel group.
            max_grad_norm: clip the global gradient norm to this; None: do not clip.

        Returns:
            The report, the same on every rank but for the times.

        Raises:
            RunStoppedError: the run has ended. No ``Exception``: let it pass, as if you returned.
            InvalidInput: an optimizer was not named to ``track``.
        """
        if self._ended:
            raise RunStoppedError
        self._begin()
        self._phase.enter(Phase.COMPUTING)
        optimizers = tracked_ones(optimizer, self._state)
        if self._recompute is not None and self._recompute.active:
            assert self.report is not None, "the first step is not shadowed"
            self._recompute.end(optimizers, _number(loss))
            return self.report
        self._requests.poll()
        gradients = self._gradients(optimizers)
        gradients.gather()
        if self._injector is not None:
            so_far_ms = self._own_time.so_far_ms()
            self._injector.computed(self._step_index, so_far_ms, gradients.locals)
        agreement = self._agree(gradients.squared_norm(), loss, tokens)
        self._settle()
        if not agreement.skip:
            if max_grad_norm is not None:
                gradients.clip(agreement.grad_norm, max_grad_norm)
            rate = self._environment.corrections.rate_at(self._step_index + 1)
            with scaled_rates(optimizers, rate):
                for one in optimizers:
                    one.step()
        if self._scheduler is not None:
            self._scheduler.step()
        if self._injector is not None:
            self._injector.updated(self._step_index)
        for one in optimizers:
            one.zero_grad()
        self._step_index += 1
        self._position = self._data_state.position
        self._data_state = self._data_state.advanced()
        report = self._complete(agreement)
        if self.spec.audit is not None:
            raise RunStoppedError  # what user code does behind its loop is the other job's to do
        return report

    def finish(self) -> None:
        """End the run here: write the last snapshots, unless the last step has done so.

        Steps may have ended early, or the run was restored to its last step because it died
        between that step and its end; then that step is reported once more.
        """
        self._beginning.put_back()  # without a step the last snapshot is to hold them as they were
        self._begin()
        notes = self._state.notes if self._state is not None else {}
        if self._saver is not None and notes and not self._last_is_written:
            self._conclude(from_notes(notes), last=True)
        self._ended = True

    def _restore(self, plan: Plan) -> Plan:
        assert self._state is not None
        self._restorer = restorer_for(self._environment, self.spec, self._channel)
        plan, data_state = self._restorer.restore(
            plan, self._state, rank=self.rank, world_size=self.world_size
        )
        self._data_state = corrected(data_state, self.spec, self._environment.corrections)
        self._step_index = plan.step
        # Else a loop of the user's own makes one more.
        self._ended = plan.step >= self.spec.last_step
        return plan

    def _begin(self) -> None:
        """Note that the loop has begun."""
        if not self._beginning.is_over:
            self._beginning.end()
            self._watch.lap()
            self._own_time.lap_ms()

    def _agree(self, squared_norm: float, loss: Tensor | float | None, tokens: int) -> Agreement:
        replicated, busy = self._saver.vote if self._saver is not None else (True, False)
        vote = Vote(
            squared_norm=squared_norm,
            loss=_number(loss),
            tokens=tokens if self._counts_tokens else 0,
            save=self._requests.save,
            stop=self._requests.stop,
            replicated=replicated,
            durable_busy=busy,
            step=self._step_index,
            schedule=self._requests.schedule if self.rank == 0 else None,
            rerun=0 if self._recompute is None else self._recompute.computed(_number(loss)),
            recompute=self._requests.recompute,
            discord=self._saver.discord if self._saver is not None else 0.0,
        )
        self._watch.own_ms = self._own_time.lap_ms()
        self._poisoned = not vote.finite
        begun_ms = self._watch.now_ms()
        self._phase.enter(Phase.AGREEING)
        agreement = self._collective.agree(vote)
        self._phase.enter(Phase.COMPUTING)
        self._watch.blocked_ms += self._watch.now_ms() - begun_ms
        self._requests.agreed()
        if self._recompute is not None:
            self._recompute.agreed(agreement)
        self._watch.note_wrong(recomputing.taken())
        return agreement

    def _complete(self, agreement: Agreement) -> StepReport:
        self.stopped = agreement.stop and self._step_index < self.spec.last_step
        self._ended = self.stopped or self._step_index >= self.spec.last_step
        if self._state is not None:
            self._state.notes = noted(agreement) | self._beginning.noted()
        return self._conclude(agreement, last=self._ended)

    def _conclude(self, agreement: Agreement, *, last: bool) -> StepReport:
        """Snapshot and report the step that ``step_index`` counts as completed."""
        watch = self._watch
        step, slot, durable = self._step_index, NO_SLOT, False
        self._phase.enter(Phase.SNAPSHOTTING)
        if self._saver is not None:
            begun_ms = watch.now_ms()
            if last:
                slot, durable = self._saver.at_end(step, self._data_state, agreement)
            else:
                slot, durable = self._saver.after_step(
                    self._step_index, self._data_state, agreement
                )
            watch.stall_ms += watch.now_ms() - begun_ms
        self._last_is_written = last
        self.report = StepReport(
            step=step,
            loss=agreement.loss,
            grad_norm=agreement.grad_norm,
            tokens=agreement.tokens,
            health=HEALTH_SKIPPED if agreement.skip else HEALTH_OK,
            completed_at_ms=self._clock.now_ms(),
            first=self._first,
            snapshot_slot=slot,
            durable=durable,
            schedule_version=agreement.schedule.version,
            position=self._position,
            poisoned=self._poisoned,
            **watch.lap(),
        )
        self._first = False
        if self._recompute is not None:
            self._recompute.completed(durable=durable)
        self._channel.remember(step=step)
        told = asdict(self.report)
        if self._saver is None:
            self._channel.say("step", **told)
        elif last or (slot == NO_SLOT and not durable):
            self._saver.wait_whole()  # the last step is told first
            self._channel.say("step", **told, **self._saver.told())
            if last:
                self._saver.linger()
        else:  # the agent looks into the slots when it hears of the step
            saver = self._saver
            saver.go_on(lambda: self._channel.say("step", **told, **saver.told()))
        self._phase.enter(Phase.BETWEEN)
        return self.report

    def _settle(self) -> None:
        if self._saver is not None:
            begun_ms = self._watch.now_ms()
            self._saver.settle()
            self._watch.stall_ms += self._watch.now_ms() - begun_ms


def _number(loss: Tensor | float | None) -> float | None:
    return loss.detach().item() if isinstance(loss, Tensor) else loss
