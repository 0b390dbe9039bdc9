"""A host that answers us and is cut from its peers: what the watch loop makes of it."""

from __future__ import annotations

from tests.unit.monitor.test_watcher import HOSTS, Stage, echo, killed, stage
from tests.unit.monitor.test_watcher_hangs import planned

from everstep.monitor.codec import CODEC
from everstep.monitor.events import Action, IncidentRecovered

__all__ = ("planned", "stage")  # fixtures


async def test_cut_host_among_echoes_is_one_incident(stage: Stage):
    """Every host answers, every rank cries; the links tell, at the second look."""
    stage.cut = {"h1"}
    for rank in range(6):
        await stage.watcher.echoed(echo(rank))
    await stage.tick(5_000)
    (incident,) = await stage.incidents()
    assert (incident.kind, incident.action, incident.hosts, incident.ranks) == (
        "partitioned",
        Action.REPLACE,
        ("h1",),
        (2, 3),
    )
    assert stage.tried == 2


async def test_sound_links_are_tried_once_and_cost_no_time(stage: Stage):
    """The patience for late exit reports is longer than the look."""
    await stage.watcher.echoed(echo(0))
    await stage.tick(1_200)
    (incident,) = await stage.incidents()
    assert (incident.kind, incident.action) == ("collective_error", Action.RESTART)
    assert "all 3 links between them that were checked are sound" in incident.reason
    assert stage.tried == 1


async def test_link_that_heals_evicts_nobody(stage: Stage):
    """It was cut at the first look and not at the second."""
    stage.cut = {"h1"}
    await stage.watcher.echoed(echo(0))
    await stage.tick(500)
    stage.cut = set()
    await stage.tick(3_000)
    (incident,) = await stage.incidents()
    assert (incident.kind, incident.action, incident.hosts) == (
        "collective_error",
        Action.RESTART,
        (),
    )


async def test_rank_that_died_explains_the_echoes_without_its_links(stage: Stage):
    """Nobody asks about links when the root is known."""
    stage.cut = {"h1"}
    await stage.watcher.exited(killed(4))
    await stage.watcher.echoed(echo(0))
    await stage.tick(3_000)
    (incident,) = await stage.incidents()
    assert (incident.kind, incident.hosts) == ("rank_killed", ("h2",))
    assert stage.tried == 0


async def test_cut_host_of_a_run_that_hangs_is_named_before_collectives_time_out(planned: Stage):
    """No rank has failed yet; all wait alike."""
    planned.cut = {"h2"}
    await planned.tick(12_000)
    (incident,) = await planned.incidents()
    assert (incident.kind, incident.hosts, incident.ranks) == ("partitioned", ("h2",), (4, 5))


async def test_tie_is_noted_once_and_the_note_ends_with_the_next_step(planned: Stage):
    """Nobody is evicted, and nothing is started again, while the network may come back."""
    planned.apart = True
    await planned.tick(20_000)
    (note,) = await planned.incidents()
    assert (note.kind, note.action, note.hosts) == ("partition_undecided", Action.NOTE, ())
    planned.apart = False
    for host in HOSTS:
        await planned.watcher.stepped("j", 1, host.host_id, 11)
    await planned.tick(200)
    events = await planned.store.read_all(after_position=0, limit=1_000)
    facts = [CODEC.decode(event.type, event.data) for event in events]
    (ended,) = [fact for fact in facts if isinstance(fact, IncidentRecovered)]
    assert (ended.incident_id, ended.lost_ms) == (note.incident_id, 0)
