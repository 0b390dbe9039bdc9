"""``python -m everstep.agent`` with ranks that need no torch."""

from __future__ import annotations

import asyncio
import logging

from tests.integration.agent.harness import FAKE_RANK

from everstep.agent.__main__ import run
from everstep.agent.settings import AgentSettings

if __name__ == "__main__":
    logging.basicConfig(level="INFO")
    asyncio.run(run(AgentSettings(), fork_arguments=FAKE_RANK))
