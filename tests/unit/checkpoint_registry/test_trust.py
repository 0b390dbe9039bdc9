"""What is suspect, from when, whose word counts, and that a restore goes back before it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.checkpoint_registry.words import (
    HISTORY,
    ask,
    copy_of,
    facts,
    host,
    own,
    past,
    planned,
    sources,
)

from everstep.checkpoint_registry.commands import (
    DecideTrust,
    EndSuspicion,
    NoteIncident,
    NoteIncidentEnd,
    SuspectSteps,
)
from everstep.checkpoint_registry.events import (
    CheckpointsSuspected,
    GenerationNoted,
    SuspicionEnded,
    TrustDecided,
)
from everstep.checkpoint_registry.trust import NUMERICAL, Trust, unresolved

H1 = host("h1", own(0, 36), own(0, 37), copy_of(1, 36), copy_of(1, 37))
H2 = host("h2", own(1, 36), own(1, 37), copy_of(0, 36), copy_of(0, 37))
STORED = [facts(10), facts(20), facts(30)]


def incident(kind: str = "loss_spike", *, step: int = 37, generation: int = 1) -> NoteIncident:
    """A numerical incident."""
    return NoteIncident(
        job_id="job",
        incident_id="i1",
        kind=kind,
        generation=generation,
        step=step,
        why="loss 2.1 -> 9.4",
        at_ms=5,
    )


def suspected(
    from_step: int, to_step: int = -1, *, generation: int = 1, number: int = 1
) -> CheckpointsSuspected:
    """A stretch that is suspect."""
    return CheckpointsSuspected(
        job_id="job",
        suspicion_id=f"i{number}",
        kind="loss_spike",
        generation=generation,
        from_step=from_step,
        to_step=to_step,
        why="loss 2.1 -> 9.4",
        by="monitor",
        at_ms=5,
    )


def ended(outcome: str) -> SuspicionEnded:
    """The end of the first one."""
    return SuspicionEnded(
        job_id="job", suspicion_id="i1", outcome=outcome, why="", by="monitor", at_ms=6
    )


def said(trust: str, step: int, *, generation: int = 1) -> TrustDecided:
    """A person's word."""
    return TrustDecided(
        job_id="job", step=step, generation=generation, trust=trust, why="", by="ann", at_ms=7
    )


def say(trust: str, step: int, *, generation: int = 1, phase: str = "complete") -> DecideTrust:
    """The same as a command."""
    return DecideTrust(
        job_id="job",
        step=step,
        generation=generation,
        trust=trust,
        why="",
        by="ann",
        at_ms=7,
        phase=phase,
    )


def by_hand(from_step: int, to_step: int = -1, *, generation: int = 0) -> SuspectSteps:
    """A person's suspicion."""
    return SuspectSteps(
        job_id="job",
        suspicion_id="",
        generation=generation,
        from_step=from_step,
        to_step=to_step,
        why="",
        by="ann",
        at_ms=5,
    )


def restored(*events, **request):
    """Step, sources and remarks of the plan after these events."""
    laid_out, decided = HISTORY.given(*events).when(ask(H1, H2, **request)).decision.events
    return laid_out.step, sources(laid_out), decided.passed_over


def trust_of(*events, step: int, generation: int = 1) -> Trust:
    """What a state is worth after these events."""
    return HISTORY.given(*events).state.judge(generation=generation, step=step).trust


@pytest.mark.parametrize(("kind", "from_step"), [(kind, 437 - n) for kind, n in NUMERICAL.items()])
def test_numerical_incident_makes_suspect_what_may_have_led_to_it(kind, from_step):
    """Each kind shows some steps after what caused it."""
    (event,) = HISTORY.when(incident(kind, step=437)).decision.events
    assert (event.from_step, event.to_step, event.generation) == (from_step, -1, 1)
    assert (event.suspicion_id, event.kind, event.by) == ("i1", kind, "monitor")


def test_incident_that_says_nothing_of_numbers_suspects_nothing():
    """A lost host has not spoilt what the others hold."""
    HISTORY.when(incident("host_lost")).then()


def test_incident_is_heard_of_once():
    """A message may be delivered twice."""
    HISTORY.given(suspected(34)).when(incident()).then()


def test_suspicion_begins_behind_what_was_verified():
    """What is wrong has come after it."""
    given_ = HISTORY.given(said("verified", 30))
    (event,) = given_.when(incident("silent_corruption")).decision.events
    assert event.from_step == 31


def test_suspect_steps_are_restored_neither_from_memory_nor_from_the_store():
    """The newest step before them is taken, and the plan says why."""
    step, found, passed_over = restored(suspected(25), checkpoints=STORED)
    assert (step, found) == (20, [["object"], ["object"]])
    why = "suspect (loss_spike from step 25: loss 2.1 -> 9.4)"
    assert passed_over == (f"step 37: {why}", f"step 36: {why}", f"step 30: {why}")


def test_stretch_that_has_ended_leaves_newer_steps_alone():
    """A spike that healed is over."""
    assert restored(suspected(25, 36), checkpoints=STORED)[0] == 37


def test_clean_copies_of_a_later_generation_serve_beside_suspect_ones():
    """What was done again after the roll-back is not what was suspected."""
    events = (suspected(25), *past((2, 20)))
    held = (host("h1", own(0, 30, 2), own(0, 37, 1)), host("h2", own(1, 30, 2), own(1, 37, 1)))
    decision = HISTORY.given(*events).when(ask(*held, generation=3, checkpoints=STORED)).decision
    assert decision.events[0].step == 30


def test_generation_that_went_on_from_a_suspect_step_before_anybody_knew_is_suspect_too():
    """Its states come of a bad one; that of a generation which went back further is sound."""
    events = past((2, 30), (3, 10))
    (event,) = HISTORY.given(*events).when(incident(step=28)).decision.events
    assert (event.from_step, event.generation) == (25, 2)


@pytest.mark.parametrize("word", ["clean", "verified"])
def test_suspect_step_is_restored_once_a_person_says_so(word):
    """By name: the step that was meant, and no other."""
    events = (suspected(25), said(word, 30))
    step, _, passed_over = restored(*events, checkpoints=STORED)
    assert (step, len(passed_over)) == (30, 2)


def test_word_holds_for_the_copies_that_a_later_generation_loaded():
    """It is about the state, not about one object."""
    events = (planned(2, 30), suspected(25, generation=2), said("clean", 30))
    assert trust_of(*events[:2], step=30, generation=2) is Trust.SUSPECT
    assert trust_of(*events, step=30, generation=2) is Trust.CLEAN
    assert trust_of(*events, step=31, generation=2) is Trust.SUSPECT
    again = (*events, suspected(20, generation=2, number=2))
    assert trust_of(*again, step=30, generation=2) is Trust.SUSPECT


def test_verified_holds_against_later_suspicions_and_clean_does_not():
    """One was shown, the other believed."""
    for word, then in (("verified", Trust.VERIFIED), ("clean", Trust.SUSPECT)):
        assert trust_of(said(word, 30), suspected(25), step=30) is then
    again = (said("verified", 30), suspected(25), said("suspect", 30))
    assert trust_of(*again, step=30) is Trust.SUSPECT


def test_restart_from_a_suspect_step_is_refused_with_what_to_do():
    """A step that is named is not taken for granted."""
    command = ask(H1, H2, from_step=30, checkpoints=STORED)
    refused = HISTORY.given(suspected(25)).when(command)
    refused.then_rejected("no_such_step")
    assert "(step 30: suspect (loss_spike from step 25" in refused.decision.detail
    assert "`everstep checkpoints trust job 30 clean`" in refused.decision.detail


def test_nothing_but_suspect_steps_is_no_fresh_start():
    """The job waits until a person has spoken."""
    command = ask(H1, H2, checkpoints=STORED)
    refused = HISTORY.given(suspected(0)).when(command)
    refused.then_rejected("only_suspect")
    assert "`everstep checkpoints trust job 30 clean`" in refused.decision.detail


def test_reason_that_many_steps_share_is_said_once():
    """An incident's words are long, and all that it made suspect has the same."""
    command = ask(H1, H2, checkpoints=STORED)
    detail = HISTORY.given(suspected(0)).when(command).decision.detail
    assert "all 2 ranks: steps 37, 36, 30, 20, 10: suspect (loss_spike from step 0" in detail
    assert detail.count("loss_spike") == 1


def test_step_that_is_to_be_left_behind_is_advised_with_the_order_that_it_needs():
    """A clean word alone brings no job back to it; the word given, only the order is left."""
    command = ask(H1, H2, checkpoints=STORED, before_step=25)
    refused = HISTORY.given(suspected(0)).when(command)
    refused.then_rejected("only_suspect")
    assert refused.decision.detail.endswith(
        "`everstep checkpoints trust job 30 clean`, and then asks for it: "
        "`everstep jobs restart job --from-step 30`"
    )
    spoken = HISTORY.given(suspected(0), said("clean", 30)).when(command)
    spoken.then_rejected("only_suspect")
    assert spoken.decision.detail.endswith(
        "; somebody called step 30 sound: `everstep jobs restart job --from-step 30` goes on "
        "from it"
    )


def test_false_alarm_makes_all_of_it_clean_again():
    """Nothing was bad."""
    assert restored(suspected(25), ended("false_alarm"), checkpoints=STORED)[0] == 37


def test_recovered_incident_leaves_its_steps_suspect():
    """The job went on from before them; they are as bad as before."""
    events = (suspected(25), ended("recovered"))
    assert trust_of(*events, step=30) is Trust.SUSPECT
    assert unresolved(*beliefs(*events)) == ()


def beliefs(*events):
    """What is believed after these events, and the lineage."""
    state = HISTORY.given(*events).state
    return state.beliefs, state.lineage


def test_incident_that_the_job_ended_with_is_open_until_the_job_goes_on():
    """Somebody may still want to go back before it."""
    events = (suspected(25), ended("closed"))
    assert len(unresolved(*beliefs(*events))) == 1
    assert unresolved(*beliefs(*events, planned(2, 20))) == ()


def test_suspicion_of_what_was_left_behind_is_forgotten_when_it_is_dealt_with():
    """It says nothing any more, and a long run has many."""
    for events in (
        (suspected(25), planned(2, 20), ended("recovered")),
        (suspected(25), ended("recovered"), planned(2, 20)),
    ):
        assert beliefs(*events)[0].suspicions == ()
    assert len(beliefs(suspected(25), planned(2, 20))[0].suspicions) == 1


def test_end_of_an_incident_is_noted_once_and_only_of_one_that_was_suspected():
    """Most incidents say nothing of the numbers."""
    over = NoteIncidentEnd(job_id="job", incident_id="i1", recovered=True, why="", at_ms=6)
    HISTORY.given(suspected(25)).when(over).then(ended("recovered"))
    HISTORY.given(suspected(25), ended("recovered")).when(over).then()
    HISTORY.when(over).then()


def test_person_suspects_the_newest_generation_and_what_came_before():
    """Without a generation all that there is now is meant."""
    begun = GenerationNoted(job_id="job", generation=3, at_ms=1)
    (event,) = HISTORY.given(begun).when(by_hand(5, 9)).decision.events
    assert (event.suspicion_id, event.generation, event.to_step) == ("by_hand-3-5-9", 3, 9)
    HISTORY.given(begun, event).when(by_hand(5, 9)).then()


@pytest.mark.parametrize(
    ("command", "why"),
    [(by_hand(5, 4, generation=1), "bad_span"), (by_hand(5), "no_such_job")],
    ids=["ends before it begins", "unknown job"],
)
def test_suspicion_that_makes_no_sense_is_refused(command, why):
    """With what was expected."""
    HISTORY.when(command).then_rejected(why)


def test_unknown_suspicion_is_not_ended_and_the_known_ones_are_named():
    """A slip of the pen."""
    command = EndSuspicion(
        job_id="job", suspicion_id="i7", false_alarm=True, why="", by="ann", at_ms=6
    )
    refused = HISTORY.given(suspected(25)).when(command)
    refused.then_rejected("no_such_suspicion")
    assert refused.decision.detail.endswith("there are: i1")


@pytest.mark.parametrize(
    ("command", "why"),
    [
        (say("good", 30), "bad_trust"),
        (say("clean", 30, phase=""), "no_such_checkpoint"),
        (say("clean", 30, phase="stored"), "not_complete"),
        (say("clean", 30, phase="purged"), "deleted"),
    ],
)
def test_word_about_what_is_not_there_is_refused(command, why):
    """A checkpoint is complete or it is none."""
    HISTORY.when(command).then_rejected(why)


def test_word_that_changes_nothing_is_already_so():
    """Clean is what everything is until somebody says otherwise."""
    HISTORY.when(say("clean", 30)).then()
    HISTORY.given(said("verified", 30)).when(say("verified", 30)).then()
    HISTORY.given(suspected(25)).when(say("clean", 30)).then(said("clean", 30))


EVENTS = st.one_of(
    st.builds(
        suspected,
        st.integers(0, 40),
        st.just(-1),
        generation=st.integers(1, 3),
        number=st.integers(1, 3),
    ),
    st.sampled_from(["recovered", "closed"]).map(ended),
    st.builds(planned, st.integers(1, 4), st.integers(-1, 40)),
)


@given(st.lists(EVENTS, max_size=8), st.integers(0, 40), st.integers(1, 4))
def test_no_restore_takes_what_was_suspected_and_never_cleared(events, step, generation):
    """Whatever is forgotten, ended or planned meanwhile."""
    history = HISTORY.given(*events).state
    raised: dict[str, CheckpointsSuspected] = {}
    for event in events:
        if isinstance(event, CheckpointsSuspected):
            raised[event.suspicion_id] = event
    covered = any(generation <= one.generation and step >= one.from_step for one in raised.values())
    if covered and history.lineage.holds(generation=generation, step=step):
        assert history.judge(generation=generation, step=step).trust is Trust.SUSPECT
