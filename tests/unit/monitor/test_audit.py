"""What a step that was done again elsewhere tells of who was wrong."""

from __future__ import annotations

from dataclasses import replace

import pytest

from everstep.core.placement import Layout
from everstep.core.resharding import coordinate_of
from everstep.monitor.detectors.audit import (
    OPEN_MAX,
    Conclusion,
    Run,
    Share,
    conclude,
    ranks_of,
    untold,
)
from everstep.monitor.events import Finding

# Two stages of two groups of two tensor-parallel ranks, twice. Replica 1 has ranks 4-7 and 12-15.
LAYOUT = Layout(pp=2, dp_replicate=2, dp_shard=2, tp=2)
SHARE = Share(layout=LAYOUT, step=100, replica=1)
RANKS = 8
OUTPUTS, GRADIENT = "outputs", "gradient"


def run(prefix: str, wrong: dict[int, str] | None = None, mistake: int = 1, hosts: int = 4) -> Run:
    """A run by an audit's ranks on so many hosts; some ranks are wrong in outputs or gradient."""
    works = []
    for rank in range(RANKS):
        bent = (wrong or {}).get(rank, "")
        forward = 1_000 + rank + 50 * mistake * (bent == OUTPUTS)
        gradient = 2_000 + rank + 70 * mistake * bool(bent)
        works.append(f"{forward:016x}:{gradient:016x}")
    return Run(
        works=tuple(works), hosts=tuple(f"{prefix}{rank * hosts // RANKS}" for rank in range(RANKS))
    )


def spread(rank: int, kind: str) -> dict[int, str]:
    """Where a wrong number of one rank comes to: later outputs, earlier gradients, its columns."""
    alone = replace(LAYOUT, dp_replicate=1)
    at = coordinate_of(alone, rank)
    reached = {}
    for other in range(RANKS):
        there = coordinate_of(alone, other)
        if there.shard == at.shard:
            if kind == OUTPUTS and there.pp >= at.pp:
                reached[other] = OUTPUTS
            elif kind == OUTPUTS or there.pp <= at.pp:
                reached[other] = GRADIENT
    return reached


def concluded(first: Run, *audits: Run, ever_alike: bool = True, opens: int = 0) -> Conclusion:
    """Conclude about the share."""
    return conclude(first, audits, SHARE, ever_alike=ever_alike, opens=opens)


JOB = run("job")


def test_ranks_of_a_replica_are_in_the_order_of_the_audits():
    """The first stage's come first, as where there is one replica only."""
    assert ranks_of(LAYOUT, 0) == (0, 1, 2, 3, 8, 9, 10, 11)
    assert ranks_of(LAYOUT, 1) == (4, 5, 6, 7, 12, 13, 14, 15)
    assert ranks_of(Layout(pp=2, dp_shard=2), 0) == (0, 1, 2, 3)


def test_audit_that_comes_to_the_same_bits_says_so():
    """On every rank; before any other has come out alike, too."""
    expected = Conclusion(
        finding=Finding.ALIKE,
        ranks=(),
        why="step 101 of replica 1 came out with the same bits on a0, a1, a2, a3",
    )
    assert concluded(JOB, run("a")) == expected
    assert concluded(JOB, run("a"), ever_alike=False) == expected


@pytest.mark.parametrize(
    ("rank", "kind", "begins", "owners", "again"),
    [
        (4, OUTPUTS, (12, 13), "job2", "a2"),  # the second stage: nobody's outputs before it
        (0, OUTPUTS, (4, 5), "job0", "a0"),  # the first one: everything after it, too
        (6, GRADIENT, (14, 15), "job3", "a3"),  # the last stage: gradients go backwards
        (2, GRADIENT, (6, 7), "job1", "a1"),
    ],
)
def test_one_audit_that_differs_concludes_nothing_but_where_it_begins(
    rank: int, kind: str, begins: tuple[int, ...], owners: str, again: str
):
    """One of two was wrong, and nothing tells which."""
    found = concluded(JOB, run("a", spread(rank, kind)))
    assert (found.finding, found.ranks, found.host) == (Finding.DIFFERS, begins, "")
    what = {OUTPUTS: "outputs", GRADIENT: "gradients"}[kind]
    assert found.why == (
        f"step 101 of replica 1 came out with other {what} (from ranks "
        f"{begins[0]}, {begins[1]} on) on {again} than on {owners}: nobody is named before a "
        "second audit has told"
    )


def test_second_audit_that_agrees_with_the_job_names_who_did_the_first():
    """Also where nothing had come out alike before: now it has, so the program repeats its bits."""
    for ever_alike in (True, False):
        found = concluded(
            JOB, run("a", spread(4, OUTPUTS)), run("b"), ever_alike=ever_alike, opens=1
        )
        assert (found.finding, found.ranks, found.host) == (Finding.SPARE_NAMED, (), "a2")
        assert found.why == (
            "step 101 of replica 1 came out the second time as the job had it: a2, which had come "
            "to other bits in an audit, was wrong"
        )


def test_first_audit_that_began_to_differ_on_two_hosts_names_neither():
    """One of them may have sent wrong parameters to the other."""
    both = {**spread(0, OUTPUTS), **spread(2, OUTPUTS)}
    found = concluded(JOB, run("a", both), run("b"))
    assert (found.finding, found.ranks, found.host) == (Finding.OPEN, (), "")
    assert "began to differ on a0, a1 at once" in found.why


def test_two_audits_on_other_hosts_that_agree_name_the_jobs_host():
    """Two against one, all three of them different machines."""
    wrong = spread(4, OUTPUTS)
    found = concluded(run("job", wrong), run("a"), run("b"))
    assert found == Conclusion(
        finding=Finding.NAMED,
        ranks=(12, 13),
        why="step 101 of replica 1 came out with other outputs (from ranks 12, 13 on) in two "
        "audits, alike in both, on a2 and on b2: job2 was wrong",
        host="job2",
        wrong=(12, 13),
    )


def test_two_audits_on_one_host_are_one_against_one():
    """A clean re-run on the same machine clears nobody: it may be wrong twice alike."""
    found = concluded(run("job", spread(4, OUTPUTS)), run("a"), run("a"))
    assert (found.finding, found.ranks, found.host) == (Finding.OPEN, (12, 13), "")
    assert "both ran on a2: it is one host against job2" in found.why


def test_only_where_the_difference_begins_the_hosts_must_be_different_ones():
    """That another rank was on the same host twice says nothing."""
    again = run("b")
    mixed = Run(works=again.works, hosts=("a0", "a0", *again.hosts[2:]))
    assert concluded(run("job", spread(4, OUTPUTS)), run("a"), mixed).finding is Finding.NAMED


@pytest.mark.parametrize("back", [0, 1])
def test_host_that_made_it_both_ways_has_contradicted_itself(back: int):
    """It served the job then, and was a spare for one of the audits."""
    audits = [run("a"), run("b")]
    hosts = tuple("job2" if host in {"a2", "b2"} else host for host in audits[back].hosts)
    audits[back] = replace(audits[back], hosts=hosts)
    found = concluded(run("job", spread(4, OUTPUTS)), *audits)
    assert (found.finding, found.host) == (Finding.NAMED, "job2")
    assert "job2 has made it both ways" in found.why


def test_difference_that_begins_on_two_hosts_of_the_job_names_none():
    """Two groups at once: what one sent may have bent both."""
    both = {**spread(0, OUTPUTS), **spread(2, OUTPUTS)}
    found = concluded(run("job", both), run("a"), run("b"))
    assert (found.finding, found.ranks, found.host) == (Finding.OPEN, (4, 5, 6, 7), "")
    assert "on job0, job1: that is more than one host" in found.why
    one = concluded(run("job", both, hosts=2), run("a", hosts=2), run("b", hosts=2))
    assert (one.finding, one.host) == (Finding.NAMED, "job0")


def test_host_that_nobody_remembers_is_not_named():
    """A monitor that was away does not know where the job ran then."""
    first = replace(run("job", spread(4, OUTPUTS)), hosts=("",) * RANKS)
    found = concluded(first, run("a"), run("b"))
    assert (found.finding, found.host) == (Finding.OPEN, "")
    assert "where the job had made it is not known any more" in found.why


def test_three_that_all_differ_name_nobody():
    """Two of them are wrong, or the step is not the same one each time."""
    found = concluded(
        run("job", spread(4, OUTPUTS)),
        run("a", spread(0, GRADIENT), mistake=2),
        run("b", spread(0, GRADIENT), mistake=3),
    )
    assert (found.finding, found.host) == (Finding.OPEN, "")
    assert "no two of three agree" in found.why


def test_host_that_is_wrong_at_another_place_each_time_is_named():
    """The second audit has the same two hosts, and each of them the other's ranks."""
    first = run("job", hosts=2)
    once = run("spare", spread(1, GRADIENT), hosts=2)  # the first stage's: on spare0
    exchanged = {"spare0": "spare1", "spare1": "spare0"}
    twice = run("spare", spread(5, GRADIENT), mistake=2, hosts=2)
    twice = replace(twice, hosts=tuple(exchanged[one] for one in twice.hosts))
    found = concluded(first, once, twice)
    assert (found.finding, found.host, found.wrong) == (Finding.SPARE_NAMED, "spare0", ())
    assert "both began to differ on spare0" in found.why


def test_two_audits_that_are_wrong_on_hosts_of_their_own_name_neither():
    """Nor where each of them begins to differ on the same two at once."""
    first, second = spread(0, GRADIENT), spread(2, GRADIENT)
    found = concluded(JOB, run("a", first, mistake=2), run("b", second, mistake=3))
    assert found.finding is Finding.OPEN
    both = run("a", {**spread(0, OUTPUTS), **spread(2, OUTPUTS)}, mistake=2)
    turned = run("a", {**spread(4, OUTPUTS), **spread(6, OUTPUTS)}, mistake=3)
    turned = replace(turned, hosts=(*turned.hosts[4:], *turned.hosts[:4]))
    assert concluded(JOB, both, turned).finding is Finding.OPEN


def test_host_that_came_to_the_same_twice_is_not_named_for_what_another_one_made_of_it():
    """The job was wrong on its first stage; one of the audits, besides, on a later one."""
    first = run("job", spread(0, OUTPUTS))
    later = run("b", {4: GRADIENT})
    later = replace(later, hosts=("a0", "a0", *later.hosts[2:]))
    found = concluded(first, run("a"), later)
    assert (found.finding, found.ranks, found.host) == (Finding.OPEN, (4, 5), "")


def test_host_whose_two_audits_differ_has_contradicted_itself():
    """Whatever the job came to."""
    found = concluded(
        JOB,
        run("a", spread(4, OUTPUTS), mistake=2),
        run("a", spread(4, OUTPUTS), mistake=3),
    )
    assert (found.finding, found.ranks, found.host) == (Finding.SPARE_NAMED, (12, 13), "a2")
    assert "a2 did the same work in both, and was wrong" in found.why


@pytest.mark.parametrize(
    "second", [run("b"), run("b", spread(0, OUTPUTS), 4), run("a", spread(4, OUTPUTS), 5)]
)
def test_nobody_is_named_before_any_audit_came_out_alike(second: Run):
    """The program may do something else with one replica, or never the same twice."""
    first = run("job", spread(4, OUTPUTS))
    audit = run("a", spread(4, OUTPUTS), 3) if second.hosts[0] == "a0" else run("a")
    found = concluded(first, audit, second, ever_alike=False)
    assert (found.finding, found.host) == (Finding.OPEN, "")
    assert "no audit of this job has ever come out alike" in found.why
    assert "no more audits" not in found.why
    assert concluded(first, audit, second).finding is not Finding.DIFFERS
    again = concluded(first, audit, second, ever_alike=False, opens=OPEN_MAX - 1)
    assert "no more audits of this job are asked for" in again.why


def test_difference_that_no_second_audit_has_told_about_stays_open():
    """And says what it was."""
    assert untold("it differed", SHARE, 3, ever_alike=True, opens=0) == (
        "step 101 of replica 1 was to be done again once more, and 3 attempts have told nothing: "
        "nobody is named (it differed)"
    )
    last = untold("it differed", SHARE, 3, ever_alike=False, opens=OPEN_MAX - 1)
    assert last.endswith("no more audits of this job are asked for")


def test_each_group_begins_to_differ_on_its_own():
    """Groups share no outputs; a later stage of one is not behind an earlier one of another."""
    both = {**spread(4, OUTPUTS), **spread(2, OUTPUTS)}
    assert concluded(JOB, run("a", both)).ranks == (6, 7, 12, 13)


def test_column_whose_outputs_are_alike_is_not_where_it_begins():
    """Its gradient came from the one that was wrong."""
    assert concluded(JOB, run("a", {0: OUTPUTS, 1: GRADIENT})).ranks == (4,)
