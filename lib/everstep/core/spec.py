"""The job spec: what a person writes to launch a run.

pydantic, because people write it: every mistake is answered with the field, what was expected and
what was found, in the words of ``spec_errors``.
Cross-field rules (layout against batch) are checked here; rules that need the fleet are not.
"""

from __future__ import annotations

import json
from functools import lru_cache
from pathlib import PurePosixPath
from typing import Annotated, Any, Final, Literal

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    field_validator,
    model_validator,
)

from everstep.core.errors import InvalidInput
from everstep.core.plain import unkeepable
from everstep.core.rank_variables import environment_problem
from everstep.core.spec_errors import INT64_MAX, INT64_MIN, joined, spec_problems

Count = Annotated[int, Field(ge=1, le=INT64_MAX)]
Position = Annotated[int, Field(ge=0, le=INT64_MAX)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
# YAML reads a bare ``off`` as false.
OFF: Final = BeforeValidator(lambda given: "off" if given is False else given)
STEPS_MAX: Final = 1_000_000_000_000  # 30,000 years of a step a second
EVERY_STEPS_MAX: Final = 1_000_000_000  # beyond any run: a number that is larger is a slip
SPECS_KEPT: Final = 256  # jobs that are looked at in turns
# As JSON. Ranks have it in their environment, and Linux starts no process with a variable of 128
# KiB (MAX_ARG_STRLEN): whatever a rank runs would fail. The rest is for a longer cwd or layout.
SPEC_BYTES_MAX: Final = 120 * 1024
WORK_PATTERN: Final = "^[0-9a-f]{16}:[0-9a-f]{16}$"
FREE_FIELDS: Final = ("argv", "args", "env")  # whose contents a file could hold as well
Few = Annotated[int, Field(ge=0, le=EVERY_STEPS_MAX)]


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class LayoutSpec(_Model):
    """Sizes of the mesh dimensions; their product is the world size."""

    pp: Count = 1
    dp_replicate: Count = 1
    dp_shard: Count = 1
    tp: Count = 1

    @property
    def world_size(self) -> int:
        """Ranks in all."""
        return self.pp * self.dp_replicate * self.dp_shard * self.tp

    @property
    def dp(self) -> int:
        """Data-parallel groups: each gets its own share of the global batch."""
        return self.dp_replicate * self.dp_shard


class DataSpec(_Model):
    """Token shards and the shape of a global batch.

    ``path`` and ``sequence_tokens`` are not needed where ``run.batches`` gets a data set.
    """

    path: str = ""
    # auto: as header or index say; of a file without, uint16, which most are.
    dtype: Literal["auto", "uint16", "uint32"] = "auto"
    sequence_tokens: Position = 0
    global_batch: Count  # samples a step, over all data-parallel groups
    micro_batch: Count = 1  # samples a micro-batch
    # Positions of global batches that are left out: [first, end) each.
    skipped: tuple[tuple[Position, Position], ...] = ()

    @field_validator("skipped")
    @classmethod
    def _check_skipped(cls, skipped: tuple[tuple[int, int], ...]) -> tuple[tuple[int, int], ...]:
        for first, end in skipped:
            if first >= end:
                raise ValueError(
                    f"expected ranges [first, end) with first < end, got {[first, end]}"
                )
        return skipped


class FailurePriorSpec(_Model):
    """What is believed of failures until the run has seen its own."""

    # Llama 3's 419 interruptions in 54 days on 16,384 chips (arXiv:2407.21783, section 3.3.4).
    chip_mtbf_hours: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 50_000.0
    # Share of failures after which the memory tier has no common step: both hosts of a pair lost.
    memory_lost_share: Annotated[float, Field(ge=0, le=1)] = 0.02


class CheckpointSpec(_Model):
    """How often state is kept, and for how long."""

    interval: Literal["steps", "auto"] = "steps"  # auto: from measurements, the steps are its start
    memory_every_steps: Annotated[int, Field(ge=1, le=EVERY_STEPS_MAX)] = 1
    object_every_steps: Few = 100  # 0: on request
    failures: FailurePriorSpec = FailurePriorSpec()  # for interval: auto
    overlap: bool = True  # copy beside the next forward and backward pass
    upload_bytes_per_s_max: Position = 0  # of one host; 0: no limit
    keep_last: Count = 3
    keep_days: Few = 7  # the newest of each of so many days; 0: none


class RecoverySpec(_Model):
    """What may happen without a person."""

    restarts_per_hour_max: Few = 30
    # Without enough hosts: wait for some, or go on with fewer data-parallel replicas and grow back.
    no_spare: Literal["wait", "elastic"] = "wait"
    # Data-parallel groups below which an elastic job waits; fewer shards need more memory a chip.
    dp_min: Count = 1
    # keep: the same global batch, shared by fewer; scale: each group keeps its share, so the batch
    # is smaller, and so is the learning rate.
    elastic_batch: Literal["keep", "scale"] = "keep"
    # How the rate follows a smaller batch. sqrt: what adaptive optimizers need (arXiv:2205.10287);
    # linear: plain SGD (arXiv:1706.02677); keep: user code sees to it.
    elastic_rate: Literal["sqrt", "linear", "keep"] = "sqrt"
    # The last resort, not the detector: below a quarter of a minute it would strike before a hang
    # is found, and then nobody is named; beyond a week nobody waits.
    collective_timeout_s: Annotated[int, Field(ge=15, le=604_800)] = 120
    # drain: move off a host whose ranks are slower than their peers for long enough (10 % for 40
    # steps, 3.5 % for 160), once a spare is there and after a common step; note: only say so.
    slow_hosts: Annotated[Literal["drain", "note", "off"], OFF] = "drain"


class NumericsSpec(_Model):
    """What is done when the loss or the gradient goes wrong.

    How far off a point is, is counted in robust deviations (z) of the log of the loss, or of the
    gradient's norm, from the median of the sound points before it.
    """

    # roll_back: to a state before the spike, without the batches that led to it; note: only say so.
    on_spike: Annotated[Literal["roll_back", "note", "off"], OFF] = "roll_back"
    # Long enough for a steady median, short against the hours in which a loss falls.
    window_steps: Annotated[int, Field(ge=8, le=4096)] = 256
    # Before so many sound points nothing is called a spike: the first steps fall too steeply.
    window_steps_min: Annotated[int, Field(ge=4, le=4096)] = 64
    # A normal scatter goes beyond 6 deviations once in a thousand million points.
    loss_z: Positive = 6.0
    # A gradient's norm has heavy tails: alone it says nothing, with a raised loss it does.
    norm_z: Positive = 6.0
    loss_z_with_norm: Positive = 3.0
    # In a row: a hard batch is over after one, a bad state is not.
    spike_steps: Count = 3
    # In a row: a skipped batch costs a step; more than this is no single batch's doing.
    non_finite_steps: Count = 3
    # Batches left out before the first one that shows: its loss is that of the state before it.
    skip_before: Few = 1
    # A second spike within so many steps holds the run for a person: the batches were not it.
    repeat_steps: Few = 500
    # After going back the learning rate may be lower for a while.
    learning_rate_factor: Annotated[float, Field(gt=0, le=1)] = 1.0
    learning_rate_steps: Few = 0

    @model_validator(mode="after")
    def _check_window(self) -> NumericsSpec:
        if self.window_steps_min > self.window_steps:
            raise ValueError(
                f"window_steps_min: expected at most window_steps {self.window_steps}, got "
                f"{self.window_steps_min}"
            )
        if self.non_finite_steps > self.window_steps:
            raise ValueError(
                f"non_finite_steps: expected at most window_steps {self.window_steps}, got "
                f"{self.non_finite_steps}"
            )
        return self


class CorruptionSpec(_Model):
    """What is done when what must be equal bit for bit on several ranks is not."""

    # replace: cordon the host that is found wrong, and go on from the newest state that was found
    # equal; where nobody can be named, go on from there on the same hosts. note: only say so.
    on_corruption: Annotated[Literal["replace", "note", "off"], OFF] = "replace"
    # Of the steps that have a snapshot, whose checksums are there anyway. Memory holds two of them,
    # and nobody goes back to one that was not compared: more than 1 means stored checkpoints.
    check_every_steps: Annotated[int, Field(ge=1, le=EVERY_STEPS_MAX)] = 1
    # Where one of several hosts was wrong, all stay suspect, half as much after this time: a second
    # case within it names who was in both. One host in 10,000 is faulty a day (0.2 cases a day in
    # 2,048 hosts), so that in a week one innocent host of 700 is met again by chance.
    suspicion_half_life_hours: Positive = 168.0
    # Each data-parallel group also makes another one's gradient (its own, where there is no other),
    # from the same samples and random numbers, and the bits are compared: forward and backward of
    # one step, so 400 costs a quarter of a per cent. 0: never, because the loop's body then runs
    # once more than it makes steps.
    recompute_every_steps: Few = 0
    # Compare replicas by the norm of each one's own gradient, at every step; one that stands out is
    # looked at by a recompute, and nothing else. Costs one pass over the gradients.
    gradient_norms: bool = False
    # After every so many complete checkpoints spare hosts load one and do the step after it again,
    # one replica's share, replica after replica, and the bits are compared. Takes as many spares as
    # a replica has hosts, and gives them back as soon as a job wants them. 0: never.
    audit_every_checkpoints: Few = 0


class AuditSpec(_Model):
    """What makes a job an audit: it does one step of another job's again, and ends.

    The rest of its spec is the other job's. It has the ranks of one replica, which say what their
    own work comes to; nothing of it is kept.
    """

    job_id: Annotated[str, Field(min_length=1)]
    step: Position  # of the complete checkpoint that it begins from; the next one is done again
    replica: Position  # whose share: along dp_replicate
    number: Count = 1  # of the audits of the same step and replica
    generation: Annotated[int, Field(ge=0)] = 0  # of the other job when this was asked for
    # What the other job's ranks came to, outputs and gradient, in the order of this one's ranks.
    works: tuple[Annotated[str, Field(pattern=WORK_PATTERN)], ...]
    # What the other job's course was changed by, as far as it says which samples a step is made
    # from: batches left out, [first, end), and sizes of batches, (after_step, samples).
    skipped: tuple[tuple[Position, Position], ...] = ()
    batches: tuple[tuple[Position, Count], ...] = ()


class JobSpec(_Model):
    """One training run."""

    name: Annotated[str, Field(min_length=1, max_length=100)]
    entry: Annotated[str, Field(min_length=1)]
    argv: tuple[str, ...] = ()
    args: dict[str, Any] = Field(default_factory=dict)
    layout: LayoutSpec
    steps: Count
    seed: Annotated[int, Field(ge=INT64_MIN, le=INT64_MAX)] = 0
    # Kernels whose bits are the same each time, on accelerators slower ones: without them a resumed
    # run is another draw of the same training.
    deterministic: bool = True
    data: DataSpec | None = None
    checkpoint: CheckpointSpec = CheckpointSpec()
    recovery: RecoverySpec = RecoverySpec()
    numerics: NumericsSpec = NumericsSpec()
    corruption: CorruptionSpec = CorruptionSpec()
    audit: AuditSpec | None = None
    env: dict[str, str] = Field(default_factory=dict)
    cwd: str = "."

    @property
    def is_script(self) -> bool:
        """Whether ``entry`` is a script path rather than ``module:function``."""
        return _is_script(self.entry)

    @property
    def last_step(self) -> int:
        """The step with which the run ends."""
        return self.steps if self.audit is None else self.audit.step + 1

    @model_validator(mode="before")
    @classmethod
    def _check_plain(cls, document: Any) -> Any:
        if problem := unkeepable(document):
            raise ValueError(problem)
        return document

    @field_validator("steps")
    @classmethod
    def _check_steps(cls, steps: int) -> int:
        if steps > STEPS_MAX:
            raise ValueError(f"expected at most {STEPS_MAX}, got {steps}")
        return steps

    @field_validator("entry")
    @classmethod
    def _check_entry(cls, entry: str) -> str:
        module, colon, function = entry.partition(":")
        names = [*module.split("."), function]
        if not _is_script(entry) and not (colon and all(name.isidentifier() for name in names)):
            raise ValueError(f"expected module:function or a path that ends in .py, got {entry!r}")
        return entry

    @field_validator("env")
    @classmethod
    def _check_env(cls, env: dict[str, str]) -> dict[str, str]:
        if problem := environment_problem(env):
            raise ValueError(problem)
        return env

    @model_validator(mode="after")
    def _check_together(self) -> JobSpec:
        if self.data is not None:
            _check_batch(self.data, self.layout)
        if self.recovery.dp_min > self.layout.dp:
            raise ValueError(
                f"recovery.dp_min: expected at most the layout's {self.layout.dp} data-parallel "
                f"groups, got {self.recovery.dp_min}"
            )
        if self.audit is not None:
            _check_audit(self.audit, self)
        return self


def _is_script(entry: str) -> bool:
    return PurePosixPath(entry).suffix == ".py" and ":" not in entry


def _check_audit(audit: AuditSpec, spec: JobSpec) -> None:
    layout = spec.layout
    if audit.replica >= layout.dp_replicate:
        raise ValueError(
            f"audit.replica: expected less than dp_replicate {layout.dp_replicate}, got "
            f"{audit.replica}"
        )
    if audit.step >= spec.steps:
        raise ValueError(f"audit.step: expected less than steps {spec.steps}, got {audit.step}")
    ranks = layout.world_size // layout.dp_replicate
    if len(audit.works) != ranks:
        raise ValueError(
            f"audit.works: expected one of each of {ranks} ranks, got {len(audit.works)}"
        )


def _check_batch(data: DataSpec, layout: LayoutSpec) -> None:
    step = data.micro_batch * layout.dp
    if data.global_batch % step:
        raise ValueError(
            f"data.global_batch: expected a multiple of {step} (micro_batch {data.micro_batch} x "
            f"{layout.dp} data-parallel groups, dp_replicate {layout.dp_replicate} x dp_shard "
            f"{layout.dp_shard}), got {data.global_batch}: every group must get the same whole "
            "number of micro-batches"
        )


def parse_spec(document: Any) -> JobSpec:
    """Check a decoded YAML or JSON document.

    Raises:
        InvalidInput: names every wrong field, what was expected and what was found.
    """
    try:
        spec = JobSpec.model_validate(document)
    except ValidationError as error:
        raise _invalid(error) from None
    require_size(spec)
    return spec


@lru_cache(maxsize=SPECS_KEPT)
def parse_spec_json(text: str) -> JobSpec:
    """Check a JSON document; the same text gives the same object, which nobody may change.

    Services and agents keep a spec as text and look into it at every decision and step. What was
    stored before there was a limit of size is read all the same.

    Raises:
        InvalidInput: as ``parse_spec`` does.
    """
    try:
        return JobSpec.model_validate_json(text)
    except ValidationError as error:
        raise _invalid(error) from None


def require_size(spec: JobSpec) -> None:
    """Check that a new spec goes into messages and the environment of ranks.

    Raises:
        InvalidInput: it is too large; names the largest field.
    """
    size = len(spec.model_dump_json().encode())
    if size <= SPEC_BYTES_MAX:
        return
    document = spec.model_dump(mode="json")
    sizes = {
        name: len(json.dumps(value, ensure_ascii=False).encode())
        for name, value in document.items()
    }
    largest = max(sizes, key=lambda name: sizes[name])
    advice = "put it into a file that the entry reads"
    problem = (
        f"{largest}: expected at most {SPEC_BYTES_MAX} bytes of JSON in all, got {size}, "
        f"{sizes[largest]} of them here: {advice if largest in FREE_FIELDS else 'make it shorter'}"
    )
    raise InvalidInput(joined([problem]))


def _invalid(error: ValidationError) -> InvalidInput:
    schema = JobSpec.model_json_schema()
    schema["properties"].pop("audit")  # nobody writes it: see AuditSpec
    return InvalidInput(joined(spec_problems(error.errors(), schema)))
