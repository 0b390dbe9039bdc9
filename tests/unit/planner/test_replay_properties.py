import random
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.planner.histories import CYCLE_MS, STARTUP_MS, WALL_MS, history

from everstep.planner.history import Failure, IdleLoss, LostHost, Spell
from everstep.planner.replay import replay
from everstep.planner.replay_policy import Policy

HOSTS = ("a", "b", "c", "d")
SPARES = ("s", "t")
TIMES = st.integers(0, 30_000)
SEEDS = st.integers(0, 2**32)  # of histories: to draw one part by part takes longer than to try it


def any_failure(draw):
    """A failure at any time, of a rank or of one or two hosts, or a person's wish."""
    kind = draw.choice(["host_lost", "host_lost", "rank_killed", "restart", "pause"])
    planned = kind in {"restart", "pause"}
    names = draw.sample(HOSTS + SPARES, draw.randint(1, 2)) if kind == "host_lost" else ()
    return Failure(
        at_ms=draw.randint(0, WALL_MS),
        kind=kind,
        lost=tuple(LostHost(host_id=host, out_ms=any_out(draw)) for host in names),
        replacements=tuple(draw.sample(SPARES, draw.randint(0, 2))),
        detection_ms=0 if planned else draw.randint(0, 20_000),
        restart_ms=draw.randint(0, 20_000),
        lost_work_ms=draw.choice([0, 500, 1_500, 5_000, 40_000]),
        paused_ms=draw.randint(0, 20_000) if kind == "pause" else 0,
    )


def any_out(draw):
    """Back soon, late, or not within the record."""
    return draw.choice([None, draw.randint(1, 5_000), draw.randint(1, 60_000)])


def any_history(seed):
    """Any history, however unlikely."""
    draw = random.Random(seed)
    told = sorted((any_failure(draw) for _ in range(draw.randint(0, 8))), key=lambda one: one.at_ms)
    idle = [
        IdleLoss(
            at_ms=draw.randint(0, WALL_MS),
            host=LostHost(host_id=draw.choice(HOSTS + SPARES), out_ms=any_out(draw)),
        )
        for _ in range(draw.randint(0, 3))
    ]
    begin_ms = draw.randint(0, WALL_MS)
    end_ms = begin_ms + draw.randint(1, WALL_MS)
    slow = Spell(begin_ms=begin_ms, end_ms=end_ms, factor=draw.uniform(1.05, 5))
    return history(
        *told,
        hosts=HOSTS,
        spares=SPARES[: draw.randint(0, 2)],
        replicas=draw.choice([1, 2, 4]),
        idle_losses=tuple(sorted(idle, key=lambda one: one.at_ms)),
        spells=(slow,) if draw.random() < 0.5 else (),
        stored_every_ms=draw.choice([0, 10_000]),
        stored_after_ms=draw.randint(0, 5_000),
        finish_ms=draw.randint(0, 5_000),
        launch_waiting_ms=draw.randint(0, 5_000),
    )


def any_policy(seed):
    """Each field changed, or as it was."""
    draw = random.Random(f"{seed}/policy")
    changed = {
        "interval_ms": draw.randint(1, 40_000),
        "detection_ms": draw.randint(0, 30_000),
        "repair_ms": draw.randint(1, 60_000),
        "spares": draw.randint(0, 4),
        "straggler_share": draw.uniform(0, 2),
        "no_spare": draw.choice(["wait", "elastic"]),
    }
    kept = {name: value for name, value in changed.items() if draw.random() < 0.5}
    return Policy(restart_ms=draw.randint(0, 30_000), **kept)


@settings(deadline=None)
@given(SEEDS)
def test_every_millisecond_has_one_cause(seed):
    """Under any policy, and in the blocks too."""
    record = any_history(seed)
    replayed = replay(record, any_policy(seed))
    assert sum(replayed.causes.values()) == record.wall_ms
    assert min(replayed.causes.values()) >= 0
    assert sum(replayed.block_walls_ms) == record.wall_ms
    assert len(replayed.block_walls_ms) == len(record.failures) + 1
    assert abs(sum(replayed.block_useful_ms) - replayed.useful_ms) <= 1


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(1, 9_000), TIMES, TIMES), max_size=6))
def test_unchanged_policy_of_a_synthetic_run_is_what_it_did(stretches):
    """Failures of ranks, each after some training (of none, two are one), summed up by hand."""
    at_ms, told = STARTUP_MS, []
    useful = stall = lost = down = 0
    for trained_ms, detection_ms, restart_ms in stretches:
        broke_ms = at_ms + trained_ms
        if broke_ms + detection_ms + restart_ms > WALL_MS:
            break
        saves, left_ms = divmod(trained_ms, CYCLE_MS)
        told.append(
            Failure(
                at_ms=broke_ms,
                kind="rank_killed",
                detection_ms=detection_ms,
                restart_ms=restart_ms,
                lost_work_ms=left_ms,
            )
        )
        useful += saves * 1_000
        stall += saves * 100
        lost += left_ms
        down += detection_ms + restart_ms
        at_ms = broke_ms + detection_ms + restart_ms
    saves, left_ms = divmod(WALL_MS - at_ms, CYCLE_MS)
    useful += saves * 1_000 + min(left_ms, 1_000)
    stall += saves * 100 + max(left_ms - 1_000, 0)
    causes = replay(history(*told)).causes
    assert causes["useful"] == useful
    assert causes["checkpoint_stall"] == stall
    assert causes["lost_work"] == lost
    assert causes["detection"] + causes["restart"] == down


def without_spells(seed):
    """A history that differs from another one only in when its job trains."""
    return replace(any_history(seed), spells=())


@settings(deadline=None)
@given(SEEDS, TIMES, TIMES)
def test_shorter_restart_never_hurts(seed, first_ms, second_ms):
    """Training begins earlier, and what it does by any moment is never less."""
    short, long = sorted((first_ms, second_ms))
    record = without_spells(seed)
    done = [replay(record, Policy(restart_ms=ms)).useful_ms for ms in (short, long)]
    assert done[0] >= done[1]


@settings(deadline=None)
@given(SEEDS, st.integers(1, 3))
def test_further_spares_that_never_break_never_make_a_run_wait_longer(seed, count):
    """Nor do they cost work, but for what was begun when a host breaks that serves only then.

    With verdicts and restarts at once: a job that waits cannot be broken, and to be there again
    just after a failure is luck that a spare takes away.
    """
    record = without_spells(seed)
    told = tuple(replace(one, lost_work_ms=0) for one in record.failures if one.kind == "host_lost")
    record = replace(record, failures=told, stored_every_ms=0)
    richer = replace(record, spares=record.spares + tuple(f"~{i}" for i in range(count)))
    poor, rich = (replay(one, Policy(restart_ms=0, detection_ms=0)) for one in (record, richer))
    assert rich.causes["waiting_for_hosts"] <= poor.causes["waiting_for_hosts"]
    assert rich.useful_ms + rich.stops * CYCLE_MS >= poor.useful_ms


@settings(deadline=None)
@given(SEEDS)
def test_same_history_and_policy_replay_the_same(seed):
    """No set's order, no draw."""
    assert replay(any_history(seed), any_policy(seed)) == replay(
        any_history(seed), any_policy(seed)
    )
