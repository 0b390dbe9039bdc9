"""Hosts that a job has found to compute wrong when it was ending, or had ended."""

from __future__ import annotations

from tests.unit.host_inventory.fleet import place
from tests.unit.host_inventory.test_listing import keeper_of

from everstep.core.ports import Consumed
from everstep.host_inventory.commands import UncordonHost
from everstep.wire.v1.envelope_pb2 import EventEnvelope
from everstep.wire.v1.jobs_pb2 import IncidentNoted


def told(position: int, noted: IncidentNoted) -> tuple[EventEnvelope, Consumed]:
    """What the controller publishes."""
    return EventEnvelope(incident_noted=noted), Consumed(
        consumer="host_inventory", source="controller", position=position
    )


async def test_hosts_that_compute_wrong_are_out_before_their_job_frees_them():
    """Only a person brings them back, also where the job does not say by which incident."""
    keeper = await keeper_of("h1", "h2", "h3")
    await keeper.apply(place("demo"))
    for position, incident_id in enumerate(("i1", ""), start=1):
        noted = IncidentNoted(
            job_id="demo",
            generation=2,
            kind="silent_corruption",
            incident_id=incident_id,
            hosts=[f"h{position}"],
            at_ms=50,
        )
        await keeper.on_controller_event(*told(position, noted))
        host = (await keeper.fleet()).hosts[f"h{position}"]
        assert host.cordon is not None
        assert (host.cordon.reason, host.cordon.fault) == ("silent_corruption", "corrupt")
        assert not host.cordon.returns
    assert (await keeper.fleet()).hosts["h3"].cordon is None


async def test_host_that_a_person_has_brought_back_is_not_out_again_for_the_same_incident():
    """The message may come twice."""
    keeper = await keeper_of("h1")
    noted = IncidentNoted(
        job_id="demo", kind="silent_corruption", incident_id="i1", hosts=["h1"], at_ms=50
    )
    await keeper.on_controller_event(*told(1, noted))
    await keeper.apply(UncordonHost(host_id="h1", now=True, at_ms=90))
    await keeper.on_controller_event(*told(2, noted))
    assert (await keeper.fleet()).hosts["h1"].cordon is None
