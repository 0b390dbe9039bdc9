"""What a rank begins with."""

from __future__ import annotations

import pytest
from tests.unit.controller.facts import SPEC

from everstep.core.spec import AuditSpec, parse_spec_json
from everstep.train.endings import RestoreFailedError
from everstep.train.opening import open_saver
from everstep.train.restoring import Plan


def _open(plan: Plan):
    """An audit of step 8 begins; it keeps nothing, so it needs nothing else."""
    audit = AuditSpec(job_id="j1", step=8, replica=0, works=())
    spec = parse_spec_json(SPEC).model_copy(update={"audit": audit})
    return open_saver(
        None, spec, None, state=None, collective=None, clock=None, plan=plan, restore=lambda it: it
    )


@pytest.mark.parametrize(
    ("plan", "got"),
    [(Plan(), "nothing"), (Plan(slot=1, step=9), "step 9")],
    ids=["afresh", "other"],
)
def test_audit_begins_from_its_checkpoint_or_not_at_all(plan, got):
    """Afresh, or from another step, every rank would seem to have computed wrong."""
    with pytest.raises(RestoreFailedError, match=f"begins from step 8, but {got} was brought"):
        _open(plan)


def test_audit_lays_nothing_by():
    """What it has is another job's."""
    assert _open(Plan(slot=1, step=8)) == (None, Plan(slot=1, step=8))
