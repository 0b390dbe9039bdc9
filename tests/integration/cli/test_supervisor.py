import os
import signal
import stat
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from everstep.core.errors import CorruptData, NotFoundError, RefusedError, Unavailable
from everstep.local import hosts, launch, processes
from everstep.local.state import StatePaths, load_stack
from everstep.local.state_lock import only_us

FAKE = (sys.executable, str(Path(__file__).with_name("fake_stack.py")))
PLAN = launch.Plan(hosts=2, spares=1, chips=2, pods=2)
SERVER_NAMES = {"postgres", "nats", "s3"}
SERVICE_NAMES = {"controller", "monitor", "checkpoint_registry", "host_inventory"}


def bring_up(paths, plan=PLAN):
    """Start, or grow, the fake stack."""
    return launch.up(paths, plan, lambda _: None, supervisor=FAKE)


def wait_for(condition, *, seconds=120.0):
    """Wait until the condition holds."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "the condition did not come true in time"
        time.sleep(0.01)


def unit_of(paths, name):
    """Return what the supervisor says of a unit."""
    units = launch.order(paths, {"command": "status"})["units"]
    return next(unit for unit in units if unit["name"] == name)


def living(paths):
    """Return every process that carries the stack's mark."""
    stack = load_stack(paths)
    return processes.marked(stack.stack_id) if stack is not None else []


def kill(paths, what, name, **more):
    """Order a kill."""
    return launch.order(paths, {"command": "kill", "what": what, "name": name, **more})


@pytest.fixture
def paths(tmp_path):
    """A state directory that is cleaned up whatever happens."""
    paths = StatePaths(root=tmp_path / "state")
    yield paths
    launch.down(paths, wipe=True)


def test_up_starts_everything_in_a_private_directory(paths):
    """Servers, services and agents run, and nobody else can read the credentials."""
    result = bring_up(paths)
    assert not result.was_up
    status = launch.order(paths, {"command": "status"})
    assert status["phase"] == "running"
    assert {unit["state"] for unit in status["units"]} == {"ready"}
    assert {u["name"] for u in status["units"]} == SERVER_NAMES | SERVICE_NAMES | {"h1", "h2", "h3"}
    assert stat.S_IMODE(paths.root.stat().st_mode) == 0o700
    assert stat.S_IMODE(paths.stack_file.stat().st_mode) == 0o600
    assert stat.S_IMODE(paths.socket.stat().st_mode) == 0o600
    table = {record.name for record in load_stack(paths).processes}
    assert table == SERVER_NAMES | SERVICE_NAMES | {"h1", "h2", "h3"}


def test_up_again_changes_nothing_and_more_hosts_are_added(paths):
    """Idempotent, and reconciled upwards only."""
    bring_up(paths)
    before = {u["name"]: u["pid"] for u in launch.order(paths, {"command": "status"})["units"]}
    again = bring_up(paths)
    assert (again.was_up, again.added) == (True, ())
    fewer = bring_up(paths, launch.Plan(hosts=1, spares=0))
    assert (fewer.was_up, fewer.added) == (True, ())
    more = bring_up(paths, launch.Plan(hosts=3, spares=1))
    assert more.added == ("h4",)
    after = {u["name"]: u["pid"] for u in launch.order(paths, {"command": "status"})["units"]}
    assert after == {**before, "h4": after["h4"]}


def test_down_leaves_no_process_and_no_memory_but_keeps_data(paths):
    """Fork servers and ranks outlive agents, but not the stack."""
    stack = bring_up(paths).stack
    assert len(living(paths)) == 3 * 2 + 4 + 3 * 4
    assert launch.down(paths, wipe=False)
    assert living(paths) == []
    assert not Path(stack.memory_root).exists()
    assert paths.stack_file.exists()
    assert not launch.down(paths, wipe=False)
    with pytest.raises(NotFoundError, match=r"no stack runs in .*: `everstep up` starts one"):
        launch.order(paths, {"command": "status"})


def test_down_with_wipe_removes_the_directory(paths):
    """Nothing is left to trip over."""
    bring_up(paths)
    for left in ("chaos", "compare"):  # by a campaign
        (paths.root / left / "job-1").mkdir(parents=True)
    launch.down(paths, wipe=True)
    assert not paths.root.exists()


def test_supervisor_that_is_terminated_leaves_no_orphans(paths):
    """SIGTERM is an orderly end, whoever sends it."""
    supervisor = bring_up(paths).stack.supervisor
    os.kill(supervisor.pid, signal.SIGTERM)
    wait_for(lambda: not processes.is_alive(supervisor))
    assert living(paths) == []


def test_supervisor_that_is_killed_is_cleaned_up_by_the_next_up(paths):
    """Everything is found by pid and start time, ended, and started afresh under the same id."""
    first = bring_up(paths).stack
    old = {record.pid for record in living(paths)}
    os.kill(first.supervisor.pid, signal.SIGKILL)
    wait_for(lambda: not processes.is_alive(first.supervisor))
    assert {record.pid for record in living(paths)} == old
    second = bring_up(paths)
    assert not second.was_up
    assert second.stack.stack_id == first.stack_id
    assert second.stack.credentials == first.credentials
    assert not old & {record.pid for record in living(paths)}


def test_supervisor_that_is_killed_is_cleaned_up_by_down(paths):
    """The same without starting again."""
    stack = bring_up(paths).stack
    os.kill(stack.supervisor.pid, signal.SIGKILL)
    wait_for(lambda: not processes.is_alive(stack.supervisor))
    assert launch.down(paths, wipe=False)
    assert living(paths) == []
    assert not Path(stack.memory_root).exists()


def test_stack_of_another_version_is_told_to_stop_by_its_own_supervisor(paths):
    """Whoever upgrades with a stack up is not stuck with it."""
    stack = bring_up(paths).stack
    paths.stack_file.write_text('{"version": 99}')
    with pytest.raises(CorruptData, match="everstep down --wipe"):
        launch.require_stack(paths)
    assert launch.down(paths, wipe=True)
    assert processes.marked(stack.stack_id) == []
    assert not paths.root.exists()


def test_cleaning_up_spares_a_process_that_got_a_dead_ones_pid(paths):
    """A pid in the table with another start time is somebody else's."""
    bring_up(paths)
    stack = load_stack(paths)
    mine = processes.record_of("me", os.getpid())
    for forged in (
        replace(mine, start_ticks=mine.start_ticks - 1),
        replace(mine, boot_id="of-another-boot"),
    ):
        assert not processes.is_alive(forged)
        assert processes.kill_all([forged]) == []
    assert processes.is_alive(mine)
    assert stack is not None


def test_service_that_is_killed_is_started_again_at_once(paths):
    """A new process under the same name, and training was never asked."""
    bring_up(paths)
    before = unit_of(paths, "controller")
    kill(paths, "service", "controller", down=False)
    wait_for(lambda: unit_of(paths, "controller")["state"] == "ready")
    after = unit_of(paths, "controller")
    assert after["pid"] != before["pid"]
    assert (after["restarts"], after["last_end"]) == (1, "killed by SIGKILL")


def test_service_killed_with_down_stays_down_until_started(paths):
    """The way to try a longer outage."""
    bring_up(paths)
    kill(paths, "service", "host-inventory", down=True)
    assert unit_of(paths, "host_inventory")["state"] == "stopped"
    launch.order(paths, {"command": "start", "what": "service", "name": "host-inventory"})
    assert unit_of(paths, "host_inventory")["state"] == "ready"


def test_server_that_is_killed_takes_its_children_along(paths):
    """PostgreSQL's children would keep its memory busy for the next start."""
    bring_up(paths)
    children = processes.descendants(
        next(r for r in load_stack(paths).processes if r.name == "postgres")
    )
    assert len(children) == 1
    kill(paths, "service", "postgres", down=False)
    assert processes.wait_gone(children, timeout_s=60) == []
    wait_for(lambda: unit_of(paths, "postgres")["state"] == "ready")


def test_host_that_is_killed_is_gone_altogether_and_stays_down(paths):
    """Agent, fork server, ranks and memory, all at once; the other hosts go on."""
    stack = bring_up(paths).stack
    whole = hosts.members(paths, stack, "h2")
    assert len(whole) == 4
    others = {r.pid for r in hosts.members(paths, stack, "h1")}
    memory = hosts.memory_dir(stack, "h2")
    assert memory.exists()
    kill(paths, "host", "h2")
    assert not any(processes.is_alive(record) for record in whole)
    assert not memory.exists()
    assert {r.pid for r in hosts.members(paths, stack, "h1")} == others
    assert unit_of(paths, "h2")["state"] == "stopped"
    assert load_stack(paths).host("h2").down


def test_host_that_was_killed_comes_back_empty(paths):
    """As a repaired machine: a new agent, no memory of before."""
    stack = bring_up(paths).stack
    old = {record.pid for record in hosts.members(paths, stack, "h2")}
    kill(paths, "host", "h2")
    (paths.run_dir("h2") / "ranks").unlink()
    for path in paths.run_dir("h2").glob("rank-*"):
        path.unlink()
    launch.order(paths, {"command": "start", "what": "host", "name": "h2"})
    new = {record.pid for record in hosts.members(paths, stack, "h2")}
    assert len(new) == 4
    assert not old & new
    assert not load_stack(paths).host("h2").down


def test_hosts_that_were_killed_come_back_together(paths):
    """One order for all of them; one that nobody knows is refused before any is started."""
    bring_up(paths)
    for name in ("h1", "h2"):
        kill(paths, "host", name)
    order = {"command": "start", "what": "hosts"}
    with pytest.raises(RefusedError, match="no host h77 here"):
        launch.order(paths, {**order, "names": ["h1", "h77"]})
    assert unit_of(paths, "h1")["state"] == "stopped"
    launch.order(paths, {**order, "names": ["h1", "h2"]})
    assert {unit_of(paths, name)["state"] for name in ("h1", "h2")} == {"ready"}
    assert not any(host.down for host in load_stack(paths).hosts)


def test_new_host_joins_by_name(paths):
    """`everstep start host h9` adds a machine."""
    bring_up(paths)
    launch.order(paths, {"command": "start", "what": "host", "name": "h9"})
    assert unit_of(paths, "h9")["state"] == "ready"
    assert load_stack(paths).host("h9").chips == PLAN.chips


def test_agent_that_is_killed_alone_leaves_its_ranks_running(paths):
    """A new agent finds the fork server and the ranks that its predecessor left."""
    stack = bring_up(paths).stack
    agent, *rest = hosts.members(paths, stack, "h1")
    kill(paths, "agent", "h1")
    assert not processes.is_alive(agent)
    assert all(processes.is_alive(record) for record in rest)
    wait_for(lambda: unit_of(paths, "h1")["state"] == "ready")
    wait_for(lambda: hosts.read_agent(paths, "h1") is not None)
    assert hosts.read_agent(paths, "h1").pid != agent.pid


def test_rank_that_is_killed_is_the_one_that_was_named(paths):
    """Ranks are told apart by the memory they have mapped."""
    bring_up(paths)
    before = {r.rank: r.record for r in hosts.ranks(paths, "h2")}
    assert sorted(before) == [2, 3]
    done = launch.order(paths, {"command": "kill", "what": "rank", "rank": 3, "job": ""})
    assert (done["host"], done["job"], done["pid"]) == ("h2", "job-1", before[3].pid)
    assert processes.wait_gone([before[3]], timeout_s=60) == []
    assert processes.is_alive(before[2])


def test_order_that_makes_no_sense_is_refused_with_what_there_is(paths):
    """A typing error must not look like an outage."""
    bring_up(paths)
    for order, told in (
        ({"command": "kill", "what": "host", "name": "h77"}, "no host h77 here; there are: h1, h2"),
        ({"command": "kill", "what": "rank", "rank": 99, "job": ""}, "rank 99 of any job does not"),
        (
            {"command": "kill", "what": "service", "name": "bank", "down": False},
            "no service bank here; there are: postgres, nats, s3, host-inventory, checkpoint-regi",
        ),
        ({"command": "start", "what": "host", "name": "monitor"}, "monitor is a part of the stack"),
        ({"command": "dance"}, "does not understand"),
    ):
        with pytest.raises(RefusedError, match=told):
            launch.order(paths, order)


def test_part_that_does_not_start_fails_the_up_with_its_log_and_leaves_nothing(paths):
    """One sentence says what broke and where to look."""
    paths.create()
    (paths.root / "break-monitor").touch()
    told = r"monitor does not start \(exit code 1: it cannot work like this\); its log is"
    with pytest.raises(Unavailable, match=told):
        bring_up(paths)
    assert living(paths) == []
    assert "it cannot work like this" in paths.log("monitor").read_text()


def test_supervisor_that_dies_at_once_is_told_with_its_log(paths):
    """Nobody waits three minutes for a process that is gone."""
    broken = (sys.executable, "-c", "raise SystemExit('no way')")
    with pytest.raises(Unavailable, match=r"the supervisor has ended; its log is .*supervisor.log"):
        launch.up(paths, PLAN, lambda _: None, supervisor=broken)
    assert "no way" in paths.log("supervisor").read_text()


def test_second_up_at_the_same_time_is_told_to_wait(paths):
    """Two starts of one stack would fight over its ports."""
    paths.create()
    with (
        only_us(paths, "down"),
        pytest.raises(Unavailable, match=r"`everstep down` is at work on .*: wait"),
    ):
        bring_up(paths)
