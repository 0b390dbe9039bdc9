import pytest
from tests.unit.planner.histories import failure, history, lost

from everstep.core.errors import InvalidInput
from everstep.planner.history import Arrival, IdleLoss, Spell
from everstep.planner.replay import replay, settle_ms
from everstep.planner.replay_policy import Policy


def causes(record, **policy):
    """The causes that took any time, in seconds."""
    replayed = replay(record, Policy(**policy))
    assert sum(replayed.causes.values()) == record.wall_ms
    assert sum(replayed.block_walls_ms) == record.wall_ms
    assert sum(replayed.block_useful_ms) == pytest.approx(replayed.useful_ms, abs=1)
    return {cause: ms / 1e3 for cause, ms in replayed.causes.items() if ms}


ONE = history(failure(38_500, lost("a")))  # after 30 saves and half a second


def test_undisturbed_run_trains_and_saves():
    """95 s are 86 saves, each after a second of work, and 0.4 s more."""
    assert causes(history()) == {"startup": 5.0, "useful": 86.4, "checkpoint_stall": 8.6}


def test_failure_costs_detection_restart_and_what_was_not_saved():
    """30 saves before it, 46 after it."""
    assert causes(ONE) == {
        "startup": 5.0, "useful": 76.9, "checkpoint_stall": 7.6, "lost_work": 0.5,
        "detection": 2.0, "restart": 8.0,
    }  # fmt: skip


def test_shorter_restart_is_training():
    """Five seconds more, with their saves."""
    assert causes(ONE, restart_ms=3_000) == {
        "startup": 5.0, "useful": 81.4, "checkpoint_stall": 8.1, "lost_work": 0.5,
        "detection": 2.0, "restart": 3.0,
    }  # fmt: skip


def test_detection_is_that_of_the_policy():
    """The failure comes when it did, the verdict later."""
    assert causes(ONE, detection_ms=12_000) == {
        "startup": 5.0, "useful": 67.8, "checkpoint_stall": 6.7, "lost_work": 0.5,
        "detection": 12.0, "restart": 8.0,
    }  # fmt: skip


def test_longer_interval_loses_more_and_stalls_less():
    """Six saves of 5.1 s are kept of the first 33.5 s, ten of the last 51.5 s."""
    assert causes(ONE, interval_ms=5_000) == {
        "startup": 5.0, "useful": 80.5, "checkpoint_stall": 1.6, "lost_work": 2.9,
        "detection": 2.0, "restart": 8.0,
    }  # fmt: skip


def test_checkpoint_in_the_object_store_bounds_what_a_rare_save_loses():
    """Every 8 s of work, complete a second later: of 33.5 s of training 32 are kept, not 0."""
    record = history(
        failure(38_500, lost("a")), stall_ms=0, stored_every_ms=8_000, stored_after_ms=1_000
    )
    assert causes(record, interval_ms=60_000)["lost_work"] == 1.5
    late = history(
        failure(38_500, lost("a")), stall_ms=0, stored_every_ms=8_000, stored_after_ms=2_000
    )
    assert causes(late, interval_ms=60_000)["lost_work"] == 9.5


def test_checkpoints_keep_their_distance_over_restarts():
    """19 s of work are done before a pause; the next checkpoint is at 24 s, 5 s after it."""
    rest = failure(24_000, kind="pause", detection_ms=0, lost_work_ms=0, restart_ms=10_000)
    record = history(rest, failure(45_000), stall_ms=0, stored_every_ms=8_000, interval_ms=60_000)
    assert causes(record)["lost_work"] == 6.0


def test_no_spare_left_waits_for_the_repair():
    """From the verdict at 40.5 s until the host is back at 58.5 s."""
    record = history(failure(38_500, lost("a", 20_000)))
    assert causes(record, spares=0) == {
        "startup": 5.0, "useful": 60.5, "checkpoint_stall": 6.0, "lost_work": 0.5,
        "detection": 2.0, "restart": 8.0, "waiting_for_hosts": 18.0,
    }  # fmt: skip
    assert causes(record, spares=0, repair_ms=10_000)["waiting_for_hosts"] == 8.0
    halves = history(failure(38_500, lost("a", 20_000)), replicas=2)
    assert causes(halves, spares=0) == causes(record, spares=0)
    never = causes(ONE, spares=0)
    assert never["waiting_for_hosts"] == 59.5


def test_elastic_goes_on_with_fewer_replicas_and_grows_again():
    """Ten seconds at half the speed, half of which is missing hosts; two restarts."""
    record = history(failure(38_500, lost("a", 20_000)), replicas=2)
    assert causes(record, spares=0, no_spare="elastic") == {
        "startup": 5.0, "useful": 65.1, "checkpoint_stall": 6.4, "lost_work": 0.5,
        "detection": 2.0, "restart": 16.0, "degraded": 5.0,
    }  # fmt: skip


def test_elastic_takes_a_host_that_is_back_with_the_verdict_at_once():
    """There is nothing to shrink for."""
    record = history(failure(38_500, lost("a", 2_000)), replicas=2)
    assert replay(record, Policy(spares=0, no_spare="elastic")).stops == 1


def test_host_that_serves_keeps_its_seat():
    """A dead rank is started again where it was, though a spare's name comes first."""
    record = history(failure(38_500), failure(60_000, lost("b")), spares=("0",))
    assert replay(record).stops == 2


def test_elastic_without_a_whole_replica_waits():
    """Both hosts make one replica: there is nothing to go on with."""
    record = history(failure(38_500, lost("a", 20_000)))
    assert causes(record, spares=0, no_spare="elastic") == causes(record, spares=0)


def test_failure_in_a_restart_begins_it_anew():
    """Four seconds of the first restart are in vain."""
    record = history(failure(38_500), failure(44_500))
    assert causes(record) == {
        "startup": 5.0, "useful": 71.4, "checkpoint_stall": 7.1, "lost_work": 0.5,
        "detection": 4.0, "restart": 12.0,
    }  # fmt: skip
    assert causes(record, restart_ms=2_000) == {
        "startup": 5.0, "useful": 77.9, "checkpoint_stall": 7.7, "lost_work": 1.4,
        "detection": 4.0, "restart": 4.0,
    }  # fmt: skip


def test_two_failures_before_a_verdict_have_one_verdict():
    """The second host is missed together with the first."""
    record = history(failure(38_500, lost("a")), failure(39_500, lost("b")), spares=("s", "t"))
    assert causes(record) == causes(history(failure(38_500, lost("a"))))


def test_failure_of_a_host_that_is_out_is_void():
    """It is back when the first repair is over, 48 s after the verdict."""
    record = history(failure(38_500, lost("a", 50_000)), failure(60_000, lost("a", 5_000)))
    assert causes(record, spares=0)["waiting_for_hosts"] == 48.0


def test_failure_of_a_host_that_has_been_replaced_stops_nothing():
    """It is back since 43.5 s, and stands by."""
    record = history(failure(38_500, lost("a", 5_000)), failure(60_000, lost("a", 5_000)))
    assert replay(record).stops == 1
    assert causes(record) == causes(ONE)


def test_host_that_stood_by_in_the_record_stops_the_run_that_it_serves_in():
    """One spare fewer, and the one that is left is another host than in the record."""
    record = history(
        failure(20_000, lost("a"), replacements=("t",)),
        spares=("s", "t"),
        idle_losses=(IdleLoss(at_ms=60_000, host=lost("s", 5_000)),),
    )
    assert replay(record).stops == 1
    assert replay(record, Policy(spares=1)).stops == 2
    assert causes(record, spares=1)["waiting_for_hosts"] == 3.0


def test_host_that_arrives_ends_a_wait():
    """It was new to the fleet."""
    record = history(
        failure(38_500, lost("a")), spares=(), arrivals=(Arrival(at_ms=50_000, host_id="n"),)
    )
    assert causes(record)["waiting_for_hosts"] == 9.5


def test_spares_that_the_record_never_had_break_as_its_hosts_do():
    """The new one takes over from a, and breaks as a did, at another time."""
    record = history(failure(10_000, lost("a", 5_000)), spares=())
    assert replay(record, Policy(spares=1)).stops == 2


def test_rank_that_dies_while_the_job_waits_or_rests_stops_nothing():
    """There is no process."""
    waiting = history(failure(38_500, lost("a", 20_000)), failure(50_000), spares=())
    assert causes(waiting) == causes(history(failure(38_500, lost("a", 20_000)), spares=()))


def test_pause_is_a_pause_under_every_policy():
    """Its time is the person's; nothing is lost, and the restart is the policy's."""
    rest = failure(
        38_500, kind="pause", detection_ms=0, lost_work_ms=0, paused_ms=10_000, restart_ms=6_000
    )
    assert causes(history(rest), restart_ms=1_000, detection_ms=9_000) == {
        "startup": 5.0, "useful": 30.5 + 46.0, "checkpoint_stall": 7.5, "paused": 10.0,
        "restart": 1.0,
    }  # fmt: skip


def test_restart_from_an_older_step_loses_what_a_person_gave_up():
    """Also of the stretch before the last one."""
    back = failure(60_000, kind="restart", detection_ms=0, lost_work_ms=20_000, restart_ms=8_000)
    assert causes(history(failure(38_500), back))["lost_work"] == 20.5


def test_failure_that_fell_back_behind_memory_loses_what_it_did():
    """Both copies were gone: the interval has no say in it."""
    deep = failure(38_500, lost("a"), lost_work_ms=30_000)
    for interval_ms in (1_000, 2_000):
        assert causes(history(deep), interval_ms=interval_ms)["lost_work"] == 30.0


def test_slow_spell_is_cut_by_one_restart_on_a_spare():
    """Found after twenty steps of 0.2 s; the rest of it is trained at full pace."""
    record = history(spells=(Spell(begin_ms=20_000, end_ms=80_000, factor=2.0),))
    assert causes(record)["straggler"] == 30.0
    cut = {"straggler_share": 0.05, "restart_ms": 5_000}
    assert causes(record, **cut) == {
        "startup": 5.0, "useful": 80.1, "checkpoint_stall": 7.9, "straggler": 2.0, "restart": 5.0,
    }  # fmt: skip
    assert causes(record, **cut, spares=0)["straggler"] == 30.0
    assert causes(record, **(cut | {"straggler_share": 1.5}))["straggler"] == 30.0


def test_slow_spell_is_not_known_before_its_window():
    """A restart for another reason, a second before, cuts nothing: that second is slow."""
    record = history(
        failure(20_500, detection_ms=0, restart_ms=2_500),
        spells=(Spell(begin_ms=20_000, end_ms=80_000, factor=2.0),),
    )
    assert causes(record, straggler_share=0.05)["straggler"] == 0.5


def test_spell_that_is_cut_needs_no_restart_at_its_end():
    """The person who restarted then would have had no reason to."""
    record = history(
        failure(80_500, kind="restart", detection_ms=0, lost_work_ms=0),
        spells=(Spell(begin_ms=20_000, end_ms=80_000, factor=2.0),),
    )
    assert replay(record).stops == 1
    assert replay(record, Policy(straggler_share=0.5, restart_ms=5_000)).stops == 1
    assert causes(record, straggler_share=0.5, restart_ms=5_000)["restart"] == 5.0


def test_waits_for_data_and_the_end_of_the_run_stay_what_they_were():
    """A tenth of the steps' time, and two seconds after the last step."""
    measured = {"useful": 81_000, "data_wait": 9_000, "checkpoint_stall": 10_000}
    got = causes(history(measured=measured, finish_ms=2_000))
    assert got["data_wait"] == pytest.approx(got["useful"] / 9, abs=0.001)
    undisturbed = causes(history(wall_ms=98_000, measured={"useful": 98_000}))
    assert got["checkpoint_stall"] == undisturbed["checkpoint_stall"] + 2.0


def test_run_that_comes_up_after_its_last_step_finishes():
    """Four seconds are left, and the end takes five."""
    got = causes(history(failure(86_000), finish_ms=5_000))
    assert got["useful"] == causes(history(failure(86_000), wall_ms=96_000))["useful"]


def test_save_settles_after_the_age_that_most_failures_allow():
    """Lost 1.5 s and 1.3 s of saves 1.1 s apart: the save that was 0.4 s old was of no use."""
    record = history(
        failure(20_000, lost("a"), lost_work_ms=1_500),
        failure(40_000, lost("b"), lost_work_ms=1_300),
        failure(60_000, lost_work_ms=900),
    )
    assert settle_ms(record, host=True) == 401
    assert settle_ms(record, host=False) == 0
    late = history(failure(38_800, lost("a"), lost_work_ms=1_500))
    assert causes(late)["lost_work"] == 0.8
    later = history(failure(38_700, lost("a"), lost_work_ms=1_800))
    assert settle_ms(later, host=True) == 701
    assert causes(later)["lost_work"] == 1.8


def test_policy_that_makes_no_sense_is_refused():
    """With what to give instead."""
    with pytest.raises(InvalidInput, match="interval of 0"):
        replay(ONE, Policy(interval_ms=0))
    with pytest.raises(InvalidInput, match="give --restart"):
        replay(history(), Policy(straggler_share=0.1))
