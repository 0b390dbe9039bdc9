"""Reading a checkpoint again tells the registry what was found, unless nobody wants that."""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager

import pytest
from tests.unit.cli.test_checkpoint_files import stored  # noqa: F401 - a fixture
from tests.unit.cli.test_checkpoint_judging import (
    CHECKPOINT,
    run,
    services,  # noqa: F401 - a fixture
)

from everstep.cli import checkpoint_store
from everstep.cli.checkpoint_files import Checked
from everstep.cli.checkpoint_verify import WHY_MAX, why_of

PATH = "/v1/checkpoints/j/8"


@pytest.fixture
def bucket(stored, services, monkeypatch):  # noqa: F811 - fixtures
    """A store with a whole checkpoint, and a registry that knows it."""
    store, manifest = stored
    uri = "jobs/j/step-00000008/gen-1/manifest.json"
    asyncio.run(store.put(uri, json.dumps(manifest).encode()))
    known = {"step": 8, "manifest_uri": uri, "restorable": True, "shards": manifest["shards"]}
    sound = {**CHECKPOINT, **known}
    services.on("GET", PATH, sound)
    services.on("POST", f"{PATH}/check", {"job_id": "j", "step": 8, "generation": 1})

    @asynccontextmanager
    async def opened():
        yield store

    monkeypatch.setattr(checkpoint_store, "_store", lambda _: opened())
    return store, manifest


def told(services):  # noqa: F811 - a fixture's value
    """What the registry was told."""
    return [body for method, path, body in services.asked if path == f"{PATH}/check"]


def test_whole_checkpoint_is_told(bucket, services):  # noqa: F811 - fixtures
    """Somebody may want to know when it was read last."""
    result = run("checkpoints", "verify", "j", "8")
    assert (result.exit_code, result.stdout[:25]) == (0, "all 2 objects are sound: ")
    [body] = told(services)
    assert (body["whole"], body["bad_ranks"], body["why"]) == (True, [], "")


def test_damage_is_told_with_its_words(bucket, services):  # noqa: F811 - fixtures
    """No restart takes what is bad."""
    store, manifest = bucket
    asyncio.run(store.delete(manifest["shards"][1]["uri"]))
    result = run("checkpoints", "verify", "j", "8")
    assert result.exit_code == 1
    assert "1 of 2 objects are bad" in result.stdout
    assert "the registry knows" in result.stderr
    [body] = told(services)
    assert (body["bad_ranks"], body["why"]) == ([1], "rank 1: there is no such object")


def test_dry_run_only_looks(bucket, services):  # noqa: F811 - fixtures
    """And says so, for people and for programs."""
    store, manifest = bucket
    asyncio.run(store.delete(manifest["shards"][1]["uri"]))
    result = run("checkpoints", "verify", "j", "8", "--dry-run")
    assert result.exit_code == 1
    assert "the registry was not told" in result.stderr
    found = json.loads(run("checkpoints", "verify", "j", "8", "--dry-run", "--json").stdout)
    assert (found["ok"], found["told"], found["restorable"]) == (False, False, None)
    assert told(services) == []


def test_json_says_whether_a_restart_would_take_it(bucket, services):  # noqa: F811 - fixtures
    """As the registry sees it after it was told."""
    found = json.loads(run("checkpoints", "verify", "j", "8", "--json").stdout)
    assert (found["ok"], found["told"], found["restorable"]) == (True, True, True)
    assert len(told(services)) == 1


def test_words_that_are_too_many_are_cut():
    """A registry takes a sentence or two."""
    bad = [
        Checked(rank=rank, uri="", bytes=0, tensors=0, faults=("gone" * 20,)) for rank in range(9)
    ]
    assert len(why_of(bad)) == WHY_MAX
    assert why_of(bad).endswith("...")
    assert why_of([]) == ""
