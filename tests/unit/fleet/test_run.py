import pytest

from everstep.core.placement import HostPlacement, Layout, Placement
from everstep.fleet.cadence import Cadence
from everstep.fleet.copies import Copies
from everstep.fleet.ledger import Ledger
from everstep.fleet.run import Run, State
from everstep.monitor.ledger import Cause

CADENCE = Cadence(step_ms=1_000, object_every=10)
PLACEMENT = Placement(layout=Layout(dp_shard=1), hosts=(HostPlacement(host_id="a", ranks=(0,)),))


def _run():
    copies, ledger = Copies(CADENCE, 3), Ledger(CADENCE)
    return Run(CADENCE, copies, ledger), copies, ledger


def test_run_lays_every_second_under_what_it_does():
    """Startup, training, detection, restart, training again from the checkpoint."""
    run, copies, ledger = _run()
    run.comes_up(500, 1, PLACEMENT, -1)
    run.trains(2_000, 1.0)
    run.stands_still(14_500, Cause.DETECTION)
    assert [stored.step for stored in copies.stored] == [10]
    run.switch(15_000, Cause.RESTART)
    run.comes_up(16_000, 2, PLACEMENT, 10)
    run.trains(18_000, 1.0)
    assert run.step(20_500) == 12
    run.stands_still(20_500, Cause.RESTART)
    assert {cause: ms for cause, ms in ledger.causes.items() if ms} == {
        "startup": 2_000, "useful": 12_000, "lost_work": 3_000, "detection": 500, "restart": 3_000,
    }  # fmt: skip


def test_second_generation_while_one_runs_is_a_broken_invariant():
    """At most one generation of ranks makes steps."""
    run, _, _ = _run()
    run.comes_up(0, 1, PLACEMENT, -1)
    run.trains(10, 1.0)
    with pytest.raises(AssertionError, match="generation 2 starts while generation 1 is training"):
        run.comes_up(20, 2, PLACEMENT, 0)


def test_slow_host_stretches_steps_from_when_it_is_slow():
    """Ten seconds at half the pace are five steps."""
    run, _, _ = _run()
    run.comes_up(0, 1, PLACEMENT, -1)
    run.trains(0, 1.0)
    run.paced(10_000, 2.0)
    assert run.step(20_000) == 15
    run.paced(20_000, 1.0)
    assert run.step(25_000) == 20
    assert run.state is State.TRAINING
