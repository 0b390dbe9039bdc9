"""Orders that break a stack in more ways than killing, and what they are refused for."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import pytest

from everstep.core.errors import EverstepError, RefusedError
from everstep.local import hosts, launch
from everstep.local.state import StatePaths, load_stack

FAKE = (sys.executable, str(Path(__file__).with_name("fake_stack.py")))
PLAN = launch.Plan(hosts=2, spares=0, chips=2, pods=2)
CHAOS = launch.Plan(hosts=2, spares=0, chips=2, pods=2, chaos=True)


def until(condition, *, seconds=120.0):
    """Wait until the condition holds."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "the condition did not come true in time"
        time.sleep(0.005)


def bring_up(paths, plan):
    """Start, or grow, the fake stack."""
    return launch.up(paths, plan, lambda _: None, supervisor=FAKE)


def chaos(paths, **request):
    """Give an order of chaos."""
    return launch.order(paths, {"command": "chaos", **request})


def states(pids) -> set[str]:
    """What the kernel says of processes: T is stopped."""
    return {Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] for pid in pids}


@pytest.fixture
def paths(tmp_path):
    """A state directory that is cleaned up whatever happens."""
    paths = StatePaths(root=tmp_path / "s")
    yield paths
    launch.down(paths, wipe=True)


def test_stack_that_was_not_started_for_it_takes_no_faults(paths):
    """And stays what it is when it is asked for again with the mark."""
    bring_up(paths, PLAN)
    with pytest.raises(RefusedError, match="everstep up --chaos"):
        chaos(paths, what="heal")
    with pytest.raises(RefusedError, match="runs without --chaos"):
        bring_up(paths, CHAOS)
    assert load_stack(paths).hosts[0].relay is None


def test_stopped_host_stands_still_until_it_is_healed(paths):
    """Agent, fork server and ranks, and no other host's."""
    bring_up(paths, CHAOS)
    until(lambda: len(hosts.ranks(paths, "h1")) == 2)
    done = chaos(paths, what="signal", of="host", name="h1", signal="stop")
    assert len(done["pids"]) >= 4
    until(lambda: states(done["pids"]) == {"T"})
    others = [one.pid for one in hosts.members(paths, load_stack(paths), "h2")]
    assert "T" not in states(others)
    chaos(paths, what="heal")
    until(lambda: "T" not in states(done["pids"]))


def test_stopped_rank_is_named_with_its_host(paths):
    """Ground truth says whom it met."""
    bring_up(paths, CHAOS)
    until(lambda: len(hosts.ranks(paths, "h2")) == 2)
    done = chaos(paths, what="signal", of="rank", name="3", signal="stop")
    assert (done["name"], len(done["pids"])) == ("h2", 1)
    until(lambda: states(done["pids"]) == {"T"})
    chaos(paths, what="signal", of="rank", name="3", signal="continue")
    until(lambda: "T" not in states(done["pids"]))


def test_slow_host_is_stopped_now_and_then(paths):
    """It stands still for its share, and goes on when it is healed."""
    bring_up(paths, CHAOS)
    until(lambda: len(hosts.ranks(paths, "h1")) == 2)
    pids = [one.record.pid for one in hosts.ranks(paths, "h1")]
    chaos(paths, what="slow", host="h1", percent=400)
    until(lambda: states(pids) == {"T"})
    until(lambda: "T" not in states(pids))
    assert chaos(paths, what="heal")["slowed"] == ["h1"]
    until(lambda: "T" not in states(pids))


def test_lines_have_ports_of_their_own_and_take_rules(paths):
    """The same ports after a host was lost and came back."""
    bring_up(paths, CHAOS)
    before = load_stack(paths).host("h1").relay
    assert len({before.nats, before.s3, before.peers, before.peers_behind}) == 4
    done = chaos(paths, what="line", host="h1", line="nats", rule={"held": True})
    assert (done["host"], done["line"]) == ("h1", "nats")
    launch.order(paths, {"command": "kill", "what": "host", "name": "h1"})
    launch.order(paths, {"command": "start", "what": "host", "name": "h1"})
    assert load_stack(paths).host("h1").relay == before
    with pytest.raises(EverstepError, match="no rule of a line"):
        chaos(paths, what="line", host="h1", line="nats", rule={"held": "often"})
    with pytest.raises(EverstepError, match="no host h9"):
        chaos(paths, what="line", host="h9", line="nats", rule={})


def test_what_is_not_there_is_not_stopped(paths):
    """The refusal says what was asked for."""
    bring_up(paths, CHAOS)
    for of in ("host", "agent", "service", "rank", "pod"):
        with pytest.raises(RefusedError, match=r"x9|called a pod"):
            chaos(paths, what="signal", of=of, name="x9", signal="stop")
