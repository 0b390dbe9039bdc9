"""What the recovery benchmark reads out of the ranks' notes."""

from __future__ import annotations

from benchmarks.workload import probe
from benchmarks.workload.probe import JOINED, RESTORED, STARTED, STEP, Moment


def moments(pid: int, *lines: tuple[str, int, float]) -> list[Moment]:
    """Return one process's notes."""
    return [
        Moment(event=event, step=step, at=at, pid=pid, parts_ms={}) for event, step, at in lines
    ]


def rank(*, delay: float, restored: int) -> list[Moment]:
    """A rank that trains to step 3, and begins anew from ``restored`` after a fault at 10 s."""
    before = moments(1, (STARTED, -1, 0.0), (STEP, 1, 1.0), (STEP, 2, 2.0), (STEP, 3, 3.0 + delay))
    after = moments(
        2,
        (STARTED, -1, 11.0),
        (JOINED, -1, 12.0),
        (RESTORED, restored, 12.5),
        *((STEP, step, 11.0 + step + delay) for step in range(restored + 1, 6)),
    )
    return before + after


def test_step_is_committed_when_the_last_rank_has_done_it():
    """A step that one rank has not done by then does not count."""
    record = {0: rank(delay=0.0, restored=3), 1: rank(delay=0.5, restored=3)}
    assert probe.committed(record, until=3.2) == 2
    assert probe.committed(record, until=3.6) == 3


def test_recovery_ends_with_a_step_that_is_newer_than_all_before():
    """Steps done again are part of the time, and counted."""
    record = {0: rank(delay=0.0, restored=1), 1: rank(delay=0.25, restored=1)}
    assert probe.recovery(record, 10.0, 3) == probe.Recovery(
        new_step_s=5.25,
        first_step_s=3.25,
        restored_step=1,
        steps_lost=2,
        stages_s={STARTED: 1.0, JOINED: 2.0, RESTORED: 2.5},
    )


def test_recovery_is_not_over_while_one_rank_is_behind():
    """One rank without the new step is enough to go on waiting."""
    behind = rank(delay=0.0, restored=3)[:-2]
    record = {0: rank(delay=0.0, restored=3), 1: behind}
    assert probe.recovery(record, 10.0, 3) is None


def test_steps_of_the_old_process_after_the_fault_do_not_count():
    """A survivor that was still finishing a step has recovered nothing."""
    survivor = moments(1, (STARTED, -1, 0.0), (STEP, 3, 3.0), (STEP, 4, 10.1))
    assert probe.recovery({0: survivor}, 10.0, 3) is None


def test_notes_that_were_written_are_read_back(tmp_path):
    """A line that is not whole yet is left out."""
    probe.Probe(0, tmp_path).note(STEP, 7, snapshot=1.5)
    with (tmp_path / "rank-0.jsonl").open("a") as file:
        file.write('{"event": "st')
    (found,) = probe.read(tmp_path, 1)[0]
    assert (found.event, found.step, found.parts_ms) == (STEP, 7, {"snapshot": 1.5})
