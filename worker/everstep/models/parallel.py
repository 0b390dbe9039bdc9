"""Splits the model over a mesh with PyTorch's own parts, the same way on NCCL and gloo.

Pipeline: ``torch.distributed.pipelining`` with 1F1B. Tensor parallel: DTensor column- and row-wise
linears; activations between blocks are plain tensors, equal on all tensor-parallel ranks. Data
parallel: FSDP2 a block, hybrid when ``dp_replicate`` > 1. FSDP is applied at every degree, also 1,
so that parameters are DTensors whatever the layout.

Weights are filled before anything is split and then cut locally without communication: the same
seed gives the same model in every layout.
"""

from __future__ import annotations

import warnings
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard
from torch.distributed.pipelining import PipelineStage, Schedule1F1B
from torch.distributed.tensor import Replicate
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    ParallelStyle,
    PrepareModuleInput,
    RowwiseParallel,
    parallelize_module,
)
from torch.nn import functional as F

from everstep.core.errors import InvalidInput
from everstep.models.llama import LlamaConfig, Stage, initialise


def check_fits(config: LlamaConfig, mesh: DeviceMesh, micro_batches: int) -> None:
    """Refuse sizes that cannot be split over the mesh.

    Raises:
        InvalidInput: names the sizes and what would fit.
    """
    pp, tp = mesh["pp"].size(), mesh["tp"].size()
    problems = []
    if config.dim % config.heads or config.head_dim % 2:
        problems.append(f"dim {config.dim} / heads {config.heads} must be a whole even number")
    if config.heads % config.kv_heads:
        problems.append(f"kv_heads {config.kv_heads} must divide heads {config.heads}")
    if config.kv_heads % tp or config.ffn_dim % tp:
        problems.append(
            f"tp {tp} must divide kv_heads {config.kv_heads} and ffn_dim {config.ffn_dim}"
        )
    if config.layers < pp:
        problems.append(f"layers {config.layers} must be at least pp {pp}")
    if micro_batches < pp:
        problems.append(
            f"each data-parallel group has {micro_batches} micro-batches a step, but 1F1B needs at "
            f"least pp {pp}: raise global_batch or lower micro_batch"
        )
    if problems:
        raise InvalidInput("the model does not fit the layout: " + "; ".join(problems))


def build_stage(config: LlamaConfig, mesh: DeviceMesh, *, seed: int, device: torch.device) -> Stage:
    """Build this rank's part of the model: its pipeline stage, cut over ``tp`` and ``dp``."""
    pp, pp_index = mesh["pp"].size(), mesh.get_local_rank("pp")
    first, count = layer_range(config.layers, pp, pp_index)
    with torch.device("meta"):  # PyTorch's own initial values would be thrown away
        stage = Stage(
            config,
            first_layer=first,
            layer_count=count,
            has_embedding=pp_index == 0,
            has_output=pp_index == pp - 1,
        )
    stage.to_empty(device="cpu")
    initialise(stage, seed=seed)
    stage.to(device)
    _split_tensors(stage, mesh["tp"])
    _shard(stage, mesh, device)
    return stage


def layer_range(layers: int, stages: int, index: int) -> tuple[int, int]:
    """Return (first layer, count) of a stage; earlier stages get the remainder."""
    base, rest = divmod(layers, stages)
    return index * base + min(index, rest), base + (1 if index < rest else 0)


def _split_tensors(stage: Stage, tp: DeviceMesh) -> None:
    if tp.size() == 1:
        return
    # Norms and dropout stay plain: each rank computes them whole, on equal activations.
    whole = Replicate()
    block_plan: dict[str, ParallelStyle] = {
        # One gathered input for all of q, k and v: their gradients are added before the reduction.
        "attention": PrepareModuleInput(
            input_layouts=(whole, None), desired_input_layouts=(whole, None)
        ),
        "attention.wq": ColwiseParallel(),
        "attention.wk": ColwiseParallel(),
        "attention.wv": ColwiseParallel(),
        "attention.wo": RowwiseParallel(),
        "ffn": PrepareModuleInput(input_layouts=(whole,), desired_input_layouts=(whole,)),
        "ffn.w1": ColwiseParallel(),
        "ffn.w3": ColwiseParallel(),
        "ffn.w2": RowwiseParallel(),
    }
    for block in stage.layers.values():
        parallelize_module(block, tp, block_plan, src_data_rank=None)
    outer_plan: dict[str, ParallelStyle] = {}
    if stage.embedding is not None:
        outer_plan["embedding"] = RowwiseParallel(input_layouts=whole)
    if stage.output is not None:
        outer_plan["output"] = ColwiseParallel(output_layouts=whole)
    parallelize_module(stage, tp, outer_plan, src_data_rank=None)


def _shard(stage: Stage, mesh: DeviceMesh, device: torch.device) -> None:
    hybrid = mesh["dp_replicate"].size() > 1
    dp_mesh = mesh["dp_replicate", "dp_shard"] if hybrid else mesh["dp_shard"]
    options: dict[str, Any] = {
        "mesh": dp_mesh,
        # Parameters stay gathered between a step's micro-batches: one gather a step, not one each.
        "reshard_after_forward": False,
    }
    if device.type != "cpu":
        options["mp_policy"] = MixedPrecisionPolicy(param_dtype=torch.bfloat16)
    # It warns that logits are a view, lest somebody changes them in place; nobody does.
    warnings.filterwarnings("ignore", message=r"FSDP2-wrapped module .* returned a view tensor")
    for block in stage.layers.values():
        fully_shard(block, **options)
    fully_shard(stage, **options)


class Trainer:
    """Runs forward and backward of one step's micro-batches through the pipeline.

    Args:
        config: of the model.
        stage: this rank's part.
        mesh: the run's mesh.
        micro_batches: of this rank's data-parallel group, a step.
        micro_batch: samples in each.
        device: where to compute.
    """

    def __init__(
        self,
        config: LlamaConfig,
        stage: Stage,
        mesh: DeviceMesh,
        *,
        micro_batches: int,
        micro_batch: int,
        device: torch.device,
    ) -> None:
        self._stage = stage
        self._micro_batch = micro_batch
        pp, index = mesh["pp"].size(), mesh.get_local_rank("pp")
        self._is_first, self._is_last = index == 0, index == pp - 1
        self._schedule: Schedule1F1B | None = None
        if pp > 1:
            dtype = torch.float32 if device.type == "cpu" else torch.bfloat16
            shape = (micro_batch, config.sequence_tokens)
            tokens = torch.empty(shape, dtype=torch.int64, device="meta")
            hidden = torch.empty((*shape, config.dim), dtype=dtype, device="meta")
            logits = torch.empty((*shape, config.padded_vocab), dtype=dtype, device="meta")
            # Told shapes spare the pipeline an exchange of shapes before the first step.
            self._schedule = Schedule1F1B(
                PipelineStage(
                    stage,
                    index,
                    pp,
                    device,
                    input_args=tokens if self._is_first else hidden.requires_grad_(),
                    output_args=logits if self._is_last else hidden.requires_grad_(),
                    group=mesh.get_group("pp"),
                ),
                n_microbatches=micro_batches,
                loss_fn=cross_entropy,
            )

    def forward_backward(self, inputs_NT: Tensor, targets_NT: Tensor) -> Tensor | None:
        """Accumulate the gradients of the mean loss; returns it on the last stage, else None."""
        if self._schedule is None:
            return self._without_pipeline(inputs_NT, targets_NT)
        losses: list[Tensor] = []
        arguments = (inputs_NT,) if self._is_first else ()
        if self._is_last:
            self._schedule.step(*arguments, target=targets_NT, losses=losses, return_outputs=False)
            return torch.stack(losses).mean().detach()
        self._schedule.step(*arguments, return_outputs=False)
        return None

    def _without_pipeline(self, inputs_NT: Tensor, targets_NT: Tensor) -> Tensor:
        total: Tensor | None = None
        parts = list(
            zip(
                torch.split(inputs_NT, self._micro_batch),
                torch.split(targets_NT, self._micro_batch),
                strict=True,
            )
        )
        for number, (inputs_BT, targets_BT) in enumerate(parts, start=1):
            _sync_gradients(self._stage, now=number == len(parts))
            loss = cross_entropy(self._stage(inputs_BT), targets_BT) / len(parts)
            torch.autograd.backward(loss)
            total = loss.detach() if total is None else total + loss.detach()
        assert total is not None, "a step has at least one micro-batch"
        return total


def _sync_gradients(stage: nn.Module, *, now: bool) -> None:
    """Reduce gradients, and let parameters go, only with the last micro-batch."""
    assert isinstance(stage, FSDPModule)
    stage.set_is_last_backward(now)
    stage.set_reshard_after_backward(now)
    stage.set_requires_gradient_sync(now)


def cross_entropy(logits_BTV: Tensor, targets_BT: Tensor) -> Tensor:
    """Return the mean loss in float32."""
    return F.cross_entropy(logits_BTV.flatten(0, 1).float(), targets_BT.flatten())
