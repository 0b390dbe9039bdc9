"""What ranks tell of their own work is kept until somebody has done it again."""

from __future__ import annotations

import pytest

from everstep.monitor.detectors.audit import Run
from everstep.monitor.detectors.audit_course import GENERATIONS_MAX, STEPS_MAX, OwnWorks, written
from everstep.wire.v1.agents_pb2 import Checked, RankStep, Rerun, Work

HOSTS = ("h0", "h1")


def step(rank: int, number: int, value: int = 0) -> RankStep:
    """A rank's word of a step."""
    own = Work(forward=number + value, gradient=rank)
    return RankStep(rank=rank, step=number, checked=Checked(own=own))


def work(rank: int, number: int, value: int = 0) -> str:
    """The same as it is kept."""
    return f"{number + value:016x}:{rank:016x}"


def run(number: int, value: int = 0, hosts: tuple[str, ...] = HOSTS) -> Run:
    """What both ranks came to."""
    return Run(works=(work(0, number, value), work(1, number, value)), hosts=hosts)


@pytest.fixture
def works() -> OwnWorks:
    """A generation that is placed."""
    works = OwnWorks()
    works.begin(1, HOSTS, 0)
    return works


def test_work_is_written_as_the_spec_of_an_audit_has_it():
    """Sixteen digits each, of numbers of 64 bits."""
    assert written(Work(forward=2**64 - 1, gradient=10)) == "ffffffffffffffff:000000000000000a"


def test_step_is_there_when_all_ranks_have_told_in_any_order(works: OwnWorks):
    """Told again, it is the same."""
    works.told(1, [step(1, 11)])
    assert works.run(1, 11) is None
    assert works.silent(1, 11) == ("h0",)
    works.told(1, [step(1, 11)])
    works.told(1, [step(0, 11), RankStep(rank=1, step=11)])
    assert works.run(1, 11) == run(11)
    assert works.silent(1, 11) == ()


def test_rank_that_checks_something_else_has_not_told(works: OwnWorks):
    """A shadow step is of another kind."""
    shadow = Checked(rerun=Rerun(of=1, own=Work(), other=Work()))
    works.told(1, [step(0, 11), RankStep(rank=1, step=11, checked=shadow)])
    assert works.run(1, 11) is None


def test_words_that_come_before_it_is_known_where_ranks_are_count():
    """The controller's word may be the later one."""
    works = OwnWorks()
    works.told(1, [step(0, 11), step(1, 11)])
    works.begin(1, (), None)
    assert works.run(1, 11) is None
    assert not works.knows(1)
    works.begin(1, HOSTS, None)
    works.begin(1, ("x", "y"), None)
    assert works.run(1, 11) == run(11)


def test_generations_are_kept_apart(works: OwnWorks):
    """Each on its hosts."""
    works.told(1, [step(0, 11), step(1, 11)])
    works.begin(2, ("h1", "h9"), 20)
    works.told(2, [step(0, 21, 5)])
    assert works.run(2, 11) is None
    works.told(2, [step(1, 21, 5)])
    assert works.run(1, 11) == run(11)
    assert works.run(2, 21) == run(21, 5, ("h1", "h9"))


def test_what_a_generation_goes_back_behind_is_over(works: OwnWorks):
    """Also when somebody tells of it later; what it goes on from is not."""
    works.told(1, [step(0, 11), step(1, 11), step(0, 21), step(1, 21), step(0, 22)])
    works.begin(2, HOSTS, None)
    assert works.run(1, 21) == run(21)
    works.begin(2, HOSTS, 20)
    works.told(1, [step(0, 21), step(1, 21), step(1, 11)])
    assert works.run(1, 11) == run(11)
    assert works.run(1, 21) is None
    works.told(2, [step(0, 21), step(1, 21)])
    works.begin(2, HOSTS, 0)
    assert works.run(2, 21) == run(21)
    assert works.run(1, 11) == run(11)


def test_step_that_a_generation_goes_on_from_was_made(works: OwnWorks):
    """It is in the job's history."""
    works.told(1, [step(0, 21), step(1, 21)])
    works.begin(2, HOSTS, 21)
    assert works.run(1, 21) == run(21)


def test_newest_steps_and_generations_are_kept(works: OwnWorks):
    """An upload that takes longer is audited at the next one."""
    for number in range(STEPS_MAX + 1):
        works.told(1, [step(0, number), step(1, number)])
    assert works.run(1, 0) is None
    assert works.run(1, 1) == run(1)
    for generation in range(2, GENERATIONS_MAX + 2):
        works.begin(generation, HOSTS, 100)
    assert not works.knows(1)
    assert works.knows(2)


def test_hosts_are_those_of_whoever_came_to_the_same(works: OwnWorks):
    """Of several generations the one that did; of a step that was never told, nobody."""
    works.told(1, [step(0, 11), step(1, 11)])
    works.begin(2, ("h8", "h9"), 11)
    works.told(2, [step(0, 11, 7), step(1, 11, 7)])
    assert works.hosts_of(11, (1, 0), (work(1, 11), work(0, 11))) == ("h1", "h0")
    assert works.hosts_of(11, (1,), (work(1, 11, 7),)) == ("h9",)
    assert works.hosts_of(11, (1,), (work(1, 11, 8),)) == ()
    assert works.hosts_of(12, (1,), (work(1, 11),)) == ()
