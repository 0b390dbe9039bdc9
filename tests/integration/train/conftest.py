"""A corpus and worlds of ranks for the training tests."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.integration.train.harness import World

from everstep.data.prepare import prepare

MODEL = {"dim": 32, "layers": 2, "heads": 4, "kv_heads": 2, "ffn_dim": 64}


@pytest.fixture(scope="session")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Real text: the source of the project's core."""
    out = tmp_path_factory.mktemp("corpus")
    prepare([Path(__file__).parents[3] / "lib" / "everstep" / "core"], out, suffixes=(".py",))
    return out


@pytest.fixture(scope="session")
def make_spec(corpus: Path) -> Callable[..., dict[str, Any]]:
    """Return a maker of job specs over the corpus."""

    def make(
        layout: dict[str, int], *, steps: int = 6, args: dict[str, Any] | None = None, **more: Any
    ) -> dict[str, Any]:
        return {
            "name": "test",
            "entry": "everstep.models.pretrain:main",
            "args": {**MODEL, **(args or {})},
            "layout": {"pp": 1, "dp_replicate": 1, "dp_shard": 1, "tp": 1, **layout},
            "steps": steps,
            "seed": 7,
            "data": {
                "path": str(corpus),
                "sequence_tokens": 32,
                "global_batch": 16,
                "micro_batch": 2,
            },
            "checkpoint": {"memory_every_steps": 1, "object_every_steps": 0},
            **more,
        }

    return make


@pytest.fixture
def make_world(tmp_path: Path) -> Iterator[Callable[..., World]]:
    """Return a maker of worlds, whose memory and processes are gone after the test."""
    with worlds_in(tmp_path) as make:
        yield make


@contextmanager
def worlds_in(directory: Path) -> Iterator[Callable[..., World]]:
    """Make worlds that keep their files in ``directory`` and are gone afterwards."""
    memory = Path(tempfile.mkdtemp(prefix="everstep-test-", dir=_memory_root()))
    worlds: list[World] = []

    def make(name: str, spec: dict[str, Any], kind: type[World] = World) -> World:
        world = kind(directory / name, memory / name, spec)
        worlds.append(world)
        return world

    yield make
    for world in worlds:
        world.close()
    shutil.rmtree(memory)


def _memory_root() -> str | None:
    return "/dev/shm" if Path("/dev/shm").is_dir() else None
