"""A copy that could not be used is not offered again."""

from __future__ import annotations

from tests.unit.checkpoint_registry.words import (
    HISTORY,
    ask,
    copy_of,
    facts,
    host,
    own,
    shard,
    sources,
)

from everstep.checkpoint_registry.commands import DistrustSource, Known
from everstep.checkpoint_registry.events import SourceDistrusted
from everstep.checkpoint_registry.retention import (
    Reason,
    Removal,
    removals,
    restorable,
    unusable,
)

H1 = host("h1", own(0, 16), own(0, 17), copy_of(1, 16), copy_of(1, 17))
H2 = host("h2", own(1, 16), own(1, 17), copy_of(0, 16), copy_of(0, 17))
BAD = {
    "job_id": "job",
    "rank": 0,
    "step": 17,
    "uri": "",
    "detail": "checksum expected a, got b",
    "at_ms": 5,
}


def on(host_id: str, generation: int = 2) -> SourceDistrusted:
    """A bad copy of rank 0 at step 17."""
    return SourceDistrusted(host_id=host_id, generation=generation, **BAD)


def plan_of(decision):
    """Step and sources of what was decided."""
    laid_out, planned = decision.events
    return laid_out.step, sources(laid_out), planned.passed_over


def test_distrusted_copy_leaves_the_other_one():
    """The peer's copy of the same step serves."""
    decision = HISTORY.given(on("h1")).when(ask(H1, H2, generation=3)).decision
    step, found, _ = plan_of(decision)
    assert step == 17
    assert found == [["peer h2"], ["own h2", "peer h1"]]


def test_both_copies_distrusted_pass_the_step_over():
    """The step before, of which both copies are sound, is taken, with the reason."""
    decision = HISTORY.given(on("h1"), on("h2")).when(ask(H1, H2, generation=3)).decision
    step, _, passed_over = plan_of(decision)
    assert step == 16
    assert passed_over == ("step 17: rank 0 has no source (the copy of rank 0 on h1 is bad)",)


def test_copy_written_after_the_refusal_is_another_one():
    """A rank that took the same step again has a good copy of it."""
    h1 = host("h1", own(0, 17, generation=2))
    h2 = host("h2", own(1, 17, generation=2))
    decision = HISTORY.given(on("h1")).when(ask(h1, h2, generation=3)).decision
    assert plan_of(decision)[:2] == (17, [["own h1"], ["own h2"]])


def test_checkpoint_with_a_bad_object_is_passed_over():
    """An older complete checkpoint serves instead of failing again."""
    bad = SourceDistrusted(
        host_id="", generation=2, **(BAD | {"step": 20, "uri": shard(0, step=20).uri})
    )
    command = ask(checkpoints=[facts(10), facts(20)], generation=3)
    step, found, passed_over = plan_of(HISTORY.given(bad).when(command).decision)
    assert (step, found) == (10, [["object"], ["object"]])
    assert passed_over == (f"step 20: object {shard(0, step=20).uri} could not be used before",)


def test_checkpoint_with_a_bad_object_still_serves_beside_memory():
    """The rank whose object is bad has the step in memory; the other takes its good object."""
    bad = SourceDistrusted(
        host_id="", generation=2, **(BAD | {"step": 20, "uri": shard(0, step=20).uri})
    )
    command = ask(host("h1", own(0, 20)), checkpoints=[facts(20)], generation=3)
    decision = HISTORY.given(bad).when(command).decision
    step, found, passed_over = plan_of(decision)
    assert (step, found, passed_over) == (20, [["own h1"], ["object"]], ())
    assert (decision.events[1].own_memory, decision.events[1].object_store) == (1, 1)


def test_checkpoint_with_a_bad_object_is_not_counted_as_kept():
    """It goes once enough good ones exist, and never pushes a good one out."""
    history = HISTORY.given(
        SourceDistrusted(
            host_id="", generation=2, **(BAD | {"step": 20, "uri": shard(0, step=20).uri})
        )
    ).state
    known = [Known(step=step, generation=1, complete=True) for step in (10, 20, 30)]
    assert restorable(known, history) == [known[0], known[2]]
    assert [unusable(one, history) for one in known] == [None, Reason.SPOILT, None]
    assert removals(known, history) == ()
    more = [*known, Known(step=40, generation=1, complete=True)]
    assert removals(more, history) == (Removal(step=20, generation=1, why=Reason.SPOILT),)


def test_refusal_is_noted_once():
    """The same report again is already so."""
    command = DistrustSource(host_id="h1", generation=2, **BAD)
    HISTORY.when(command).then(on("h1"))
    HISTORY.given(on("h1")).when(command).then()
