"""What must hold of checkpoints and histories after any sequence of commands."""

from __future__ import annotations

from dataclasses import replace
from functools import reduce

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.checkpoint_registry.test_keeping_rules import UNPIN, done, pin
from tests.unit.checkpoint_registry.test_trust import by_hand, say
from tests.unit.checkpoint_registry.words import (
    ask,
    complete,
    copy_of,
    facts,
    host,
    own,
    report,
    shard,
    sources,
)

from everstep.checkpoint_registry.codec import CHECKPOINTS, HISTORIES
from everstep.checkpoint_registry.commands import (
    DeleteCheckpoint,
    EndSuspicion,
    NoteCheck,
    NoteGeneration,
    NoteIncident,
    NoteIncidentEnd,
    NoteJob,
    NotePurge,
    RefuseShard,
    ThinOut,
)
from everstep.checkpoint_registry.events import RestorePlanned
from everstep.checkpoint_registry.state import Phase
from everstep.checkpoint_registry.trust import NUMERICAL, Trust
from everstep.core.decision import Accepted
from everstep.core.placement import Layout

RANKS = st.sampled_from([0, 1])
SUMS = st.sampled_from(["aa", "bb"])
SHARDS = st.builds(lambda rank, checksum: shard(rank, checksum=checksum), RANKS, SUMS)
CHECKPOINT_COMMANDS = st.one_of(
    st.builds(
        lambda shards, newest: replace(report(newest_generation=newest), shards=tuple(shards)),
        st.lists(SHARDS, max_size=3),
        st.sampled_from([0, 1, 1, 1, 2]),
    ),
    st.builds(
        RefuseShard,
        job_id=st.just("job"),
        step=st.just(20),
        generation=st.just(1),
        uri=RANKS.map(lambda rank: shard(rank).uri),
        checksum=SUMS,
        why=st.just("rotten"),
        at_ms=st.just(1),
    ),
    st.builds(lambda a, b: complete(shard(0, checksum=a), shard(1, checksum=b)), SUMS, SUMS),
    st.builds(
        DeleteCheckpoint,
        job_id=st.just("job"),
        step=st.just(20),
        generation=st.just(1),
        why=st.just("dropped"),
        at_ms=st.just(1),
    ),
    st.builds(
        NotePurge, job_id=st.just("job"), step=st.just(20), generation=st.just(1), at_ms=st.just(1)
    ),
)
INCIDENTS = st.sampled_from(["i1", "i2"])
SNAPSHOTS = st.builds(
    lambda make, rank, step, generation: make(rank, step, generation),
    st.sampled_from([own, copy_of]),
    RANKS,
    st.integers(0, 5),
    st.integers(1, 4),
)
HISTORY_COMMANDS = st.one_of(
    st.builds(
        lambda held, generation, from_step, steps: ask(
            host("h1", *held[::2]),
            host("h2", *held[1::2]),
            generation=generation,
            from_step=from_step,
            checkpoints=[facts(step) for step in sorted(steps)],
        ),
        st.lists(SNAPSHOTS, max_size=8),
        st.integers(1, 5),
        st.sampled_from([-1, -1, -1, 3]),
        st.sets(st.integers(0, 5), max_size=2),
    ),
    st.builds(
        NoteGeneration, job_id=st.just("job"), generation=st.integers(1, 5), at_ms=st.just(1)
    ),
    st.builds(
        NoteJob,
        job_id=st.just("job"),
        keep_last=st.integers(1, 3),
        layout=st.just(Layout(tp=2)),
        at_ms=st.just(1),
    ),
    st.builds(
        NoteIncident,
        job_id=st.just("job"),
        incident_id=INCIDENTS,
        kind=st.sampled_from(sorted(NUMERICAL)),
        generation=st.integers(1, 4),
        step=st.integers(0, 5),
        why=st.just("loss"),
        at_ms=st.just(1),
    ),
    st.builds(
        NoteIncidentEnd,
        job_id=st.just("job"),
        incident_id=INCIDENTS,
        recovered=st.booleans(),
        why=st.just(""),
        at_ms=st.just(1),
    ),
    st.builds(
        EndSuspicion,
        job_id=st.just("job"),
        suspicion_id=INCIDENTS,
        false_alarm=st.booleans(),
        why=st.just(""),
        by=st.just("ann"),
        at_ms=st.just(1),
    ),
    st.builds(by_hand, st.integers(0, 5), st.integers(-1, 5)),
    st.builds(
        say, st.sampled_from(list(Trust)), st.integers(0, 5), phase=st.sampled_from(list(Phase))
    ),
    st.builds(
        NoteCheck,
        job_id=st.just("job"),
        step=st.integers(0, 5),
        generation=st.integers(1, 2),
        bad_ranks=st.sampled_from([(), (0,), (1,), (0, 1)]),
        whole=st.booleans(),
        why=st.just("cut"),
        by=st.just("ann"),
        at_ms=st.integers(1, 3),
        phase=st.sampled_from(list(Phase)),
        world_size=st.just(2),
    ),
    st.builds(pin, st.integers(0, 5), phase=st.sampled_from(list(Phase))),
    st.builds(lambda step: replace(UNPIN, step=step), st.integers(0, 5)),
    st.builds(
        lambda steps: ThinOut(
            job_id="job", known=tuple(done(step) for step in sorted(steps)), at_ms=1
        ),
        st.sets(st.integers(0, 5)),
    ),
)


def run(aggregate, commands):
    """Put every command to the aggregate; yield each with its events and the states around them."""
    state = aggregate.initial()
    for command in commands:
        decision = aggregate.decide(command, state)
        events = decision.events if isinstance(decision, Accepted) else ()
        before, state = state, reduce(aggregate.evolve, events, state)
        yield command, before, events, state


def decides_nothing_again(aggregate, commands):
    """Say whether each command, repeated at once, is already so or refused."""
    for command, _, _, state in run(aggregate, commands):
        again = aggregate.decide(command, state)
        assert not isinstance(again, Accepted) or again == Accepted()


def replays(aggregate, commands):
    """Say whether what is stored and read again folds to the state that was decided on."""
    steps = list(run(aggregate, commands))
    stored = [aggregate.codec.encode(event) for _, _, events, _ in steps for event in events]
    decoded = (aggregate.codec.decode(*item) for item in stored)
    last = steps[-1][3] if steps else aggregate.initial()
    assert reduce(aggregate.evolve, decoded, aggregate.initial()) == last


@given(st.lists(CHECKPOINT_COMMANDS, max_size=15))
def test_every_checkpoint_command_repeated_decides_nothing(commands):
    """Agents and process managers retry without knowing what became of the first time."""
    decides_nothing_again(CHECKPOINTS, commands)


@given(st.lists(HISTORY_COMMANDS, max_size=10))
def test_every_history_command_repeated_decides_nothing(commands):
    """The controller asks again after every crash."""
    decides_nothing_again(HISTORIES, commands)


@given(st.lists(CHECKPOINT_COMMANDS, max_size=15))
def test_stored_checkpoint_events_replay_to_the_same_state(commands):
    """A restarted registry knows what the killed one knew."""
    replays(CHECKPOINTS, commands)


@given(st.lists(HISTORY_COMMANDS, max_size=10))
def test_stored_history_events_replay_to_the_same_state(commands):
    """The plan in full, too."""
    replays(HISTORIES, commands)


@settings(max_examples=300)
@given(st.lists(CHECKPOINT_COMMANDS, max_size=20))
def test_only_a_whole_checkpoint_is_completed_and_no_deleted_one_comes_back(commands):
    """Phases go forward, but for a refused shard that is to be uploaded again."""
    order = list(Phase)
    for _, before, events, after in run(CHECKPOINTS, commands):
        if after.phase is Phase.COMPLETE:
            assert set(after.shards) == {0, 1}
        if order.index(after.phase) < order.index(before.phase):
            assert before.phase is Phase.STORED
            assert [type(event).__name__ for event in events] == ["ShardsRefused"]


@settings(max_examples=300)
@given(st.lists(HISTORY_COMMANDS, max_size=12))
def test_plans_go_to_newer_generations_and_give_every_rank_a_source(commands):
    """No generation is planned twice or after a newer one; a step that is planned is whole."""
    newest = 0
    for _, _, events, state in run(HISTORIES, commands):
        if any(isinstance(event, RestorePlanned) for event in events):
            plan = state.plan
            assert plan.generation > newest
            newest = plan.generation
            if plan.step >= 0:
                assert all(sources(plan))
