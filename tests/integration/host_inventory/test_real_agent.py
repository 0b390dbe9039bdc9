"""A real inventory and a real agent: killed, held out, burnt in, a spare again."""

from __future__ import annotations

import pytest
from tests.integration.agent.harness import hosts_on
from tests.integration.agent.test_process import agent_process
from tests.integration.host_inventory.test_probing import is_in
from tests.integration.host_inventory.test_service import ask
from tests.waiting import until

from everstep.core.system import SystemClock
from everstep.wire.v1 import hosts_pb2

pytestmark = pytest.mark.torch
PROBED_S = 120.0  # the probes' process imports torch here, on a machine that does other things too


@pytest.fixture
def environment(environment):
    """Short times, so that the way back can be watched."""
    return {**environment, "EVERSTEP_HOLD_OUT_S": "1", "EVERSTEP_BURN_IN_S": "1"}


async def test_killed_host_is_held_out_probed_and_a_spare_again(inventory, bus, nats_url, tmp_path):
    """Nobody lends a hand: the agent comes up, and the inventory does the rest."""
    async with hosts_on(tmp_path, "h1") as [host]:
        with agent_process(host, nats_url):
            first = await until(lambda: is_in(inventory, "h1", "spare"), limit_s=PROBED_S)
        names = {probe["name"] for probe in first["last_probe"]["probes"]}
        assert {"product_float32", "memory", "loopback"} <= names
        lost = hosts_pb2.CordonHost(
            host_id="h1", reason="host_lost", incident_id="i1", at_ms=SystemClock().now_ms()
        )
        await ask(bus, lost)
        assert (await until(lambda: is_in(inventory, "h1", "cordoned")))["returns"]
        with agent_process(host, nats_url):
            again = await until(lambda: is_in(inventory, "h1", "spare"), limit_s=PROBED_S)
    report = again["last_probe"]
    assert (report["depth"], again["relapses"], again["fault"]) == ("burn_in", 1, "")
    assert all(probe["verdict"] == "passed" for probe in report["probes"]), report
    assert report["duration_ms"] >= 1_000
