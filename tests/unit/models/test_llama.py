"""The reference model, on one process and without a mesh."""

import pytest
import torch

from everstep.models.llama import LlamaConfig, Stage, initialise, rope_table, rotate

CONFIG = LlamaConfig(
    dim=16, layers=4, heads=4, kv_heads=2, ffn_dim=32, vocab_size=50, sequence_tokens=12
)


def stage(first: int, count: int, *, seed: int = 1, config: LlamaConfig = CONFIG) -> Stage:
    """Build and initialise some layers."""
    made = Stage(
        config,
        first_layer=first,
        layer_count=count,
        has_embedding=first == 0,
        has_output=first + count == config.layers,
    )
    initialise(made, seed=seed)
    return made


def test_stages_one_after_the_other_equal_the_whole_model():
    """Cutting the model into stages changes neither weights nor outputs."""
    whole, first, second = stage(0, 4), stage(0, 1), stage(1, 3)
    parts = {**first.state_dict(), **second.state_dict()}
    assert parts.keys() == whole.state_dict().keys()
    assert all(torch.equal(parts[name], value) for name, value in whole.state_dict().items())
    tokens = torch.arange(24).view(2, 12) % 50
    assert torch.equal(second(first(tokens)), whole(tokens))


def test_weights_follow_from_the_seed_and_nothing_else():
    """The global random state plays no part."""
    torch.manual_seed(1)
    one = stage(0, 4).state_dict()
    torch.manual_seed(2)
    two = stage(0, 4).state_dict()
    other = stage(0, 4, seed=2).state_dict()
    assert all(torch.equal(one[name], two[name]) for name in one)
    assert not torch.equal(one["embedding.weight"], other["embedding.weight"])
    layers = [one[f"layers.{index}.attention.wq.weight"] for index in range(4)]
    assert len({float(layer.sum()) for layer in layers}) == 4


def test_future_tokens_do_not_change_the_past():
    """Attention is causal."""
    model = stage(0, 4)
    tokens = torch.arange(12).view(1, 12)
    changed = tokens.clone()
    changed[0, 8] = 49
    before, after = model(tokens), model(changed)
    assert torch.equal(before[:, :8], after[:, :8])
    assert not torch.equal(before[:, 8:], after[:, 8:])


def test_rotation_keeps_lengths_and_depends_on_distance_only():
    """Rotary positions are rotations: dot products see relative positions."""
    table = rope_table(CONFIG)
    q, k = torch.randn(2, 4)
    at = [rotate(torch.stack([q] * 12)[None, None], table)[0, 0, i] for i in range(12)]
    to = [rotate(torch.stack([k] * 12)[None, None], table)[0, 0, i] for i in range(12)]
    assert torch.allclose(torch.stack(at).norm(dim=1), q.norm().expand(12), atol=1e-5)
    assert torch.allclose(at[7] @ to[5], at[4] @ to[2], atol=1e-5)


def test_dropout_draws_from_the_global_generator_in_training_only():
    """The same random state gives the same mask; evaluation has none."""
    config = LlamaConfig(dim=16, heads=2, ffn_dim=32, layers=1, sequence_tokens=8, dropout=0.5)
    model = stage(0, 1, config=config)
    tokens = torch.arange(8).view(1, 8)
    torch.manual_seed(5)
    one, two = model(tokens), model(tokens)
    torch.manual_seed(5)
    assert torch.equal(model(tokens), one)
    assert not torch.equal(one, two)
    model.eval()
    assert torch.equal(model(tokens), model(tokens))


@pytest.mark.parametrize(("vocab", "padded"), [(1, 64), (64, 64), (257, 320)])
def test_vocabulary_is_padded_whatever_the_layout(vocab, padded):
    """Padding depends on the vocabulary alone, so weights do not depend on tp."""
    assert LlamaConfig(vocab_size=vocab).padded_vocab == padded
