"""The agent and the registry as they are, on adapters that ask the test at every point."""

from __future__ import annotations

from tests.integration.checkpoints.gated import GatedBus, gate_appends, gated_s3

from everstep.agent import __main__ as agent_program
from everstep.agent.settings import AgentSettings
from everstep.checkpoint_registry import __main__ as registry_program
from everstep.eventstore.postgres import PostgresStore

TORCH_RANK = ("--preload", "", "--run", "tests.integration.checkpoints.torch_rank:run")


async def agent() -> None:
    """Run the agent, with ranks that need no torch."""
    agent_program.S3Store = gated_s3("agent")
    agent_program.NatsBus = GatedBus
    await agent_program.run(AgentSettings(), fork_arguments=TORCH_RANK)


async def registry() -> None:
    """Run the registry."""
    registry_program.S3Store = gated_s3("registry")
    gate_appends(PostgresStore, "registry")
    await registry_program.main()


PROGRAMS = {"agent": agent, "registry": registry}
