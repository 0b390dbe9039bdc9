from everstep.fleet.cadence import Cadence
from everstep.fleet.ledger import Ledger
from everstep.monitor.ledger import Cause

CADENCE = Cadence(step_ms=1_000, object_every=10, object_stall_ms=500)


def _charged(ledger):
    return {cause: ms for cause, ms in ledger.causes.items() if ms}


def test_training_that_stops_within_a_step_loses_what_was_begun():
    """Steps and stalls are kept, the rest is lost."""
    ledger = Ledger(CADENCE)
    ledger.until(2_000, Cause.STARTUP)
    assert ledger.trained(2_000 + 12_900, first=0, trained_ms=12_900) == 12
    assert _charged(ledger) == {
        "startup": 2_000, "useful": 12_000, "checkpoint_stall": 500, "lost_work": 400,
    }  # fmt: skip


def test_steps_beyond_the_restored_one_become_lost_work():
    """Over several generations, their stalls too, and nothing else moves."""
    ledger = Ledger(CADENCE)
    ledger.trained(10_500, first=0, trained_ms=10_500)
    ledger.resumed(10)
    ledger.trained(20_500, first=10, trained_ms=10_000)
    ledger.resumed(5)
    assert ledger.lost_steps == 14
    assert _charged(ledger) == {"useful": 5_000, "lost_work": 15_500}
    assert sum(ledger.causes.values()) == ledger.at_ms == 20_500


def test_slow_hosts_time_is_their_own_and_is_lost_with_the_steps():
    """Twice as slow: half of the time is the stragglers'."""
    ledger = Ledger(CADENCE)
    ledger.trained(16_000, first=0, trained_ms=8_000)
    assert _charged(ledger) == {"useful": 8_000, "straggler": 8_000}
    ledger.resumed(4)
    assert _charged(ledger) == {"useful": 4_000, "straggler": 4_000, "lost_work": 8_000}
