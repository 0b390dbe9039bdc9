"""A Llama-style decoder: RMSNorm, rotary positions, grouped-query attention, SwiGLU.

Built stage by stage: ``Stage`` holds a contiguous run of layers, the first stage the embedding and
the last one the output. Parameters are named by the layer's global index and initialised from
their name, so the same seed gives the same model however it is split.

Dropout is applied to the residual branches only: their activations are equal on all
tensor-parallel ranks, so one random stream shared by those ranks gives every rank the same mask.
Dropout on attention weights, whose heads are split, would need a stream a rank; it is left out.

Shapes: B batch, T sequence, D model, H query heads, K key/value heads, E head, F feed-forward,
V vocabulary. Suffixes name them: ``x_BTD``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import torch
import xxhash
from torch import Tensor, nn
from torch.nn import functional as F

from everstep.train.recomputing import checkpoint

# Makes the vocabulary divisible by every usual tensor-parallel degree.
VOCAB_MULTIPLE: Final = 64
_INIT_STD: Final = 0.02  # GPT-2's and Llama's choice


@dataclass(frozen=True, slots=True, kw_only=True)
class LlamaConfig:
    """Sizes of the model.

    Args:
        dim: D, a multiple of ``heads``.
        layers: decoder blocks in all stages together.
        heads: H.
        kv_heads: K; divides ``heads``.
        ffn_dim: F.
        vocab_size: tokens that occur; padded up inside.
        sequence_tokens: longest T.
        dropout: probability on the residual branches.
        rope_theta: base of the rotary frequencies.
        norm_eps: added to the mean square.
        recompute: keep no activations of a block but its input; compute them again when backward
            needs them, and compare.
    """

    dim: int = 64
    layers: int = 4
    heads: int = 4
    kv_heads: int = 2
    ffn_dim: int = 192
    vocab_size: int = 257
    sequence_tokens: int = 64
    dropout: float = 0.0
    rope_theta: float = 10_000.0
    norm_eps: float = 1e-5
    recompute: bool = False

    @property
    def head_dim(self) -> int:
        """E."""
        return self.dim // self.heads

    @property
    def padded_vocab(self) -> int:
        """V."""
        return -(-self.vocab_size // VOCAB_MULTIPLE) * VOCAB_MULTIPLE


class Attention(nn.Module):
    """Causal grouped-query self-attention; works on the heads that are local."""

    def __init__(self, config: LlamaConfig) -> None:
        super().__init__()
        self.head_dim = config.head_dim
        self.repeats = config.heads // config.kv_heads
        self.wq = nn.Linear(config.dim, config.heads * config.head_dim, bias=False)
        self.wk = nn.Linear(config.dim, config.kv_heads * config.head_dim, bias=False)
        self.wv = nn.Linear(config.dim, config.kv_heads * config.head_dim, bias=False)
        self.wo = nn.Linear(config.heads * config.head_dim, config.dim, bias=False)

    def forward(self, x_BTD: Tensor, rope_2TE: Tensor) -> Tensor:
        """Return the attention branch, D wide."""
        batch, length = x_BTD.shape[:2]
        q_BTHE = self.wq(x_BTD).view(batch, length, -1, self.head_dim)
        k_BTKE = self.wk(x_BTD).view(batch, length, -1, self.head_dim)
        v_BTKE = self.wv(x_BTD).view(batch, length, -1, self.head_dim)
        q_BHTE = rotate(q_BTHE.transpose(1, 2), rope_2TE)
        k_BKTE = rotate(k_BTKE.transpose(1, 2), rope_2TE)
        k_BHTE = k_BKTE.repeat_interleave(self.repeats, dim=1)
        v_BHTE = v_BTKE.transpose(1, 2).repeat_interleave(self.repeats, dim=1)
        out_BHTE = F.scaled_dot_product_attention(q_BHTE, k_BHTE, v_BHTE, is_causal=True)
        out_BTD: Tensor = self.wo(out_BHTE.transpose(1, 2).reshape(batch, length, -1))
        return out_BTD


class FeedForward(nn.Module):
    """SwiGLU."""

    def __init__(self, config: LlamaConfig) -> None:
        super().__init__()
        self.w1 = nn.Linear(config.dim, config.ffn_dim, bias=False)
        self.w2 = nn.Linear(config.ffn_dim, config.dim, bias=False)
        self.w3 = nn.Linear(config.dim, config.ffn_dim, bias=False)

    def forward(self, x_BTD: Tensor) -> Tensor:
        """Return the feed-forward branch, D wide."""
        out_BTD: Tensor = self.w2(F.silu(self.w1(x_BTD)) * self.w3(x_BTD))
        return out_BTD


class Block(nn.Module):
    """One decoder layer, pre-norm; ``name`` is what a report calls it."""

    def __init__(self, config: LlamaConfig, name: str) -> None:
        super().__init__()
        self.recompute, self.name = config.recompute, name
        self.attention_norm = nn.RMSNorm(config.dim, eps=config.norm_eps)
        self.attention = Attention(config)
        self.ffn_norm = nn.RMSNorm(config.dim, eps=config.norm_eps)
        self.ffn = FeedForward(config)
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, x_BTD: Tensor, rope_2TE: Tensor) -> Tensor:
        """Return the layer's output, D wide."""
        if self.recompute:
            out_BTD: Tensor = checkpoint(self._compute, x_BTD, rope_2TE, name=self.name)
            return out_BTD
        return self._compute(x_BTD, rope_2TE)

    def _compute(self, x_BTD: Tensor, rope_2TE: Tensor) -> Tensor:
        x_BTD = x_BTD + self.dropout(self.attention(self.attention_norm(x_BTD), rope_2TE))
        out_BTD: Tensor = x_BTD + self.dropout(self.ffn(self.ffn_norm(x_BTD)))
        return out_BTD


class Stage(nn.Module):
    """A contiguous part of the decoder; holds nothing sensible before ``initialise``.

    Args:
        config: of the whole model.
        first_layer: global index of the first layer here.
        layer_count: layers here.
        has_embedding: takes token ids instead of activations.
        has_output: returns logits instead of activations.
    """

    def __init__(
        self,
        config: LlamaConfig,
        *,
        first_layer: int,
        layer_count: int,
        has_embedding: bool,
        has_output: bool,
    ) -> None:
        super().__init__()
        self.embedding = nn.Embedding(config.padded_vocab, config.dim) if has_embedding else None
        self.layers = nn.ModuleDict(
            {
                str(index): Block(config, f"layers.{index}")
                for index in range(first_layer, first_layer + layer_count)
            }
        )
        self.norm = nn.RMSNorm(config.dim, eps=config.norm_eps) if has_output else None
        self.output = nn.Linear(config.dim, config.padded_vocab, bias=False) if has_output else None
        self.dropout = nn.Dropout(config.dropout)
        self.rope_2TE: Tensor
        self.config = config
        table_2TE = torch.empty(2, config.sequence_tokens, config.head_dim)
        self.register_buffer("rope_2TE", table_2TE, persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        """Map token ids (B, T) or activations (B, T, D) to activations or logits (B, T, V)."""
        if self.embedding is not None:
            x = self.dropout(self.embedding(x))
        rope_2TE = self.rope_2TE[:, : x.shape[1]]
        for block in self.layers.values():
            x = block(x, rope_2TE)
        if self.output is not None and self.norm is not None:
            x = self.output(self.norm(x))
        return x


def rope_table(config: LlamaConfig) -> Tensor:
    """Return cosines and sines, (2, T, E), float32."""
    exponents = torch.arange(0, config.head_dim, 2, dtype=torch.float32) / config.head_dim
    frequencies = config.rope_theta**-exponents
    angles = torch.outer(torch.arange(config.sequence_tokens, dtype=torch.float32), frequencies)
    angles_TE = torch.cat((angles, angles), dim=1)
    return torch.stack((angles_TE.cos(), angles_TE.sin()))


def rotate(x_BHTE: Tensor, rope_2TE: Tensor) -> Tensor:
    """Apply rotary positions; pairs are (i, i + E/2)."""
    first, second = x_BHTE.chunk(2, dim=-1)
    turned_BHTE = torch.cat((-second, first), dim=-1)
    rotated_BHTE = x_BHTE * rope_2TE[0] + turned_BHTE * rope_2TE[1]
    return rotated_BHTE.to(x_BHTE.dtype)


@torch.no_grad()
def initialise(stage: Stage, *, seed: int) -> None:
    """Fill the tables, and every parameter from ``seed`` and its own name, whatever the layout.

    Matrices are normal with deviation 0.02, those that write to the residual stream smaller by
    sqrt(2 * layers) (GPT-2); norms are one.
    """
    stage.rope_2TE.copy_(rope_table(stage.config))
    layers = stage.config.layers
    generator = torch.Generator()
    for name, parameter in stage.named_parameters():
        if parameter.dim() < 2:
            parameter.fill_(1.0)
            continue
        generator.manual_seed(xxhash.xxh3_64_intdigest(f"{seed}/{name}".encode()) >> 1)
        writes_residual = name.endswith(("wo.weight", "w2.weight"))
        std = _INIT_STD / (2 * layers) ** 0.5 if writes_residual else _INIT_STD
        parameter.normal_(0.0, std, generator=generator)
