"""Every named story, and that each of the rules it stands for is what makes it end well."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest
from tests.sim.goldens import compare

from everstep.checkpoint_registry import decider as registry
from everstep.checkpoint_registry.lineage import NO_CEILING, Lineage
from everstep.checkpoint_registry.policy import plan_restore
from everstep.controller import decider as controller
from everstep.controller import runner, second_copies
from everstep.controller.outside import Looked
from everstep.controller.runner import Runner
from everstep.monitor.detectors import sight
from everstep.monitor.state import Watch
from everstep.monitor.watcher import Watcher
from everstep.sim.carrying import Carrier
from everstep.sim.host import HostRun
from everstep.sim.network import Conditions
from everstep.sim.playing import play
from everstep.sim.scenarios import SCENARIOS

BAD_NETWORK = Conditions(
    latency_s=0.005, late_share=0.05, late_s=0.5, lost_share=0.02, doubled_share=0.1
)
FORGIVING = ("host_lost", "rank_killed", "no_spare", "owner_and_holder_lost")


@pytest.mark.parametrize("name", sorted(SCENARIOS))
def test_story_ends_well(name):
    """As told, and with every invariant held all along."""
    play(name)


@pytest.mark.parametrize("name", FORGIVING)
@pytest.mark.parametrize("seed", range(3))
def test_story_ends_well_on_a_bad_network(name, seed):
    """Messages that are late, lost and doubled change nothing but the times."""
    play(name, seed=seed, conditions=BAD_NETWORK)


def test_trace_of_a_lost_host_is_as_reviewed(request):
    """What every service decides, and when; a diff of the file shows what a change did."""
    compare(request, "host_lost", play("host_lost").world.trace.lines)


def fails(name):
    """Say whether a story does not end well."""
    with pytest.raises(AssertionError):
        play(name)


def test_without_the_two_slot_rule_no_common_step_is_left(monkeypatch):
    """Survivors would run ahead of a dead host's replica."""
    monkeypatch.setattr(HostRun, "replicated", property(lambda _: True))
    fails("replica_behind")


def test_without_second_places_a_wait_for_hosts_may_cost_the_steps_since_the_store(monkeypatch):
    """What one host alone holds dies with it; that it stays alone is found by itself, too."""

    async def wait(*_):
        await asyncio.sleep(10.0)

    monkeypatch.setattr(runner, "keep_twice", wait)
    fails("pair_lost_one_by_one_while_waiting")
    fails("waits_with_what_more_ranks_have_left")
    with pytest.raises(AssertionError, match="keeps its newest step once"):
        play("no_spare")


def test_second_places_in_the_same_pod_are_lost_with_it(monkeypatch):
    """As long as nothing was known of pods, half of them were."""

    def anywhere(holder, fenced):
        return sorted(one.host_id for one in fenced if one.host_id != holder.host_id)

    monkeypatch.setattr(second_copies, "farthest", anywhere)
    fails("pod_of_the_only_copies_lost_while_waiting")


def test_copies_that_nobody_makes_are_found(monkeypatch):
    """Both ends are well, and the peer never has what its partner holds."""
    monkeypatch.setattr(Carrier, "_push", lambda *_: False)
    with pytest.raises(AssertionError, match="holds on h0-0 what came after step -1, and h1-1"):
        play("undisturbed")


def test_without_lineage_an_abandoned_state_comes_back(monkeypatch):
    """A step number alone names no state."""
    monkeypatch.setattr(Lineage, "ceiling", lambda *_: NO_CEILING)
    fails("loss_after_a_roll_back")


def test_without_distrust_a_bad_copy_is_tried_for_ever(monkeypatch):
    """The same plan would be made again and again."""

    def forgetful(request, history):
        return plan_restore(request, replace(history, distrusted=()))

    monkeypatch.setattr(registry, "plan_restore", forgetful)
    fails("bad_copies")


def test_without_blindness_waiting_reports_look_like_vanished_ranks(monkeypatch):
    """A monitor that cannot store what it sees must not judge."""
    monkeypatch.setattr(sight, "RECORD_GRACE_MS", 0)
    fails("ends_wait_for_the_database")


def test_without_the_finished_mark_a_finished_run_has_an_incident(monkeypatch):
    """A host may die between a run's end and the controller's word."""
    monkeypatch.setattr(Watch, "finished_generation", property(lambda _: 0, lambda *_: None))
    fails("lost_before_the_last_word")


def test_without_a_look_at_strays_old_ranks_train_on(monkeypatch):
    """No fence has reached them, and nothing breaks them."""

    async def blind(*_):
        return None

    monkeypatch.setattr(Watcher, "saw_running", blind)
    fails("all_agents_of_a_job_away")
    fails("hosts_forget_a_job_whoever_tells_them")


def test_without_both_checks_a_wrong_step_costs_the_run(monkeypatch):
    """One looks before anything is ended, the other when the step has gone in between."""

    async def never(*_):
        return Looked()

    monkeypatch.setattr(Runner, "look_at_step", never)
    monkeypatch.setattr(controller, "NO_SUCH_STEP", frozenset())
    fails("restart_from_an_abandoned_step")
