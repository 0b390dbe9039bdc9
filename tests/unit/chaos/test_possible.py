"""Which campaigns cannot happen, and what nobody can know yet."""

from __future__ import annotations

import pytest

from everstep.chaos.campaign import parse_campaign
from everstep.chaos.possible import Setting, not_checked, require_possible
from everstep.core.errors import InvalidInput

KNOWN = Setting(steps=1_500, object_every_steps=0, hosts=frozenset({"h2", "h1"}), job_hosts=2)


def campaign(*faults):
    """A campaign of these faults for four ranks."""
    return parse_campaign({"version": 1, "faults": list(faults)}, world_size=4)


@pytest.mark.parametrize(
    ("fault", "why"),
    [
        ({"kind": "kill_host", "host": "h99", "at_step": 3},
         r"no host 'h99': the stack has h1, h2$"),
        ({"kind": "kill_rank", "rank": 1, "at_step": 1_500},
         r"1500 is behind the job's end: it has 1500 steps, the last fault can strike at 1499"),
        ({"kind": "damage_object", "rank": 1, "at_step": 3}, r"object_every_steps is 0"),
    ],
)  # fmt: skip
def test_fault_that_cannot_happen_is_refused(fault, why):
    """By its place, with what there is; and only where that is known."""
    plan = campaign({"kind": "kill", "rank": 0, "at_step": 1_499}, fault)
    with pytest.raises(InvalidInput, match=rf"^faults\[1\] \({fault['kind']}\): .*{why}"):
        require_possible(plan, KNOWN)
    require_possible(plan, Setting())


def test_all_that_is_wrong_is_told_at_once():
    """A line each."""
    lost = {"kind": "kill_host", "host": "h99", "at_step": 99_999}
    with pytest.raises(InvalidInput) as refused:
        require_possible(campaign(lost, lost), KNOWN)
    assert len(str(refused.value).splitlines()) == 4


def test_what_nobody_can_check_yet_is_said():
    """With what it would take; nothing where all is known."""
    plan = campaign(
        {"kind": "kill_host", "host": "h1", "at_step": 7},
        {"kind": "flip_parameter", "rank": 1, "at_step": 9, "tensor": "w1", "bit": 40},
    )
    ranks = [
        "whether the job has tensors w1: its ranks tell",
        "whether the tensors' elements have as many bits: the job's ranks tell",
    ]
    assert not_checked(plan, KNOWN) == ranks
    assert not_checked(plan, Setting()) == [
        "whether there are hosts h1: no stack runs here",
        "whether the job has a step 9: --spec tells",
        *ranks,
    ]
