"""Plans against a model that knows the true state behind every snapshot."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import reduce

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.checkpoint_registry.words import ask, shard

from everstep.checkpoint_registry.commands import CompleteFacts, HeldSnapshots, HostHoldings
from everstep.checkpoint_registry.decider import decide_history
from everstep.checkpoint_registry.events import Shard
from everstep.checkpoint_registry.lineage import Restart, lineage_of
from everstep.checkpoint_registry.state import History, evolve_history
from everstep.core.decision import Accepted, Rejected

RANKS = 2
HOSTS = 3


@dataclass
class World:
    """A run whose state is the tuple of (generation, step) that made it: its true history.

    Hosts hold snapshots of any age; a fenced host may be silent at one recovery and answer at the
    next, with what it held before.
    """

    history: History = field(default_factory=History)
    generation: int = 0
    state: tuple[tuple[int, int], ...] = ()
    memory: dict[tuple[int, HeldSnapshots], tuple[tuple[int, int], ...]] = field(
        default_factory=dict
    )
    stored: dict[tuple[int, int], tuple[tuple[int, int], ...]] = field(default_factory=dict)

    @property
    def step(self) -> int:
        """Completed steps of the present state; every history starts at step 0."""
        return len(self.state)

    def train(self, steps: int, kept: list[tuple[int, int, bool]], checkpoint: bool) -> None:
        """Do steps, keep some ranks' snapshots of the last one on hosts, perhaps all in store."""
        for _ in range(steps):
            self.state = (*self.state, (self.generation, self.step + 1))
        for host, rank, own in kept:
            held = HeldSnapshots(step=self.step, generation=self.generation, own=own, ranks=(rank,))
            self.memory[host, held] = self.state
        if checkpoint:
            self.stored[self.step, self.generation] = self.state

    def recover(self, silent: int, from_step: int | None):
        """Plan the next generation; return every (state, step) that the plan would load."""
        self.generation += 1
        holdings = [
            HostHoldings(
                host_id=f"h{host}",
                address="",
                peer_port=host,
                held=tuple(held for at, held in self.memory if at == host),
            )
            for host in range(HOSTS)
            if host != silent
        ]
        checkpoints = [
            CompleteFacts(
                step=step, generation=g, shards=tuple(self.shard(r, step, g) for r in range(RANKS))
            )
            for step, g in self.stored
        ]
        command = ask(
            *holdings,
            generation=self.generation,
            world_size=RANKS,
            from_step=-1 if from_step is None else from_step,
            checkpoints=checkpoints,
        )
        decision = decide_history(command, self.history)
        if isinstance(decision, Rejected):
            return None
        before = self.history
        self.history = reduce(evolve_history, decision.events, before)
        return self.loaded(decision)

    def loaded(self, decision: Accepted) -> list[tuple[tuple[int, int], ...]]:
        """Return the true state behind every source of the plan."""
        plan = decision.events[0]
        found = []
        for holder in plan.holders:
            for own, ranks in ((True, holder.own), (False, holder.replicas)):
                for rank in ranks:
                    held = HeldSnapshots(
                        step=plan.step, generation=holder.generation, own=own, ranks=(rank,)
                    )
                    found.append(self.memory[holder.peer_port, held])
        found += [self.stored[plan.step, plan.shards_generation] for _ in plan.shards]
        return found

    @staticmethod
    def shard(rank: int, step: int, generation: int) -> Shard:
        """Return a shard under its own key."""
        return shard(rank, step=step, generation=generation)


ALL_OWN = [(rank, rank, True) for rank in range(RANKS)]
SOME = st.lists(
    st.tuples(st.integers(0, HOSTS - 1), st.integers(0, RANKS - 1), st.booleans()), max_size=4
)
TRAIN = st.tuples(st.integers(0, 3), st.one_of(st.just(ALL_OWN), SOME), st.booleans())
ROUNDS = st.lists(
    st.tuples(
        st.lists(TRAIN, max_size=3),
        st.integers(0, HOSTS),  # HOSTS: nobody is silent
        st.one_of(st.none(), st.integers(0, 6)),
    ),
    max_size=6,
)


@settings(max_examples=300)
@given(ROUNDS)
def test_every_source_of_a_plan_is_the_same_state_of_the_present_history(rounds):
    """All ranks load one state, and it is a state that the run really went through."""
    world = World()
    world.recover(HOSTS, None)
    for training, silent, from_step in rounds:
        for steps, kept, checkpoint in training:
            world.train(steps, kept, checkpoint)
        before = world.state
        loaded = world.recover(silent, from_step)
        if loaded is None:
            continue
        step = max(world.history.plan.step, 0)
        assert set(loaded) <= {before[:step]}, "a plan mixes histories"
        world.state = before[:step]


@given(
    st.lists(st.tuples(st.integers(1, 9), st.integers(-1, 9)), unique_by=lambda r: r[0]),
    st.integers(0, 9),
    st.integers(0, 9),
)
def test_a_snapshot_holds_if_no_later_restart_went_below_it(restarts, generation, step):
    """The suffix minimum says what the definition says."""
    lineage = lineage_of(Restart(generation=g, step=s) for g, s in restarts)
    expected = all(step <= s for g, s in restarts if g > generation)
    assert lineage.holds(generation=generation, step=step) == expected
    assert (lineage.abandoned_by(generation=generation, step=step) is None) == expected


def test_generation_is_kept_to_the_lowest_step_that_later_ones_went_on_from():
    """Of the newest plan's own nothing is settled yet."""
    lineage = lineage_of([Restart(generation=2, step=20), Restart(generation=3, step=15)])
    assert [lineage.kept_to(generation) for generation in (1, 2, 3)] == [15, 15, -1]
