"""What steps show of hosts becomes verdicts, until it is stored or over."""

from __future__ import annotations

from dataclasses import replace

from everstep.core.placement import Layout
from everstep.monitor.commands import SettleNote
from everstep.monitor.detecting import Detecting, crew_of
from everstep.monitor.detectors.verdict import Verdict
from everstep.monitor.events import Action, NumericsRules, WatchedHost
from everstep.monitor.state import OpenIncidentRef, Watch
from everstep.wire.v1.agents_pb2 import RankStep, StepMetrics

RANKS = 8
WATCH = Watch(
    job_id="j",
    generation=1,
    restore_step=-1,
    placed=True,
    layout=Layout(pp=2, dp_shard=4),
    slow_hosts="drain",
    numerics=NumericsRules(on_spike="roll_back"),
    hosts=tuple(WatchedHost(host_id=f"h{i}", ranks=(2 * i, 2 * i + 1)) for i in range(4)),
)


def tell(detecting: Detecting, step: int, watch: Watch = WATCH, *, slow: int = -1, skip=False):
    """All hosts tell of a step; the second stage has twice the work."""
    for host in watch.hosts:
        ranks = [
            RankStep(
                rank=rank,
                step=step,
                position=step - 1,
                loss=2.0,
                grad_norm=1.0,
                step_time_ms=500.0,
                own_ms=(200.0 if rank >= 4 else 100.0) * (1.5 if rank == slow else 1.0),
                health="skipped_non_finite" if skip else "ok",
            )
            for rank in host.ranks
        ]
        message = StepMetrics(job_id="j", generation=1, host_id=host.host_id, ranks=ranks)
        detecting.told(message, watch, now_ms=1_000 * step)


def begun(watch: Watch = WATCH) -> Detecting:
    """A generation's begin."""
    detecting = Detecting()
    detecting.begin(watch, 0)
    return detecting


def test_slow_rank_is_to_be_drained_from_its_host():
    """Stages have different work and are not compared."""
    detecting = begun()
    for step in range(1, 100):
        tell(detecting, step, slow=5)
    verdict = detecting.unsaid[0]
    assert isinstance(verdict, Verdict)
    assert (verdict.kind, verdict.action) == ("straggler", Action.DRAIN)
    assert (verdict.hosts, verdict.ranks) == (("h2",), (5,))


def test_slow_rank_is_only_noted_or_not_looked_at_as_the_spec_says():
    """Some would rather be asked."""
    noting = replace(WATCH, slow_hosts="note")
    detecting, blind = begun(noting), begun(replace(WATCH, slow_hosts="off"))
    for step in range(1, 100):
        tell(detecting, step, noting, slow=5)
        tell(blind, step, replace(WATCH, slow_hosts="off"), slow=5)
    assert {verdict.action for verdict in detecting.unsaid} == {Action.NOTE}
    assert not blind.unsaid


def test_even_run_says_nothing():
    """Two hundred steps."""
    detecting = begun()
    for step in range(1, 201):
        tell(detecting, step)
    assert not detecting.unsaid


def test_what_was_found_is_over_with_its_generation():
    """Its hosts may be others by now."""
    detecting = begun()
    tell(detecting, 1, skip=True)
    assert [one.kind for one in detecting.unsaid] == ["step_skipped"]
    detecting.begin(WATCH, 0)
    assert detecting.unsaid
    detecting.begin(replace(WATCH, generation=2, placed=False), 0)
    assert not detecting.unsaid


def test_note_and_its_end_are_said_in_order():
    """The one opens an incident, the other settles it."""
    detecting = begun()
    tell(detecting, 1, skip=True)
    tell(detecting, 2)
    assert [type(one) for one in detecting.unsaid] == [Verdict, SettleNote]


def test_job_of_unknown_layout_has_no_crew():
    """Who does the same work is not known of a job from before it was told."""
    assert crew_of(replace(WATCH, layout=Layout())) is None
    crew = crew_of(WATCH)
    assert crew is not None
    assert crew.roles == ("stage 0",) * 4 + ("stage 1",) * 4
    assert crew.hosts[4:6] == ("h2", "h2")


def test_note_that_an_earlier_process_opened_is_settled_and_what_holds_is_noted_anew():
    """Who noted it would have seen its end; some notes last until a recovery."""
    refs = tuple(
        OpenIncidentRef(
            incident_id=kind, generation=1, step=1, failed_at_ms=1, kind=kind, action=action
        )
        for kind, action in (
            ("step_skipped", Action.NOTE),
            ("clock_off", Action.NOTE),
            ("never_equal", Action.NOTE),
            ("straggler", Action.NOTE),
            ("errors_rising", Action.DRAIN),
        )
    )
    watch = replace(WATCH, open_incidents=refs)
    detecting = begun(watch)
    detecting.remember((), 1, watch, 7)
    settled = [
        SettleNote(job_id="j", kind=kind, lost_ms=0, lost_steps=0, at_ms=7)
        for kind in ("clock_off", "step_skipped")
    ]
    assert list(detecting.unsaid) == settled
    tell(detecting, 1, skip=True)
    anew = detecting.unsaid[-1]
    assert isinstance(anew, Verdict)
    assert (anew.kind, anew.action) == ("step_skipped", Action.NOTE)
