"""The batches of a rank: which samples come from the pure loader, tensors from the dataset."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.utils.data import default_collate

from everstep.core.errors import InvalidInput
from everstep.core.spec import DataSpec, JobSpec
from everstep.data.loader import BatchPlan
from everstep.data.shards import TokenShards, open_shards


class Dataset(Protocol):
    """A map-style dataset, as PyTorch has them."""

    def __len__(self) -> int:
        """Return the number of samples."""
        ...

    def __getitem__(self, index: int) -> Any:
        """Return one sample."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """This rank's share of a global batch; equal on all ranks of one data-parallel group.

    Args:
        position: of the global batch in the stream.
        samples: sample numbers, micro-batch after micro-batch.
        micro_batches: how many equal micro-batches the samples make up.
        inputs: token ids, (samples, sequence_tokens); of other datasets the first of a pair, or
            whatever they give.
        targets: the same one token further on; of other datasets the second of a pair, or None.
        token_count: tokens trained on in this share; of other datasets its samples.
        shadow: another group's share, whose gradient is compared and thrown away.
    """

    position: int
    samples: tuple[int, ...]
    micro_batches: int
    inputs: Any
    targets: Any
    token_count: int
    shadow: bool = False


class BatchSource:
    """Makes batches for one data-parallel group.

    Args:
        spec: of the job's data.
        seed: of the job.
        group: index of the data-parallel group.
        groups: how many there are.
        device: where the tensors go.
        dataset: instead of the token shards at ``spec.path``.
        sizes: of batches before, see ``BatchPlan``.
    """

    def __init__(
        self,
        spec: DataSpec,
        *,
        seed: int,
        group: int,
        groups: int,
        device: torch.device,
        dataset: Dataset | None = None,
        sizes: tuple[tuple[int, int], ...] = (),
    ) -> None:
        self._spec = spec
        self._group, self._groups = group, groups
        self._device = device
        self._dataset = dataset
        self._shards: TokenShards | None = None
        if dataset is None:
            self._shards = open_shards(Path(require_shards(spec).path), dtype=spec.dtype)
            samples = self._shards.samples(spec.sequence_tokens)
        else:
            samples = len(dataset)
        self.plan = BatchPlan(
            seed=seed,
            samples=samples,
            global_batch=spec.global_batch,
            micro_batch=spec.micro_batch,
            sizes=sizes,
        )

    def batch(self, position: int, group: int | None = None) -> Batch:
        """Return this or another group's share of the global batch at ``position``."""
        share = self.plan.share(position, self._group if group is None else group, self._groups)
        samples = tuple(sample for micro in share for sample in micro)
        if self._shards is not None:
            # One row a sample; the last token of a row is only a target.
            rows = torch.from_numpy(self._shards.read(samples, self._spec.sequence_tokens))
            rows = rows.to(self._device)
            inputs, targets = rows[:, :-1].contiguous(), rows[:, 1:].contiguous()
            pair: tuple[Any, Any] = (inputs, targets)
            token_count = inputs.numel()
        else:
            data = self._collated(samples)
            is_pair = isinstance(data, list | tuple) and len(data) == 2
            pair = (data[0], data[1]) if is_pair else (data, None)
            token_count = len(samples)
        return Batch(
            position=position,
            samples=samples,
            micro_batches=len(share),
            inputs=pair[0],
            targets=pair[1],
            token_count=token_count,
        )

    def _collated(self, samples: tuple[int, ...]) -> Any:
        assert self._dataset is not None
        return _moved(default_collate([self._dataset[one] for one in samples]), self._device)


def source_of(
    spec: JobSpec,
    *,
    group: int,
    device: torch.device,
    dataset: Dataset | None,
    sizes: tuple[tuple[int, int], ...],
) -> BatchSource:
    """Return what makes the batches of one of a job's data-parallel groups.

    Raises:
        InvalidInput: the spec or the corpus does not fit.
    """
    return BatchSource(
        require_data(spec.data),
        seed=spec.seed,
        group=group,
        groups=spec.layout.dp,
        device=device,
        dataset=dataset,
        sizes=sizes,
    )


def require_data(spec: DataSpec | None) -> DataSpec:
    """Return the spec's data section.

    Raises:
        InvalidInput: it has none.
    """
    if spec is None:
        raise InvalidInput(
            "run.batches() needs the job spec's data section: global_batch, and unless it is given "
            "a data set, path and sequence_tokens of token shards"
        )
    return spec


def require_shards(spec: DataSpec | None) -> DataSpec:
    """Return the spec's data section, which names token shards.

    Raises:
        InvalidInput: it does not.
    """
    data = require_data(spec)
    if not data.path or not data.sequence_tokens:
        raise InvalidInput(
            "token shards need data.path and data.sequence_tokens in the job spec; another data "
            "set is given to run.batches()"
        )
    return data


def _moved(value: Any, device: torch.device) -> Any:
    if isinstance(value, Tensor):
        return value.to(device)
    if isinstance(value, dict):
        return {key: _moved(item, device) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(_moved(item, device) for item in value)
    return value
