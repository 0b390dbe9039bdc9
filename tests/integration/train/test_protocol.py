"""What a rank does when its agent asks, goes away, or cannot help; and how it ends."""

import pytest
from tests.integration.train.harness import JOB

from everstep.memory.compare import compare
from everstep.memory.layout import write_fence
from everstep.memory.reader import verify_slot
from everstep.memory.slot import read_preamble

pytestmark = pytest.mark.torch


def snapshot_steps(world) -> list[int]:
    """Return the steps at which rank 0 took a memory snapshot."""
    return [one["step"] for one in world.ranks[0].steps if one["snapshot_slot"] >= 0]


def durable_steps(world) -> list[int]:
    """Return the steps at which rank 0 took a durable snapshot."""
    return [one["step"] for one in world.ranks[0].steps if one["durable"]]


def test_finished_run_tells_every_step_and_leaves_a_durable_state(make_world, make_spec):
    """Reports are complete and the same on every rank; the last state is whole on disk."""
    spec = make_spec({"dp_shard": 2}, steps=5)
    spec["checkpoint"] = {"memory_every_steps": 2, "object_every_steps": 3}
    world = make_world("run", spec)
    world.start()
    world.finish()
    for rank in world.ranks:
        assert [one["step"] for one in rank.steps] == [1, 2, 3, 4, 5]
        assert [one["first"] for one in rank.steps] == [True, False, False, False, False]
        assert all(one["health"] == "ok" for one in rank.steps)
        assert all(one["tokens"] == 16 * 32 for one in rank.steps)
        assert all(one["step_time_ms"] >= one["blocked_ms"] > 0 for one in rank.steps)
        assert rank.words == {"kind": "finished", "exit_class": "FINISHED", "step": 5}
        assert rank.ready == {
            "kind": "ready",
            "restored_step": 0,
            "source_kind": "fresh",
            "problems": [],
        }
        assert verify_slot(world.durable()[rank.rank]).step == 5
    same = ("loss", "grad_norm", "snapshot_slot", "durable")
    told = [[[one[key] for key in same] for one in rank.steps] for rank in world.ranks]
    assert told[0] == told[1]
    assert snapshot_steps(world) == [2, 4, 5]
    assert durable_steps(world) == [3, 5]


def test_unreplicated_snapshot_is_never_overwritten(make_world, make_spec):
    """While one peer lags, all ranks keep both slots as they are; then they go on together."""
    world = make_world("lag", make_spec({"dp_shard": 2}, steps=400))
    world.replicate = False
    world.start()
    world.until_step(4)
    assert snapshot_steps(world) == [1]
    control = world.control(0)
    control.replicated_step = 1
    control.close()
    world.until_step(8)
    assert snapshot_steps(world) == [1]
    control = world.control(1)
    control.replicated_step = 1
    control.close()
    last = world.ranks[0].step
    world.until_step(last + 4)
    assert len(snapshot_steps(world)) == 2
    assert snapshot_steps(world)[1] >= last
    assert world.held_steps(0) == world.held_steps(1) == set(snapshot_steps(world))


def test_save_request_of_one_agent_makes_every_rank_save_at_the_same_step(make_world, make_spec):
    """Saving is agreed in the step's collective, and waits while an upload is under way."""
    world = make_world("save", make_spec({"dp_shard": 2}, steps=400))
    world.upload = False
    world.start()
    world.until_step(2)
    world.ask("save", [1])
    world.until(lambda: durable_steps(world))
    world.ask("save", [0])
    world.until_step(world.ranks[0].step + 3)
    assert len(durable_steps(world)) == 1
    for rank in range(2):
        control = world.control(rank)
        control.durable_busy = False
        control.close()
    world.until(lambda: len(durable_steps(world)) == 2)
    world.until_step(durable_steps(world)[1])
    for rank in range(2):
        assert verify_slot(world.durable()[rank]).step == durable_steps(world)[1]
    both = [[one["step"] for one in rank.steps if one["durable"]] for rank in world.ranks]
    assert both[0] == both[1]


EXITS = """
import sys

from everstep.models import pretrain

def main(run):
    sys.exit(pretrain.main(run))
"""


@pytest.mark.parametrize("entry", ["everstep.models.pretrain:main", "user_code:main"])
def test_stop_request_of_one_agent_ends_every_rank_at_the_same_step(make_world, make_spec, entry):
    """All agree on the last step, keep its state, and say STOPPED; it resumes bit-equal."""
    steps = 20  # far enough away for a request to come before the end
    spec = make_spec({"dp_shard": 2}, steps=steps, args={"dropout": 0.1}, entry=entry)
    worlds = [make_world(name, spec) for name in ("reference", "stop")]
    for world in worlds:
        (world.directory / "user_code.py").write_text(EXITS)
    reference, world = worlds
    reference.start()
    reference.finish()
    world.start()
    world.until_step(2)
    world.ask("stop", [1])
    world.until_ended()
    (step,) = {rank.words["step"] for rank in world.ranks}
    assert 2 <= step < steps
    assert [rank.words["exit_class"] for rank in world.ranks] == ["STOPPED", "STOPPED"]
    assert [rank.exit_code for rank in world.ranks] == [40, 40]
    assert [verify_slot(path).step for path in world.durable()] == [step, step]
    assert world.newest_common_step() == step
    world.start(1, step=step)
    world.finish()
    assert compare(reference.durable(), world.durable()).equal


def test_agent_that_dies_and_comes_back_is_told_what_it_missed(make_world, make_spec):
    """Training does not notice; the new agent gets a hello and every report since."""
    world = make_world("away", make_spec({"dp_shard": 2}, steps=400))
    world.start()
    world.until_step(2)
    before = world.ranks[0].step
    world.go_away()
    held = world.held_steps(0)
    # Nobody listens now: the ranks' own slots are the only witness that they still step.
    world.until(lambda: world.held_steps(0) != held or read_preamble(world.durable()[0]) is None)
    world.listen()
    world.until_step(before + 5)
    steps = [one["step"] for one in world.ranks[0].steps]
    assert steps == sorted(set(steps))
    assert steps[-1] - steps[0] < len(steps) + 3  # what was on its way when it died may be lost
    world.ask("stop")
    world.until_ended()
    assert {rank.words["exit_class"] for rank in world.ranks} == {"STOPPED"}


def test_restore_that_failed_ends_the_rank_with_the_problems(make_world, make_spec):
    """When no source of the plan could be used, the rank says which and why."""
    world = make_world("failed", make_spec({}, steps=5))
    world.start()
    world._answers[0] = {"kind": "restore_failed", "problems": ["h2: absent", "s3: bad checksum"]}
    world.until_ended()
    assert world.ranks[0].words["exit_class"] == "RESTORE_FAILED"
    assert "h2: absent; s3: bad checksum" in world.ranks[0].words["error"]


def test_rank_of_a_fenced_generation_writes_nothing(make_world, make_spec):
    """A start that comes after the fence ends before it touches a slot."""
    world = make_world("fenced", make_spec({}, steps=5))
    write_fence(world.memory_dir, JOB, 2)
    world.start(1)
    world.until_ended()
    assert world.ranks[0].words["exit_class"] == "RESTORE_FAILED"
    assert "generation 1, but this host is fenced at 2" in world.ranks[0].words["error"]
    assert world.held_steps(0) == set()
    world.start(2)
    world.finish()


USER_CODE = """
import sys
def raises(run):
    run.track()
    raise ValueError("the user's own mistake")
def leaves(run):
    sys.exit("gave up")
def keeps_too_much(run):
    import torch
    run.track(big=torch.zeros(1).expand(10**12))
def forgets(run):
    import torch
    weight = torch.nn.Parameter(torch.ones(3))
    run.track(weight=weight)
    weight.sum().backward()
    run.step(torch.optim.SGD([weight], lr=0.1))
not_a_function = 3
"""


@pytest.mark.parametrize(
    ("entry", "exit_class", "code", "words"),
    [
        ("user_code:raises", "USER_ERROR", 41, "ValueError: the user's own mistake"),
        ("user_code:leaves", "USER_ERROR", 41, "gave up"),
        (
            "user_code:keeps_too_much",
            "HOST_TOO_SMALL",
            45,
            "1 ranks here need 12,000.0 GB of memory",
        ),
        ("user_code:forgets", "USER_ERROR", 41, "run.track(optimizer=...)"),
        ("user_code:missing", "BAD_ENTRY_POINT", 43, "user_code has no function missing"),
        ("user_code:not_a_function", "BAD_ENTRY_POINT", 43, "no function not_a_function"),
        ("no_such_module:main", "BAD_ENTRY_POINT", 43, "there is no module no_such_module"),
        ("no/such/script.py", "BAD_ENTRY_POINT", 43, "there is no such file"),
        ("bad_import:main", "USER_ERROR", 41, "No module named 'not_installed'"),
    ],
)
def test_entry_that_does_not_work_is_classified(
    make_world, make_spec, entry, exit_class, code, words
):
    """The user's error, with its traceback, is told apart from an entry that does not exist."""
    world = make_world("user", make_spec({}, entry=entry))
    (world.directory / "user_code.py").write_text(USER_CODE)
    (world.directory / "bad_import.py").write_text("import not_installed\n")
    world.start()
    world.until_ended()
    rank = world.ranks[0]
    assert (rank.words["exit_class"], rank.exit_code) == (exit_class, code)
    assert words in rank.words["error"]
    assert "Traceback" in rank.words["traceback"]


SCRIPT = """
import os, sys
import torch
import torch.distributed as dist
assert sys.argv[1:] == ["--flag", "1"], sys.argv
assert __name__ == "__main__"
dist.init_process_group("gloo")
value = torch.ones(1)
dist.all_reduce(value)
assert value.item() == dist.get_world_size() == int(os.environ["WORLD_SIZE"]) == 2
assert os.environ["LOCAL_RANK"] == os.environ["RANK"]
"""

SDK_SCRIPT = """
import torch
from everstep.train.session import init
run = init({"layout": {"dp_shard": 2}, "steps": 1})
weight = torch.nn.Parameter(torch.ones(3))
optimizer = torch.optim.SGD([weight], lr=0.1, momentum=0.9)
run.track(weight=weight, optimizer=optimizer)
while run.step_index < run.spec.steps:
    loss = (weight * run.step_index).sum()
    loss.backward()
    run.step(optimizer, loss=loss)
"""


TOUCHES = """
import torch
from torch import nn
from torch.distributed.fsdp import fully_shard

def main(run):
    model = nn.Linear(8, 8)
    fully_shard(model, mesh=run.mesh["dp_shard"])
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    run.track(model=model, optimizer=optimizer)
    while not run.ended:
        loss = model(torch.ones(2, 8)).square().mean()
        loss.backward()
        run.step(optimizer, loss=loss)
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.mul_(0.999)
"""


def test_sharded_parameter_that_is_changed_after_the_step_is_a_user_error(make_world, make_spec):
    """A DTensor counts its own changes; its snapshot would hold them or not, as it comes."""
    world = make_world("touches", make_spec({"dp_shard": 2}, entry="user_code:main", data=None))
    (world.directory / "user_code.py").write_text(TOUCHES)
    world.start()
    world.until_ended()
    words = world.ranks[0].words
    assert words["exit_class"] == "USER_ERROR"
    assert "model.weight was changed between run.step() and the next one" in words["error"]


LATE = """
import torch
from torch import nn

def main(run):
    model = nn.Linear(8, 8)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model(torch.ones(2, 8)).square().mean().backward()
    run.step(optimizer)
    run.track(model=model, optimizer=optimizer)
"""


def test_state_that_is_tracked_after_the_first_step_is_a_user_error(make_world, make_spec):
    """A restore would come too late for the random states, and for the step that was made."""
    world = make_world("late", make_spec({}, entry="user_code:main", data=None))
    (world.directory / "user_code.py").write_text(LATE)
    world.start()
    world.until_ended()
    words = world.ranks[0].words
    assert words["exit_class"] == "USER_ERROR"
    assert "run.track() was called after the first batch or step" in words["error"]


STUCK = """
import signal
import torch
from torch import distributed as dist

def main(run):
    name = run.args["stuck"]
    if run.mesh.get_local_rank(name) == 1:
        signal.pause()
    dist.all_reduce(torch.ones(1), group=run.mesh.get_group(name))
"""


@pytest.mark.parametrize("name", ["pp", "tp"])
def test_collective_in_any_group_of_the_mesh_waits_no_longer_than_the_job_says(
    make_world, make_spec, name
):
    """The last resort against a hang is the spec's, whichever group a rank hangs in."""
    layout = {"pp": 2, "tp": 2}  # a group of all ranks would have the timeout anyway
    spec = make_spec(layout, entry="user_code:main", recovery={"collective_timeout_s": 15})
    spec["args"] = {"stuck": name}
    world = make_world("stuck", spec)
    (world.directory / "user_code.py").write_text(STUCK)
    world.start()
    world.until(lambda: world.ranks[0].status is not None)
    assert world.ranks[0].words["exit_class"] == "COLLECTIVE"
    world.kill()


def test_torchrun_script_runs_unchanged(make_world, make_spec):
    """A script that knows nothing of Everstep finds torchrun's variables and its arguments."""
    world = make_world("script", make_spec({"dp_shard": 2}, entry="train.py", argv=["--flag", "1"]))
    (world.directory / "train.py").write_text(SCRIPT)
    world.start()
    world.finish()
    assert [rank.words["exit_class"] for rank in world.ranks] == ["FINISHED"] * 2


def test_script_with_the_sdk_resumes_from_memory(make_world, make_spec):
    """A script that calls train.init() is restored like any other entry."""
    spec = make_spec({"dp_shard": 2}, entry="train.py", steps=6, data=None)
    worlds = []
    for name in ("reference", "killed"):
        world = make_world(name, spec)
        (world.directory / "train.py").write_text(SDK_SCRIPT)
        worlds.append(world)
    reference, killed = worlds
    reference.start()
    reference.finish()
    killed.start()
    killed.until_step(6)
    killed.kill()
    killed.until_ended()
    killed.start(1, step=min(killed.held_steps(0)))
    killed.finish()
    assert killed.ranks[0].ready["restored_step"] < 6
    assert compare(reference.durable(), killed.durable()).equal


NON_FINITE = """
import torch
def main(run):
    weight = torch.nn.Parameter(torch.ones(3))
    optimizer = torch.optim.SGD([weight], lr=0.1)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1.0)
    run.track(weight=weight, optimizer=optimizer, scheduler=scheduler)
    for batch in run.batches():
        bad = run.step_index == 2 and run.rank == 1
        loss = weight.sum() * (float("nan") if bad else 1.0)
        loss.backward()
        before = weight.detach().clone()
        report = run.step(optimizer, loss=loss, tokens=batch.token_count, max_grad_norm=0.5)
        assert torch.equal(before, weight) == (report.health == "skipped_non_finite")
        assert weight.grad is None
        assert torch.isfinite(weight).all()
"""


def test_non_finite_gradient_on_one_rank_is_skipped_on_every_rank(make_world, make_spec):
    """The poisoned update is never made; the batch is passed over and training goes on."""
    world = make_world("nan", make_spec({"dp_shard": 2}, entry="user_code:main", steps=5))
    (world.directory / "user_code.py").write_text(NON_FINITE)
    world.start()
    world.finish()
    for rank in world.ranks:
        health = [one["health"] for one in rank.steps]
        assert health == ["ok", "ok", "skipped_non_finite", "ok", "ok"]
    assert verify_slot(world.durable()[0]).data_state["position"] == 5
