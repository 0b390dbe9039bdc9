"""The job spec: what a person writes to launch a run.

pydantic, because people write it: every mistake is answered with the field, what was expected and
what was found, in the words of ``spec_errors``.
Cross-field rules (layout against batch) are checked here; rules that need the fleet are not.
"""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    ValidationError,
    field_validator,
    model_validator,
)

from everstep.core.errors import InvalidInput
from everstep.core.spec_errors import joined, spec_problems

Count = Annotated[int, Field(ge=1)]


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
    """Token shards and the shape of a global batch."""

    path: str
    sequence_tokens: Count
    global_batch: Count  # samples a step, over all data-parallel groups
    micro_batch: Count = 1  # samples a micro-batch


class CheckpointSpec(_Model):
    """How often state is kept."""

    memory_every_steps: Count = 1
    object_every_steps: Annotated[int, Field(ge=0)] = 100  # 0: only on request
    overlap: bool = True  # copy beside the next forward and backward pass
    keep_last: Count = 3


class RecoverySpec(_Model):
    """What may happen without a person."""

    restarts_per_hour_max: Annotated[int, Field(ge=0)] = 30
    no_spare: Literal["wait"] = "wait"
    collective_timeout_s: Count = 120  # the last resort, not the detector


class JobSpec(_Model):
    """One training run."""

    name: Annotated[str, Field(min_length=1, max_length=100)]
    entry: Annotated[str, Field(min_length=1)]
    argv: tuple[str, ...] = ()
    args: dict[str, Any] = Field(default_factory=dict)
    layout: LayoutSpec
    steps: Count
    seed: int = 0
    # Kernels whose bits are the same each time, on accelerators slower ones: without them a resumed
    # run is another draw of the same training.
    deterministic: bool = True
    data: DataSpec | None = None
    checkpoint: CheckpointSpec = CheckpointSpec()
    recovery: RecoverySpec = RecoverySpec()
    env: dict[str, str] = Field(default_factory=dict)
    cwd: str = "."

    @property
    def is_script(self) -> bool:
        """Whether ``entry`` is a script path rather than ``module:function``."""
        return _is_script(self.entry)

    @field_validator("entry")
    @classmethod
    def _check_entry(cls, entry: str) -> str:
        module, colon, function = entry.partition(":")
        names = [*module.split("."), function]
        if not _is_script(entry) and not (colon and all(name.isidentifier() for name in names)):
            raise ValueError(f"expected module:function or a path that ends in .py, got {entry!r}")
        return entry

    @model_validator(mode="after")
    def _check_together(self) -> JobSpec:
        if self.data is not None:
            _check_batch(self.data, self.layout)
        return self


def _is_script(entry: str) -> bool:
    return PurePosixPath(entry).suffix == ".py" and ":" not in entry


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
        return JobSpec.model_validate(document)
    except ValidationError as error:
        raise _invalid(error) from None


def parse_spec_json(text: str) -> JobSpec:
    """Check a JSON document. Raises InvalidInput as ``parse_spec`` does."""
    try:
        return JobSpec.model_validate_json(text)
    except ValidationError as error:
        raise _invalid(error) from None


def _invalid(error: ValidationError) -> InvalidInput:
    return InvalidInput(joined(spec_problems(error.errors(), JobSpec.model_json_schema())))
