"""The planner, which works on runs of ranks, against a reference that looks at each rank alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import reduce

from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.unit.checkpoint_registry.words import ask, facts, host, shard, sources

from everstep.checkpoint_registry.commands import HeldSnapshots, PlanRestore
from everstep.checkpoint_registry.events import (
    CheckpointsSuspected,
    SourceDistrusted,
    TrustDecided,
)
from everstep.checkpoint_registry.lineage import Lineage, Restart, lineage_of
from everstep.checkpoint_registry.policy import plan_restore, preferred_counts
from everstep.checkpoint_registry.state import History, evolve_history
from everstep.core.decision import Rejected

WORLD = 3
STEPS = st.integers(0, 4)
GENERATIONS = st.integers(1, 4)
# Sorted, as the codec reads them; some are of no rank of this world.
RANKS = st.lists(st.integers(-1, WORLD), max_size=4).map(sorted).map(tuple)
HELD = st.builds(HeldSnapshots, step=STEPS, generation=GENERATIONS, own=st.booleans(), ranks=RANKS)
HOSTS = st.tuples(*[st.lists(HELD, max_size=6)] * 3).map(
    lambda held: [host(f"h{i}", *one) for i, one in enumerate(held)]
)
CHECKPOINTS = st.lists(
    st.builds(facts, STEPS, generation=GENERATIONS, world_size=st.sampled_from([WORLD, WORLD, 2])),
    unique_by=lambda one: (one.step, one.generation),
    max_size=3,
)
RESTARTS = st.lists(st.tuples(st.integers(1, 3), st.integers(-1, 4)), unique_by=lambda r: r[0])


def bad(generation: int, rank: int, step: int, where: str) -> SourceDistrusted:
    """A copy in memory on a host, or the object of generation 1, that could not be used."""
    in_store = where == "object"
    return SourceDistrusted(
        job_id="job",
        generation=generation,
        rank=rank,
        step=step,
        host_id="" if in_store else where,
        uri=shard(rank, step=step).uri if in_store else "",
        detail="",
        at_ms=1,
    )


DISTRUSTED = st.lists(
    st.builds(
        bad,
        st.integers(2, 5),
        st.integers(0, WORLD - 1),
        STEPS,
        st.sampled_from(["h0", "h1", "object"]),
    ),
    max_size=3,
)


SPANS = st.builds(
    lambda number, generation, first, more: CheckpointsSuspected(
        job_id="job",
        suspicion_id=f"s{number}",
        kind="by_hand",
        generation=generation,
        from_step=first,
        to_step=first + more if more >= 0 else -1,
        why="",
        by="a person",
        at_ms=1,
    ),
    st.integers(0, 9),
    GENERATIONS,
    STEPS,
    st.integers(-2, 2),
)
WORDS = st.builds(
    lambda step, generation, trust: TrustDecided(
        job_id="job",
        step=step,
        generation=generation,
        trust=trust,
        why="",
        by="a person",
        at_ms=1,
    ),
    STEPS,
    GENERATIONS,
    st.sampled_from(["clean", "clean", "suspect", "verified"]),
)
SAID = st.lists(
    st.one_of(SPANS, WORDS),
    max_size=4,
    unique_by=lambda one: getattr(one, "suspicion_id", None) or (one.step, one.generation),
)


class Reference:
    """The rules, written down for one rank and one copy at a time."""

    def __init__(
        self,
        request: PlanRestore,
        lineage: Lineage,
        distrusted: list[SourceDistrusted],
        said: Sequence[CheckpointsSuspected | TrustDecided],
    ) -> None:
        self.request = request
        self.lineage = lineage
        self.said = said
        self.memory: dict[tuple[int, int], list[tuple[int, int, str]]] = {}
        self.steps: set[int] = set()
        self.remarks: dict[int, str] = {}
        self.objects: dict[int, dict[int, str]] = {}
        self.spoilt: dict[int, str] = {}
        self.refusals = {(d.host_id, d.rank, d.step): d.generation for d in distrusted}
        self.bad_uris = {d.uri for d in distrusted if d.uri}
        for one in sorted(request.holdings, key=lambda one: one.host_id):
            for held in one.held:
                for rank in held.ranks:
                    self.take(one.host_id, held, rank)
        for one in sorted(request.checkpoints, key=lambda one: (one.step, one.generation)):
            self.store(one)

    def take(self, host_id: str, held: HeldSnapshots, rank: int) -> None:
        """Count one copy of one rank, or say why it does not count."""
        step, generation = held.step, held.generation
        if not self.lineage.holds(generation=generation, step=step):
            self.remarks[step] = self.abandoned(generation, step)
        elif self.suspect(generation, step):
            self.remarks[step] = self.suspect(generation, step)
        elif generation < self.refusals.get((host_id, rank, step), 0):
            self.remarks.setdefault(step, f"the copy of rank {rank} on {host_id} is bad")
        elif 0 <= rank < WORLD and generation < self.request.generation:
            self.steps.add(step)
            source = (0 if held.own else 1, -generation, host_id)
            self.memory.setdefault((step, rank), []).append(source)

    def store(self, one) -> None:
        """Count one checkpoint; a newer generation's replaces an older one's."""
        if not self.lineage.holds(generation=one.generation, step=one.step):
            self.remarks[one.step] = self.abandoned(one.generation, one.step)
        elif self.suspect(one.generation, one.step):
            self.remarks[one.step] = self.suspect(one.generation, one.step)
        elif len(one.shards) != WORLD:
            self.remarks[one.step] = (
                f"its checkpoint is of {len(one.shards)} ranks, and {WORLD} are to be restored"
            )
        else:
            self.steps.add(one.step)
            uris = {s.rank: s.uri for s in one.shards}
            self.objects[one.step] = {r: u for r, u in uris.items() if u not in self.bad_uris}
            for rank in range(WORLD):
                if uris[rank] in self.bad_uris:
                    why = f"object {uris[rank]} could not be used before"
                    self.spoilt[one.step] = why
                    break

    def abandoned(self, generation: int, step: int) -> str:
        """The sentence of a copy that another restart left behind."""
        by = self.lineage.abandoned_by(generation=generation, step=step)
        return (
            f"what generation {generation} did there was abandoned when generation "
            f"{by.generation} went on from step {by.step}"
        )

    def suspect(self, generation: int, step: int) -> str:
        """The sentence of a suspect state; "" for a clean one. What was said last counts.

        A word is heard of every state that is the same one: two of the present history at a step.
        """
        verdict = ""
        verified = False
        present = self.lineage.holds(generation=generation, step=step)
        for one in self.said:
            if isinstance(one, TrustDecided):
                same = one.generation == generation or (
                    present and self.lineage.holds(generation=one.generation, step=step)
                )
                if one.step == step and same:
                    verified = one.trust == "verified"
                    verdict = "suspect (a person said suspect)" if one.trust == "suspect" else ""
            elif one.from_step <= step and generation <= one.generation:
                over = one.to_step != -1 and step > one.to_step
                if not over and not verified and not verdict.endswith("said suspect)"):
                    end = "" if one.to_step == -1 else f" to {one.to_step}"
                    verdict = f"suspect (by_hand from step {one.from_step}{end})"
        return verdict

    def lineage_holds(self, generation: int, step: int) -> bool:
        """Whether it was not left behind."""
        return self.lineage.holds(generation=generation, step=step)

    def sources(self, step: int, rank: int) -> list[str]:
        """A rank's sources at a step, as ``words.sources`` says them."""
        found = sorted(set(self.memory.get((step, rank), ())))
        named = [f"{('own', 'peer')[kind]} {host_id}" for kind, _, host_id in found]
        return named + ["object"] * (rank in self.objects.get(step, {}))

    def plan(self):
        """Step, sources and remarks; or why there is no plan."""
        wanted = self.request.from_step
        if wanted != -1 and wanted not in self.steps:
            return "no_such_step"
        latest = 99 if wanted == -1 else wanted
        remarks = {at: why for at, why in self.remarks.items() if at <= latest}
        for step in sorted((s for s in self.steps if s <= latest), reverse=True):
            found = [self.sources(step, rank) for rank in range(WORLD)]
            missing = [rank for rank in range(WORLD) if not found[rank]]
            if not missing:
                newer = sorted((at for at in remarks if at > step), reverse=True)
                return step, found, tuple(f"step {at}: {remarks[at]}" for at in newer)
            who = ", ".join(str(rank) for rank in missing)
            have = f"rank {who} has" if len(missing) == 1 else f"ranks {who} have"
            why = f" ({self.remarks[step]})" if step in self.remarks else ""
            remarks[step] = self.spoilt.get(step) or f"{have} no source{why}"
        if self.request.checkpoints or wanted != -1:
            stored = sorted((one.generation, one.step) for one in self.request.checkpoints)
            newest = {one[1]: one for one in stored if self.lineage_holds(*one)}  # of each step
            doubted = any(self.suspect(*one) for one in newest.values())
            return "only_suspect" if doubted else "no_source"
        newer = sorted(remarks, reverse=True)
        return -1, [[]] * WORLD, tuple(f"step {at}: {remarks[at]}" for at in newer)


# Of two checkpoints of one step the older is suspect, and neither may be gone on from.
OLDER_SUSPECT = CheckpointsSuspected(
    job_id="job",
    suspicion_id="s",
    kind="by_hand",
    generation=1,
    from_step=1,
    to_step=2,
    why="",
    by="a person",
    at_ms=1,
)
TWO_OF_ONE_STEP = [
    facts(2, generation=1, world_size=WORLD),
    facts(2, generation=2, world_size=WORLD),
]


@settings(max_examples=500)
@example(
    [host("h0", HeldSnapshots(step=0, generation=1, own=False, ranks=(0,)))],
    TWO_OF_ONE_STEP,
    [],
    [],
    [OLDER_SUSPECT],
    0,
)
@given(HOSTS, CHECKPOINTS, RESTARTS, DISTRUSTED, SAID, st.integers(-1, 4))
def test_plan_is_what_each_rank_alone_would_have_been_given(
    hosts, checkpoints, restarts, distrusted, said, from_step
):
    """The same step, every rank's sources in the same order, and the same remarks."""
    request = ask(
        *hosts, generation=4, world_size=WORLD, from_step=from_step, checkpoints=checkpoints
    )
    lineage = lineage_of(Restart(generation=g, step=s) for g, s in restarts)
    expected = Reference(request, lineage, distrusted, said).plan()
    heard = replace(History(), lineage=lineage, distrusted=tuple(distrusted))
    planned = plan_restore(request, reduce(evolve_history, said, heard))
    if isinstance(planned, Rejected):
        assert planned.why == expected
        return
    laid_out = planned.laid_out
    assert (laid_out.step, sources(laid_out), planned.passed_over) == expected
    first = [found[0].split()[0] for found in expected[1] if found]
    counts = (first.count("own"), first.count("peer"), first.count("object"))
    assert preferred_counts(laid_out) == planned.counts == counts


@given(HOSTS, st.permutations(range(3)))
def test_plan_does_not_depend_on_the_order_in_which_hosts_told(hosts, order):
    """Hosts are sorted before anything is chosen."""
    told = ask(*hosts, generation=4, world_size=WORLD)
    shuffled = replace(told, holdings=tuple(hosts[i] for i in order))
    assert plan_restore(told, History()) == plan_restore(shuffled, History())
